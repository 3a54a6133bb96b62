"""Replay the recorded answers of the reference engine, and keep the list of those that pass.

    python -m tests.conformance.ratchet            # replay everything, rewrite passing.txt
    python -m tests.conformance.ratchet search     # some groups; lines of the others stay
    python -m tests.conformance.ratchet --check    # those of passing.txt alone; status 1 if one does not pass any more

Knows where the recordings lie (`../shared/conformance`, beside the project) and how to play them against
the svcd of this tree; what a recording means is the replay tool's own.
"""
from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType, SimpleNamespace

from svcd.base import machine

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "conformance"
PASSING = Path(__file__).with_name("passing.txt")
# What is read while the next task runs shows the state before that task or after it, so a difference may be gone next time.
_FURTHER_TRIES = 6
# Scenario -> the difference that only says that the next task had or had not ended yet: a task or batch is read that a swap behind
# it renames, and how long the swap takes depends on the machine. The recorded batch keeps its name; with us a swap renames it, too.
_UNDECIDED = dict.fromkeys(("batches/batches__test_summarized_index_swap", "tasks/tasks__test_summarized_index_swap"), re.compile(
    r"^step \d+ GET (/tasks/2 \S*\s+\$\.indexUid: expected \S+ got \S+"
    r"|/batches/2 \S*(\s+\$\.stats\.indexUids\.[\w-]+: (missing, expected 1|not expected, got 1))+)$"))
# Its first word is not run (forked.py).
_SERVER = "svcd --log-level ERROR"


def recordings() -> dict[str, Path]:
    """Name of a scenario (`group/file`) -> its recording; empty where there are none."""
    return {f"{path.parent.name}/{path.stem}": path for path in sorted((SHARED / "recordings").glob("*/*.jsonl"))}


def passing() -> list[str]:
    """The scenarios that are known to pass."""
    return PASSING.read_text().split() if PASSING.exists() else []


def failures(names: Iterable[str], jobs: int | None = None) -> Iterator[tuple[str, str]]:
    """(name, first differences) of the scenarios that pass in none of some tries: some depend on who is faster.

    jobs: how many are played at once; no more than there are cores, as some make keys that expire a second after the start
    of their daemon. Those that fail are played again one at a time.
    """
    _tool()  # once, for all processes
    wanted = list(names)
    with (tempfile.TemporaryDirectory(prefix="svcd-replay-") as folder,
          ProcessPoolExecutor(jobs or os.cpu_count(), get_context("fork"), machine.end_with_parent, [os.getpid()]) as pool):
        play = partial(_differences, folder)
        suspects = [name for name, found in zip(wanted, pool.map(play, wanted)) if found]
        for name in suspects:
            found: list[str] = []
            if all(found := pool.submit(play, name).result() for _ in range(_FURTHER_TRIES)):
                yield name, "\n".join(found[:3])


def _differences(folder: str, name: str) -> list[str]:
    """Play a scenario once. folder: takes the data of its servers."""
    undecided = _UNDECIDED.get(name)
    found = _tool().play(SHARED / f"recordings/{name}.jsonl", _SERVER, folder, False)[-1]
    return [str(each) for each in found if not (undecided and undecided.match(str(each)))]


@cache
def _tool() -> ModuleType:
    from tests.conformance import forked  # loads svcd

    spec = importlib.util.spec_from_file_location("replay", SHARED / "replay.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.subprocess = SimpleNamespace(Popen=forked.Popen, TimeoutExpired=subprocess.TimeoutExpired)
    return module


def main(groups: list[str]) -> None:
    """Replay, print the differences, rewrite the list."""
    asked = [name for name in recordings() if not groups or name.split("/")[0] in groups]
    failed = dict(failures(asked))
    for name, found in failed.items():
        print(f"FAIL {name}\n    {found}")
    kept = [name for name in passing() if name not in asked]
    PASSING.write_text("".join(f"{name}\n" for name in sorted({*kept, *asked} - set(failed))))
    print(f"{len(asked) - len(failed)} of {len(asked)} pass")


def check() -> int:
    """Replay what passed, print the differences; 1 if there are some."""
    failed = dict(failures(passing()))
    for name, found in failed.items():
        print(f"{name}\n{found}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    main(sys.argv[1:])
