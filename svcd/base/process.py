"""How many descriptors this process may have, and who gets how many of them.

A connection takes one; a reader of a file three: the file, its log, and the memory that all readers of it share. What
is neither takes RESERVED. Refuses to know who opens what.
"""
from __future__ import annotations

import ctypes
import os
import signal

# Measured: 18 at rest with two listening sockets; starting an indexing process 6, two of which stay; three readers of the
# queue at once 6; a payload that comes in 1.
RESERVED = 32
PER_READER = 3
# With fewer of these, requests would wait for each other all the time.
LEAST_CONNECTIONS, LEAST_READERS = 8, 3
NEEDED = RESERVED + LEAST_CONNECTIONS + LEAST_READERS * PER_READER
MOST_CONNECTIONS = 10_000
_UNLIMITED = 1 << 20


class TooFewDescriptors(RuntimeError):
    """The process may open fewer files than it needs."""


def allowed_descriptors() -> int:
    """How many descriptors the process may have."""
    try:
        import resource  # not everywhere
    except ImportError:
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, _UNLIMITED)


def check_descriptors(more: int = 0) -> None:
    """Raises TooFewDescriptors. more: descriptors that are needed besides the usual ones, for processes."""
    needed = NEEDED + more
    if allowed_descriptors() < needed:
        raise TooFewDescriptors(f"only {allowed_descriptors()} files may be open at once, and {needed} are needed: "
                                "raise the limit (`ulimit -n`, or `LimitNOFILE=` of the unit)")


def connection_limit() -> int:
    """How many clients may be connected: half of what is not reserved."""
    return min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, _free() // 2))


def reader_limit() -> int:
    """How many readers of files may be open: from the other half."""
    return max(LEAST_READERS, _free() // 2 // PER_READER)


def _free() -> int:
    return allowed_descriptors() - RESERVED


# A process that ends with the one that started it, however that ends.
#
# Knows how Linux is asked for that; elsewhere the end of an inherited pipe has to do. Refuses to know who it is.


_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """From here on, be killed when the thread that started this process ends.

    parent: pid of its process, to notice that it died before we could ask.
    """
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):  # not Linux
        return
    if os.getppid() != parent:
        os._exit(0)
