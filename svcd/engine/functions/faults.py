"""What goes wrong in a function: where, in which words, and through which calls.

Knows how the language words a place and a trail of calls; refuses to know error codes, and what a function does.
"""
from __future__ import annotations

from typing import Any, NamedTuple


class Position(NamedTuple):
    """A place in the text of a function: line and column in characters, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, position {self.column}"


class FunctionError(Exception):
    """A fault of a function's text, or of its run; str() is the sentence of the language.

    position: None until somebody who knows it fills it in. is_limit: the function took too much, which no `catch`
    of its own may hide. thrown: the value of a `throw`, when there is one.
    """

    def __init__(self, message: str, position: Position | None = None, *, is_limit: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.is_limit = is_limit
        self.has_thrown = False
        self.thrown: Any = None
        self.calls: list[tuple[str, Position | None]] = []

    @classmethod
    def throwing(cls, value: Any, shown: str, position: Position) -> FunctionError:
        """What `throw value` raises; shown: the value as text."""
        error = cls(f"Runtime error: {shown}" if shown else "Runtime error", position)
        error.has_thrown, error.thrown = True, value
        return error

    def at(self, position: Position | None) -> FunctionError:
        """This error, or the last call that it came through, placed there unless the place is known."""
        if self.calls:
            call, known = self.calls[-1]
            self.calls[-1] = (call, known or position)
        else:
            self.position = self.position or position
        return self

    def through(self, call: str, position: Position | None) -> FunctionError:
        """This error, having come through a call: `in call to function 'f'`. A limit is told of the call alone."""
        if self.is_limit:
            self.position = position
        else:
            self.calls.append((call, position))
        return self

    def __str__(self) -> str:
        return "\n".join(_placed(*part) for part in [(self.message, self.position), *self.calls])


def _placed(sentence: str, position: Position | None) -> str:
    return sentence if position is None else f"{sentence} ({position})"
