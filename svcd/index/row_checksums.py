"""Checksums of the rows that cannot be derived from other data of the folder: documents, vectors, settings, tasks, keys.

SQLite detects damage in the structure of a file, not in the content of a row. All other rows of an index follow from its
documents, and `svcd verify --full` compares them with rows rebuilt from these (svcd.tasks.rebuild). A row written in format 1 has
no checksum (null) until it is written again. See docs/storage.md#damage.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

SQL_NAME = "svcd_checksum"

# table -> the columns that its checksum covers
Tables = Mapping[str, Sequence[str]]
INDEX: Tables = {
    "meta": ("key", "value"),
    "documents": ("docid", "document_id", "json"),
    "changes": ("generation", "docids", "removed_terms"),
    "embedders": ("number", "name", "dimensions", "is_quantized", "fragments"),
    "document_vectors": ("id", "origin", "fragments", "vectors"),
}
INSTANCE: Tables = {
    "indexes": ("uid", "uuid", "created_at", "updated_at", "primary_key", "stats"),
    "features": ("name", "enabled"),
    "network": ("id", "value"),
    "tasks": ("uid", "batch_uid", "index_uid", "status", "kind", "canceled_by", "details", "error", "content", "payload",
              "payload_bytes", "custom_metadata", "enqueued_at", "started_at", "finished_at"),
    "batches": ("uid", "details", "stats", "strategy", "started_at", "finished_at", "earliest_enqueued_at", "latest_enqueued_at"),
    "chat_workspaces": ("uid", "settings"),
    "webhooks": ("uuid", "url", "headers"),
    "notices": ("number", "batch_uid", "tasks", "length", "stored", "ended_at"),
    "notice_parts": ("number", "part", "lines"),
    "outbox": ("webhook", "number", "attempts", "tried_at", "reason", "given_up_at"),
    "keys": ("uid", "name", "description", "actions", "indexes", "expires_at", "created_at", "updated_at"),
    "revisions": ("subject", "number"),
    "log_position": ("id", "log", "applied", "term", "moment"),
    "begun_batches": ("uid", "tasks", "shape", "strategy", "started_at", "end"),
}
# An upgrade does not fill in the checksums of these tables, which may have millions of rows.
LARGE = frozenset(("documents", "document_vectors", "tasks", "batches", "notices", "notice_parts", "outbox"))


def row_checksum(*values: Any) -> int:
    """Return the CRC-32 of a row's values, as a signed number; texts may be given as str or as their bytes."""
    crc = 0
    for value in values:
        crc = crc32(value if isinstance(value, bytes) else str(value).encode(), crc32(b"\0", crc))
    return crc - (1 << 32) if crc >> 31 else crc


def define(connection: sqlite3.Connection) -> None:
    """Make row_checksum() an SQL function, which the triggers of instance.sqlite call."""
    connection.create_function(SQL_NAME, -1, row_checksum, deterministic=True)


def columns(tables: Tables) -> Iterator[str]:
    """Yield the statements that add a checksum to tables."""
    for table in tables:
        yield f"ALTER TABLE {table} ADD COLUMN checksum INTEGER"


def triggers(tables: Tables) -> Iterator[str]:
    """Yield the statements that keep checksums up to date, whatever writes the tables.

    Only for instance.sqlite: in an index file, each statement with a trigger would make FTS5 write its gathered postings.
    """
    for table, covered in tables.items():
        row = "webhook = NEW.webhook AND number = NEW.number" if table == "outbox" else "rowid = NEW.rowid"
        body = f"BEGIN UPDATE {table} SET checksum = {_call('NEW.', covered)} WHERE {row}; END"
        yield f"CREATE TRIGGER {table}_checksum_insert AFTER INSERT ON {table} {body}"
        yield f"CREATE TRIGGER {table}_checksum_update AFTER UPDATE OF {_names('', covered)} ON {table} {body}"


def fillers(tables: Tables) -> Iterator[str]:
    """Yield the statements that fill in missing checksums of the small tables."""
    for table in tables.keys() - LARGE:
        yield filler(table, tables)


def filler(table: str, tables: Tables = INDEX) -> str:
    """Return the statement that fills in missing checksums of a table."""
    return f"UPDATE {table} SET checksum = {_call('', tables[table])} WHERE checksum IS NULL"


def _call(prefix: str, covered: Sequence[str]) -> str:
    return f"{SQL_NAME}({_names(prefix, covered)})"


def _names(prefix: str, covered: Sequence[str]) -> str:
    return ", ".join(f'{prefix}"{name}"' for name in covered)


class RowCheck:
    """Compares rows with their checksums. without: table -> number of rows without checksum."""

    def __init__(self, connection: sqlite3.Connection, tables: Tables) -> None:
        """connection: must read texts as bytes, since damaged texts may not be UTF-8."""
        self._connection = connection
        self._tables = tables
        self.without: dict[str, int] = {}

    def faults(self) -> Iterator[str]:
        """Yield the rows that differ from their checksums, a sentence each."""
        for table, covered in self._tables.items():
            for *values, checksum in self._connection.execute(f"SELECT {_names('', covered)}, checksum FROM {table}"):
                if checksum is None:
                    self.without[table] = self.without.get(table, 0) + 1
                elif checksum != row_checksum(*values):
                    yield f"the row {values[0]!r} of {table} differs from its checksum"
