"""Merges the segments of the FTS5 tables while nothing else waits: each query looks into every segment.

FTS5 merges by itself as it writes, so that some segments of each size are left: a few after an import, a dozen after writes. In
one segment a term is found in half the time.
"""
from __future__ import annotations

import sqlite3

TABLES = "terms", "term_positions"
_PAGES_AT_ONCE = 100  # some 10 ms
_LEAST_CHANGES = 2  # a merge that changes fewer rows had nothing to do: https://www.sqlite.org/fts5.html#the_merge_command


def merge_into_one(writer: sqlite3.Connection, table: str) -> bool:
    """Merge some pages of the segments of a table into one segment of all, inside a transaction; is there more to do?"""
    before = writer.total_changes
    writer.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (-_PAGES_AT_ONCE,))
    return writer.total_changes - before >= _LEAST_CHANGES
