"""The language in which documents are edited by a function: as much of Rhai as editing documents asks for.

`tokens` cuts a text, `parser` and `expressions` put it together to `syntax`, `code` and `expression_code` turn that
into what runs on a `machine`, which counts what is taken against `limits`; `library` has the functions of the
language; `program` is the door. Left out: modules, eval, custom types, decimals, blobs, bits of integers, time.
"""
from __future__ import annotations

from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.program import NotAnObject, Program
from svcd.rhai.values import is_same

__all__ = ["FunctionError", "NotAnObject", "Position", "Program", "is_same"]
