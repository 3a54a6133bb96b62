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


# How much a function may take, so that none can take the daemon's time or memory.
#
# The reference allows 1,000,000 operations, 30 functions, arrays and maps of 10,000, and texts of 1 GiB; where
# it is not named here as different, its number stands. What is copied or made counts as operations too, by its size.


TEXT_LENGTH = 1 << 16  # characters of the function's own text; so many take half a second to parse
NESTING = 64  # expressions and blocks in one another; Python's stack has to hold the parser and the run
FUNCTIONS = 30
VARIABLES = 1000  # of one function

OPERATIONS = 1_000_000  # for one document
CALL_DEPTH = 64  # the reference: 1000, on a stack of its own
ARRAY_LENGTH = 10_000
MAP_LENGTH = 10_000
STRING_LENGTH = 1 << 24
TOLD_LENGTH = 4096  # characters of a value in an error
VALUE_DEPTH = 128  # arrays and maps in one another: JSON that is nested deeper can't be read

# What one operation pays for: so much can be made for one document before there were too many operations.
CHARACTERS_SHIFT = 7  # 128 characters
COPIED_SHIFT = 12  # 4096 characters of a text that grows: they are copied, but not kept twice
ELEMENTS_SHIFT = 3  # 8 elements of an array; each member of a map is one
