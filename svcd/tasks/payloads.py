"""The stored documents of a task, read back: NDJSON, a line a document, as the upload was written.

The file was whole and durable when the task was acknowledged. What is wrong with it now has happened since, on disk,
and is that task's own: every fault becomes an ApiError that says what was found, and no other task hears of it.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from svcd.base import json_text
from svcd.base.errors import ApiError

# Documents that are read together: those of one look-up in the store, and of one report of progress.
_CHUNK = 500
_READ_AT_ONCE = 1 << 19  # bytes


def documents(path: str | None, size: int) -> Iterator[tuple[list[bytes], list[dict[str, Any]]]]:
    """Lines and the documents in them, some at a time; nothing without a path. size: bytes of the file when it was stored.

    Raises io_error where the file cannot be read, or is not what was stored.
    """
    if path is None:
        return
    try:
        with open(path, "rb") as file:
            _check_size(file, size)
            read = 0
            while lines := file.readlines(_READ_AT_ONCE):
                for start in range(0, len(lines), _CHUNK):
                    part = lines[start:start + _CHUNK]
                    yield part, _parsed(part, read)
                    read += len(part)
    except OSError as error:
        raise _unreadable(error.strerror or type(error).__name__) from error


def _check_size(file: BinaryIO, size: int) -> None:
    found = os.fstat(file.fileno()).st_size
    if found != size:
        raise _unreadable(f"{found} bytes of {size} are there" if found < size else f"{found} bytes are there, and {size} "
                          "were stored")


def _parsed(lines: list[bytes], before: int) -> list[dict[str, Any]]:
    parsed = []
    for number, line in enumerate(lines, before + 1):
        try:
            document = json_text.loads(line)
        except (ValueError, RecursionError) as error:
            raise _unreadable(f"document {number} is damaged: {error}") from None
        if not isinstance(document, dict):
            raise _unreadable(f"document {number} is damaged: it is no object")
        parsed.append(document)
    return parsed


def _unreadable(reason: str) -> ApiError:
    return ApiError("io_error", f"The stored documents of the task cannot be read: {reason}. Send them again.")
