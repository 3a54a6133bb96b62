"""Runs queries on the FTS5 tables, which return sets of documents, and merges the segments of these tables."""
from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from svcd.base.docids import DocIds, union_of
from svcd.index import fts_encoding
from svcd.index.bitmap_blocks import listed_docids

# For each document FTS5 checks every term of an OR: among a million documents a term takes 68 us in a query of 160 terms, 47 in
# one of 80, 21 in one of 10, and 26 alone.
_TERMS_PER_QUERY = 10


def fts_phrase(terms: str, is_prefix: bool) -> str:
    """Return a phrase. terms: separated by spaces. is_prefix: the last term is a prefix."""
    return fts_encoding.fts_string(terms) + (" *" if is_prefix else "")


def matching_docids(connection: sqlite3.Connection, table: str, query: str) -> DocIds:
    """Return the documents of an FTS5 table that match a query."""
    (docids,) = connection.execute(f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH ?", (query,)).fetchone()
    return listed_docids(docids)


def docids_of_any(connection: sqlite3.Connection, table: str, terms: Sequence[str], in_column: str = "") -> DocIds:
    """Return the documents of an FTS5 table that hold any of some terms. in_column: a column filter of the query language."""
    strings = list(map(fts_encoding.fts_string, terms))
    portions = (strings[start:start + _TERMS_PER_QUERY] for start in range(0, len(strings), _TERMS_PER_QUERY))
    return union_of(matching_docids(connection, table, f"{in_column}({' OR '.join(portion)})") for portion in portions)


# Merging segments
#
# Each query searches every segment. FTS5 itself merges as it writes, but leaves some segments of each size: a few after an
# import, a dozen after writes. It finds a term in half the time when there is only one segment.

TABLES = "terms", "term_positions"
_PAGES_AT_ONCE = 100  # some 10 ms
_LEAST_CHANGES = 2  # a merge that changes fewer rows is finished: https://www.sqlite.org/fts5.html#the_merge_command


def begin_merge(writer: sqlite3.Connection, table: str) -> None:
    """Begin to merge all segments of a table into one, inside a transaction."""
    _merge(writer, table, -_PAGES_AT_ONCE)  # a negative number includes all segments


def continue_merge(writer: sqlite3.Connection, table: str) -> bool:
    """Merge some more pages, inside a transaction. Return whether pages are left to merge.

    Segments written since the merge began are left alone: otherwise it would start again after each write.
    """
    before = writer.total_changes
    _merge(writer, table, _PAGES_AT_ONCE)
    return writer.total_changes - before >= _LEAST_CHANGES


def _merge(writer: sqlite3.Connection, table: str, pages: int) -> None:
    writer.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (pages,))
