"""Materialized postings: precomputed sets for common terms, short prefixes and pairs of terms.

Reading a set from FTS5 costs 45 us and 0.2 us a document; the set of a prefix costs 0.3 us an occurrence: 0.05 s for "fr" among a
million documents. The table `materialized_postings` has the sets of terms and prefixes with at least LEAST documents, in any
field, in one field and at a position, as bitmap blocks. All sets belong to one generation, which `meta` names; readers bring
them up to date with the delta, like any cached set.

They are built from the vocabulary and the forward index after the batch that made them necessary, while nothing else waits
(svcd.index.materialized_build). This module decides whether they are rebuilt or refreshed: when few documents were written
since, only the blocks of these documents are refreshed. See docs/storage.md#materialized-postings.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes
from svcd.index import fts_encoding
from svcd.index.bitmap_blocks import WHOLE, blocks_of
from svcd.index.connections import meta, set_meta, write_transaction
from svcd.index.materialized_build import (
    INSERT, SHARE, Build, Builder, ShouldStop, Stopped, begin, bring_up_to_date, build_of, generation_of, has_changed,
    newest_generation, written_since,
)
from svcd.index.materialized_pairs import ChosenPairs, adjacent_docids
from svcd.index.materialized_reader import materialized_key
from svcd.index.read_transaction import forward_texts, placeholders
from svcd.index.schema import LEAST_DOCUMENTS, SHARED_COLUMN
from svcd.text.term_positions import bucketed_position

# The sets are refreshed when searches would have to check more generations or more written documents for each set.
MOST_GENERATIONS = 50
MOST_WRITTEN = 500
_KEYS_AT_ONCE = 1_000  # refreshed in one transaction: some 0.05 s


def is_stale(connection: sqlite3.Connection, documents: int) -> bool:
    """Return whether the sets of an index should be built or refreshed. connection: any connection to its file."""
    if documents < LEAST_DOCUMENTS:
        return False
    build = build_of(connection)
    if build is None or not build.is_complete or has_changed(build, documents):
        return True
    built_at = generation_of(connection)
    if built_at is None or newest_generation(connection) - built_at > MOST_GENERATIONS:
        return True
    written = written_since(connection, built_at)
    return written is None or len(written) > MOST_WRITTEN


def materialize(writer: sqlite3.Connection, docids: DocIds, should_stop: ShouldStop) -> bool:
    """Build or refresh the sets until should_stop(), and keep finished work. Return True when all sets are done.

    writer: the writing connection, outside a transaction. docids: all documents of the index.
    """
    documents, generation = len(docids), newest_generation(writer)
    build, built_at = build_of(writer), generation_of(writer)
    written = None if built_at is None else written_since(writer, built_at)
    if build is None or written is None or len(written) * SHARE > documents or has_changed(build, documents):
        build, written = Build(generation, documents), EMPTY
        with write_transaction(writer):
            begin(writer, build)
    elif build.is_gathering:
        with write_transaction(writer):
            build, written = bring_up_to_date(writer, build, generation, written), EMPTY
    try:
        Builder(writer, build, should_stop).build()
        _refresh(writer, generation, written, should_stop)
    except Stopped:
        return False
    return True


def _refresh(writer: sqlite3.Connection, generation: int, written: DocIds, should_stop: ShouldStop) -> None:
    """Bring the sets up to date, _KEYS_AT_ONCE keys per transaction. Raises Stopped; the next call continues from there.

    generation: of the index now. written: the documents that may have changed sets. Refreshing a document that was written later
    does no harm.
    """
    begun = meta(writer, "materialized_refresh")
    until, done = json.loads(begun) if begun else (generation, "")
    if written:
        keys = {key for (key,) in writer.execute("SELECT DISTINCT key FROM materialized_postings WHERE key > ?", (done,))}
        members = _memberships(writer, written, keys)
        text = meta(writer, "materialized_pairs")  # absent until the sets of all pairs are built
        pairs, complete = json.loads(text) if text else ((), ())
        adjacent = adjacent_docids(forward_texts(writer, written.to_array()), ChosenPairs(pairs, frozenset(complete)))
        members.update((key, {0: docids.to_array()}) for key, docids in adjacent.items() if key > done)
        blocks = (WHOLE, *(block for block, _ in blocks_of(written)))
        ordered = sorted(keys | members.keys())
        for start in range(0, len(ordered), _KEYS_AT_ONCE):
            if should_stop():
                raise Stopped
            portion = ordered[start:start + _KEYS_AT_ONCE]
            with write_transaction(writer):
                for key in portion:
                    _refresh_parts(writer, key, written, blocks, members.get(key, {}))
                set_meta(writer, "materialized_refresh", json.dumps([until, portion[-1]]))
    with write_transaction(writer):
        writer.execute("DELETE FROM meta WHERE key = 'materialized_refresh'")
        set_meta(writer, "materialized_postings", until)


def _refresh_parts(writer: sqlite3.Connection, key: str, written: DocIds, blocks: Sequence[int],
                   members: Mapping[int, Sequence[int]]) -> None:
    """Bring the sets of a term or prefix up to date.

    blocks: the rows that may have written documents. members: part -> the written documents that are in it now.
    """
    known: dict[int, dict[int, DocIds]] = {part: {} for part in members}
    for part, block, docids in writer.execute(
            f"SELECT part, block, docids FROM materialized_postings WHERE key = ? AND block IN ({placeholders(blocks)})",
            (key, *blocks)):
        known.setdefault(part, {})[block] = from_bytes(docids)
    for part, before in known.items():
        fresh = DocIds(members.get(part, ()))
        now = dict(blocks_of(fresh)) if before and WHOLE not in before else {WHOLE: fresh}
        for block in before.keys() | now.keys():
            old = before.get(block, EMPTY)
            new = (old - written) | now.get(block, EMPTY)
            if not new:
                writer.execute("DELETE FROM materialized_postings WHERE key = ? AND part = ? AND block = ?", (key, part, block))
            elif new != old:
                writer.execute(INSERT, (key, part, block, to_bytes(new)))


def _memberships(
    connection: sqlite3.Connection, written: DocIds, keys: Collection[str]
) -> dict[str, Mapping[int, Sequence[int]]]:
    """Return key -> part -> the written documents that are in its set now."""
    found: dict[str, Any] = {}
    known: dict[tuple[str, str], list[dict[int, list[int]]]] = {}  # (kind, term) -> the found parts of the term and its prefixes
    for docid, forward in forward_texts(connection, written.to_array()):
        for column, row in fts_encoding.forward_rows(forward).items():
            for position, term in enumerate(row.split(" ")):
                if not term:
                    continue
                for kind, part in ("word", min(column, SHARED_COLUMN)), ("position", bucketed_position(position)):
                    if (kind, term) not in known:
                        spelled = [materialized_key(kind, term, False), *(
                            materialized_key(kind, term[:size], True) for size in range(1, len(term) + 1))]
                        known[kind, term] = [found.setdefault(key, {}) for key in spelled if key in keys]
                    for parts in known[kind, term]:
                        parts.setdefault(part, []).append(docid)
    return found
