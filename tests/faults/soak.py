"""`make soak`: the tests of this folder in their long form, and the table of what they measured.

    python -m tests.faults.soak PATHS [options of pytest, as -k histories]

`make soak-cluster` does the same with the tests of clusters, which `make soak` leaves out. Those that measure neither times nor memory
run first, fuzzing beside the others; with them the properties that hypothesis checks in the whole suite, with other examples each time.
Other seeds are chosen, too, unless SVCD_FAULTS_SEED names one: the first and the last line say which.

The exit status is 1 when a promise did not hold. A row that says `skipped` was not tried: what it needs is not installed.
"""
from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_HELD = {"passed": "yes", "failed": "NO", "skipped": "skipped"}
FAULTS = "tests/faults"
FUZZING = (f"{FAULTS}/test_fuzzing.py", f"{FAULTS}/test_odd_answers.py")
UNTIMED = ("tests/api/test_conditional_requests.py", *(f"{FAULTS}/test_{name}.py" for name in (
    "damage", "full_disk", "secrets", "smuggling", "torn_writes", "upgrades_and_imports", "who_sees_what")))
PROPERTIES = ("tests", "-m", "hypothesis", "--ignore", FAULTS)
_NO_TESTS = 5  # the status of pytest when options choose none
_HEAD = ("promise", "limit", "measured", "held")


def main(args: Sequence[str]) -> int:
    """Run them, print the table; the exit status."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        figures.touch()
        seed = os.environ.get("SVCD_FAULTS_SEED") or str(random.randrange(10**6))
        environ = {**os.environ, "SVCD_SOAK": "1", "SVCD_FIGURES": str(figures), "SVCD_FAULTS_SEED": seed}
        print(f"SVCD_FAULTS_SEED={seed}", flush=True)  # now, too: a run that is ended early prints no table
        status = max([_status(at_once, environ) for at_once in runs(args)])
        rows = [json.loads(line) for line in figures.read_text().splitlines()]
    print(table(sorted(rows, key=lambda row: row["test"].partition("::")[0])))
    skipped = sum(row["outcome"] == "skipped" for row in rows)
    print(f"{len(rows)} rows, {skipped} skipped, in {(time.monotonic() - begin) / 60:.0f} minutes, SVCD_FAULTS_SEED={seed}")
    return 1 if status or not rows else 0


def runs(args: Sequence[str]) -> list[list[list[str]]]:
    """What is run one after the other: each time the arguments of one pytest, or of two at once."""
    if FAULTS not in args:
        return [[[*args]]]
    options = [each for each in args if each != FAULTS]
    ignored = [option for path in FUZZING + UNTIMED for option in ("--ignore", path)]
    return [[[*FUZZING, *options], [*UNTIMED, *options]], [[*PROPERTIES, *options]], [[FAULTS, *options, *ignored]]]


def _status(at_once: Sequence[Sequence[str]], environ: Mapping[str, str]) -> int:
    """Run pytest with each of these arguments, at once; the worst exit status, 0 for none."""
    started = [subprocess.Popen([sys.executable, "-m", "pytest", "-v", *args], cwd=ROOT, env=environ) for args in at_once]
    return max(0 if status == _NO_TESTS else abs(status) for status in [each.wait() for each in started])


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of the file of figures as a table in Markdown, aligned for a terminal."""
    cells = [_HEAD, *((row["promise"], row["limit"], row["measured"], _HELD[row["outcome"]]) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
