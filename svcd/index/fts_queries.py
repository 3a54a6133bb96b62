"""Queries of FTS5's language, and the sets of documents that match them."""
from __future__ import annotations

import sqlite3

from svcd.base.docids import DocIds
from svcd.index import fts_encoding
from svcd.index.bitmap_blocks import listed_docids


def fts_phrase(terms: str, is_prefix: bool) -> str:
    """A phrase: terms with a space between, the last one perhaps a prefix."""
    return fts_encoding.fts_string(terms) + (" *" if is_prefix else "")


def matching_docids(connection: sqlite3.Connection, table: str, query: str) -> DocIds:
    """The documents of an FTS5 table that match a query."""
    (docids,) = connection.execute(f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH ?", (query,)).fetchone()
    return listed_docids(docids)
