"""Which request thread takes what has arrived: the one that leads.

Python runs one thread at a time. Threads that read requests beside one that computes an answer take the interpreter from it at
each call of the system: with eight clients that searched at once, each answer had 16 changes of the thread, a seventh of its
processor time. So the thread that leads takes what has arrived, and answers it itself, one request after the other, as long as
that is quick. Another one takes the lead when it is given away, before what may take long, and when a turn has lasted for
PATIENCE_S.

Threads: any; `_changed` guards everything.
"""
from __future__ import annotations

import threading
import time

# So long a turn keeps the lead: longer than nearly every search takes, too short to be noticed by who waits behind it.
PATIENCE_S = 0.02
# One of the threads that wait looks after the turns, until there was none for so long.
_WATCHED_S = 1.0


class Lead:
    """The lead among the threads of a server."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._holder: int | None = None  # identity of the thread that leads
        self._turn_began: float | None = None  # monotonic seconds; None while the thread that leads has nothing to answer
        self._watched_until = float("-inf")
        self._is_watched = False  # a thread that waits looks again by itself

    def take(self) -> None:
        """Wait until this thread leads, which it may do already. A turn of it ends."""
        thread = threading.get_ident()
        with self._changed:
            while self._holder not in (None, thread) and self._left_s() > 0:
                self._wait()
            self._holder, self._turn_began = thread, None

    def begin_turn(self) -> None:
        """This thread, which leads, has something to answer."""
        with self._changed:
            self._turn_began = now = time.monotonic()
            self._watched_until = now + _WATCHED_S
            if not self._is_watched:
                self._changed.notify()  # so that one looks after this turn

    def give_away(self) -> None:
        """Let another thread lead, if this one does."""
        thread = threading.get_ident()
        if self._holder != thread:  # looked at without the lock: only this thread makes itself the holder
            return
        with self._changed:
            if self._holder == thread:
                self._holder = None
                self._changed.notify()

    def _left_s(self) -> float:
        """How long the turn may still keep the lead."""
        return PATIENCE_S if self._turn_began is None else self._turn_began + PATIENCE_S - time.monotonic()

    def _wait(self) -> None:
        """Wait for a change, with the lock; the first that waits looks again by itself."""
        if self._is_watched or time.monotonic() > self._watched_until:
            self._changed.wait()
            return
        self._is_watched = True
        try:
            self._changed.wait(self._left_s())
        finally:
            self._is_watched = False
