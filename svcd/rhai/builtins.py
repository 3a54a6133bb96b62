"""How a builtin function is declared: its name, the types of its arguments, and the Python function that runs it.

The declarations themselves are in `operators`, `numbers`, `strings` and `containers`.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from svcd.rhai.values import FnPointer, Value


class ANY:
    """Stands for any type in a declaration."""


class Runtime(Protocol):
    """What builtins may ask of the interpreter: charging what they make against the limits, and calling functions."""

    def charge(self, operations: int) -> None: ...
    def new_text(self, text: str) -> str: ...
    def to_text(self, value: Value, *, is_bare: bool = True) -> str: ...
    def charge_scan(self, *texts: str) -> None: ...
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
