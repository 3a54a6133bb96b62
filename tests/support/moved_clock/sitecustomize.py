"""Moves the clock of a process on demand: by the seconds in the file that MOVED_CLOCK names. Loaded by Python from PYTHONPATH."""
import os
import time

_file = os.environ.get("MOVED_CLOCK")
_time, _time_ns = time.time, time.time_ns


def _offset() -> float:
    try:
        with open(_file or "") as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


if _file:
    time.time = lambda: _time() + _offset()
    time.time_ns = lambda: _time_ns() + int(_offset() * 1e9)
