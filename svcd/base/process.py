"""Limits and life of a process: how many file descriptors it may have, and that it ends with its parent.

A client connection takes one descriptor, a reader of an SQLite file three (the file, its write-ahead log and the shared memory
of that); everything else fits in RESERVED.
"""
from __future__ import annotations

import os
import signal

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
    return min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, _unreserved() // 2))


def reader_limit() -> int:
    """Return the maximum number of open readers of SQLite files: they take the other half."""
    return max(LEAST_READERS, _unreserved() // 2 // PER_READER)


def _unreserved() -> int:
    return allowed_descriptors() - RESERVED


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
