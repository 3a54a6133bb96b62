"""A bell: rung by any thread, heard by one that waits for a descriptor.

So a thread can wait for something inside svcd and for its client at once, and needs not look again and again.
Refuses to know what it is rung for.
"""
from __future__ import annotations

import os
import threading

_PIECE = 4096


class WakeupPipe:
    """Readable, as a descriptor, from the first set() to the next clear()."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lock = threading.Lock()  # over is_rung and the end: a closed number may be another file's
        self.is_set = False
        self._is_closed = False

    def fileno(self) -> int:
        """For poll()."""
        return self._reading

    def set(self) -> None:
        """Wake who waits; never blocks, and may be called after the end."""
        with self._lock:
            if not (self.is_set or self._is_closed):
                self.is_set = True
                os.write(self._writing, b"!")

    def clear(self) -> None:
        """To be called before looking at what it is rung for: what happens from here on rings again."""
        with self._lock:
            if self.is_set:
                os.read(self._reading, _PIECE)
                self.is_set = False

    def close(self) -> None:
        """Give the descriptors back."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._reading)
                os.close(self._writing)
