"""Tracing spans: the durations of the steps of one search (docs/http.md).

Code names the step that it begins; the recorder of this thread, if it has one, measures the step. Usually no recorder runs,
and a step costs one read of a context variable. No function has to take a recorder as an argument.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar

_SEPARATOR = " > "


class Recorder:
    """Adds up the durations of steps. durations: path of names -> sum in units of the clock, in the order of their ends."""

    def __init__(self, clock: Callable[[], int], durations: Mapping[str, int] | None = None) -> None:
        self.durations = dict(durations or {})
        self._clock = clock
        self._open: list[tuple[str, int]] = []  # path and start of each group that is entered
        self._step: tuple[str, int] | None = None

    def begin(self, name: str) -> None:
        """Begin a step; it ends with the next one or with its group."""
        self.end()
        self._step = self._path(name), self._clock()

    def end(self) -> None:
        """End the current step, if there is one."""
        if self._step is not None:
            step, self._step = self._step, None
            self._add(*step)

    def enter(self, name: str) -> None:
        """Open a group: the following steps are parts of it."""
        self.end()
        self._open.append((self._path(name), self._clock()))

    def leave(self) -> None:
        """Close the group that was opened last."""
        self.end()
        self._add(*self._open.pop())

    def _path(self, name: str) -> str:
        return f"{self._open[-1][0]}{_SEPARATOR}{name}" if self._open else name

    def _add(self, path: str, started: int) -> None:
        # Removed first, so that a group that ends a second time comes after its parts.
        self.durations[path] = self.durations.pop(path, 0) + self._clock() - started


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def recorder() -> Recorder | None:
    """Return the recorder of the current search, None when it is not measured."""
    return _recorder.get()


@contextmanager
def recording(measuring: Recorder | None) -> Iterator[None]:
    """Measure the steps of this block with a recorder, or not at all (None)."""
    token = _recorder.set(measuring)
    try:
        yield
    finally:
        _recorder.reset(token)


def begin(name: str) -> None:
    """Begin a step of the current search; it ends with the next one or with its group."""
    if (measuring := _recorder.get()) is not None:
        measuring.begin(name)


def end() -> None:
    """End the current step; the code after it belongs only to the group."""
    if (measuring := _recorder.get()) is not None:
        measuring.end()


class span(ContextDecorator):
    """A group of steps: a `with` block, or a decorated function."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if (measuring := _recorder.get()) is not None:
            measuring.enter(self._name)

    def __exit__(self, *_: object) -> None:
        if (measuring := _recorder.get()) is not None:
            measuring.leave()
