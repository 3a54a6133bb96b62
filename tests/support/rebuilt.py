"""Compares the file of an index with one that is built afresh from its documents and settings.

Both are read without what depends on their history: docids become identifiers, numbers of fields and columns become names, bitmap
blocks are joined. What is then different is a posting that some write, or some recovery, has left wrong.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from svcd.base.docids import from_bytes
from svcd.index import fts
from svcd.index.schema import COUNT_BLOCK, DOCID_BITS
from svcd.index.vector_reader import REGENERATED, docid_of, embedder_rows, stored_vectors
from svcd.tasks import batching
from svcd.tasks.indexing import IndexingTask, apply_batch
from svcd.tasks.indexing_client import MemoryBudget

_SHOWN = 5  # differences of one table that are told

Content = dict[Any, Any]


def differences(path: Path, work: Path) -> list[str]:
    """What an index holds otherwise than it should, nothing when all is well. work: a folder for the other one."""
    other = work / "rebuilt.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        _build(other, connection)
        with closing(sqlite3.connect(other)) as rebuilt:
            return list(_compare(_contents(connection), _contents(rebuilt)))


def _build(path: Path, connection: sqlite3.Connection) -> None:
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    settings = json.loads(meta.get("settings") or "{}")
    vectors = _raw_vectors(connection)
    payload = path.with_suffix(".ndjson")
    with payload.open("w", encoding="utf-8") as file:
        for docid, text in connection.execute("SELECT docid, json FROM documents ORDER BY docid"):
            document = json.loads(text)
            if docid in vectors:
                document["_vectors"] = vectors[docid]
            file.write(json.dumps(document, ensure_ascii=False) + "\n")
    steps: list[tuple[str, str, Mapping[str, Any], bool]] = [
        ("indexCreation", "indexCreation", {"primaryKey": meta.get("primary_key")}, False)]
    if settings:
        steps.append((batching.SETTINGS, "settingsUpdate", {"settings": settings}, False))
    if payload.stat().st_size:
        steps.append((batching.DOCUMENTS, "documentAdditionOrUpdate", {"method": "replace", "isImport": True}, True))
    for uid, (shape, kind, content, has_payload) in enumerate(steps):
        task = IndexingTask(uid, kind, content, uid, str(payload) if has_payload else None,
                            payload.stat().st_size if has_payload else 0)
        (outcome,) = apply_batch(path, "rebuilt", shape, [task], MemoryBudget())["outcomes"]
        assert outcome["error"] is None, outcome


def _raw_vectors(connection: sqlite3.Connection) -> dict[int, dict[str, Any]]:
    """docid -> the vectors that were given for its document, as a document has them."""
    embedders = {row.number: row for row in embedder_rows(connection)}
    found: dict[int, dict[str, Any]] = {}
    for row, origin, stored in connection.execute("SELECT id, origin, vectors FROM document_vectors"):
        embedder = embedders[row >> DOCID_BITS]
        vectors = stored_vectors(stored, origin, embedder.dimensions, embedder.is_quantized)
        found.setdefault(docid_of(row), {})[embedder.name] = {
            "embeddings": [vector.tolist() for vector in vectors], "regenerate": bool(origin & REGENERATED)}
    return found


def _contents(connection: sqlite3.Connection) -> dict[str, Content]:
    """What the tables hold, by table."""
    ids = dict(connection.execute("SELECT docid, document_id FROM documents"))
    fields = dict(connection.execute("SELECT fid, name FROM fields"))
    columns = dict(connection.execute("SELECT fts_column, name FROM fields WHERE fts_column IS NOT NULL"))
    embedders = {row.number: row.name for row in embedder_rows(connection)}

    def joined(rows: Iterable[tuple[Any, ...]]) -> Content:
        """Bitmap blocks: (what they are of..., docids)."""
        found: Content = {}
        for *key, docids in rows:
            found.setdefault(tuple(key), set()).update(ids.get(docid, f"no document {docid}") for docid in from_bytes(docids))
        return found

    def named(text: str) -> dict[str, Any]:
        return {fields[int(fid)]: values for fid, values in json.loads(text).items()}

    meta = dict(connection.execute("SELECT key, value FROM meta"))
    values = [(fields[fid], *row) for fid, *row in connection.execute("SELECT fid, kind, value, docids FROM value_postings")]
    groups = [(fields[fid], *row) for fid, *row in connection.execute("SELECT fid, kind, level, first, docids FROM value_groups")]
    letters = [(letter, columns[column], docids)
               for letter, column, docids in connection.execute("SELECT letter, fts_column, docids FROM prefix_postings")]
    vectors = [(embedders[embedder], *row) for embedder, *row in
               connection.execute("SELECT embedder, kind, docids FROM vector_postings")]
    connection.execute("CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab(main, terms, 'instance')")
    connection.execute("CREATE VIRTUAL TABLE temp.places USING fts5vocab(main, term_positions, 'row')")
    return {
        "documents": {document_id: json.loads(text) for document_id, text in
                      connection.execute("SELECT document_id, json FROM documents")},
        "docids": joined([("all", meta.get("docids", b""))]),
        "fields": dict(connection.execute("SELECT name, documents FROM fields WHERE documents > 0")),
        "forward_index": {ids[docid]: {columns[column]: row for column, row in fts.forward_rows(words).items()}
                          for docid, words in connection.execute("SELECT docid, words FROM forward_index")},
        "terms": {(ids[docid], columns[int(column[1:])], offset): term for docid, column, offset, term in
                  connection.execute("SELECT doc, col, offset, term FROM temp.occurrences")},
        "term_positions": dict(connection.execute("SELECT term, doc FROM temp.places")),
        "field_word_counts": dict(_word_counts(connection, columns, ids)),
        "prefix_postings": joined(letters),
        "value_postings": joined(values),
        "value_groups": joined(groups),
        "document_values": {ids[docid]: named(text) for docid, text in
                            connection.execute("SELECT docid, field_values FROM document_values")},
        "vector_postings": joined(vectors),
        "document_vectors": {(embedders[row >> DOCID_BITS], ids[docid_of(row)]): (origin, stored) for row, origin, stored in
                             connection.execute("SELECT id, origin, vectors FROM document_vectors")},
    }


def _word_counts(connection: sqlite3.Connection, columns: Mapping[int, str],
                 ids: Mapping[int, str]) -> Iterator[tuple[tuple[str, str], int]]:
    for column, block, counts in connection.execute("SELECT fts_column, block, counts FROM field_word_counts"):
        for offset, count in enumerate(counts):
            if count:
                docid = block * COUNT_BLOCK + offset
                yield (columns[column], ids.get(docid, f"no document {docid}")), count


def _compare(found: Mapping[str, Content], expected: Mapping[str, Content]) -> Iterator[str]:
    for table, content in found.items():
        other = expected[table]
        wrong = [key for key in content.keys() | other.keys() if content.get(key) != other.get(key)]
        for key in sorted(wrong, key=repr)[:_SHOWN]:
            yield f"{table} {key!r}: {content.get(key)!r}, rebuilt {other.get(key)!r}"
