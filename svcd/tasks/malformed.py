"""What is wrong with something that came from outside, in words for the operator: never those of a Python exception.

Archives are read by code that trusts their form, and fails in many ways where that is another one: MALFORMED names these
ways, `words` says them. Refuses to know what is read.
"""
from __future__ import annotations

import errno
import json
from typing import Any

from svcd.base.errors import ApiError
from svcd.validation import FieldError

# What reading raises that meets another form than it expects.
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError,
             ValueError)
# Of a file that an archive brought or should have: it is not there, or is a folder, or its name is no name.
_ODD_FILES = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG,
                        errno.EINVAL))
_SHOWN = 60  # characters of a value


class Malformed(ValueError):
    """Words of our own that say what is wrong."""


def words(error: Exception) -> str:
    """What is wrong, where an exception of MALFORMED tells it."""
    if isinstance(error, (Malformed, ApiError, FieldError)):
        return str(error)
    if isinstance(error, KeyError):
        return f"{shown(error.args[0] if error.args else None)} is missing or unknown"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    return "it has not the form that it should have"


def is_odd_file(error: OSError) -> bool:
    """Whether the archive is to blame for a file that cannot be opened or made, and not the machine."""
    return error.errno in _ODD_FILES


def named(text: str) -> str:
    """A name that came from outside: in backticks, on one line, and not endless."""
    part = text[:_SHOWN]
    return f"`{part if part.isprintable() else repr(part)[1:-1]}{'...' if part != text else ''}`"


def shown(value: Any) -> str:
    """A value in a message: on one line, and not endless."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=lambda _: "...")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
