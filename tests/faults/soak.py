"""`make soak`: the tests of this folder in their long form, and the table of what they measured.

    python -m tests.faults.soak PATHS [options of pytest, as -k histories]

`make soak-cluster` does the same with the tests of clusters, which `make soak` leaves out.

The exit status is 1 when a promise did not hold. A row that says `skipped` was not tried: what it needs is not installed.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_HELD = {"passed": "yes", "failed": "NO", "skipped": "skipped"}
_HEAD = ("promise", "limit", "measured", "held")


def main(args: Sequence[str]) -> int:
    """Run them, print the table; the exit status."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        figures.touch()
        environ = {**os.environ, "SVCD_SOAK": "1", "SVCD_FIGURES": str(figures)}
        status = subprocess.call([sys.executable, "-m", "pytest", "-v", *args], cwd=ROOT, env=environ)
        rows = [json.loads(line) for line in figures.read_text().splitlines()]
    print(table(rows))
    print(f"{len(rows)} figures in {(time.monotonic() - begin) / 60:.0f} minutes")
    return 1 if status or not rows else 0


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of the file of figures as a table in Markdown, aligned for a terminal."""
    cells = [_HEAD, *((row["promise"], row["limit"], row["measured"], _HELD[row["outcome"]]) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
