"""Checks a file of the data folder for damage: in its pages, in rows with checksums, in rows that cannot be decoded, in its log.

An error while a file is read may come from a bug or from damage. The class of the error tells only whether damage is possible;
then the file is checked, and only a fault found in it turns the error into `index_corrupted` or `instance_corrupted`.
`svcd verify` makes the same checks; with --full it also compares derived rows with the documents (svcd.index.comparison).
See docs/storage.md#damage.
"""
from __future__ import annotations

import json
import sqlite3
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from svcd.base import json_text
from svcd.base.docids import DocIds, from_bytes
from svcd.base.errors import ApiError
from svcd.index import fts, schema
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import open_reader

MOST_FAULTS = 20
# Errors that damage may cause. SQLite errors of the system, of a full disk and of a locked file are excluded (_OF_SYSTEM).
SUSPICIOUS = (sqlite3.DatabaseError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError,
              MemoryError, StopIteration)
_OF_SYSTEM = frozenset((
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_SCHEMA))
_OF_FILE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


def may_be_damage(error: BaseException) -> bool:
    """Return whether an error may come from a damaged file."""
    if isinstance(error.__cause__, StopIteration):  # a generator ran out of rows: Python raises RuntimeError for it
        return True
    return isinstance(error, (*SUSPICIOUS, schema.NewerFormat)) and getattr(error, "sqlite_errorcode", 0) & 0xFF not in _OF_SYSTEM


def fault_told_by(error: BaseException) -> str | None:
    """Return the fault of a file that an error by itself proves, without stored text; None if it may have another cause."""
    fault = str(error).partition(" with text ")[0]  # sqlite3 cites a text that is not UTF-8, and svcd stores no such text
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_told = isinstance(error, sqlite3.DatabaseError) and (code in _OF_FILE or fault.startswith("Could not decode to UTF-8"))
    return fault if is_told else None


def first_fault(path: Path, kind: schema.Kind) -> str | None:
    """Return the first fault of a file; None when it is sound as far as can be seen without rebuilding the index."""
    check = index_faults if kind is schema.INDEX else instance_faults
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("BEGIN")
            return next(check(connection, {}), None)
    except (*SUSPICIOUS, RecursionError) as error:
        return str(error) or type(error).__name__ if may_be_damage(error) else None


def fault_behind(error: BaseException, path: Path) -> str | None:
    """Return the fault of an index file that caused an error of its writer; None if the file is sound.

    An error while the file was closed after an earlier error says little, so the earlier one counts.
    """
    while error.__context__ is not None and fault_told_by(error) is None:
        error = error.__context__
    if not may_be_damage(error):
        return None
    return first_fault(path, schema.INDEX) or fault_told_by(error)


def index_error(index_uid: str, fault: str) -> ApiError:
    """Return the error of a request or a task that met damage in the file of an index."""
    return ApiError("index_corrupted", (
        f"The file of index `{index_uid}` is damaged: {fault}. Restore it from a backup; or stop svcd and rebuild the index from "
        f"its documents with `svcd repair {index_uid}`; or delete the index."))


def instance_error(fault: str) -> ApiError:
    """Return the error of a request that met damage in instance.sqlite."""
    return ApiError("instance_corrupted", f"The file instance.sqlite is damaged: {fault}. {INSTANCE_ADVICE}")


INSTANCE_ADVICE = "Stop svcd, and restore the data folder from a backup."


Without = dict[str, int]  # table -> number of rows without a checksum; ALL_TABLES in a file of an older format
ALL_TABLES = "all tables"


def instance_faults(connection: sqlite3.Connection, without: Without) -> Iterator[str]:
    """Yield the faults of instance.sqlite, a sentence each. Afterwards the connection reads texts as bytes."""
    yield from _table_faults(connection, schema.INSTANCE, schema.INSTANCE_CHECKSUMS, without)
    # SQLite's own table has no constraints: if its page was exchanged with that of another table, no other check finds it.
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if connection.execute(f"SELECT 1 FROM sqlite_sequence WHERE name IS NULL OR name NOT IN ({names})").fetchone():
        yield "sqlite_sequence has rows of another table"
    for table, columns in _JSON_COLUMNS.items():
        for column in columns:
            for key, text in connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL"):
                yield from _decoded(f"{column} of the row {key} of {table}", json.loads, text)


_JSON_COLUMNS = {
    "indexes": ("stats",), "network": ("value",), "tasks": ("details", "error", "content"), "batches": ("details", "stats"),
    "chat_workspaces": ("settings",), "webhooks": ("headers",), "keys": ("actions", "indexes"),
}


# Tables with sets of documents -> the column that identifies a row in a fault; the set is in the column `docids`.
_SETS = {"value_postings": "fid", "value_groups": "fid", "vector_postings": "embedder", "prefix_postings": "letter",
         "materialized_postings": "key", "word_frequencies": "term", "point_blocks": "start", "point_regions": "start"}
_BY_DOCID = ("forward_index", "document_values", "points", "geometries")


def index_faults(connection: sqlite3.Connection, without: Without) -> Iterator[str]:
    """Yield the faults of the file of an index, a sentence each. Afterwards the connection reads texts as bytes."""
    yield from _table_faults(connection, schema.INDEX, schema.INDEX_CHECKSUMS, without)
    docids = []
    for docid, text in connection.execute("SELECT docid, json FROM documents ORDER BY docid"):
        docids.append(docid)
        try:
            json_text.loads(text)
        except ValueError as error:
            yield f"document {docid} is not JSON: {error}"
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    for key, decode in _META.items():
        if key in meta:
            yield from _decoded(f"{key.decode()} of the table meta", decode, meta[key])
    everything = DocIds(docids)
    if from_bytes(meta.get(b"docids", b"")) != everything:
        yield "the set of all documents differs from the stored documents"
    tables = {_shown(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, name in _SETS.items():
        if table not in tables:  # of a later format than the file has, or named above
            continue
        for key, stored in connection.execute(f"SELECT {name}, docids FROM {table}"):
            try:
                members = from_bytes(stored)
            except (ValueError, TypeError) as error:
                yield f"the row of {_shown(key)} in {table} cannot be decoded: {error}"
                continue
            # Sets of terms and pairs may keep documents that were deleted since: readers remove these.
            if table != "materialized_postings" and members - everything:
                yield f"the row of {_shown(key)} in {table} has documents that do not exist"
    for table in _BY_DOCID:
        for (docid,) in connection.execute(f"SELECT docid FROM {table} WHERE docid NOT IN (SELECT docid FROM documents)"):
            yield f"document {docid} of {table} is not in documents"
    for docid, text in connection.execute("SELECT docid, words FROM forward_index"):
        yield from _decoded(f"the row of document {docid} in forward_index", lambda words: fts.forward_rows(words.decode()), text)
    for docid, text in connection.execute("SELECT docid, field_values FROM document_values"):
        yield from _decoded(f"the row of document {docid} in document_values", json.loads, text)
    try:
        connection.execute("SELECT sum(doc), sum(cnt) FROM vocabulary").fetchone()  # reads all lists of FTS5
    except sqlite3.DatabaseError as error:
        yield f"the FTS5 table terms cannot be read: {error}"


_META: dict[bytes, Callable[[Any], Any]] = {
    b"settings": json.loads, b"batch_outcomes": BatchOutcomes.parse, b"docids": from_bytes,
}


def _table_faults(connection: sqlite3.Connection, kind: schema.Kind, tables: schema.Tables, without: Without) -> Iterator[str]:
    """Yield damage in the pages of a file, in the statements of its tables, and in rows with checksums."""
    connection.text_factory = bytes
    for (said,) in connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})"):
        if said != b"ok":
            yield said.decode(errors="replace")
    (format_,) = connection.execute("PRAGMA user_version").fetchone()
    if not 0 < format_ <= schema.FORMAT:
        yield f"its format is {format_}; this svcd knows 1 to {schema.FORMAT}"
    elif format_ < schema.FIRST_WITH_CHECKSUMS:  # upgraded at the next start
        without[ALL_TABLES] = -1
        if connection.execute("SELECT 1 FROM sqlite_master WHERE sql LIKE '%checksum%'").fetchone():
            yield f"its format is {format_}, but its tables are of a later one"
    else:
        for name in schema.odd_statements(connection, kind) if format_ == schema.FORMAT else ():
            yield f"`{name}` differs from the table, index or trigger that svcd created: it is missing or was changed"
        yield from schema.checksum_faults(connection, tables, without)


def _shown(key: Any) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)


def _decoded(what: str, decode: Callable[[Any], Any], stored: Any) -> Iterator[str]:
    try:
        decode(stored)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        yield f"{what} cannot be decoded: {error}"


_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682  # plus 1 if checksums are of big-endian numbers


def log_faults(path: Path) -> Iterator[str]:
    """Yield the fault of a database's log, one sentence at most. A daemon may be writing it."""
    log = Path(f"{path}-wal")
    try:
        fault, head = _log_fault(found := log.read_bytes()), found[:_HEAD.size]
        # A log that was restarted meanwhile has another header.
        if fault and log.read_bytes()[:_HEAD.size] == head and _log_fault(log.read_bytes()) == fault:
            yield fault
    except FileNotFoundError:
        pass


def _log_fault(log: bytes) -> str | None:
    if not log:
        return None
    if len(log) < _HEAD.size:
        return f"its log has {len(log)} bytes, fewer than its header: commits may be lost"
    magic, _, page_size, _, *salts, first, second = _HEAD.unpack_from(log)
    sums = _sums(log[:24], (0, 0), magic & 1)
    if magic & ~1 != _MAGIC or sums != (first, second) or page_size < 512:
        return "the header of its log is damaged: all commits in it are lost"
    size = _FRAME.size + page_size
    frames = range(_HEAD.size, len(log) - size + 1, size)
    for number, start in enumerate(frames):
        page, _, *frame_salts, first, second = _FRAME.unpack_from(log, start)
        sums = _sums(log[start:start + 8] + log[start + _FRAME.size:start + size], sums, magic & 1)
        if not page or frame_salts != salts or sums != (first, second):
            # A later frame with the same salts and a number of pages ends a transaction.
            later = (_FRAME.unpack_from(log, at) for at in frames[number:])
            return (f"frame {number} of its log is damaged: commits from there on are lost"
                    if any(pages and found == salts for _, pages, *found, _, _ in later) else None)
    return None


def _sums(data: bytes, before: tuple[int, int], is_big: int) -> tuple[int, int]:
    """Return the checksum that the format defines over pairs of 32-bit numbers."""
    numbers = array("I", data)
    if is_big == (sys.byteorder == "little"):
        numbers.byteswap()
    first, second = before
    values = iter(numbers)
    for left, right in zip(values, values):
        first = (first + left + second) & 0xFFFF_FFFF
        second = (second + right + first) & 0xFFFF_FFFF
    return first, second
