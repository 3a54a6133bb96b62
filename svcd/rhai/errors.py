"""Errors of functions (message, position, call trace), and the limits on what a function may use."""
from __future__ import annotations

from typing import Any, NamedTuple


class Position(NamedTuple):
    """A position in the text of a function: line and column in characters, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, position {self.column}"


class FunctionError(Exception):
    """A syntax or run-time error of a function; str() is the message as Rhai words it, with the call trace.

    position: None until a caller that knows it sets it. is_limit: a limit was exceeded, which a `catch` of the function
    does not catch. thrown: the value of `throw`, if has_thrown. calls: (call, position) from the innermost outwards.
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
        """The error of `throw value`; shown: the value as text."""
        error = cls(f"Runtime error: {shown}" if shown else "Runtime error", position)
        error.has_thrown, error.thrown = True, value
        return error

    def at(self, position: Position | None) -> FunctionError:
        """Set the position of this error, or of the outermost call in its trace, unless it has one; returns self."""
        if self.calls:
            call, known = self.calls[-1]
            self.calls[-1] = (call, known or position)
        else:
            self.position = self.position or position
        return self

    def through(self, call: str, position: Position | None) -> FunctionError:
        """Add a call to the trace (`in call to function 'f'`); an exceeded limit only gets the position of the call."""
        if self.is_limit:
            self.position = position
        else:
            self.calls.append((call, position))
        return self

    def __str__(self) -> str:
        return "\n".join(_placed(*part) for part in [(self.message, self.position), *self.calls])


def _placed(sentence: str, position: Position | None) -> str:
    return sentence if position is None else f"{sentence} ({position})"


# Limits, so that no function can exhaust the time or memory of the daemon. They are those of the reference engine (1,000,000
# operations, 30 functions, 10,000 elements) unless a comment says otherwise; its strings may have 1 GiB. Copied and new
# values are charged as operations by their size.


TEXT_LENGTH = 1 << 16  # characters of the text of a function; such a text takes half a second to parse
NESTING = 64  # of expressions and blocks; parser and interpreter recurse on Python's stack
FUNCTIONS = 30
VARIABLES = 1000  # per function

OPERATIONS = 1_000_000  # per document
CALL_DEPTH = 64  # the reference engine: 1000, on a stack of its own
ARRAY_LENGTH = 10_000
MAP_LENGTH = 10_000
STRING_LENGTH = 1 << 24
QUOTED_LENGTH = 4096  # characters of a value that an error message quotes
VALUE_DEPTH = 128  # of arrays and maps; JSON nested deeper cannot be read

# Sizes that cost one operation, as powers of two: they bound what can be made for one document.
CHARACTERS_SHIFT = 7  # 128 characters
COPIED_SHIFT = 12  # 4096 characters of a string that is appended to: copied, but not held twice
ELEMENTS_SHIFT = 3  # 8 elements of an array; each member of a map costs one operation
