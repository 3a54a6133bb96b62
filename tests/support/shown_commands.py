"""Blocks of a page that show commands and their output, marked `<!-- shown: run by ... -->`, run as a reader runs them.

`...` in the output stands for what differs from run to run.
"""
from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

PATIENCE_S = 10.0
_BLOCK = re.compile(r"<!-- shown: .*?-->\n```console\n(.*?)```", re.S)


def blocks(page: Path) -> list[str]:
    """The marked blocks of a page, in their order."""
    return _BLOCK.findall(page.read_text())


def steps(block: str) -> Iterator[tuple[str, str]]:
    """(command, output) of a block of `$ command` lines and what they print."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip()


def fits(output: str, shown: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in shown.split("..."))
    return bool(re.fullmatch(pattern, output.strip(), re.S))


def check(page: Path, folder: Path, replaced: Mapping[str, str]) -> None:
    """Run the marked commands of a page in a folder; each must print what is shown. replaced: texts of commands, and what stands
    for them here, as an address."""
    found = blocks(page)
    assert found
    for command, shown in (step for block in found for step in steps(block)):
        here = command
        for theirs, ours in replaced.items():
            here = here.replace(theirs, ours)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            output = subprocess.run(here, shell=True, cwd=folder, capture_output=True, text=True, check=True).stdout
            # A reader types slower than a task takes; a test does not.
            if fits(output, shown) or time.monotonic() > deadline or '"status":"enqueued"' not in output \
                    and '"status":"processing"' not in output:
                break
        assert fits(output, shown), f"{command}\nprinted {output}\nnot     {shown}"
