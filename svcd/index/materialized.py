"""Materialized postings: the sets of common terms, short prefixes and pairs of terms, stored ready-made.

Reading a set from FTS5 costs 45 us and 0.2 us a document, that of a prefix 0.3 us an occurrence: 0.05 s for "fr" among a
million documents. The table `materialized_postings` has the sets of terms and prefixes in any field, in one field and at a
position, as far as they have LEAST documents, as bitmap blocks. All of them belong to one generation, which stands in `meta`;
readers bring them up to date with the delta like any cached set.

They are made from the vocabulary and the forward index after the batch that made them necessary, while nothing else waits: this
module knows how far that is, and commits it portion by portion. When few documents were written since, only the blocks of these
documents are refreshed. See docs/storage.md#materialized-postings.
"""
from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes, union_of
from svcd.base.positions import bucketed_position
from svcd.index import fts_encoding
from svcd.index.bitmap_blocks import BLOCK_BITS, WHOLE, blocks_of
from svcd.index.connections import meta, set_meta, write_transaction
from svcd.index.materialized_choice import RANGES, Choice, chosen_from_vocabulary, frequent_terms
from svcd.index.materialized_leaves import LeafGatherer
from svcd.index.materialized_pairs import COMPLETE_SHARE, LEFT_SHARE, ChosenPairs, adjacent_docids, common_pairs, sample_step
from svcd.index.materialized_reader import LEAST, materialized_key
from svcd.index.materialized_sets import family_rows
from svcd.index.read_transaction import forward_texts, placeholders
from svcd.index.schema import LEAST_DOCUMENTS, SHARED_COLUMN

# Refreshed when searches would have to look at so many generations or written documents for each set.
MOST_GENERATIONS = 50
MOST_WRITTEN = 500
# Made again when the index has grown or shrunk by this share, or when so large a part of it was written: an eighth.
_SHARE = 8
# What is done is committed after so many seconds, and when something else waits.
_COMMIT_S = 0.25
_KEYS_AT_ONCE = 1_000  # that are refreshed in one transaction: some 0.05 s
_ROWS_AT_ONCE = 500
# A portion of the documents ends with so many codes of words, 4 bytes each: about as much again are those of pairs.
_PORTION = 1_500_000

T = TypeVar("T")
ShouldStop = Callable[[], bool]
_INSERT = "INSERT OR REPLACE INTO materialized_postings(key, part, block, docids) VALUES (?, ?, ?, ?)"


class Stopped(Exception):
    """Something else waits."""


# What is done one after the other: terms and prefixes are chosen, in portions of the vocabulary; pairs of terms; leaves are
# gathered from the documents, in portions by docid; they are joined to sets, family by family.
_TERMS, _PAIRS, _LEAVES, _SETS, _DONE = "terms", "pairs", "leaves", "sets", "done"


class Build(NamedTuple):
    """How far the sets are made: at which generation that began, of how many documents.

    step: what is being done. at: the next portion of the vocabulary, docid or family.
    """

    generation: int
    documents: int
    step: str = _TERMS
    at: int = 0

    @property
    def is_complete(self) -> bool:
        """Are all sets made?"""
        return self.step == _DONE


def is_stale(connection: sqlite3.Connection, documents: int) -> bool:
    """Should the sets of an index be made, or refreshed? connection: any on its file."""
    if documents < LEAST_DOCUMENTS:
        return False
    build = _build(connection)
    if build is None or not build.is_complete or _has_changed(build, documents):
        return True
    made = _generation(connection)
    if made is None or _newest_generation(connection) - made > MOST_GENERATIONS:
        return True
    written = _written_since(connection, made)
    return written is None or len(written) > MOST_WRITTEN


def materialize(writer: sqlite3.Connection, docids: DocIds, should_stop: ShouldStop) -> bool:
    """Make or refresh the sets, until should_stop(); what is done by then is kept. True when all are done.

    writer: the writing connection, outside of a transaction. docids: all documents of the index.
    """
    documents, generation = len(docids), _newest_generation(writer)
    build = _build(writer)
    made = _generation(writer)
    written = None if made is None else _written_since(writer, made)
    if build is None or written is None or len(written) * _SHARE > documents or _has_changed(build, documents):
        build, written = Build(generation, documents), EMPTY
        with write_transaction(writer):
            writer.execute("DELETE FROM materialized_postings")
            writer.execute("DROP TABLE IF EXISTS materialized_leaves")
            writer.execute("DELETE FROM meta WHERE key IN ('materialized_pairs', 'materialized_choice', 'materialized_refresh')")
            # Each set is of use as soon as it is there; pairs are once all of them are.
            set_meta(writer, "materialized_postings", generation)
            _note(writer, build)
    try:
        _Maker(writer, build, should_stop).make()
        _refresh(writer, generation, written, should_stop)
    except Stopped:
        return False
    return True


def _generation(connection: sqlite3.Connection) -> int | None:
    """The generation that all sets belong to; None before any are made."""
    made: int | None = meta(connection, "materialized_postings")
    return made


def _newest_generation(connection: sqlite3.Connection) -> int:
    return int(meta(connection, "generation") or 0)


def _build(connection: sqlite3.Connection) -> Build | None:
    text = meta(connection, "materialized_build")
    stored: list[Any] = json.loads(text) if text else []
    return Build(*stored) if len(stored) == len(Build._fields) and stored[2] in _STEPS else None


def _note(writer: sqlite3.Connection, build: Build) -> None:
    set_meta(writer, "materialized_build", json.dumps(build))


def _has_changed(build: Build, documents: int) -> bool:
    return abs(documents - build.documents) * _SHARE > documents


def _written_since(connection: sqlite3.Connection, generation: int) -> DocIds | None:
    """The documents written after a generation; None when that is not known any more."""
    changes = connection.execute("SELECT generation, docids FROM changes WHERE generation > ? ORDER BY generation",
                                 (generation,)).fetchall()
    if len(changes) != _newest_generation(connection) - generation or any(docids is None for _, docids in changes):
        return None
    return union_of(from_bytes(docids) for _, docids in changes)


# Making them


_CREATE_LEAVES = ("CREATE TABLE IF NOT EXISTS materialized_leaves (family INTEGER NOT NULL, start INTEGER NOT NULL, "
                  "leaves BLOB NOT NULL, PRIMARY KEY (family, start)) WITHOUT ROWID")


class _Maker:
    """Makes the sets from where a build is."""

    def __init__(self, writer: sqlite3.Connection, build: Build, should_stop: ShouldStop) -> None:
        self._writer = writer
        self._build = build
        self._should_stop = should_stop
        self._choice = Choice.parse(meta(writer, "materialized_choice") or Choice().as_json())

    def make(self) -> None:
        """Make what is not done. Raises Stopped; what is complete then is kept."""
        while not self._build.is_complete:
            with write_transaction(self._writer):
                is_stopped = self._make_portions()
                _note(self._writer, self._build)
            if is_stopped:
                raise Stopped

    def _make_portions(self) -> bool:
        """Make portions for a while; was it stopped?"""
        since = time.monotonic()
        try:
            while not self._build.is_complete and time.monotonic() - since <= _COMMIT_S:
                self._check()
                _STEPS[self._build.step](self)
        except Stopped:
            return True
        return False

    def _check(self) -> None:
        if self._should_stop():
            raise Stopped

    def _go_on(self, step: str, at: int) -> None:
        self._build = self._build._replace(step=step, at=at)

    def _choose_terms(self) -> None:
        """Choose the terms and prefixes of the next portion of the vocabulary."""
        at, documents = self._build.at, self._build.documents
        least = min(LEAST, documents // LEFT_SHARE)
        found = list(self._interruptible(chosen_from_vocabulary(self._writer, *RANGES[at], least)))
        self._choice.terms.update((term, count) for term, count, is_prefix in found if not is_prefix)
        self._choice.prefixes.update((term, count) for term, count, is_prefix in found if is_prefix and count >= LEAST)
        set_meta(self._writer, "materialized_choice", self._choice.as_json())
        self._go_on(*(_TERMS, at + 1) if at + 1 < len(RANGES) else (_PAIRS, 0))

    def _choose_pairs(self) -> None:
        documents = self._build.documents
        step = sample_step(documents)
        texts = self._writer.execute("SELECT words FROM forward_index WHERE docid % ? = 0", (step,))
        lefts = frozenset(frequent_terms(self._choice, documents // LEFT_SHARE))
        keys = common_pairs((text for (text,) in self._interruptible(texts)), lefts, step, documents)
        complete = [term for term in frequent_terms(self._choice, 0) if self._choice.terms[term] * COMPLETE_SHARE >= documents]
        self._choice.pairs = ChosenPairs(keys, complete)
        set_meta(self._writer, "materialized_choice", self._choice.as_json())
        self._writer.execute(_CREATE_LEAVES)
        self._go_on(_LEAVES, 0)

    def _gather_leaves(self) -> None:
        """Gather the leaves of the next portion of the documents; when stopped, those of a part of it."""
        start = self._build.at
        block_end = ((start >> BLOCK_BITS) + 1) << BLOCK_BITS
        rows = self._writer.execute("SELECT docid, words FROM forward_index WHERE docid >= ? AND docid < ? ORDER BY docid",
                                    (start, block_end))
        gatherer = LeafGatherer(self._choice, LEAST)
        end = start
        while portion := list(islice(rows, _ROWS_AT_ONCE)):
            gatherer.add(portion)
            end = portion[-1][0] + 1
            if gatherer.size > _PORTION or self._should_stop():
                break
        else:
            (end,) = self._writer.execute("SELECT min(docid) FROM forward_index WHERE docid >= ?", (block_end,)).fetchone()
        self._writer.executemany("INSERT INTO materialized_leaves(family, start, leaves) VALUES (?, ?, ?)", gatherer.rows(start))
        self._go_on(*(_SETS, 0) if end is None else (_LEAVES, end))

    def _join_leaves(self) -> None:
        """Join the leaves of the next family to its sets."""
        family = self._build.at
        self._writer.executemany(_INSERT, family_rows(self._writer, self._choice, family, LEAST, self._check))
        self._writer.execute("DELETE FROM materialized_leaves WHERE family = ?", (family,))
        if family + 1 < self._choice.families.count:
            self._go_on(_SETS, family + 1)
            return
        self._writer.execute("DROP TABLE materialized_leaves")
        set_meta(self._writer, "materialized_pairs", json.dumps(self._choice.pairs))
        self._writer.execute("DELETE FROM meta WHERE key = 'materialized_choice'")
        self._go_on(_DONE, 0)

    def _interruptible(self, rows: Iterable[T]) -> Iterator[T]:
        for number, row in enumerate(rows):
            if number % _ROWS_AT_ONCE == 0:
                self._check()
            yield row


_STEPS: Mapping[str, Callable[[_Maker], None]] = {
    _TERMS: _Maker._choose_terms, _PAIRS: _Maker._choose_pairs, _LEAVES: _Maker._gather_leaves, _SETS: _Maker._join_leaves,
    _DONE: lambda maker: None,
}


def _chosen_pairs(connection: sqlite3.Connection) -> ChosenPairs:
    """The pairs that have sets; none before all are made."""
    text = meta(connection, "materialized_pairs")
    keys, complete = json.loads(text) if text else ((), ())
    return ChosenPairs(keys, frozenset(complete))


# Refreshing them


def _refresh(writer: sqlite3.Connection, generation: int, written: DocIds, should_stop: ShouldStop) -> None:
    """Bring the sets up to date, those of some keys a transaction; after Stopped it goes on there.

    generation: of the index now. written: the documents that may be in other sets than before; to take out and put in again a
    document that was written later does no harm.
    """
    begun = meta(writer, "materialized_refresh")
    until, done = json.loads(begun) if begun else (generation, "")
    blocks = (WHOLE, *(block for block, _ in blocks_of(written)))
    for keys, members in _refreshed_keys(writer, written, done) if written else ():
        if should_stop():
            raise Stopped
        with write_transaction(writer):
            for key in keys:
                _refresh_parts(writer, key, written, blocks, members.get(key, {}))
            set_meta(writer, "materialized_refresh", json.dumps([until, keys[-1]]))
    with write_transaction(writer):
        writer.execute("DELETE FROM meta WHERE key = 'materialized_refresh'")
        set_meta(writer, "materialized_postings", until)


Members = Mapping[str, Mapping[int, Sequence[int]]]  # key -> part -> documents


def _refreshed_keys(writer: sqlite3.Connection, written: DocIds, done: str) -> Iterator[tuple[list[str], Members]]:
    """The keys after `done` in portions, and which of the written documents are in their sets now."""
    keys = {key for (key,) in writer.execute("SELECT DISTINCT key FROM materialized_postings WHERE key > ?", (done,))}
    members = _memberships(writer, written, keys)
    pairs = adjacent_docids(forward_texts(writer, written.to_array()), _chosen_pairs(writer))
    members.update((key, {0: docids.to_array()}) for key, docids in pairs.items() if key > done)
    ordered = sorted(keys | members.keys())
    for start in range(0, len(ordered), _KEYS_AT_ONCE):
        yield ordered[start:start + _KEYS_AT_ONCE], members


def _refresh_parts(writer: sqlite3.Connection, key: str, written: DocIds, blocks: Sequence[int],
                   members: Mapping[int, Sequence[int]]) -> None:
    """Bring the sets of a term or prefix up to date.

    blocks: of the rows that may have written documents. members: those of the written documents that are in each part now.
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
                writer.execute(_INSERT, (key, part, block, to_bytes(new)))


def _memberships(
    connection: sqlite3.Connection, written: DocIds, keys: Collection[str]
) -> dict[str, Mapping[int, Sequence[int]]]:
    """Key -> part -> those of the written documents that are in its set now."""
    found: dict[str, Any] = {}
    known: dict[tuple[str, str], list[dict[int, list[int]]]] = {}  # what is found for a term and its prefixes
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
