"""The tables of both kinds of file, and the upgrades between their formats.

`instance.sqlite` holds the queue and the list of indexes, `indexes/<uuid>.sqlite` one index (docs/storage.md#tables). Each
file carries its format in `user_version`. INSTANCE and INDEX have the steps from each format to the next; all steps of a
file run in one transaction, so that it is in the old format or in the new one, never between.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from svcd import __version__

FORMAT = 1  # of the first release

# FTS5 fixes the number of columns when a table is made. The last one is shared by all further fields; which of them holds
# a term is then read from the forward index. Indexes with more than 31 searchable fields are rare.
COLUMNS = 32
SHARED_COLUMN = COLUMNS - 1

# Documents per row of field_word_counts, one byte each: about half a page, and an update rewrites one page at least.
COUNT_BLOCK = 4096
# A field that holds more words than this counts in no set of `field_count_docids` (docs/ranking.md#exactness).
COUNTED_WORDS = 30
# Indexes with at least so many documents have materialized postings; all sets of smaller ones are quickly read from FTS5.
LEAST_DOCUMENTS = 4_096

# Rows of document_vectors are ordered by embedder, then by docid.
DOCID_BITS = 40

Create = Callable[[Any], None]  # given a sqlite_utils.Database


def _create_instance(database: Any) -> None:
    database["indexes"].create(
        {"uid": str, "uuid": str, "created_at": int, "updated_at": int, "primary_key": str, "stats": str},
        pk="uid", not_null={"uuid", "created_at", "updated_at", "stats"})
    database["features"].create({"name": str, "enabled": int}, pk="name")
    # One row at most; value: JSON of svcd.instance.network.
    database["network"].create({"id": int, "value": str}, pk="id", not_null={"value"})
    database["tasks"].create(
        {"uid": int, "batch_uid": int, "index_uid": str, "status": str, "kind": str, "canceled_by": int,
         "details": str, "error": str, "content": str, "payload": str, "payload_bytes": int, "custom_metadata": str,
         "enqueued_at": int, "started_at": int, "finished_at": int},
        pk="uid", not_null={"status", "kind", "enqueued_at"})
    database["batches"].create(
        {"uid": int, "details": str, "stats": str, "strategy": str, "started_at": int, "finished_at": int,
         "earliest_enqueued_at": int, "latest_enqueued_at": int}, pk="uid")
    for column in ("index_uid", "kind", "batch_uid", "canceled_by", "enqueued_at", "started_at", "finished_at"):
        database["tasks"].create_index([column])
    # The runner asks for the oldest enqueued task of a kind or an index, always.
    database["tasks"].create_index(["status", "kind", "uid"])
    _create_webhooks(database)
    _create_outbox(database)
    _create_keys(database)
    database["chat_workspaces"].create({"uid": str, "settings": str}, pk="uid", not_null={"settings"})
    _create_applied_log(database)


def _create_applied_log(database: Any) -> None:
    # Of a node of a cluster: see svcd.instance.applied_log. One row of log_position at most.
    database["log_position"].create({"id": int, "log": str, "applied": int, "term": int, "moment": int}, pk="id",
                                    not_null={"log", "applied", "term", "moment"})
    database["begun_batches"].create({"uid": int, "tasks": str, "shape": str, "strategy": str, "started_at": int, "end": str},
                                     pk="uid", not_null={"tasks", "shape", "strategy", "started_at"})


def _create_webhooks(database: Any) -> None:
    database["webhooks"].create({"uuid": str, "url": str, "headers": str}, pk="uuid", not_null={"url", "headers"})


def _create_outbox(database: Any) -> None:
    # AUTOINCREMENT: numbers are never reused, so a sender that is late cannot mark another notice as delivered.
    database.execute("CREATE TABLE notices(number INTEGER PRIMARY KEY AUTOINCREMENT, batch_uid INTEGER NOT NULL, "
                     "tasks INTEGER NOT NULL, length INTEGER NOT NULL, stored INTEGER NOT NULL, "
                     "ended_at INTEGER NOT NULL)")
    database["notice_parts"].create({"number": int, "part": int, "lines": bytes}, pk=("number", "part"))
    database.execute("CREATE TABLE outbox(webhook TEXT, number INTEGER, attempts INTEGER NOT NULL DEFAULT 0, "
                     "tried_at INTEGER, reason TEXT, given_up_at INTEGER, PRIMARY KEY(webhook, number)) WITHOUT ROWID")
    database["outbox"].create_index(["number"])
    database.execute("CREATE INDEX outbox_waiting ON outbox(webhook, number) WHERE given_up_at IS NULL")
    database.execute("CREATE INDEX outbox_given_up ON outbox(given_up_at) WHERE given_up_at IS NOT NULL")
    # A notice is deleted with its last row in the outbox.
    database.execute("CREATE TRIGGER outbox_trim AFTER DELETE ON outbox WHEN NOT EXISTS (SELECT 1 FROM outbox "
                     "WHERE number = OLD.number) BEGIN DELETE FROM notices WHERE number = OLD.number; END")
    database.execute("CREATE TRIGGER notices_trim AFTER DELETE ON notices "
                     "BEGIN DELETE FROM notice_parts WHERE number = OLD.number; END")


def _create_keys(database: Any) -> None:
    # expires_at is text: a key may outlast the year 2262, in which 64 bits of nanoseconds end.
    database["keys"].create(
        {"uid": str, "name": str, "description": str, "actions": str, "indexes": str, "expires_at": str,
         "created_at": int, "updated_at": int},
        pk="uid", not_null={"actions", "indexes", "created_at", "updated_at"})
    # How often a table that processes keep in memory was changed.
    database["revisions"].create({"subject": str, "number": int}, pk="subject", not_null={"number"})


def _create_index(database: Any) -> None:
    database["meta"].create({"key": str, "value": bytes}, pk="key")
    database["fields"].create({"fid": int, "name": str, "fts_column": int, "documents": int},
                              pk="fid", not_null={"name", "documents"}, defaults={"documents": 0})
    database["fields"].create_index(["name"], unique=True)
    database["documents"].create({"docid": int, "document_id": str, "json": str},
                                 pk="docid", not_null={"document_id", "json"})
    database["documents"].create_index(["document_id"], unique=True)
    database["forward_index"].create({"docid": int, "words": str}, pk="docid", not_null={"words"})
    database["field_word_counts"].create({"fts_column": int, "block": int, "counts": bytes}, pk=("fts_column", "block"))
    # Sets of documents are as svcd.base.docids encodes them, some in blocks (svcd.index.bitmap_blocks).
    # docids: written by the generation, null for too many. removed_terms: terms that no document holds any more, as JSON,
    # null when not known.
    database["changes"].create({"generation": int, "docids": bytes, "removed_terms": str}, pk="generation")
    # Sets of common terms and prefixes: see svcd.index.materialized.
    database.execute("CREATE TABLE materialized_postings (key TEXT NOT NULL, part INTEGER NOT NULL, "
                     "block INTEGER NOT NULL, docids BLOB NOT NULL, PRIMARY KEY (key, part, block)) WITHOUT ROWID")
    # Documents with a word that starts with a letter: see svcd.index.prefix_postings.
    database.execute("CREATE TABLE prefix_postings (letter TEXT NOT NULL, fts_column INTEGER NOT NULL, block INTEGER NOT NULL, "
                     "docids BLOB NOT NULL, PRIMARY KEY (letter, fts_column, block)) WITHOUT ROWID")
    _create_values(database)
    _create_geography(database)
    _create_vectors(database)
    columns = ", ".join(f"c{n}" for n in range(COLUMNS))
    # Every printable character belongs to a term; quotes are doubled once for the list, once for the option.
    characters = "".join(chr(c) for c in range(0x21, 0x7F) if not chr(c).isalnum()).replace("'", "''''").replace('"', '""')
    options = f"content='', columnsize=0, tokenize=\"ascii tokenchars '{characters}'\""
    database.execute(f"CREATE VIRTUAL TABLE terms USING fts5({columns}, detail=full, {options})")
    database.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(terms, 'row')")
    # Bucketed positions of terms: `terms` could tell them too, at a microsecond an occurrence.
    database.execute(f"CREATE VIRTUAL TABLE term_positions USING fts5(c0, detail=none, {options})")


def _create_values(database: Any) -> None:
    # Keys of all kinds are in one column: without a type, so that SQLite converts none of them. See svcd.index.value_writer.
    database.execute("CREATE TABLE value_postings (fid INTEGER NOT NULL, kind INTEGER NOT NULL, value NOT NULL, "
                     "block INTEGER NOT NULL, docids BLOB NOT NULL, spelling TEXT, "
                     "PRIMARY KEY (fid, kind, value, block)) WITHOUT ROWID")
    # Joined documents of neighbouring values; first: the smallest of them. See svcd.index.value_groups.
    database.execute("CREATE TABLE value_groups (fid INTEGER NOT NULL, kind INTEGER NOT NULL, level INTEGER NOT NULL, "
                     "first NOT NULL, block INTEGER NOT NULL, docids BLOB NOT NULL, "
                     "PRIMARY KEY (fid, kind, level, first, block)) WITHOUT ROWID")
    database["document_values"].create({"docid": int, "field_values": str}, pk="docid", not_null={"field_values"})


def _create_geography(database: Any) -> None:
    box = dict.fromkeys(("x0", "y0", "z0", "x1", "y1", "z1"), float)
    database["points"].create({"docid": int, "latitude": float, "longitude": float}, pk="docid",
                              not_null={"latitude", "longitude"})
    # Blobs come last, so that the columns that are read most often lie on the first page of a row. See geo_writer.
    database["point_blocks"].create(
        {"start": int, "size": int, "points": int, **box, "docids": bytes, "directions": bytes}, pk="start")
    database["point_regions"].create(
        {"start": int, "size": int, "points": int, **box, "generation": int, "docids": bytes}, pk="start")
    sides = {"south": float, "west": float, "north": float, "east": float}
    database["geometries"].create({"docid": int, "size": int, **sides, "geometry": bytes}, pk="docid")
    database["geometries"].create_index(["size", "south", "west", "north", "east"])


def _create_vectors(database: Any) -> None:
    # The embedders of the settings, each with a number below 256. fragments: JSON {name: number} of its indexing fragments;
    # vectors: how many its documents have. See svcd.index.vector_writer.
    database["embedders"].create(
        {"number": int, "name": str, "dimensions": int, "is_quantized": int, "fragments": str, "vectors": int},
        pk="number", not_null={"name", "dimensions", "is_quantized", "fragments", "vectors"})
    database["embedders"].create_index(["name"], unique=True)
    # id: row_id() of svcd.index.vector_rows; origin: a constant of it; fragments: a byte for each vector, the number of its
    # fragment, null where they are not of fragments; vectors: one after the other.
    database["document_vectors"].create({"id": int, "origin": int, "fragments": bytes, "vectors": bytes}, pk="id",
                                        not_null={"origin", "vectors"})
    # A few bits for each number of the vectors of some documents: see svcd.index.sketch_writer.
    database["vector_sketches"].create({"id": int, "generation": int, "docids": bytes, "sketches": bytes}, pk="id",
                                       not_null={"generation", "docids", "sketches"})
    # Sets of the documents of an embedder, in bitmap blocks. kind: a constant of svcd.index.vector_rows.
    database.execute("CREATE TABLE vector_postings (embedder INTEGER NOT NULL, kind INTEGER NOT NULL, block INTEGER NOT NULL, "
                     "docids BLOB NOT NULL, PRIMARY KEY (embedder, kind, block)) WITHOUT ROWID")


# The step that creates the tables of a new file, and {format: the step to the next format}. A format without a step
# changed nothing in this kind of file.
Kind = tuple[Create, Mapping[int, Create]]
INSTANCE: Kind = (_create_instance, {})
INDEX: Kind = (_create_index, {})


class NewerFormat(RuntimeError):
    """The file was written by a newer svcd than this one."""


def prepare(connection: sqlite3.Connection, kind: Kind) -> bool:
    """Create the tables of an empty file, or upgrade those of an old one; True when something was done.

    kind: INSTANCE or INDEX. Raises NewerFormat, and leaves the file as it was, when it is ahead of this svcd.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == FORMAT:
        return False
    if version > FORMAT:
        (path,) = (row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main")
        raise NewerFormat(f"{path} has format {version}; this svcd {__version__} reads up to format {FORMAT}: "
                          "start the svcd that wrote it, or a later one")
    create, upgrades = kind
    steps = [create] if not version else [upgrades[n] for n in range(version, FORMAT) if n in upgrades]
    connection.execute("BEGIN IMMEDIATE")
    try:
        if steps:
            # The import takes some 80 ms and 8 MB, which a start on an existing folder must not pay.
            from sqlite_utils import Database

            database: Any = Database(connection)
            for step in steps:
                step(database)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return True


def difference(connection: sqlite3.Connection, kind: Kind) -> str | None:
    """The name of a column or trigger of the current format that a file lacks, or of a trigger or view that svcd did not
    create; None when there is neither. For files that come from elsewhere, such as snapshots.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        prepare(fresh, kind)
        expected, found = _parts(fresh), _parts(connection)
    lacking = expected.keys() - found.keys()
    foreign = {part for part, sql in found.items() if sql and expected.get(part) != sql}
    return min(lacking | foreign, default=None)


def _parts(connection: sqlite3.Connection) -> dict[str, str]:
    """`table.column` of every column with "", and the name of every trigger and view with its SQL."""
    columns = connection.execute("SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c "
                                 "WHERE m.type = 'table'")
    code = connection.execute("SELECT name, ifnull(sql, ' ') FROM sqlite_master WHERE type IN ('trigger', 'view')")
    return {**dict.fromkeys((name for (name,) in columns), ""), **dict(code)}
