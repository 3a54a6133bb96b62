"""Which SQLite connections nobody has closed, and where each was opened.

Python 3.13 warns when it collects one, in whatever test that happens; this says it on every version, and of whom it is.
"""
from __future__ import annotations

import sqlite3
import sys
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """What can be closed, more than once."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
ROOT = Path(__file__).resolve().parents[2]
_SHOWN, _SHOWN_FRAMES = (f"{ROOT}/svcd/", f"{ROOT}/tests/"), 4
_connect = sqlite3.connect
_opened: dict[int, str] = {}  # number of an open connection -> where it was opened
_numbers = count(1)
_held: list[Closable] = []


def watch() -> None:
    """From now on, know all connections that this process opens."""
    sqlite3.connect = connect  # type: ignore[assignment]


def connect(*args: Any, factory: type[sqlite3.Connection] = sqlite3.Connection, **kwargs: Any) -> sqlite3.Connection:
    """As sqlite3.connect()."""
    return _connect(*args, factory=_watched(factory), **kwargs)


def until_the_end_of_the_test(opened: C) -> C:
    """Something that has close(), closed when the test ends, or by close_held() before."""
    _held.append(opened)
    return opened


def close_held() -> None:
    """Close what until_the_end_of_the_test() holds."""
    while _held:
        _held.pop().close()


def unclosed() -> dict[int, str]:
    """The connections that nobody has closed: number -> where it was opened. One that was collected is still there."""
    return dict(_opened)


@cache
def _watched(factory: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
    class Watched(factory):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._number = next(_numbers)
            _opened[self._number] = _place()

        def close(self) -> None:
            super().close()
            _opened.pop(self._number, None)

    return Watched


def _place() -> str:
    places, frame = [], sys._getframe(1)
    while frame is not None and len(places) < _SHOWN_FRAMES:  # traceback.extract_stack() would look at the file of every frame
        if frame.f_code.co_filename.startswith(_SHOWN) and frame.f_code.co_filename != __file__:
            places.append(f"{frame.f_code.co_filename.removeprefix(f'{ROOT}/')}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(places)
