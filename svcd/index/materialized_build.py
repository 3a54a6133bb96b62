"""How far the materialized postings of an index are made, and the steps in which they are made.

A build is noted in `meta`, so that it goes on where it was, in another process or after a stop. Until all leaves are gathered it
is brought to the newest generation: those of documents that were written since are gathered again.
See docs/storage.md#materialized-postings.
"""
from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes, union_of
from svcd.index import fts_segments
from svcd.index.bitmap_blocks import BLOCK_BITS, blocks_of
from svcd.index.connections import meta, set_meta, write_transaction
from svcd.index.materialized_choice import RANGES, Choice, chosen_from_vocabulary, frequent_terms
from svcd.index.materialized_leaves import DOCIDS_OF_BLOCK, LeafGatherer, LeafRow, codes_of_documents
from svcd.index.materialized_pairs import COMPLETE_SHARE, LEFT_SHARE, ChosenPairs, common_pairs, sample_step
from svcd.index.materialized_reader import LEAST
from svcd.index.materialized_sets import CORRECTIONS, family_rows
from svcd.index.read_transaction import forward_texts

# What is done is committed after so many seconds, and when something else waits.
_COMMIT_S = 0.25
_ROWS_AT_ONCE = 500
# A portion of the documents ends with so many codes of words, 4 bytes each: about as much again are those of pairs.
_PORTION = 1_500_000
# Made again when the index has grown or shrunk by this share, or when so large a part of it was written: an eighth.
SHARE = 8

_CREATE_LEAVES = ("CREATE TABLE IF NOT EXISTS materialized_leaves (family INTEGER NOT NULL, block INTEGER NOT NULL, "
                  "portion INTEGER NOT NULL, leaves BLOB NOT NULL, PRIMARY KEY (family, block, portion)) WITHOUT ROWID")

T = TypeVar("T")
ShouldStop = Callable[[], bool]
INSERT = "INSERT OR REPLACE INTO materialized_postings(key, part, block, docids) VALUES (?, ?, ?, ?)"


class Stopped(Exception):
    """Something else waits."""


# What is done one after the other: terms and prefixes are chosen, in portions of the vocabulary; pairs of terms; leaves are
# gathered from the documents, in portions by docid; those of documents that were written since are gathered again, block by
# block; leaves are joined to sets, family by family; segments of FTS5 are merged. Versions that had leaves in another form, or
# families in another order, called these steps "leaves" and "sets", or "gather", "correct" and "join": their builds are begun
# again.
_TERMS, _PAIRS, _LEAVES, _CORRECTIONS, _SETS, _SEGMENTS, _DONE = (
    "terms", "pairs", "collect", "amend", "unite", "segments", "done")


class Build(NamedTuple):
    """How far the sets are made: at which generation, of how many documents.

    step: what is being done. at: the next portion of the vocabulary, docid, bitmap block, family or half of a merge.
    """

    generation: int
    documents: int
    step: str = _TERMS
    at: int = 0

    @property
    def is_complete(self) -> bool:
        """Are all sets made?"""
        return self.step == _DONE

    @property
    def is_gathering(self) -> bool:
        """May documents that are written now still be gathered again? Not without end: what comes later is refreshed."""
        return self.step in (_TERMS, _PAIRS, _LEAVES)


def build_of(connection: sqlite3.Connection) -> Build | None:
    """The build of an index; None if there is none."""
    text = meta(connection, "materialized_build")
    stored: list[Any] = json.loads(text) if text else []
    return Build(*stored) if len(stored) == len(Build._fields) and stored[2] in _STEPS else None


def generation_of(connection: sqlite3.Connection) -> int | None:
    """The generation that all sets belong to; None before any are made."""
    made: int | None = meta(connection, "materialized_postings")
    return made


def newest_generation(connection: sqlite3.Connection) -> int:
    """That of the index, as it was committed last."""
    return int(meta(connection, "generation") or 0)


def has_changed(build: Build, documents: int) -> bool:
    """Has the index so many documents more or less that all is made again?"""
    return abs(documents - build.documents) * SHARE > documents


def written_since(connection: sqlite3.Connection, generation: int) -> DocIds | None:
    """The documents written after a generation; None when that is not known any more."""
    changes = connection.execute("SELECT generation, docids FROM changes WHERE generation > ? ORDER BY generation",
                                 (generation,)).fetchall()
    if len(changes) != newest_generation(connection) - generation or any(docids is None for _, docids in changes):
        return None
    return union_of(from_bytes(docids) for _, docids in changes)


def note(writer: sqlite3.Connection, build: Build) -> None:
    """Store how far a build is."""
    set_meta(writer, "materialized_build", json.dumps(build))


def begin(writer: sqlite3.Connection, build: Build) -> None:
    """Begin a build, without any sets and leaves."""
    writer.execute("DELETE FROM materialized_postings")
    writer.execute("DROP TABLE IF EXISTS materialized_leaves")
    writer.execute("DELETE FROM meta WHERE key IN ('materialized_pairs', 'materialized_choice', 'materialized_refresh', "
                   "'materialized_rewritten')")
    # Each set is of use as soon as it is there; those of pairs are once all of these are.
    set_meta(writer, "materialized_postings", build.generation)
    note(writer, build)


def bring_up_to_date(writer: sqlite3.Connection, build: Build, generation: int, written: DocIds) -> Build:
    """A build that gathers still, for a later generation. written: the documents that were written since it was noted."""
    if written and build.step == _LEAVES:
        set_meta(writer, "materialized_rewritten", to_bytes(_rewritten(writer) | written))
    build = build._replace(generation=generation)
    set_meta(writer, "materialized_postings", generation)
    note(writer, build)
    return build


def _rewritten(connection: sqlite3.Connection) -> DocIds:
    """The documents whose leaves are gathered again before they are joined."""
    stored = meta(connection, "materialized_rewritten")
    return EMPTY if stored is None else from_bytes(stored)


def _insert_leaves(writer: sqlite3.Connection, rows: Iterable[LeafRow]) -> None:
    writer.executemany("INSERT INTO materialized_leaves(family, block, portion, leaves) VALUES (?, ?, ?, ?)", rows)


class Maker:
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
                note(self._writer, self._build)
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
        (start,) = self._writer.execute("SELECT min(docid) FROM forward_index WHERE docid >= ?", (self._build.at,)).fetchone()
        if start is None:
            self._go_on(_CORRECTIONS, 0)
            return
        block = start >> BLOCK_BITS
        end = (block + 1) << BLOCK_BITS
        rows = self._writer.execute("SELECT docid, words FROM forward_index WHERE docid >= ? AND docid < ? ORDER BY docid",
                                    (start, end))
        gatherer = LeafGatherer(self._choice, LEAST)
        while portion := list(islice(rows, _ROWS_AT_ONCE)):
            gatherer.add(portion)
            if gatherer.size > _PORTION or self._should_stop():
                end = portion[-1][0] + 1
                break
        _insert_leaves(self._writer, gatherer.rows(block, start & DOCIDS_OF_BLOCK))
        self._go_on(_LEAVES, end)

    def _correct_leaves(self) -> None:
        """Gather what was written since it was gathered, of the next bitmap block."""
        left = [(block, docids) for block, docids in blocks_of(_rewritten(self._writer)) if block >= self._build.at]
        if not left:
            self._go_on(_SETS, 0)
            return
        block, docids = left[0]
        rows = forward_texts(self._writer, docids.to_array())
        for number in itertools.count(CORRECTIONS):
            gatherer = LeafGatherer(self._choice, LEAST)
            while gatherer.size <= _PORTION and (portion := list(islice(rows, _ROWS_AT_ONCE))):
                gatherer.add(portion)
            if not gatherer.size:
                break
            _insert_leaves(self._writer, gatherer.rows(block, number))
        self._go_on(_CORRECTIONS, block + 1)

    @cached_property
    def _corrected(self) -> Mapping[int, DocIds]:
        """Bitmap block -> the codes of documents of which only the corrections count."""
        return {block: codes_of_documents(docids) for block, docids in blocks_of(_rewritten(self._writer))}

    def _join_leaves(self) -> None:
        """Join the leaves of the next family to its sets."""
        family = self._build.at
        self._writer.executemany(INSERT, family_rows(self._writer, self._choice, family, LEAST, self._corrected, self._check))
        self._writer.execute("DELETE FROM materialized_leaves WHERE family = ?", (family,))
        families = self._choice.families
        if family + 1 == families.first_of_terms:
            set_meta(self._writer, "materialized_pairs", json.dumps(self._choice.pairs))
        if family + 1 < families.count:
            self._go_on(_SETS, family + 1)
            return
        self._writer.execute("DROP TABLE materialized_leaves")
        self._writer.execute("DELETE FROM meta WHERE key IN ('materialized_choice', 'materialized_rewritten')")
        self._go_on(_SEGMENTS, 0)

    def _merge_segments(self) -> None:
        """Begin to merge the segments of the next table, or merge some more of them."""
        table, is_begun = divmod(self._build.at, 2)
        if table == len(fts_segments.TABLES):
            self._go_on(_DONE, 0)
        elif not is_begun:
            fts_segments.begin_merge(self._writer, fts_segments.TABLES[table])
            self._go_on(_SEGMENTS, self._build.at + 1)
        elif not fts_segments.go_on(self._writer, fts_segments.TABLES[table]):
            self._go_on(_SEGMENTS, self._build.at + 1)

    def _interruptible(self, rows: Iterable[T]) -> Iterator[T]:
        for number, row in enumerate(rows):
            if number % _ROWS_AT_ONCE == 0:
                self._check()
            yield row


_STEPS: Mapping[str, Callable[[Maker], None]] = {
    _TERMS: Maker._choose_terms, _PAIRS: Maker._choose_pairs, _LEAVES: Maker._gather_leaves, _CORRECTIONS: Maker._correct_leaves,
    _SETS: Maker._join_leaves, _SEGMENTS: Maker._merge_segments, _DONE: lambda maker: None,
}
