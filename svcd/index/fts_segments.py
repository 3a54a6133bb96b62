"""Merges the segments of the FTS5 tables while nothing else waits: each query looks into every segment.

FTS5 merges by itself as it writes, so that some segments of each size are left: a few after an import, a dozen after writes. In
one segment a term is found in half the time.
"""
from __future__ import annotations

import sqlite3

TABLES = "terms", "term_positions"
_PAGES_AT_ONCE = 100  # some 10 ms
_LEAST_CHANGES = 2  # a merge that changes fewer rows had nothing to do: https://www.sqlite.org/fts5.html#the_merge_command


def begin_merge(writer: sqlite3.Connection, table: str) -> None:
    """Begin to merge all segments of a table into one, inside a transaction."""
    _merge(writer, table, -_PAGES_AT_ONCE)


def go_on(writer: sqlite3.Connection, table: str) -> bool:
    """Merge some more pages, inside a transaction; is there more to do?

    Segments that were written since the merge began are left alone: with them it would begin again after each write.
    """
    before = writer.total_changes
    _merge(writer, table, _PAGES_AT_ONCE)
    return writer.total_changes - before >= _LEAST_CHANGES


def _merge(writer: sqlite3.Connection, table: str, pages: int) -> None:
    """pages: below 0 if all segments shall become one."""
    writer.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (pages,))
