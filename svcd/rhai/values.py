"""The values of the language, with what every part of it shares: limits, errors, and how builtin functions are declared.

`()` is None; integers (64 bits), floats, booleans, strings, arrays and object maps are Python's own types; Char, Range and
FnPointer are defined here. Types are tested with type(), because Char is a subclass of str and bool of int.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from svcd.base import json_text

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

# Sizes that cost one operation, as powers of two: they bound the values made for one document.
CHARACTERS_SHIFT = 7  # 128 characters
COPIED_SHIFT = 12  # 4096 characters of a string that is appended to: copied, but not held twice
ELEMENTS_SHIFT = 3  # 8 elements of an array; each member of a map costs one operation

Value = Any

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
# Floats beyond these magnitudes are written with an exponent.
_MOST_PLAIN, _LEAST_PLAIN = 1e13, 1e-13


# Errors


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
        lines = [(self.message, self.position), *self.calls]
        return "\n".join(line if position is None else f"{line} ({position})" for line, position in lines)


# Types


class Char(str):
    """One character."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from start to end, which is part of it if is_inclusive; step is never 0."""

    start: int
    end: int
    is_inclusive: bool = False
    step: int = 1

    def values(self) -> range:
        """The integers, as a lazy range."""
        beyond = 1 if self.step > 0 else -1
        return range(self.start, self.end + beyond * self.is_inclusive, self.step)

    def __str__(self) -> str:
        return f"{self.start}..{'=' * self.is_inclusive}{self.end}"


class FnPointer:
    """A function as a value. parameters: their number, None if only the name is known (`Fn("name")`)."""

    __slots__ = ("curried", "name", "parameters", "run")

    def __init__(self, name: str, run: Any, parameters: int | None, curried: tuple[Value, ...] = ()) -> None:
        self.name = name
        self.run = run
        self.parameters = parameters
        self.curried = curried

    def __str__(self) -> str:
        return f"Fn({self.name})"


_TYPE_NAMES = {
    type(None): "()", bool: "bool", int: "i64", float: "f64", str: "string", Char: "char", list: "array", dict: "map",
    Range: "range", FnPointer: "Fn",
}


def type_name(value: Value) -> str:
    """The result of type_of()."""
    if type(value) is Range and value.is_inclusive:
        return "range="
    return _TYPE_NAMES[type(value)]


def mismatch(value: Value, expected: str) -> FunctionError:
    """The error for a value of the wrong type."""
    return FunctionError(f"Data type incorrect: {type_name(value)} (expecting {expected})")


# Text form


def pieces(value: Value, *, is_bare: bool = False) -> Iterator[str]:
    """The text form of a value, in pieces. Strings are quoted and `()` is written out, unless is_bare."""
    kind = type(value)
    if is_bare and (value is None or isinstance(value, str)):
        yield str(value or "")
        return
    if kind is list:
        yield "["
        for at, element in enumerate(value):
            yield ", " if at else ""
            yield from pieces(element)
        yield "]"
    elif kind is dict:
        yield "#{"
        for at, name in enumerate(sorted(value)):
            yield f"{', ' if at else ''}{json_text.dumps(name)}: "
            yield from pieces(value[name])
        yield "}"
    elif value is None:
        yield "()"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, float):
        yield float_text(value)
    elif kind is Char:
        yield f"'{value}'"
    else:
        yield json_text.dumps(value) if isinstance(value, str) else str(value)


def float_text(number: float) -> str:
    """`1.0`, `0.25`, `2e13`: the shortest digits that read back, with an exponent for very large and small numbers."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if number == 0:
        return "0.0"
    if not _LEAST_PLAIN <= abs(number) <= _MOST_PLAIN:
        sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
        first, *others = map(str, digits)
        point = "." if others else ""
        return f"{'-' * sign}{first}{point}{''.join(others)}e{int(exponent) + len(digits) - 1}"
    text = repr(number)
    return format(Decimal(text), "f") if "e" in text else text


# Comparison


def is_same(left: Value, right: Value) -> bool:
    """Return whether two JSON values are identical: 1, 1.0 and true differ; the order of members does not matter."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_same(left[name], right[name]) for name in left)
    return bool(left == right)


# JSON


def as_json(value: Value, depth: int = 0) -> Value:
    """A value as JSON: members sorted by name, NaN and infinities as null.

    Raises FunctionError for function pointers and ranges, and for nesting beyond the limit of JSON texts.
    """
    kind = type(value)
    if depth == json_text.MAX_DEPTH and (kind is dict or kind is list):
        raise FunctionError("Depth of value too large", is_limit=True)
    if kind is dict:
        return {name: as_json(value[name], depth + 1) for name in sorted(value)}
    if kind is list:
        return [as_json(element, depth + 1) for element in value]
    if kind is Char:
        return str(value)
    if kind is float and not math.isfinite(value):
        return None
    if kind is FnPointer or kind is Range:
        raise mismatch(value, "a value that a document can hold")
    return value


# Declarations of builtin functions: name, types of the arguments, and the Python function that runs it. The builtins themselves
# are in `operators`, `scalars` and `containers`.


class ANY:
    """Stands for any type in a declaration."""


class Runtime(Protocol):
    """The interpreter's interface for builtins: charge new values against the limits, and call functions."""

    def charge(self, operations: int) -> None: ...
    def new_text(self, text: str) -> str: ...
    def to_text(self, value: Value, *, is_bare: bool = True) -> str: ...
    def scanned(self, text: str) -> str: ...
    def check_text_length(self, length: int) -> None: ...
    def check_array_length(self, length: int) -> None: ...
    def check_map_length(self, length: int) -> None: ...
    def new_array(self, array: list[Value]) -> list[Value]: ...
    def copied(self, value: Value, depth: int = 0) -> Value: ...
    def callback(self, pointer: FnPointer, *arguments: Value) -> Value: ...
    def update_element(self, pointer: FnPointer, element: Value, at: int) -> Value: ...
    def matches(self, pointer: FnPointer, *arguments: Value) -> bool: ...


@dataclass(frozen=True, slots=True)
class Builtin:
    """One builtin for one combination of argument types. run: called with the runtime and the arguments.

    changes: it modifies its first argument, which must not be a constant. replaces: it returns (new first argument,
    result), because Python strings are immutable; the caller stores the first.
    """

    name: str
    kinds: tuple[type, ...]
    run: Callable[..., Any]
    changes: bool = False
    replaces: bool = False


def pure(name: str, kinds: tuple[type, ...], run: Callable[..., Any]) -> Builtin:
    """Declare a builtin without side effects."""
    return Builtin(name, kinds, run)


def changing(name: str, kinds: tuple[type, ...], run: Callable[..., Any]) -> Builtin:
    """Declare a builtin that modifies its first argument, an array or object map, in place."""
    return Builtin(name, kinds, run, changes=True)


def replacing(name: str, kinds: tuple[type, ...], run: Callable[..., Any]) -> Builtin:
    """Declare a builtin that returns (new first argument, result)."""
    return Builtin(name, kinds, run, changes=True, replaces=True)
