"""Where answers are taken by their clients: those that one send did not do for, and those too large to be made at once.

One thread makes the next piece of whichever client has taken the last one, in turns, so that such answers hold none of
the threads that answer requests, and that all of them together take no more of the interpreter than one of them. Refuses
to know what an answer is.
"""
from __future__ import annotations

import threading
from collections.abc import Callable

from svcd.http.poller import Pollable, Poller


class DeliveryThread:
    """A parking with a thread of its own, started with the first guest. turn: called with each whose event is there."""

    def __init__(self, turn: Callable[[Pollable], None], stack_size: int) -> None:
        self._turn = turn
        self._stack_size = stack_size
        self.parking = Poller()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # over _thread

    def park(self, guest: Pollable, events: int) -> None:
        """As Parking.park(). Raises RuntimeError when there is no thread to be had, and nobody was parked."""
        if self._thread is None:
            self._start()
        self.parking.park(guest, events)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._work, name="http-lane", daemon=True)
            before = threading.stack_size(self._stack_size)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
            self._thread = thread

    def _work(self) -> None:
        while (guest := self.parking.next()) is not None:
            self._turn(guest)

    def close(self, patience_s: float) -> None:
        """End the thread, and give back what is held of the system if it ends in time."""
        self.parking.close()
        if self._thread:
            self._thread.join(patience_s)
        if not self._thread or not self._thread.is_alive():
            self.parking.release()
