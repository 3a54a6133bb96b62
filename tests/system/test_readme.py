"""The README shows what happens: its commands run against a daemon, their output is what it prints.

`...` in the output stands for what differs from run to run.
"""
from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"<!-- shown: .*?-->\n```console\n(.*?)```", README, re.S)
PATIENCE_S = 10.0


def steps(block: str) -> Iterator[tuple[str, str]]:
    """(command, output) of a block of `$ command` lines and what they print."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip()


def fits(output: str, shown: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in shown.split("..."))
    return bool(re.fullmatch(pattern, output.strip(), re.S))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands need curl")
def test_what_the_readme_shows_happens(tmp_path: Path) -> None:
    assert BLOCKS
    daemon = Daemon(tmp_path).start()
    try:
        for command, shown in (step for block in BLOCKS for step in steps(block)):
            here = command.replace("localhost:7700", f"127.0.0.1:{daemon.port}")
            deadline = time.monotonic() + PATIENCE_S
            while True:
                output = subprocess.run(here, shell=True, cwd=ROOT, capture_output=True, text=True, check=True).stdout
                # A reader types slower than a task takes; a test does not.
                if fits(output, shown) or time.monotonic() > deadline or '"status":"enqueued"' not in output \
                        and '"status":"processing"' not in output:
                    break
            assert fits(output, shown), f"{command}\nprinted {output}\nnot     {shown}"
    finally:
        daemon.stop()


def test_the_readme_names_both_commands() -> None:
    assert "\nmake run\n" in README and "\nmake test\n" in README


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "svcd").iterdir():
        if path.suffix == ".py" and not path.name.startswith("__") or (path / "__init__.py").exists():
            assert f"| `{path.name}` |" in page, f"the table of packages leaves out {path.name}"
