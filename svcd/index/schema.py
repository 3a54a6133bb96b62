"""The tables of both kinds of file, the upgrades between their formats, and the checksums of rows.

`instance.sqlite` holds the queue and the list of indexes, `indexes/<uuid>.sqlite` one index (docs/storage.md#tables). Each file
has its format in `user_version`. INSTANCE and INDEX have the steps from each format to the next; all steps of a file run in one
transaction, so that the file is in the old format or in the new one, never between.

Rows that cannot be derived from other data of the folder have checksums: documents, vectors, settings, tasks, keys. SQLite
detects damage in the structure of a file, not in the content of a row. All other rows of an index follow from its documents, and
`svcd verify --full` compares them with rows rebuilt from these (svcd.tasks.rebuild). A row written in format 1 has no checksum
(null) until it is written again. See docs/storage.md#damage.
"""
from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any
from zlib import crc32

from svcd import __version__

_CHECKSUM = "svcd_checksum"
_ADD_CHECKSUM = "ALTER TABLE {} ADD COLUMN checksum INTEGER"

# table -> the columns that its checksum covers
Tables = Mapping[str, Sequence[str]]
INDEX_CHECKSUMS: Tables = {
    "meta": ("key", "value"),
    "documents": ("docid", "document_id", "json"),
    "changes": ("generation", "docids", "removed_terms"),
    "embedders": ("number", "name", "dimensions", "is_quantized", "fragments"),
    "document_vectors": ("id", "origin", "fragments", "vectors"),
}
INSTANCE_CHECKSUMS: Tables = {
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


def define_checksum(connection: sqlite3.Connection) -> None:
    """Make row_checksum() an SQL function, which the triggers of instance.sqlite call."""
    connection.create_function(_CHECKSUM, -1, row_checksum, deterministic=True)


def _checksum_triggers(tables: Tables) -> Iterator[str]:
    """Yield the statements that keep checksums up to date, whatever writes the tables.

    Only for instance.sqlite: in an index file, each statement with a trigger would make FTS5 write its gathered postings.
    """
    for table, covered in tables.items():
        row = "webhook = NEW.webhook AND number = NEW.number" if table == "outbox" else "rowid = NEW.rowid"
        body = f"BEGIN UPDATE {table} SET checksum = {_CHECKSUM}({_names('NEW.', covered)}) WHERE {row}; END"
        yield f"CREATE TRIGGER {table}_checksum_insert AFTER INSERT ON {table} {body}"
        yield f"CREATE TRIGGER {table}_checksum_update AFTER UPDATE OF {_names('', covered)} ON {table} {body}"


def _checksum_fillers(tables: Tables) -> list[str]:
    """Return the statements that fill in missing checksums of the small tables."""
    return [checksum_filler(table, tables) for table in tables.keys() - LARGE]


def checksum_filler(table: str, tables: Tables = INDEX_CHECKSUMS) -> str:
    """Return the statement that fills in missing checksums of a table."""
    return f"UPDATE {table} SET checksum = {_CHECKSUM}({_names('', tables[table])}) WHERE checksum IS NULL"


def _names(prefix: str, covered: Sequence[str]) -> str:
    return ", ".join(f'{prefix}"{name}"' for name in covered)


def checksum_faults(connection: sqlite3.Connection, tables: Tables, without: dict[str, int]) -> Iterator[str]:
    """Yield the rows that differ from their checksums, a sentence each.

    connection: must read texts as bytes, since damaged texts may not be UTF-8. without: gets table -> rows without checksum.
    """
    for table, covered in tables.items():
        for *values, checksum in connection.execute(f"SELECT {_names('', covered)}, checksum FROM {table}"):
            if checksum is None:
                without[table] = without.get(table, 0) + 1
            elif checksum != row_checksum(*values):
                yield f"the row {values[0]!r} of {table} differs from its checksum"


FORMAT = 3  # 1: without checksums; 2: without word counts
FIRST_WITH_CHECKSUMS = 2

# FTS5 fixes the number of columns when a table is created. All further fields share the last column; the forward index then
# tells which of them holds a term. Indexes with more than 31 searchable fields are rare.
COLUMNS = 32
SHARED_COLUMN = COLUMNS - 1

# Documents per row of field_word_counts, one byte each: about half a page, and an update rewrites one page at least.
COUNT_BLOCK = 4096
# Fields with more words are in no set of `field_count_docids` (docs/ranking.md#exactness).
COUNTED_WORDS = 30
# Indexes with at least this many documents have materialized postings; FTS5 reads all sets of smaller ones quickly.
LEAST_DOCUMENTS = 4_096

# Rows of document_vectors are ordered by embedder, then by docid.
DOCID_BITS = 40

Step = Callable[[sqlite3.Connection], None]


def statements(*sql: str) -> Step:
    """Return a step that runs these statements."""
    def run(connection: sqlite3.Connection) -> None:
        for each in sql:
            connection.execute(each)

    return run


_INSTANCE_TABLES = (
    "CREATE TABLE indexes (uid TEXT PRIMARY KEY, uuid TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
    "primary_key TEXT, stats TEXT NOT NULL)",
    "CREATE TABLE features (name TEXT PRIMARY KEY, enabled INTEGER)",
    # One row at most; value: JSON of svcd.instance.network.
    "CREATE TABLE network (id INTEGER PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE tasks (uid INTEGER PRIMARY KEY, batch_uid INTEGER, index_uid TEXT, status TEXT NOT NULL, kind TEXT NOT NULL, "
    "canceled_by INTEGER, details TEXT, error TEXT, content TEXT, payload TEXT, payload_bytes INTEGER, custom_metadata TEXT, "
    "enqueued_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER)",
    "CREATE TABLE batches (uid INTEGER PRIMARY KEY, details TEXT, stats TEXT, strategy TEXT, started_at INTEGER, "
    "finished_at INTEGER, earliest_enqueued_at INTEGER, latest_enqueued_at INTEGER)",
    *(f"CREATE INDEX idx_tasks_{column} ON tasks({column})" for column in (
        "index_uid", "kind", "batch_uid", "canceled_by", "enqueued_at", "started_at", "finished_at")),
    # The runner often asks for the oldest enqueued task of a kind or an index.
    "CREATE INDEX idx_tasks_status_kind_uid ON tasks(status, kind, uid)",
    "CREATE TABLE chat_workspaces (uid TEXT PRIMARY KEY, settings TEXT NOT NULL)",
)
_OUTBOX_TABLES = (
    "CREATE TABLE webhooks (uuid TEXT PRIMARY KEY, url TEXT NOT NULL, headers TEXT NOT NULL)",
    # AUTOINCREMENT: numbers are never reused, so a late sender cannot mark another notice as delivered.
    "CREATE TABLE notices (number INTEGER PRIMARY KEY AUTOINCREMENT, batch_uid INTEGER NOT NULL, tasks INTEGER NOT NULL, "
    "length INTEGER NOT NULL, stored INTEGER NOT NULL, ended_at INTEGER NOT NULL)",
    "CREATE TABLE notice_parts (number INTEGER, part INTEGER, lines BLOB, PRIMARY KEY (number, part))",
    "CREATE TABLE outbox (webhook TEXT, number INTEGER, attempts INTEGER NOT NULL DEFAULT 0, tried_at INTEGER, reason TEXT, "
    "given_up_at INTEGER, PRIMARY KEY (webhook, number)) WITHOUT ROWID",
    "CREATE INDEX idx_outbox_number ON outbox(number)",
    "CREATE INDEX outbox_waiting ON outbox(webhook, number) WHERE given_up_at IS NULL",
    "CREATE INDEX outbox_given_up ON outbox(given_up_at) WHERE given_up_at IS NOT NULL",
    # A notice is deleted with its last row in the outbox.
    "CREATE TRIGGER outbox_trim AFTER DELETE ON outbox WHEN NOT EXISTS (SELECT 1 FROM outbox WHERE number = OLD.number) "
    "BEGIN DELETE FROM notices WHERE number = OLD.number; END",
    "CREATE TRIGGER notices_trim AFTER DELETE ON notices BEGIN DELETE FROM notice_parts WHERE number = OLD.number; END",
)
_KEY_TABLES = (
    # expires_at is text: a key may outlast the year 2262, in which 64 bits of nanoseconds end.
    "CREATE TABLE keys (uid TEXT PRIMARY KEY, name TEXT, description TEXT, actions TEXT NOT NULL, indexes TEXT NOT NULL, "
    "expires_at TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL)",
    # How often a table was changed that processes cache in memory.
    "CREATE TABLE revisions (subject TEXT PRIMARY KEY, number INTEGER NOT NULL)",
)
# For a node of a cluster: see svcd.instance.applied_log. log_position has one row at most.
_CLUSTER_TABLES = (
    "CREATE TABLE log_position (id INTEGER PRIMARY KEY, log TEXT NOT NULL, applied INTEGER NOT NULL, term INTEGER NOT NULL, "
    "moment INTEGER NOT NULL)",
    "CREATE TABLE begun_batches (uid INTEGER PRIMARY KEY, tasks TEXT NOT NULL, shape TEXT NOT NULL, strategy TEXT NOT NULL, "
    "started_at INTEGER NOT NULL, \"end\" TEXT)",
)
# Sets of documents are in the encoding of svcd.base.docids, some in blocks (svcd.index.bitmap_blocks).
_DOCUMENT_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB)",
    "CREATE TABLE fields (fid INTEGER PRIMARY KEY, name TEXT NOT NULL, fts_column INTEGER, documents INTEGER NOT NULL DEFAULT 0)",
    "CREATE UNIQUE INDEX idx_fields_name ON fields(name)",
    "CREATE TABLE documents (docid INTEGER PRIMARY KEY, document_id TEXT NOT NULL, json TEXT NOT NULL)",
    "CREATE UNIQUE INDEX idx_documents_document_id ON documents(document_id)",
    # docids: written by the generation, null for too many. removed_terms: JSON of terms that no document holds any more, null
    # when unknown.
    "CREATE TABLE changes (generation INTEGER PRIMARY KEY, docids BLOB, removed_terms TEXT)",
)
_VALUE_TABLES = (
    # Keys of all kinds are in one column without a type, so that SQLite converts none of them. See svcd.index.value_writer.
    "CREATE TABLE value_postings (fid INTEGER NOT NULL, kind INTEGER NOT NULL, value NOT NULL, block INTEGER NOT NULL, "
    "docids BLOB NOT NULL, spelling TEXT, PRIMARY KEY (fid, kind, value, block)) WITHOUT ROWID",
    # Joined documents of neighbouring values; first: the smallest value. See svcd.index.value_groups.
    "CREATE TABLE value_groups (fid INTEGER NOT NULL, kind INTEGER NOT NULL, level INTEGER NOT NULL, first NOT NULL, "
    "block INTEGER NOT NULL, docids BLOB NOT NULL, PRIMARY KEY (fid, kind, level, first, block)) WITHOUT ROWID",
    "CREATE TABLE document_values (docid INTEGER PRIMARY KEY, field_values TEXT NOT NULL)",
)
# Blobs come last, so that the most-read columns are on the first page of a row. See svcd.index.geo_writer.
_BOX = "x0 REAL, y0 REAL, z0 REAL, x1 REAL, y1 REAL, z1 REAL"
_GEO_TABLES = (
    "CREATE TABLE points (docid INTEGER PRIMARY KEY, latitude REAL NOT NULL, longitude REAL NOT NULL)",
    f"CREATE TABLE point_blocks (start INTEGER PRIMARY KEY, size INTEGER, points INTEGER, {_BOX}, docids BLOB, directions BLOB)",
    f"CREATE TABLE point_regions (start INTEGER PRIMARY KEY, size INTEGER, points INTEGER, {_BOX}, generation INTEGER, "
    "docids BLOB)",
    "CREATE TABLE geometries (docid INTEGER PRIMARY KEY, size INTEGER, south REAL, west REAL, north REAL, east REAL, "
    "geometry BLOB)",
    "CREATE INDEX idx_geometries_size_south_west_north_east ON geometries(size, south, west, north, east)",
)
_VECTOR_TABLES = (
    # The embedders of the settings, each with a number below 256. fragments: JSON {name: number} of its indexing fragments;
    # vectors: the number of its vectors in all documents. See svcd.index.vector_writer.
    "CREATE TABLE embedders (number INTEGER PRIMARY KEY, name TEXT NOT NULL, dimensions INTEGER NOT NULL, "
    "is_quantized INTEGER NOT NULL, fragments TEXT NOT NULL, vectors INTEGER NOT NULL)",
    "CREATE UNIQUE INDEX idx_embedders_name ON embedders(name)",
    # id: row_id() of svcd.index.vector_reader; origin: flags of that module; fragments: a byte for each vector, the number of its
    # fragment, null without fragments; vectors: one after the other.
    "CREATE TABLE document_vectors (id INTEGER PRIMARY KEY, origin INTEGER NOT NULL, fragments BLOB, vectors BLOB NOT NULL)",
    # A few bits for each number of the vectors of some documents: see svcd.index.vector_writer.
    "CREATE TABLE vector_sketches (id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, docids BLOB NOT NULL, "
    "sketches BLOB NOT NULL)",
    # Sets of the documents of an embedder, in bitmap blocks. kind: a constant of svcd.index.vector_reader.
    "CREATE TABLE vector_postings (embedder INTEGER NOT NULL, kind INTEGER NOT NULL, block INTEGER NOT NULL, "
    "docids BLOB NOT NULL, PRIMARY KEY (embedder, kind, block)) WITHOUT ROWID",
)
# Every printable character belongs to a term; quotes are doubled once for the list, once for the option.
_CHARACTERS = "".join(chr(c) for c in range(0x21, 0x7F) if not chr(c).isalnum()).replace("'", "''''").replace('"', '""')
_FTS_OPTIONS = f"content='', columnsize=0, tokenize=\"ascii tokenchars '{_CHARACTERS}'\""
# Frequencies and lengths for BM25: see svcd.index.word_counts.
_WORD_COUNT_TABLES = (
    "CREATE TABLE word_frequencies (term TEXT NOT NULL, block INTEGER NOT NULL, docids BLOB NOT NULL, codes BLOB NOT NULL, "
    "PRIMARY KEY (term, block)) WITHOUT ROWID",
    "CREATE TABLE document_lengths (block INTEGER PRIMARY KEY, codes BLOB NOT NULL)",
)
_WORD_TABLES = (
    "CREATE TABLE forward_index (docid INTEGER PRIMARY KEY, words TEXT NOT NULL)",
    "CREATE TABLE field_word_counts (fts_column INTEGER, block INTEGER, counts BLOB, PRIMARY KEY (fts_column, block))",
    # Sets of common terms and prefixes: see svcd.index.materialized.
    "CREATE TABLE materialized_postings (key TEXT NOT NULL, part INTEGER NOT NULL, block INTEGER NOT NULL, "
    "docids BLOB NOT NULL, PRIMARY KEY (key, part, block)) WITHOUT ROWID",
    # Documents with a word that starts with a letter: see svcd.index.prefix_postings.
    "CREATE TABLE prefix_postings (letter TEXT NOT NULL, fts_column INTEGER NOT NULL, block INTEGER NOT NULL, "
    "docids BLOB NOT NULL, PRIMARY KEY (letter, fts_column, block)) WITHOUT ROWID",
    f"CREATE VIRTUAL TABLE terms USING fts5({', '.join(f'c{n}' for n in range(COLUMNS))}, detail=full, {_FTS_OPTIONS})",
    "CREATE VIRTUAL TABLE vocabulary USING fts5vocab(terms, 'row')",
    # Bucketed positions of terms: `terms` has them too, but reading one takes a microsecond an occurrence.
    f"CREATE VIRTUAL TABLE term_positions USING fts5(c0, detail=none, {_FTS_OPTIONS})",
)


# The step that creates the tables of a new file, and {format: the step to the next format}. A format without a step changed
# nothing in this kind of file.
Kind = tuple[Step, Mapping[int, Step]]
# Early data folders of format 1 lack the tables of clusters.
_LATE_TABLES = [sql.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS") for sql in _CLUSTER_TABLES]
_ADD_INSTANCE_CHECKSUMS = (*map(_ADD_CHECKSUM.format, INSTANCE_CHECKSUMS), *_checksum_triggers(INSTANCE_CHECKSUMS))
_ADD_INDEX_CHECKSUMS = tuple(map(_ADD_CHECKSUM.format, INDEX_CHECKSUMS))
INSTANCE: Kind = (statements(*_INSTANCE_TABLES, *_OUTBOX_TABLES, *_KEY_TABLES, *_CLUSTER_TABLES, *_ADD_INSTANCE_CHECKSUMS),
                  {1: statements(*_LATE_TABLES, *_ADD_INSTANCE_CHECKSUMS, *_checksum_fillers(INSTANCE_CHECKSUMS))})
INDEX: Kind = (statements(*_DOCUMENT_TABLES, *_VALUE_TABLES, *_GEO_TABLES, *_VECTOR_TABLES, *_WORD_TABLES, *_WORD_COUNT_TABLES,
                          *_ADD_INDEX_CHECKSUMS),
               {1: statements(*_ADD_INDEX_CHECKSUMS, *_checksum_fillers(INDEX_CHECKSUMS)),
                2: statements(*_WORD_COUNT_TABLES)})


class NewerFormat(RuntimeError):
    """The file was written by a newer version of svcd."""


def prepare(connection: sqlite3.Connection, kind: Kind) -> bool:
    """Create the tables of an empty file, or upgrade an old one. Return whether anything was done.

    kind: INSTANCE or INDEX. Raises NewerFormat for a file of a newer format, which stays unchanged.
    """
    define_checksum(connection)
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
        for step in steps:
            step(connection)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return True


def difference(connection: sqlite3.Connection, kind: Kind) -> str | None:
    """Return the name of a column or trigger that a file lacks, or of a trigger or view that svcd did not create; or None.

    For files from outside, such as snapshots. The file must have the current format.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        prepare(fresh, kind)
        expected, found = _parts(fresh), _parts(connection)
    lacking = expected.keys() - found.keys()
    foreign = {part for part, sql in found.items() if sql and expected.get(part) != sql}
    return min(lacking | foreign, default=None)


# Tables whose statements depend on the version of FTS5; others exist only with materialized postings, and with --changes-keep.
_OTHERS_MAKE = ("sqlite_", "terms_", "term_positions_", "materialized_leaves", "document_changes")


def odd_statements(connection: sqlite3.Connection, kind: Kind) -> list[str]:
    """Return the names of tables, SQL indexes and triggers whose statement differs from the current format."""
    def statements_of(of: sqlite3.Connection) -> dict[str, Any]:
        rows = of.execute("SELECT CAST(name AS TEXT), CAST(sql AS TEXT), type, tbl_name FROM sqlite_master").fetchall()
        # Early files have the same statements with other blanks and quotes around names; FTS5 options contain quotes.
        return {_text(name): tuple(re.sub(r'[\s"]', "", _text(each)) for each in rest)
                for name, *rest in rows if not _text(name).startswith(_OTHERS_MAKE)}

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        prepare(fresh, kind)
        expected = statements_of(fresh)
    found = statements_of(connection)
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def _text(value: str | bytes | None) -> str:
    """Decode a text of a connection that may read texts as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _parts(connection: sqlite3.Connection) -> dict[str, str]:
    """Return `table.column` of every column with "", and the name of every trigger and view with its SQL."""
    columns = connection.execute("SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c "
                                 "WHERE m.type = 'table'")
    code = connection.execute("SELECT name, ifnull(sql, ' ') FROM sqlite_master WHERE type IN ('trigger', 'view')")
    return {**dict.fromkeys((name for (name,) in columns), ""), **dict(code)}
