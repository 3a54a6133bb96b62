"""Which step a search is in, told to who measures it (relevance.md 11.3).

Whoever does something says so here, instead of taking a recorder through all signatures in between for the one search
in many that is measured; for the others it costs a look at None. Knows how steps lie in each other and are added up;
refuses to know the clock, and how durations are shown.
Threads: each has its own recorder.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar

_SEPARATOR = " > "


class Recorder:
    """How long steps took. durations: path of names -> sum, in the unit of the clock, in the order in which they ended."""

    def __init__(self, clock: Callable[[], int], durations: Mapping[str, int] | None = None) -> None:
        self.durations = dict(durations or {})
        self._clock = clock
        self._open: list[tuple[str, int]] = []  # path and start of each group that is entered
        self._step: tuple[str, int] | None = None

    def begin(self, name: str) -> None:
        """The step before is over, this one lasts until the next one, or the end of the group."""
        self.end()
        self._step = self._path(name), self._clock()

    def end(self) -> None:
        """The step is over, if there is one."""
        if self._step is not None:
            step, self._step = self._step, None
            self._add(*step)

    def enter(self, name: str) -> None:
        """What follows is part of this group."""
        self.end()
        self._open.append((self._path(name), self._clock()))

    def leave(self) -> None:
        """The group that was entered last is over."""
        self.end()
        self._add(*self._open.pop())

    def _path(self, name: str) -> str:
        return f"{self._open[-1][0]}{_SEPARATOR}{name}" if self._open else name

    def _add(self, path: str, started: int) -> None:
        # Taken out first: what ends again stands behind what it holds.
        self.durations[path] = self.durations.pop(path, 0) + self._clock() - started


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def recorder() -> Recorder | None:
    """Who measures this search; None for nobody."""
    return _recorder.get()


@contextmanager
def recording(measuring: Recorder | None) -> Iterator[None]:
    """Steps in this block are told to a recorder; None for nobody."""
    token = _recorder.set(measuring)
    try:
        yield
    finally:
        _recorder.reset(token)


def begin(name: str) -> None:
    """This step lasts until the next one, or the end of its group."""
    if (measuring := _recorder.get()) is not None:
        measuring.begin(name)


def end() -> None:
    """What follows belongs to no step but its group."""
    if (measuring := _recorder.get()) is not None:
        measuring.end()


class span(ContextDecorator):
    """A group of steps: a block, or all that a function does."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if (measuring := _recorder.get()) is not None:
            measuring.enter(self._name)

    def __exit__(self, *_: object) -> None:
        if (measuring := _recorder.get()) is not None:
            measuring.leave()
