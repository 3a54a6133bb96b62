"""The function language of document edits: the subset of Rhai that editing documents needs.

A text passes through `tokens` (lexer), `parser` (syntax tree of `syntax`), `compiler` (closures in Python) and runs on an
`interpreter`, which charges every operation against the limits in `values`. Builtin functions are declared in
`operators`, `scalars` and `containers`; `program` is the entry point. Not supported: modules, eval, custom
types, decimals, blobs, bit fields and time.
"""
from __future__ import annotations

from svcd.rhai.program import NotAnObject, Program
from svcd.rhai.values import FunctionError, Position, is_same

__all__ = ["FunctionError", "NotAnObject", "Position", "Program", "is_same"]
