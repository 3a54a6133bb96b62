"""A clone of the repository and a machine without anything, on which the pages' commands set up, start and install svcd."""
from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.shown_commands import ROOT, Reader

PATIENCE_S = 60.0
# What a program says that would run on.
_LISTENS = re.compile(r"address +https?://.*\n(?:.*\n)*.*pid|Serving HTTP on")
_SYSTEM = re.compile(r"(?<![\w.~])/(?=(?:etc|opt|usr|var)/)")
_STAND_INS = {"bin": ("svcd", "sudo", "python", "python3", "npm", "apt-get", "systemctl"), ".venv/bin": ("svcd", "python", "pip", "ruff", "mypy")}


class Clone(Reader):
    """Its folder is the clone. /etc, /opt, /usr and /var of the pages are in `root`; tests/support/stand_ins.py has the commands that
    do something else than they would do. A program that listens is ended, and that is its success."""

    def __init__(self, folder: Path, port: int, variables: Mapping[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, port, {"PYTHONUNBUFFERED": "1", **variables, "PYTHONPATH": ""})
        for name in ("Makefile", "pyproject.toml", "requirements-dev.txt", "tests"):
            (folder / name).symlink_to(ROOT / name)
        for name in ("dist", "root/etc/systemd/system", "root/opt", "root/usr/local/bin"):
            (folder / name).mkdir(parents=True)
        for place, commands in _STAND_INS.items():
            (folder / place).mkdir(parents=True, exist_ok=True)
            for command in commands:
                script = folder / place / command
                script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.support.stand_ins "{folder}" {command} "$@"\n')
                script.chmod(0o755)
        (folder / ".curlrc").write_text("fail\nsilent\nshow-error\n")
        for name in ("ready-to-run", "ready-to-test"):
            (folder / ".venv" / name).touch()

    def do(self, commands: str) -> str:
        """Run lines, which must all succeed; what they print."""
        # The shell outlives what is ended, and waits for it.
        status, printed = self._run(f"set -e\ntrap : TERM\n{self._local(commands)}")
        assert status == 0, f"{commands}ended with {status}: {printed}"
        return printed

    def _local(self, text: str) -> str:
        return _SYSTEM.sub(f"{self._folder}/root/", super()._local(text))

    def _end_of(self, shell: subprocess.Popen[bytes], printed: Path) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while shell.poll() is None:
            if _LISTENS.search(printed.read_text()):
                os.killpg(shell.pid, signal.SIGTERM)
                shell.wait(PATIENCE_S)
                return 0
            assert time.monotonic() < deadline, printed.read_text()
            time.sleep(0.01)
        return shell.returncode


@contextmanager
def cloned(folder: Path, variables: Mapping[str, str], *made: Path) -> Iterator[Clone]:
    """A clone for the length of a block. made: what is in dist/."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    clone = Clone(folder, port, variables)
    for path in made:
        (folder / "dist" / path.name).symlink_to(path)
    try:
        yield clone
    finally:
        clone.leave()
