"""The door of the language: a text becomes a program, a program changes documents.

A program sees two variables: `doc`, the document, and `context`, what the request gave, a constant; without a
context there is no such variable. What `doc` is at the end is the document; `()` removes it. Everything that goes
wrong is a FunctionError; no I/O, no clock.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.rhai.compiler import Compiler
from svcd.rhai.errors import FunctionError
from svcd.rhai.interpreter import Cell, Exited, Frame, Machine, Returned
from svcd.rhai.parser import parse
from svcd.rhai.values import Value, as_json

_CONTEXT, _DOCUMENT = "context", "doc"


class NotAnObject(Exception):
    """The document became something other than an object."""


class Program:
    """One text, ready to run; one run at a time."""

    def __init__(self, text: str) -> None:
        """Raises FunctionError for a text that the language does not know."""
        self._machine = Machine()
        try:
            self._body, scope = Compiler(self._machine).program(parse(text), (_CONTEXT, _DOCUMENT))
        except RecursionError:
            raise FunctionError("Expression exceeds maximum complexity") from None
        self._slots = scope.slots
        self._context = scope.slots_of(_CONTEXT)[-1]
        self._documents = scope.slots_of(_DOCUMENT)

    def edited(self, document: dict[str, Value], context: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """What a document becomes, members sorted by name; None when it is removed. The document itself is used up.

        Raises FunctionError, NotAnObject.
        """
        frame: Frame = [None] * self._slots
        frame[self._documents[-1]] = Cell(document)
        if context is not None:
            frame[self._context] = Cell(context, is_constant=True)
        try:
            self._run(frame)
            # A second `let doc` hides the first; one that was not reached does not.
            after = next(frame[slot].value for slot in self._documents if frame[slot] is not None)
            if after is not None and type(after) is not dict:
                raise NotAnObject
            edited: dict[str, Any] | None = as_json(after)
            return edited
        except RecursionError:
            raise FunctionError("Stack overflow", is_limit=True) from None

    def _run(self, frame: Frame) -> None:
        self._machine.reset()
        try:
            self._body(frame)
        except (Returned, Exited):
            pass
