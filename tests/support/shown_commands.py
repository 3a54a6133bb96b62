"""Pages that show commands and what they print, followed as a reader follows them. In a page:

- a block ```console is `$ command` lines, each with what it prints. `...` stands for what differs from run to run. A command that
  ends with a backslash goes on in the next line. Variables that a command sets are there for the next ones.
- `<!-- the daemon of this page -->` before a block ```sh: its only line is how the daemon of the page is started.
- `<!-- setup: COMMAND -->` is a command that the text asks for in words.
- `<!-- file: NAME -->` before a block of any language: the block is a file of that name.
- A command that begins with `sleep`, or that prints a task that is not finished, is run again until it prints what is shown.
- localhost:7700 is the daemon; the port 9000 is another one, which is free.
- `<!-- shown: run by PATH -->` before a block ```console: the page is followed by a test of its own, not by test_readme.py.
"""
from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 10.0

_PART = re.compile(r"^```console\n(?P<console>.*?)^```|<!-- setup: (?P<setup>.*?) -->"
                   r"|<!-- file: (?P<name>[\w.-]+) -->\n```\w*\n(?P<content>.*?)^```", re.S | re.M)
_DAEMON = re.compile(r"^<!-- the daemon of this page -->\n```sh\nsvcd (.*)\n```$", re.M)
_OWN_TEST = re.compile(r"^<!-- shown: run by \S+ -->$", re.M)
_STATUSES = ('"status":"enqueued"', '"status":"processing"')


def steps(block: str) -> Iterator[tuple[str, str]]:
    """(command, output) of a block of `$ command` lines and what they print."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        found = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.S)
        assert found
        yield found[1], found[2].strip()


def fits(output: str, shown: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in shown.split("..."))
    return bool(re.fullmatch(pattern, output.strip(), re.S))


class Reader:
    """Somebody who types what a page says, in the folder of the daemon, which has the examples of the repository."""

    def __init__(self, folder: Path, port: int, variables: Mapping[str, str], ports: Mapping[str, str] | None = None) -> None:
        """ports: what the page names -> what stands for it here, beside the daemon."""
        self._folder = folder
        self._groups: list[int] = []
        (folder / "examples").symlink_to(ROOT / "examples")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._ports = {"localhost:7700": f"127.0.0.1:{port}", "9000": str(free.getsockname()[1]), **(ports or {})}
        (folder / "bin").mkdir()
        svcd = folder / "bin" / "svcd"
        svcd.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m svcd "$@"\n')
        svcd.chmod(0o755)
        # Without what `make` hands down, should it have started the tests: ARGS is not for the commands of a page.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "XDG_", "MAKE", "MFLAGS", "ARGS"))}
        self._environ = {
            **environ, "PATH": os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), environ["PATH"]]),
            "PYTHONPATH": str(ROOT), "HOME": str(folder), "SVC_HTTP_ADDR": f"127.0.0.1:{port}", "LC_ALL": "C.UTF-8", **variables,
        }

    def save(self, name: str, content: str) -> None:
        """Write a file of the page."""
        (self._folder / name).write_text(self._local(content))

    def type(self, command: str, shown: str | None) -> None:
        """Run a command. shown: what it must print, None for anything."""
        expected = None if shown is None else self._local(shown)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status, output = self._run(self._local(command))
            if expected is None or fits(output, expected):
                break
            is_early = command.startswith("sleep ") or any(text in output for text in _STATUSES)
            assert is_early and time.monotonic() < deadline, \
                f"{command}\nprinted {output}\nnot     {shown}"
            time.sleep(0.02)  # a reader types slower than a task takes
        assert status == 0 or output.startswith("svcd: "), f"{command} ended with {status}: {output}"

    def leave(self) -> None:
        """End what runs in the background."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _local(self, text: str) -> str:
        for address, here in self._ports.items():
            text = text.replace(address, here)
        return text

    def _run(self, command: str) -> tuple[int, str]:
        script = f"set -a\n[ ! -f .variables ] || . ./.variables\n{command}\nstatus=$?\nexport -p > .variables\nexit $status"
        printed = self._folder / ".printed"  # not a pipe, which a command in the background would hold open
        with printed.open("wb") as stream:
            shell = subprocess.Popen(["sh", "-c", script], cwd=self._folder, env=self._environ, stdin=subprocess.DEVNULL,
                                     stdout=stream, stderr=stream, start_new_session=True)
        self._groups.append(shell.pid)
        return self._end_of(shell, printed), printed.read_text()

    def _end_of(self, shell: subprocess.Popen[bytes], printed: Path) -> int:
        """Wait for it; its status. printed: the file with what it prints."""
        return shell.wait(60)


def options_of(page: Path) -> list[str]:
    """The options with which the daemon of a page is started."""
    return [option for found in _DAEMON.findall(page.read_text()) for option in found.split()]


def has_own_test(page: Path) -> bool:
    """Is the page followed by another test than test_readme.py?"""
    return bool(_OWN_TEST.search(page.read_text()))


def parts_of(page: Path) -> list[re.Match[str]]:
    """The blocks of commands, files and unseen commands of a page, in their order."""
    text = page.read_text()
    parts = list(_PART.finditer(text))
    assert text.count("```console") == sum(part["console"] is not None for part in parts)
    return parts


def follow(page: Path, folder: Path, port: int, variables: Mapping[str, str] | None = None,
           ports: Mapping[str, str] | None = None) -> None:
    """Do what a page says in a folder, with a daemon that listens on a port; each command must print what is shown.

    variables: further ones of the environment. ports: see Reader.
    """
    reader = Reader(folder, port, variables or {}, ports)
    try:
        for part in parts_of(page):
            if part["name"]:
                reader.save(part["name"], part["content"])
            elif part["setup"]:
                reader.type(part["setup"], None)
            else:
                for command, shown in steps(part["console"]):
                    reader.type(command, shown)
    finally:
        reader.leave()
