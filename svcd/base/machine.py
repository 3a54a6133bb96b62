"""Memory and cores, file descriptors and files of this process, within the limits of the system; and how the process ends.

A client connection takes one file descriptor, a reader of an SQLite file three (the file, its write-ahead log and the shared
memory of that); everything else fits in RESERVED.
"""
from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

LARGE_BLOCK = 1 << 20  # bytes
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")  # the cgroup of this process
SCHEDULING = Path("/proc/self/schedstat")  # of the main thread, in nanoseconds: how long it ran, how long it waited for a core
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h

# Measured: 18 at rest with two listening sockets; the start of an indexing process takes 6 and keeps 2; three concurrent readers
# of the task queue take 6; an incoming payload takes 1.
RESERVED = 32
PER_READER = 3
# With fewer of these, requests would wait for each other all the time.
LEAST_CONNECTIONS, LEAST_READERS = 8, 3
NEEDED = RESERVED + LEAST_CONNECTIONS + LEAST_READERS * PER_READER
MOST_CONNECTIONS = 10_000
_UNLIMITED = 1 << 20

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def cores() -> int:
    """Return the number of cores that this process may use, at least 1."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def core_times(scheduling: Path = SCHEDULING) -> tuple[int, int]:
    """Return the nanoseconds that the main thread ran, and that it waited for a core; zeros where the system does not tell."""
    try:
        ran, waited, _ = map(int, scheduling.read_text().split())
    except (OSError, ValueError):  # not Linux
        return 0, 0
    return ran, waited


def slowdown(before: tuple[int, int] = (0, 0), scheduling: Path = SCHEDULING) -> float:
    """Return how many times longer the main thread took because it waited for cores. before: core_times() at the beginning."""
    ran, waited = (now - then for now, then in zip(core_times(scheduling), before))
    return 1 + waited / ran if ran > 0 else 1.0


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


def limit_malloc() -> None:
    """Make malloc return large blocks to the system when they are freed, and use one arena for all threads that start later.

    By default glibc raises the size of blocks that it returns up to 32 MB as soon as such blocks are freed: after two deletions
    of a million identifiers a daemon held 165 MB, now 43 MB. It also gives several threads an arena each, and keeps freed memory
    there: 60 MB after searches of eight clients, now 54 MB. The interpreter lock lets only one thread allocate at a time anyway.
    """
    _call_libc("mallopt", _M_MMAP_THRESHOLD, LARGE_BLOCK)
    _call_libc("mallopt", _M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Return freed memory of all malloc arenas to the system; glibc alone would keep most of it."""
    _call_libc("malloc_trim", 0)


def _call_libc(name: str, *arguments: int) -> None:
    """Call a function of glibc; a no-op with other C libraries."""
    try:
        import _ctypes  # 0.6 ms at the start; `ctypes` takes 2 ms more

        _ctypes.call_cdeclfunction(_ctypes.dlsym(_ctypes.dlopen("", os.RTLD_NOW), name), arguments)
    except (ImportError, OSError, AttributeError):  # not glibc
        pass


class TooFewDescriptors(RuntimeError):
    """The process may open fewer files than it needs."""


def allowed_descriptors() -> int:
    """Return the number of descriptors that the operating system allows this process."""
    try:
        import resource  # only on Unix
    except ImportError:
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, _UNLIMITED)


def check_descriptors(more: int = 0) -> None:
    """Raise TooFewDescriptors unless NEEDED descriptors are allowed. more: needed in addition, for child processes."""
    needed = NEEDED + more
    if allowed_descriptors() < needed:
        raise TooFewDescriptors(f"only {allowed_descriptors()} files may be open at once, and {needed} are needed: "
                                "raise the limit (`ulimit -n`, or `LimitNOFILE=` of the unit)")


def connection_limit() -> int:
    """Return the maximum number of connected clients: half of the descriptors that are not reserved."""
    return min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, (allowed_descriptors() - RESERVED) // 2))


def reader_limit() -> int:
    """Return the maximum number of open readers of SQLite files: they take the other half."""
    return max(LEAST_READERS, (allowed_descriptors() - RESERVED) // 2 // PER_READER)


def end_with_parent(parent: int) -> None:
    """Have this process killed when the thread that started it ends. Only on Linux; elsewhere nothing happens.

    parent: its process id, to notice that it ended before the request was made.
    """
    import ctypes  # 1 MB that the main process does without

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):  # not Linux: there the child notices the end of an inherited pipe
        return
    if os.getppid() != parent:
        os._exit(0)


def file_exists(path: Path | str) -> bool:
    """Return whether a file or folder exists. Raises OSError when the system cannot tell.

    From Python 3.14 on, Path.exists() returns False in that case: svcd would take a data folder on a failing or unreadable disk
    for a new one.
    """
    try:
        os.stat(path)
    except ValueError:  # not a valid file name: it has a zero byte, for example
        return False
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return False
    return True
