"""Memory and cores of this machine, within the limits set for this process; how to return memory to the system."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LARGE_BLOCK = 1 << 20  # bytes
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")  # the cgroup of this process
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def cores() -> int:
    """Return the number of cores that this process may use, at least 1."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def memory(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Return the bytes of memory available to this process: physical memory or the cgroup limit; None if unknown."""
    known = [size for size in _cgroup_limits(cgroups, membership) if size]
    try:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        pass  # unknown
    return min(known, default=None)


def _cgroup_limits(cgroups: Path, membership: Path) -> Iterator[int]:
    """Yield the memory limits (cgroup v2) of the group of this process and of its ancestors, as containers and systemd set
    them."""
    try:
        lines = membership.read_text().splitlines()
    except (OSError, ValueError):
        return
    for own in [line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")][:1]:
        folder = cgroups / own
        for group in (folder, *folder.parents):
            if group == cgroups.parent:
                return
            try:
                text = (group / "memory.max").read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield int(text)


def give_back_large_blocks() -> None:
    """Make malloc use mmap for blocks of 1 MB or more, so that they return to the system when freed.

    By default glibc raises this threshold up to 32 MB as soon as such blocks are freed, and keeps them in the arenas of the
    threads: after two deletions of a million identifiers a daemon held 165 MB, now 43 MB.
    """
    _call_libc("mallopt", _M_MMAP_THRESHOLD, LARGE_BLOCK)


def use_one_arena() -> None:
    """Have all threads share one arena of malloc, except threads that already have one.

    By default glibc gives several threads an arena each and keeps freed memory there; because of the interpreter lock only one of
    them allocates at a time anyway.
    """
    _call_libc("mallopt", _M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Return freed memory of all malloc arenas to the system; glibc alone would keep most of it."""
    _call_libc("malloc_trim", 0)


def _call_libc(name: str, *arguments: int) -> None:
    """Call a function of glibc; a no-op with other C libraries."""
    import ctypes  # 2 ms: not at the start

    try:
        getattr(ctypes.CDLL(None), name)(*arguments)
    except (OSError, AttributeError):  # not glibc
        pass
