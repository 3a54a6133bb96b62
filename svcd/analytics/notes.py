"""What a value of a request can add to a figure of the usage report.

Knows the ways of counting; refuses to know what is counted, and by which route.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcd.analytics.figures import State

FigureUpdate = Callable[[State, Any], None]  # what a value adds
# Not a figure: (figure, name) of names that the request at hand mentions, to be told apart and dropped.
NAMES = "names"


def is_given(figure: str) -> FigureUpdate:
    """The member is there, and says something."""
    def note(state: State, value: Any) -> None:
        state[figure] = True

    return note


def is_not(figure: str, default: Any) -> FigureUpdate:
    """The member is not what it is without being given."""
    def note(state: State, value: Any) -> None:
        if value != default:
            state[figure] = True

    return note


def largest(figure: str, measure: Callable[[Any], int] = int) -> FigureUpdate:
    """The largest so far."""
    def note(state: State, value: Any) -> None:
        state[figure] = max(state[figure], measure(value))

    return note


def average(figure: str, measure: Callable[[Any], int] = len) -> FigureUpdate:
    """One more part of a mean: by default, of how many elements there are."""
    def note(state: State, value: Any) -> None:
        parts = state[figure]
        parts[0] += measure(value)
        parts[1] += 1

    return note


def word(figure: str) -> FigureUpdate:
    """One more use of a word; of those that the figure does not know, only that there are some is told."""
    def note(state: State, value: str) -> None:
        counts = state[figure]
        counts[value] = counts.get(value, 0) + 1

    return note


def words(figure: str) -> FigureUpdate:
    """One more use of each."""
    add = word(figure)

    def note(state: State, value: Sequence[str]) -> None:
        for one in value:
            add(state, one)

    return note


def one_more(figure: str) -> FigureUpdate:
    """Count it, whatever it is."""
    def note(state: State, value: Any) -> None:
        state[figure] += 1

    return note


def distinct(figure: str) -> FigureUpdate:
    """Count it unless it was met before."""
    def note(state: State, value: Any) -> None:
        state.setdefault(NAMES, []).append((figure, value))

    return note


def each_of(*notes: FigureUpdate) -> FigureUpdate:
    """What all of them add."""
    def note(state: State, value: Any) -> None:
        for each in notes:
            each(state, value)

    return note


def last(figure: str, measure: Callable[[Any], Any] = lambda value: value) -> FigureUpdate:
    """In place of what was before."""
    def note(state: State, value: Any) -> None:
        state[figure] = measure(value)

    return note
