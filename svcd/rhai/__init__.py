"""The function language of document edits: the subset of Rhai that editing documents needs.

A text passes through `tokens` (lexer), `parser` (syntax tree of `syntax`), `compiler` (closures in Python) and runs on an
`interpreter`, which charges every operation against the limits in `values`. Builtin functions are declared in
`operators`, `scalars` and `containers`. Not supported: modules, eval, custom types, decimals, blobs, bit fields and time.

A program sees two variables: `doc`, the document, and the constant `context`, which comes with the request (undefined
without one). The value of `doc` at the end is the new document; `()` deletes it. All errors are FunctionError; there is no
I/O and no clock.
"""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from svcd.rhai.compiler import Compiler
from svcd.rhai.interpreter import Cell, ExitSignal, Frame, Interpreter, ReturnSignal
from svcd.rhai.parser import parse
from svcd.rhai.values import FunctionError, Position, Value, as_json, is_same

__all__ = ["FunctionError", "NotAnObject", "Position", "Program", "is_same"]

_CONTEXT, _DOCUMENT = "context", "doc"


class NotAnObject(Exception):
    """The function set `doc` to something other than an object."""


class Program:
    """A compiled text. Not thread-safe: one run at a time."""

    def __init__(self, text: str) -> None:
        """Raises FunctionError for a text with a syntax error."""
        self._machine = Interpreter()
        try:
            self._body, scope = Compiler(self._machine).program(parse(text), (_CONTEXT, _DOCUMENT))
        except RecursionError:
            raise FunctionError("Expression exceeds maximum complexity") from None
        self._slots = scope.slots
        self._context = scope.slots_of(_CONTEXT)[-1]
        self._documents = scope.slots_of(_DOCUMENT)

    def edited(self, document: dict[str, Value], context: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The document after the function, members sorted by name; None if it is deleted. Modifies the document passed in.

        Raises FunctionError, NotAnObject.
        """
        frame: Frame = [None] * self._slots
        frame[self._documents[-1]] = Cell(document)
        if context is not None:
            frame[self._context] = Cell(context, is_constant=True)
        try:
            self._machine.reset()
            with suppress(ReturnSignal, ExitSignal):
                self._body(frame)
            # A second `let doc` shadows the first, unless it was not executed.
            after = next(frame[slot].value for slot in self._documents if frame[slot] is not None)
            if after is not None and type(after) is not dict:
                raise NotAnObject
            edited: dict[str, Any] | None = as_json(after)
            return edited
        except RecursionError:
            raise FunctionError("Stack overflow", is_limit=True) from None
