"""Materialized postings: precomputed sets for common terms, short prefixes and pairs of terms.

Reading a set from FTS5 costs 45 us and 0.2 us a document; the set of a prefix costs 0.3 us an occurrence: 0.05 s for "fr" among a
million documents. The table `materialized_postings` has the sets of terms and prefixes with at least LEAST documents, in any
field, in one field and at a position, as bitmap blocks. All sets belong to one generation, which `meta` names; readers bring
them up to date with the delta, like any cached set.

They are built from the vocabulary and the forward index after the batch that made them necessary, step by step, while nothing
else waits. The progress is in `meta`, so that another process can continue a build, also after a stop. Until all groups are
gathered, a build is brought to the newest generation: documents that were written since are gathered again. When few documents
were written since, only the blocks of these documents are refreshed. See docs/storage.md#materialized-postings.
"""
from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes, union_of
from svcd.base.positions import bucketed_position
from svcd.index import fts
from svcd.index.bitmap_blocks import BLOCK_BITS, WHOLE, blocks_of
from svcd.index.connections import meta, set_meta, write_transaction
from svcd.index.materialized_choice import (
    COMPLETE_SHARE, LEFT_SHARE, RANGES, Choice, ChosenPairs, adjacent_docids, chosen_from_vocabulary, common_pairs,
    frequent_terms, sample_step,
)
from svcd.index.materialized_groups import (
    CORRECTIONS, DOCIDS_OF_BLOCK, GroupGatherer, GroupRow, encoded_positions_of, family_rows,
)
from svcd.index.materialized_reader import LEAST, materialized_key
from svcd.index.read_transaction import FORWARD_TEXTS, MOST_WRITTEN as MOST_IN_DELTA, placeholders, rows_by_docid
from svcd.index.schema import LEAST_DOCUMENTS, SHARED_COLUMN

# Finished work is committed each _COMMIT_S seconds, and when something else waits.
_COMMIT_S = 0.25
_ROWS_AT_ONCE = 500
# A portion of the documents ends at this number of encoded positions of words, 4 bytes each; pairs take as much again.
_PORTION = 1_500_000
# The sets are rebuilt when 1 / SHARE of the documents was added, deleted or written since.
SHARE = 8

_CREATE_GROUPS = ("CREATE TABLE IF NOT EXISTS materialized_leaves (family INTEGER NOT NULL, block INTEGER NOT NULL, "
                  "portion INTEGER NOT NULL, leaves BLOB NOT NULL, PRIMARY KEY (family, block, portion)) WITHOUT ROWID")

T = TypeVar("T")
ShouldStop = Callable[[], bool]
INSERT = "INSERT OR REPLACE INTO materialized_postings(key, part, block, docids) VALUES (?, ?, ?, ?)"


class Stopped(Exception):
    """The build was stopped because something else waits."""


# The steps, in their order: choose terms and prefixes, in portions of the vocabulary; choose pairs of terms; gather groups from
# the documents, in portions by docid; gather again the documents that were written since, block by block; join groups into sets,
# family by family; merge the segments of FTS5. Earlier versions, which encoded groups or ordered families differently, named
# these steps "leaves" and "sets", or "gather", "correct" and "join": their builds start again.
_TERMS, _PAIRS, _GROUPS, _CORRECTIONS, _SETS, _SEGMENTS, _DONE = (
    "terms", "pairs", "collect", "amend", "unite", "segments", "done")


class Build(NamedTuple):
    """The progress of a build. generation, documents: of the index for which the sets are built.

    step: the current step. at: the next portion of the vocabulary, docid, bitmap block, family or half of a merge.
    """

    generation: int
    documents: int
    step: str = _TERMS
    at: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all sets are built."""
        return self.step == _DONE


def build_of(connection: sqlite3.Connection) -> Build | None:
    """Return the build of an index, or None."""
    text = meta(connection, "materialized_build")
    stored: list[Any] = json.loads(text) if text else []
    return Build(*stored) if len(stored) == len(Build._fields) and stored[2] in _STEPS else None


def generation_of(connection: sqlite3.Connection) -> int | None:
    """Return the generation of all sets; None before any is built."""
    built_at: int | None = meta(connection, "materialized_postings")
    return built_at


def newest_generation(connection: sqlite3.Connection) -> int:
    """Return the generation of the index in its last commit."""
    return int(meta(connection, "generation") or 0)


def has_changed(build: Build, documents: int) -> bool:
    """Return whether the number of documents has changed so much that the sets are rebuilt."""
    return abs(documents - build.documents) * SHARE > documents


def written_since(connection: sqlite3.Connection, generation: int) -> DocIds | None:
    """Return the documents written after a generation; None when that is not known any more."""
    changes = connection.execute("SELECT generation, docids FROM changes WHERE generation > ? ORDER BY generation",
                                 (generation,)).fetchall()
    if len(changes) != newest_generation(connection) - generation or any(docids is None for _, docids in changes):
        return None
    return union_of(from_bytes(docids) for _, docids in changes)


def note(writer: sqlite3.Connection, build: Build) -> None:
    """Store the progress of a build."""
    set_meta(writer, "materialized_build", json.dumps(build))


def begin(writer: sqlite3.Connection, build: Build) -> None:
    """Begin a build, without any sets and groups."""
    writer.execute("DELETE FROM materialized_postings")
    writer.execute("DROP TABLE IF EXISTS materialized_leaves")
    writer.execute("DELETE FROM meta WHERE key IN ('materialized_pairs', 'materialized_choice', 'materialized_refresh', "
                   "'materialized_rewritten')")
    # Queries use each set once it is stored; sets of pairs once all of these are stored.
    set_meta(writer, "materialized_postings", build.generation)
    note(writer, build)


def _rewritten(connection: sqlite3.Connection) -> DocIds:
    """Return the documents that are gathered again before groups are joined."""
    stored = meta(connection, "materialized_rewritten")
    return EMPTY if stored is None else from_bytes(stored)


def _insert_groups(writer: sqlite3.Connection, rows: Iterable[GroupRow]) -> None:
    writer.executemany("INSERT INTO materialized_leaves(family, block, portion, leaves) VALUES (?, ?, ?, ?)", rows)


class Builder:
    """Builds the sets, continuing from the stored progress of a build."""

    def __init__(self, writer: sqlite3.Connection, build: Build, should_stop: ShouldStop) -> None:
        self._writer = writer
        self._build = build
        self._should_stop = should_stop
        self._choice = Choice.parse(meta(writer, "materialized_choice") or Choice().as_json())

    def build(self) -> None:
        """Build the remaining sets. Raises Stopped; finished work is then kept."""
        while not self._build.is_complete:
            is_stopped = False
            with write_transaction(self._writer):
                since = time.monotonic()  # not before: waiting for the lock must not use up the time for portions
                try:
                    while not self._build.is_complete and time.monotonic() - since <= _COMMIT_S:
                        self._check()
                        _STEPS[self._build.step](self)
                except Stopped:
                    is_stopped = True
                note(self._writer, self._build)
            if is_stopped:
                raise Stopped

    def _check(self) -> None:
        if self._should_stop():
            raise Stopped

    def _set_progress(self, step: str, at: int) -> None:
        self._build = self._build._replace(step=step, at=at)

    def _choose_terms(self) -> None:
        """Choose the terms and prefixes of the next portion of the vocabulary."""
        at, documents = self._build.at, self._build.documents
        least = min(LEAST, documents // LEFT_SHARE)
        found = list(self._interruptible(chosen_from_vocabulary(self._writer, *RANGES[at], least)))
        self._choice.terms.update((term, count) for term, count, is_prefix in found if not is_prefix)
        self._choice.prefixes.update((term, count) for term, count, is_prefix in found if is_prefix and count >= LEAST)
        set_meta(self._writer, "materialized_choice", self._choice.as_json())
        self._set_progress(*(_TERMS, at + 1) if at + 1 < len(RANGES) else (_PAIRS, 0))

    def _choose_pairs(self) -> None:
        documents = self._build.documents
        step = sample_step(documents)
        texts = self._writer.execute("SELECT words FROM forward_index WHERE docid % ? = 0", (step,))
        lefts = frozenset(frequent_terms(self._choice, documents // LEFT_SHARE))
        keys = common_pairs((text for (text,) in self._interruptible(texts)), lefts, step, documents)
        complete = [term for term in frequent_terms(self._choice, 0) if self._choice.terms[term] * COMPLETE_SHARE >= documents]
        self._choice.pairs = ChosenPairs(keys, complete)
        set_meta(self._writer, "materialized_choice", self._choice.as_json())
        self._writer.execute(_CREATE_GROUPS)
        self._set_progress(_GROUPS, 0)

    def _gather_groups(self) -> None:
        """Gather the groups of the next portion of the documents, or of a part of it when stopped."""
        (start,) = self._writer.execute("SELECT min(docid) FROM forward_index WHERE docid >= ?", (self._build.at,)).fetchone()
        if start is None:
            self._set_progress(_CORRECTIONS, 0)
            return
        block = start >> BLOCK_BITS
        end = (block + 1) << BLOCK_BITS
        rows = self._writer.execute("SELECT docid, words FROM forward_index WHERE docid >= ? AND docid < ? ORDER BY docid",
                                    (start, end))
        gatherer = GroupGatherer(self._choice, LEAST)
        while portion := list(islice(rows, _ROWS_AT_ONCE)):
            gatherer.add(portion)
            if gatherer.size > _PORTION or self._should_stop():
                end = portion[-1][0] + 1
                break
        _insert_groups(self._writer, gatherer.rows(block, start & DOCIDS_OF_BLOCK))
        self._set_progress(_GROUPS, end)

    def _correct_groups(self) -> None:
        """Gather again the documents of the next bitmap block that were written since they were gathered."""
        left = [(block, docids) for block, docids in blocks_of(_rewritten(self._writer)) if block >= self._build.at]
        if not left:
            self._set_progress(_SETS, 0)
            return
        block, docids = left[0]
        rows = rows_by_docid(self._writer, FORWARD_TEXTS, docids.to_array())
        for number in itertools.count(CORRECTIONS):
            gatherer = GroupGatherer(self._choice, LEAST)
            while gatherer.size <= _PORTION and (portion := list(islice(rows, _ROWS_AT_ONCE))):
                gatherer.add(portion)
            if not gatherer.size:
                break
            _insert_groups(self._writer, gatherer.rows(block, number))
        self._set_progress(_CORRECTIONS, block + 1)

    @cached_property
    def _corrected(self) -> Mapping[int, DocIds]:
        """Bitmap block -> all encoded positions of documents for which only the corrections count."""
        return {block: encoded_positions_of(docids) for block, docids in blocks_of(_rewritten(self._writer))}

    def _join_groups(self) -> None:
        """Join the groups of the next family into its sets."""
        family = self._build.at
        self._writer.executemany(INSERT, family_rows(self._writer, self._choice, family, LEAST, self._corrected, self._check))
        self._writer.execute("DELETE FROM materialized_leaves WHERE family = ?", (family,))
        families = self._choice.families
        if family + 1 == families.first_of_terms:
            set_meta(self._writer, "materialized_pairs", json.dumps(self._choice.pairs))
        if family + 1 < families.count:
            self._set_progress(_SETS, family + 1)
            return
        self._writer.execute("DROP TABLE materialized_leaves")
        self._writer.execute("DELETE FROM meta WHERE key IN ('materialized_choice', 'materialized_rewritten')")
        self._set_progress(_SEGMENTS, 0)

    def _merge_segments(self) -> None:
        """Begin to merge the segments of the next table, or merge some more pages."""
        table, is_begun = divmod(self._build.at, 2)
        if table == len(fts.TABLES):
            self._set_progress(_DONE, 0)
        elif not is_begun:
            fts.begin_merge(self._writer, fts.TABLES[table])
            self._set_progress(_SEGMENTS, self._build.at + 1)
        elif not fts.continue_merge(self._writer, fts.TABLES[table]):
            self._set_progress(_SEGMENTS, self._build.at + 1)

    def _interruptible(self, rows: Iterable[T]) -> Iterator[T]:
        for number, row in enumerate(rows):
            if number % _ROWS_AT_ONCE == 0:
                self._check()
            yield row


_STEPS: Mapping[str, Callable[[Builder], None]] = {
    _TERMS: Builder._choose_terms, _PAIRS: Builder._choose_pairs, _GROUPS: Builder._gather_groups,
    _CORRECTIONS: Builder._correct_groups, _SETS: Builder._join_groups, _SEGMENTS: Builder._merge_segments,
    _DONE: lambda builder: None,
}


# The sets are refreshed when searches would have to check more generations or more written documents for each set, and before a
# delta has too many documents to be loaded: without it no set is used.
MOST_GENERATIONS = 50
MOST_WRITTEN = MOST_IN_DELTA // 2
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
    elif build.step in (_TERMS, _PAIRS, _GROUPS):
        # Documents written until now are gathered again; later ones are refreshed, so that a build ends.
        with write_transaction(writer):
            if written and build.step == _GROUPS:
                set_meta(writer, "materialized_rewritten", to_bytes(_rewritten(writer) | written))
            build, written = build._replace(generation=generation), EMPTY
            set_meta(writer, "materialized_postings", generation)
            note(writer, build)
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
        rows = rows_by_docid(writer, FORWARD_TEXTS, written.to_array())
        adjacent = adjacent_docids(rows, ChosenPairs(pairs, frozenset(complete)))
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
    for docid, forward in rows_by_docid(connection, FORWARD_TEXTS, written.to_array()):
        for column, row in fts.forward_rows(forward).items():
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
