"""Errors of SQLite as it raises them when the disk is full, or has failed."""
from __future__ import annotations

import sqlite3


def sqlite_error(code: int = sqlite3.SQLITE_FULL) -> sqlite3.OperationalError:
    """The error with this extended result code."""
    error = sqlite3.OperationalError(f"SQLite's error {code}")
    error.sqlite_errorcode = code
    return error
