"""Which slot of a call holds which variable: names are found once, before any run.

Knows that blocks hide and reveal names, and that a closure shares what it sees of the functions around it.
Functions see nothing but their parameters.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from svcd.engine.functions import limits
from svcd.engine.functions.faults import FunctionError, Position
from svcd.engine.functions.tokens import THIS


class Scope:
    """The names of one function, or of the text outside of all functions. Slot 0 is `this`.

    captures: (slot in the function around, own slot, name, position) of what a closure sees there.
    """

    def __init__(self, parameters: Sequence[str], outer: Scope | None = None) -> None:
        self._outer = outer
        self._names: list[tuple[str, int, bool]] = [(THIS, 0, False)]
        self._captured: dict[str, int] = {}
        self.slots = 1
        self.captures: list[tuple[int, int, str, Position]] = []
        for name in parameters:
            self._add(name, False)

    def declare(self, name: str, position: Position, *, is_constant: bool = False) -> int:
        """The slot of a new variable, which hides others of its name to the end of the block."""
        if len(self._names) > limits.VARIABLES:
            raise FunctionError("Too many variables defined", position)
        return self._add(name, is_constant)

    def _add(self, name: str, is_constant: bool) -> int:
        self._names.append((name, self.slots, is_constant))
        self.slots += 1
        return self.slots - 1

    @contextmanager
    def block(self) -> Iterator[None]:
        """A block: its names are gone behind it."""
        count = len(self._names)
        yield
        del self._names[count:]

    def find(self, name: str, position: Position) -> int | None:
        """The slot of a variable; one of a function around a closure is shared. None for an unknown name."""
        for known, slot, _ in reversed(self._names):
            if known == name:
                return slot
        if name not in self._captured and self._outer:
            outer = self._outer.find(name, position)
            if outer is not None:
                self._capture(name, outer, position)
        return self._captured.get(name)

    def _capture(self, name: str, outer: int, position: Position) -> None:
        self._captured[name] = self.slots
        self.captures.append((outer, self.slots, name, position))
        self.slots += 1

    def is_constant(self, name: str) -> bool:
        """Is a variable known to be a constant?"""
        return next((is_constant for known, _, is_constant in reversed(self._names) if known == name), False)

    def visible(self) -> dict[str, int]:
        """The slots of the names that may be used here."""
        return {**self._captured, **{name: slot for name, slot, _ in self._names}}

    def slots_of(self, name: str) -> list[int]:
        """The slots of all variables of a name, those that are hidden too, the newest first."""
        return [slot for known, slot, _ in reversed(self._names) if known == name]
