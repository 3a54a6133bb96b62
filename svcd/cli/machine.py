"""What this machine has: memory and cores, within the limits set for this process.

Knows where Linux says so; refuses to know what they are used for.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


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
