"""Reads materialized postings: precomputed sets, brought up to date with the delta.

svcd.index.materialized builds them; their format: docs/storage.md#materialized-postings.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence

from svcd.base.docids import EMPTY, DocIds
from svcd.index.bitmap_blocks import joined_blocks
from svcd.index.connections import meta
from svcd.index.read_transaction import Delta, ReadTransaction, placeholders

# FTS5 is quick enough for terms and prefixes with fewer documents.
LEAST = 1_024


def materialized_key(kind: str, term: str, is_prefix: bool) -> str:
    """Return the key of the sets of a term or prefix. kind: "word", "position", or "adjacent" for two terms with a space."""
    return f"{kind[0]}{'*' if is_prefix else ''}:{term}"


def stored_terms(connection: sqlite3.Connection, start: str, end: str) -> Iterator[str]:
    """Yield the terms from `start` to before `end` for which any set is stored, usable or not, in byte order.

    Some of these terms may occur in no document any more. In a damaged file keys may be in any order: UNION ends a loop of them.
    """
    first, last = materialized_key("word", start, False), materialized_key("word", end, False)
    for key, in connection.execute(  # a term has many rows: each step seeks the next term
            "WITH RECURSIVE stored (key) AS (SELECT min(key) FROM materialized_postings WHERE key >= ? UNION "
            "SELECT (SELECT min(key) FROM materialized_postings WHERE key > stored.key) FROM stored WHERE key < ?) "
            "SELECT key FROM stored WHERE key < ?", (first, last, last)):
        if (term := key.partition(":")[2])[-1:] > " ":  # else damaged
            yield term


class MaterializedReader:
    """The materialized postings in a read transaction. built_at: the generation of the sets, None while none exist."""

    def __init__(self, transaction: ReadTransaction, built_at: int | None) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._built_at = built_at
        self._are_stored: dict[str, bool] = {}

    def docids(self, kind: str, term: str, is_prefix: bool, part: int | None,
               written_members: Callable[[Delta], DocIds]) -> DocIds | None:
        """Return the documents of one part, or of all parts of a term or prefix; None if no usable set is stored.

        written_members: returns the documents of a delta that belong to the set now.
        """
        if self._built_at is None or (part is not None and not self.has(kind, term, is_prefix)):
            return None
        delta = self._delta()
        if self._built_at != self._transaction.generation and delta is None:
            return None
        key = materialized_key(kind, term, is_prefix)
        if part is None:
            rows = self._connection.execute("SELECT docids FROM materialized_postings WHERE key = ?", (key,)).fetchall()
            if not rows:
                return None
        else:
            rows = self._connection.execute(
                "SELECT docids FROM materialized_postings WHERE key = ? AND part = ?", (key, part)).fetchall()
        docids = joined_blocks(rows)
        return docids if delta is None else delta.updated(docids, written_members(delta))

    def adjacent_docids(self, left: str, right: str, is_prefix: bool,
                        written_members: Callable[[Delta], DocIds]) -> DocIds | None:
        """Documents in which `right` directly follows `left`; None as for docids()."""
        complete = self._complete_terms()
        if complete is None:
            return None
        docids = self.docids("adjacent", f"{left} {right}", is_prefix, None, written_members)
        if docids is not None or is_prefix or left not in complete or right not in complete:
            return docids
        if self._built_at == self._transaction.generation:
            return EMPTY
        delta = self._delta()
        return written_members(delta) if delta else None

    def has_adjacent(self, left: str, right: str, is_prefix: bool) -> bool:
        """Return whether the set of the pair is stored or known to be empty."""
        complete = self._complete_terms()
        if complete is None:
            return False
        is_complete = not is_prefix and left in complete and right in complete
        return is_complete or self.has("adjacent", f"{left} {right}", is_prefix)

    def _complete_terms(self) -> Collection[str] | None:
        """Terms whose pairs with each other all have sets: a missing pair means an empty set. None until all pairs are built."""
        if self._built_at is None:
            return None
        key = "complete terms", self._built_at  # each build belongs to another generation, and a write changes none
        known: Collection[str] | None = self._transaction.cached_value(key, lambda known, delta: known)
        if known is None:
            text = meta(self._connection, "materialized_pairs")
            if text is not None:
                known = self._transaction.cached(key, lambda: frozenset(json.loads(text)[1]))
        return known

    def any_docids(self, terms: Sequence[str]) -> tuple[Collection[str], DocIds]:
        """Return the terms that have usable sets, and the documents with any of them."""
        delta = self._delta()
        if self._built_at is None or (self._built_at != self._transaction.generation and delta is None):
            return (), EMPTY
        rows = self._connection.execute(
            f"SELECT key, docids FROM materialized_postings WHERE key IN ({placeholders(terms)})",
            [materialized_key("word", term, False) for term in terms]).fetchall()
        stored = {key.partition(":")[2] for key, _ in rows}
        docids = joined_blocks([(docids,) for _, docids in rows])
        return stored, docids if delta is None else delta.updated(docids, delta.any_term_docids(stored))

    def may_have(self, documents: int) -> bool:
        """Return whether terms with this number of documents may have sets."""
        return self._built_at is not None and documents >= LEAST

    def has(self, kind: str, term: str, is_prefix: bool) -> bool:
        """Return whether a term or prefix has sets. If so, a missing part is empty."""
        if self._built_at is None:
            return False
        key = materialized_key(kind, term, is_prefix)
        known = self._are_stored.get(key)
        if known is None:
            row = self._connection.execute("SELECT 1 FROM materialized_postings WHERE key = ? LIMIT 1", (key,)).fetchone()
            known = self._are_stored[key] = row is not None
        return known

    def _delta(self) -> Delta | None:
        """The documents written since the sets were built; None if nothing was written, or too much."""
        if self._built_at is None or self._built_at == self._transaction.generation:
            return None
        return self._transaction.delta_since(self._built_at)
