"""A process that ends with the one that started it, however that ends.

Knows how Linux is asked for that; elsewhere the end of an inherited pipe has to do. Refuses to know who it is.
"""
from __future__ import annotations

import ctypes
import os
import signal

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
