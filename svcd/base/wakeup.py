"""A pipe by which any thread wakes one that waits in poll(): for sockets and for something inside svcd at once."""
from __future__ import annotations

import os
import threading

_PIECE = 4096


class WakeupPipe:
    """A descriptor that is readable from set() until clear()."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lock = threading.Lock()  # guards is_set and close(): the number of a closed descriptor may belong to another file
        self.is_set = False
        self._is_closed = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._reading

    def set(self) -> None:
        """Make it readable. Never blocks; does nothing after close()."""
        with self._lock:
            if not (self.is_set or self._is_closed):
                self.is_set = True
                os.write(self._writing, b"!")

    def clear(self) -> None:
        """Make it unreadable. Call this before looking for work: what arrives later sets it again."""
        with self._lock:
            if self.is_set:
                os.read(self._reading, _PIECE)
                self.is_set = False

    def close(self) -> None:
        """Close both ends of the pipe."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._reading)
                os.close(self._writing)
