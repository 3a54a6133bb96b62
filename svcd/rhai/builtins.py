"""One function of the language: its name, the types it takes, and what it does.

Knows the form of a row, and what the machine offers to it; the rows are in the modules of each type.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from svcd.rhai.values import Pointer, Value


class ANY:
    """A type that stands for all."""


class Taker(Protocol):
    """The machine, as functions see it: what they make is paid for there, and callbacks go through it."""

    def charge(self, operations: int) -> None: ...
    def text(self, text: str) -> str: ...
    def shown(self, value: Value, *, is_bare: bool = True) -> str: ...
    def read(self, *texts: str) -> None: ...
    def room_for_text(self, length: int) -> None: ...
    def room_for_elements(self, length: int) -> None: ...
    def room_for_members(self, length: int) -> None: ...
    def elements(self, array: list[Value]) -> list[Value]: ...
    def own(self, value: Value, depth: int = 0) -> Value: ...
    def callback(self, pointer: Pointer, *arguments: Value) -> Value: ...
    def acted(self, pointer: Pointer, element: Value, at: int) -> Value: ...
    def is_true(self, pointer: Pointer, *arguments: Value) -> bool: ...


@dataclass(frozen=True, slots=True)
class Builtin:
    """run: called with the machine and the arguments.

    changes: it changes its first argument, which must not be a constant. replaces: it answers what its first
    argument becomes and its value; a text can't be changed in any other way.
    """

    name: str
    kinds: tuple[type, ...]
    run: Callable[..., Any]
    changes: bool = False
    replaces: bool = False


def pure(name: str, kinds: tuple[type, ...], run: Callable[..., Any]) -> Builtin:
    """A function that changes nothing."""
    return Builtin(name, kinds, run)


def changing(name: str, kinds: tuple[type, ...], run: Callable[..., Any]) -> Builtin:
    """A function that changes its first argument, an array or object map, in place."""
    return Builtin(name, kinds, run, changes=True)


def replacing(name: str, kinds: tuple[type, ...], run: Callable[..., Any]) -> Builtin:
    """A function that answers (what its first argument becomes, its value)."""
    return Builtin(name, kinds, run, changes=True, replaces=True)
