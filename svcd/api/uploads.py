"""Uploads: a stream of JSON, NDJSON or CSV becomes a file with one JSON object a line.

Knows the formats, the file and the error codes of an upload; refuses to know what documents are for. The
stream is never whole in memory. The file is durable before its path is given away, and gone after an error.
"""
from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from svcd.api.json_stream import NotDocuments, json_documents, ndjson_documents
from svcd.base.errors import ApiError
from svcd.base.json_text import JsonError
from svcd.http.headers import media_type
from svcd.index.connections import sync_folder

JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
CONTENT_TYPES = (JSON, NDJSON, CSV)
_NAMES = {JSON: "json", NDJSON: "ndjson", CSV: "csv"}
_ACCEPTED = "Accepted values for the Content-Type header are: " + ", ".join(f"`{name}`" for name in CONTENT_TYPES)
_NO_DOCUMENTS = "data are neither an object nor a list of objects"

Documents = Iterator[list[str]]


@dataclass(frozen=True, slots=True)
class Payload:
    """A received upload. path: one JSON object a line; bytes: the size of that file."""

    path: Path
    documents: int
    bytes: int


def payload_format(content_type: str | None, csv_delimiter: str | None) -> str:
    """The content type of an upload without its parameters.

    Raises missing_content_type, invalid_content_type.
    """
    if content_type is None:
        raise ApiError("missing_content_type", f"A Content-Type header is missing. {_ACCEPTED}")
    essence = media_type(content_type)
    if essence not in CONTENT_TYPES:
        named = essence if "/" in essence else content_type
        raise ApiError("invalid_content_type", f"The Content-Type `{named}` is invalid. {_ACCEPTED}")
    if csv_delimiter is not None and essence != CSV:
        only = "The csv delimiter can only be used with the Content-Type `text/csv`."
        message = f"The Content-Type `{essence}` does not support the use of a csv delimiter. {only}"
        raise ApiError("invalid_content_type", message)
    return essence


def receive(chunks: Iterator[bytes], content_type: str, folder: Path, *, csv_delimiter: str | None = None) -> Payload:
    """Write the documents of an upload to a fresh file in the folder, durably.

    content_type: one of CONTENT_TYPES. Raises missing_payload, malformed_payload, and what the chunks raise.
    """
    documents = _documents(_not_empty(chunks, content_type), content_type, csv_delimiter)
    path = folder / str(uuid.uuid4())
    try:
        with path.open("wb") as file:
            count = _write(documents, file, content_type)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        sync_folder(folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Payload(path, count, size)


def _not_empty(chunks: Iterator[bytes], content_type: str) -> Iterator[bytes]:
    is_empty = True
    for chunk in chunks:
        is_empty = is_empty and not chunk
        yield chunk
    if is_empty:
        raise ApiError("missing_payload", f"A {_NAMES[content_type]} payload is missing.")


def _documents(chunks: Iterator[bytes], content_type: str, csv_delimiter: str | None) -> Documents:
    if content_type == CSV:
        from svcd.api.csv_reader import csv_documents  # csv is a heavy import that few daemons need

        return csv_documents(chunks, csv_delimiter or ",")
    read: Callable[[Iterator[bytes]], Documents] = json_documents if content_type == JSON else ndjson_documents
    return read(chunks)


def _write(documents: Documents, file: IO[bytes], content_type: str) -> int:
    """Write lines; how many there were."""
    count = 0
    try:
        for lines in documents:
            count += len(lines)
            if lines:  # joined, a single one is not copied: it may be very long
                file.write("\n".join(lines).encode())
                file.write(b"\n")
    except JsonError as error:
        _malformed_json(content_type, str(error))
    except NotDocuments:
        _malformed_json(content_type, _NO_DOCUMENTS)
    except ApiError:
        raise
    except ValueError as error:  # CsvError; its module is not loaded for JSON
        if content_type != CSV:
            raise
        raise ApiError("malformed_payload", f"The `csv` payload provided is malformed: `{error}`.") from None
    return count


def _malformed_json(content_type: str, reason: str) -> NoReturn:
    name = _NAMES[content_type]
    message = f"The `{name}` payload provided is malformed. `Couldn't serialize document value: {reason}`."
    raise ApiError("malformed_payload", message) from None
