"""The tasks of a batch as the indexing process gets them, and the documents in their payloads.

A payload is NDJSON, one document per line, complete and synced when the task was acknowledged. A fault found now has happened on
disk since; it fails that task alone (docs/tasks-and-batches.md#unreadable-payloads).
"""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from svcd.base import json_text
from svcd.base.errors import ApiError

_CHUNK = 500  # documents per look-up in the index and per progress report
_READ_AT_ONCE = 1 << 19  # bytes


class IndexingFailure(Exception):
    """An error of the indexing itself, not of one task's content: it fails the whole batch."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass
class IndexingTask:
    """One task of the batch, as the runner sends it. payload: path of its NDJSON. index_uid: filled in by apply_batch()."""

    uid: int
    kind: str
    content: Mapping[str, Any]
    enqueued_at: int = 0
    payload: str | None = None
    payload_bytes: int = 0
    index_uid: str = ""

    def is_large(self, limit: int) -> bool:
        """Return whether the task may write more than `limit` bytes; a filter may match any number of documents."""
        return self.payload_bytes > limit or "filter" in self.content


def checksum_of(path: str | Path) -> int:
    """Return the CRC-32 of a file, which is read in pieces. Raises OSError."""
    found = 0
    with open(path, "rb") as file:
        while piece := file.read(_READ_AT_ONCE):
            found = crc32(piece, found)
    return found


def read_payload(path: str | None, size: int, checksum: int | None = None) -> Iterator[tuple[list[bytes], list[dict[str, Any]]]]:
    """Yield portions of lines with the documents parsed from them; nothing without a path.

    size, checksum: bytes and CRC-32 of the payload when it was stored; no checksum for a payload of an older svcd, or of a dump.
    Raises io_error when the file cannot be read, or has changed since it was stored.
    """
    if path is None:
        return
    try:
        with open(path, "rb") as file:
            present = os.fstat(file.fileno()).st_size
            if present < size:
                raise _unreadable(f"the file has {present} bytes of {size}")
            if present > size:
                raise _unreadable(f"the file has {present} bytes, and {size} were stored")
            # First, as a changed byte can turn a valid document into an invalid or a different document.
            if checksum is not None and checksum_of(path) != checksum:
                raise _unreadable("their checksum is different")
            read = 0
            while lines := file.readlines(_READ_AT_ONCE):
                for start in range(0, len(lines), _CHUNK):
                    part = lines[start:start + _CHUNK]
                    yield part, _parsed(part, read)
                    read += len(part)
    except OSError as error:
        raise _unreadable(error.strerror or type(error).__name__) from error


def _parsed(lines: list[bytes], before: int) -> list[dict[str, Any]]:
    """Parse lines together, or one by one to find the faulty one. before: number of lines before them in the file."""
    try:
        if len(lines) > 1 and sum(map(len, lines)) <= 2 * _READ_AT_ONCE:  # parsing together needs a second copy of the lines
            together = json_text.decoded_together(lines)
            if set(map(type, together)) == {dict}:
                return together
    except ValueError:
        pass
    parsed = []
    for number, line in enumerate(lines, before + 1):
        try:
            document = json_text.loads(line)
        except ValueError as error:
            raise _unreadable(f"document {number} is damaged: {error}") from None
        if not isinstance(document, dict):
            raise _unreadable(f"document {number} is damaged: it is not an object")
        parsed.append(document)
    return parsed


def _unreadable(reason: str) -> ApiError:
    return ApiError("io_error", f"The stored documents of the task cannot be read: {reason}. Send them again.")
