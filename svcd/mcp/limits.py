"""CallLimit: how many calls an assistant may make in a minute."""
from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

_WINDOW_S = 60.0


class CallLimit:
    """Counts the calls of each bearer in the current minute. Thread-safe. most: calls in a minute."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        self._lock = threading.Lock()  # guards the window and its counts
        self._window = -1
        self._calls = Counter[int]()

    def wait_s(self, bearer: str) -> int:
        """Count a call and return 0, or, if the bearer has made all calls of this minute, the seconds until the next one."""
        window, passed_s = divmod(self._clock(), _WINDOW_S)
        key = hash(bearer)  # secrets are not kept
        with self._lock:
            if window != self._window:
                self._window = int(window)
                self._calls.clear()
            self._calls[key] += 1
            return 0 if self._calls[key] <= self.most else max(1, round(_WINDOW_S - passed_s))
