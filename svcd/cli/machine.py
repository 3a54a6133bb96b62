"""What this machine has: memory and cores, within the limits set for this process.

Knows where Linux says so, and how to give memory back; refuses to know what it is used for.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LARGE_BLOCK = 1 << 20  # bytes

_CGROUPS = Path("/sys/fs/cgroup")
_M_MMAP_THRESHOLD = -3  # malloc.h


def cores() -> int:
    """Cores this process may run on, at least 1."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def memory() -> int | None:
    """Bytes of memory this process may count on; None where it cannot be known."""
    known = [size for size in (_physical(), *_cgroup_limits()) if size]
    return min(known, default=None)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _cgroup_limits() -> Iterator[int]:
    """The limits of containers and units (cgroup v2): of this process' own group and of all around it."""
    own = _own_cgroup()
    if own is None:
        return
    folder = _CGROUPS / own
    for group in (folder, *folder.parents):
        if group == _CGROUPS.parent:
            return
        limit = _limit(group / "memory.max")
        if limit:
            yield limit


def _own_cgroup() -> str | None:
    """The path of this process' group below the root of groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return None
    return next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), None)


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def give_back_large_blocks() -> None:
    """Have each block of a MB or more mapped by itself, so that it goes back to the system when it is freed.

    Left alone, glibc raises this bound to 32 MB with the first large bodies: what was freed then lies in the arenas
    of the threads. After two deletions of a million identifiers a daemon kept 165 MB, and keeps 43.
    """
    _call_libc("mallopt", _M_MMAP_THRESHOLD, LARGE_BLOCK)


def give_back_memory() -> None:
    """Return to the system what has been freed inside the arenas of all threads; glibc alone would keep most of it."""
    _call_libc("malloc_trim", 0)


def _call_libc(name: str, *arguments: int) -> None:
    """Call a function of glibc; elsewhere, do nothing."""
    import ctypes  # 2 ms that a start need not wait for

    try:
        getattr(ctypes.CDLL(None), name)(*arguments)
    except (OSError, AttributeError):  # not glibc
        pass
