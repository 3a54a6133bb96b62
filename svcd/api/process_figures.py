"""What the system says of this process: time, memory, files, threads.

Knows where Linux says so (proc(5)); elsewhere there are no such figures. Refuses to know what they are shown for.
"""
from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessFigures(NamedTuple):
    """Times in seconds, started_at since 1970, memory in bytes."""

    cpu_s: float
    most_files: float
    open_files: int
    resident: int
    started_at: float
    threads: int
    virtual: int


def process_figures(proc: Path = _PROC) -> ProcessFigures | None:
    """The figures of this process; None where the system does not tell them."""
    try:
        # The name of the program, in parentheses, may hold blanks; field 3 of proc(5) follows it.
        fields = (proc / "self/stat").read_text().rpartition(")")[2].split()
        open_files = len(list((proc / "self/fd").iterdir()))
        booted_at = next(int(line.split()[1]) for line in (proc / "stat").read_text().splitlines()
                         if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    user, system, threads, started, virtual, pages = (int(fields[number - 3]) for number in (14, 15, 20, 22, 23, 24))
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessFigures(
        cpu_s=(user + system) / ticks, most_files=_most_files(), open_files=open_files,
        resident=pages * os.sysconf("SC_PAGE_SIZE"), started_at=booted_at + started / ticks, threads=threads,
        virtual=virtual,
    )


def resident_bytes(proc: Path = _PROC) -> int | None:
    """The resident memory of this process; None where the system does not tell it."""
    try:
        return int((proc / "self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _most_files() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft
