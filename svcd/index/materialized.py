"""Materialized postings: the sets of common terms and short prefixes, stored ready-made.

Reading a set from FTS5 costs 45 us and 0.2 us a document, that of a prefix 0.3 us an occurrence: 0.05 s for "fr" among a
million documents. The table `materialized_postings` has the sets of terms and prefixes in any field, in one field and at a
position, as far as they have LEAST documents, as bitmap blocks. All of them belong to one generation, which stands in `meta`;
readers bring them up to date with the delta like any cached set.

They are made from two walks through the vocabulary of FTS5 after the batch that made them necessary, while nothing else
waits, one portion of the alphabet a transaction. When few documents were written since, only the blocks of these documents
are refreshed. See docs/storage.md#postings.
"""
from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes, union_of
from svcd.base.positions import bucketed_position
from svcd.index import fts_encoding
from svcd.index.bitmap_blocks import BLOCK_BITS, WHOLE, blocks_of, set_rows
from svcd.index.connections import meta, set_meta, write_transaction
from svcd.index.fts_queries import fts_phrase, matching_docids
from svcd.index.materialized_pairs import (
    COMPLETE_SHARE, LEFT_SHARE, ChosenPairs, adjacent_docids, common_pairs, sample_step,
)
from svcd.index.materialized_reader import LEAST, materialized_key
from svcd.index.read_transaction import forward_texts, placeholders
from svcd.index.schema import LEAST_DOCUMENTS, SHARED_COLUMN

# Refreshed when searches would have to look at so many generations or written documents for each set.
MOST_GENERATIONS = 50
MOST_WRITTEN = 500
# Made again when the index has grown or shrunk by this share, or when so large a part of it was written: an eighth.
_SHARE = 8
# Longer prefixes are kept only if they have more words than a reader looks up one by one.
_SHORT_PREFIX = 4
_MANY_WORDS = 100
_LONGEST_PREFIX = 6
# The vocabulary in portions: the terms that begin with a digit or a letter, one by one, and those before, between and after; in
# large indexes those of each letter once more, by their second character.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_COMMON_FIRST = "taoiswcbphfmdrelngu"  # letters that words begin with, the commonest in European languages first
_AFTER_ANY_TERM = "\U0010ffff"
_LARGE_INDEX = 200_000  # documents
# What is done is committed after so many seconds, and when something else waits.
_COMMIT_S = 0.25
_KEYS_AT_ONCE = 1_000  # that are refreshed in one transaction: some 0.05 s
_TERMS_AT_ONCE = 500
_PARSED_AT_ONCE = 65_536  # characters of a list of docids
_LONGEST_LIST = 4_096  # docids; more become a set

T = TypeVar("T")
ShouldStop = Callable[[], bool]
_INSERT = "INSERT OR REPLACE INTO materialized_postings(key, part, block, docids) VALUES (?, ?, ?, ?)"
_OCCURRENCES = "temp.term_occurrences", "temp.position_occurrences"


class Stopped(Exception):
    """Something else waits."""


class Build(NamedTuple):
    """How far the sets are made: at which generation that began, of how many documents, how many portions are done.

    blocks: the bitmap blocks of these documents. Portions are those of the vocabulary, the letters, and the blocks, for pairs of
    terms.
    """

    generation: int
    documents: int
    blocks: int
    portions: int = 0

    def ranges(self) -> Sequence[tuple[str, str]]:
        """The portions of the vocabulary, (first term, term after the last)."""
        return _ranges(self.documents >= _LARGE_INDEX)

    @property
    def is_complete(self) -> bool:
        """Are all portions done?"""
        return self.portions == len(self.ranges()) + len(_LETTERS) + self.blocks


@lru_cache
def _ranges(is_large: bool) -> Sequence[tuple[str, str]]:
    bounds = ["", *_LETTERS[:10], ":", *_LETTERS[10:], "{", _AFTER_ANY_TERM]
    if is_large:
        seconds = ("", "0", *_LETTERS[10:], "{")
        bounds = [bound + second for bound in bounds[:-1]
                  for second in (seconds if bound and bound in _LETTERS else ("",))] + bounds[-1:]
    return sorted(pairwise(bounds), key=lambda bounds: _COMMON_FIRST.find(bounds[0][:1]) % (len(_COMMON_FIRST) + 1))


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
        build, written = Build(generation, documents, (docids.max() >> BLOCK_BITS) + 1 if docids else 0), EMPTY
        with write_transaction(writer):
            writer.execute("DELETE FROM materialized_postings")
            writer.execute("DELETE FROM meta WHERE key IN ('materialized_pairs', 'materialized_refresh')")
            # Each set is of use as soon as it is there; pairs are once all of them are.
            set_meta(writer, "materialized_postings", generation)
            _note(writer, build)
    try:
        _make(writer, build, should_stop)
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
    return Build(*json.loads(text)) if text else None


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


Row = tuple[str, int, int, bytes]  # key, part, block, documents


def _make(writer: sqlite3.Connection, build: Build, should_stop: ShouldStop) -> None:
    """Make the portions that are not done; those that are complete when Stopped is raised are kept."""
    if build.is_complete:
        return
    for table, of in zip(_OCCURRENCES, ("terms", "term_positions")):
        writer.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5vocab(main, {of}, instance)")
    rows: list[Row] = []
    since = time.monotonic()
    try:
        while not build.is_complete:
            if should_stop():
                raise Stopped
            rows += _portion_rows(writer, build, should_stop)
            build = build._replace(portions=build.portions + 1)
            if time.monotonic() - since > _COMMIT_S:
                _commit(writer, build, rows)
                rows, since = [], time.monotonic()
    finally:
        _commit(writer, build, rows)


def _commit(writer: sqlite3.Connection, build: Build, rows: Sequence[Row]) -> None:
    with write_transaction(writer):
        writer.executemany(_INSERT, rows)
        _note(writer, build)
        if build.is_complete:
            set_meta(writer, "materialized_pairs", meta(writer, "chosen_pairs"))


def _portion_rows(writer: sqlite3.Connection, build: Build, should_stop: ShouldStop) -> list[Row]:
    """The rows of the next portion."""
    ranges = build.ranges()
    if build.portions < len(ranges):
        return list(_vocabulary_rows(writer, *ranges[build.portions], should_stop))
    letter = build.portions - len(ranges)
    if letter < len(_LETTERS):
        return list(_letter_rows(writer, _LETTERS[letter], should_stop))
    block = letter - len(_LETTERS)
    if block == 0:
        _choose_pairs(writer, build, should_stop)
    texts = writer.execute("SELECT docid, words FROM forward_index WHERE docid >= ? AND docid < ?",
                           (block << BLOCK_BITS, (block + 1) << BLOCK_BITS))
    found = adjacent_docids(_interruptible(texts, should_stop), _chosen_pairs(writer))
    return [(key, 0, block, to_bytes(docids)) for key, docids in found.items()]


def _letter_rows(writer: sqlite3.Connection, letter: str, should_stop: ShouldStop) -> Iterator[Row]:
    """The rows of the terms with a letter by position. Their documents by field are in the table of prefix postings."""
    parts: dict[int, DocIds] = {}
    for bucket in fts_encoding.BUCKETS:
        if should_stop():
            raise Stopped
        docids = matching_docids(writer, "term_positions", fts_phrase(fts_encoding.position_term(bucket, letter), True))
        if docids:
            parts[bucket] = docids
    if len(union_of(parts.values())) >= LEAST:
        yield from _rows_of(materialized_key("position", letter, True), parts)


def _vocabulary_rows(writer: sqlite3.Connection, start: str, end: str, should_stop: ShouldStop) -> Iterator[Row]:
    """The rows of the terms from `start` to before `end`."""
    for kind, postings in ("word", _field_postings), ("position", _position_postings):
        for term, is_prefix, parts in _common(postings(writer, start, end), should_stop):
            yield from _rows_of(materialized_key(kind, term, is_prefix), parts)


def _rows_of(key: str, parts: Mapping[int, DocIds]) -> Iterator[Row]:
    return ((key, part, block, to_bytes(found)) for part, docids in parts.items() for block, found in set_rows(docids))


def _choose_pairs(writer: sqlite3.Connection, build: Build, should_stop: ShouldStop) -> None:
    """Note the pairs of terms whose sets are made."""
    frequencies = dict(writer.execute("SELECT term, doc FROM vocabulary WHERE doc >= ? AND term <> ?",
                                      (build.documents // LEFT_SHARE, fts_encoding.POSITION_GAP)))
    step = sample_step(build.documents)
    texts = writer.execute("SELECT words FROM forward_index WHERE docid % ? = 0", (step,))
    keys = common_pairs((text for (text,) in _interruptible(texts, should_stop)), frequencies, step, build.documents)
    complete = [term for term, documents in frequencies.items() if documents * COMPLETE_SHARE >= build.documents]
    with write_transaction(writer):
        set_meta(writer, "chosen_pairs", json.dumps([keys, complete]))


def _chosen_pairs(connection: sqlite3.Connection) -> ChosenPairs:
    text = meta(connection, "chosen_pairs")
    keys, complete = json.loads(text) if text else ((), ())
    return ChosenPairs(keys, frozenset(complete))


def _interruptible(rows: Iterable[T], should_stop: ShouldStop) -> Iterator[T]:
    for number, row in enumerate(rows):
        if number % _TERMS_AT_ONCE == 0 and should_stop():
            raise Stopped
        yield row


# (term, part, its documents by commas, perhaps some twice), by term; a part is an FTS column or a bucketed position.
Postings = Iterator[tuple[str, int, str]]


def _field_postings(connection: sqlite3.Connection, start: str, end: str) -> Postings:
    columns = [column for (column,) in connection.execute(
        "SELECT DISTINCT min(fts_column, ?) FROM fields WHERE fts_column IS NOT NULL ORDER BY 1", (SHARED_COLUMN,))]
    by_column = "".join(f", group_concat(doc) FILTER (WHERE col = 'c{column}')" for column in columns)
    for term, *lists in connection.execute(
            f"SELECT term{by_column} FROM {_OCCURRENCES[0]} WHERE term >= ? AND term < ? AND term <> ? GROUP BY term",
            (start, end, fts_encoding.POSITION_GAP)):
        for column, listed in zip(columns, lists):
            if listed:
                yield term, column, listed


def _position_postings(connection: sqlite3.Connection, start: str, end: str) -> Postings:
    return merge(*(_postings_at(connection, bucket, start, end) for bucket in fts_encoding.BUCKETS), key=itemgetter(0))


def _postings_at(connection: sqlite3.Connection, bucket: int, start: str, end: str) -> Postings:
    before = fts_encoding.position_term(bucket, "")
    for term, listed in connection.execute(
            f"SELECT term, group_concat(doc) FROM {_OCCURRENCES[1]} WHERE term >= ? AND term < ? GROUP BY term",
            (before + start, before + end)):
        yield term[len(before):], bucket, listed


# A term or prefix, whether it is a prefix, its documents by part.
Common = tuple[str, bool, Mapping[int, DocIds]]


def _common(postings: Postings, should_stop: ShouldStop) -> Iterator[Common]:
    """The common terms and prefixes among some postings."""
    opened: list[_Prefix] = []  # by length, those of the last term
    last = ""
    for term, rows in _interruptible(groupby(postings, itemgetter(0)), should_stop):
        plain = term.partition("~")[0][:_LONGEST_PREFIX]  # an escape must not be cut
        shared = _shared_length(plain, last)
        yield from _closed(opened, last, shared)
        opened += (_Prefix() for _ in range(shared, len(plain)))
        last = plain
        own = _Prefix()
        for _, part, listed in rows:
            own.add_list(part, _parsed(listed))
        own.words = 1
        parts = own.common_parts()
        if parts:
            yield term, False, parts
        if opened:
            opened[-1].add(own)
    yield from _closed(opened, last, 0)


def _shared_length(left: str, right: str) -> int:
    """How many characters two texts begin with in common."""
    for length, (one, other) in enumerate(zip(left, right)):
        if one != other:
            return length
    return min(len(left), len(right))


def _closed(opened: list[_Prefix], term: str, length: int) -> Iterator[Common]:
    """Close the prefixes of a term that are longer than `length`."""
    while len(opened) > length:
        size, closed = len(opened), opened.pop()
        if size > 1 and (size <= _SHORT_PREFIX or closed.words > _MANY_WORDS):  # single letters: see _letter_rows()
            parts = closed.common_parts()
            if parts:
                yield term[:size], True, parts
        if opened:
            opened[-1].add(closed)


class _Prefix:
    """The documents of the terms with a prefix, as far as they were met, by part: as lists while they are few, then as sets.

    words: how many terms were met.
    """

    __slots__ = ("words", "_occurrences", "_sets", "_lists")

    def __init__(self) -> None:
        self.words = 0
        self._occurrences = 0
        self._sets: dict[int, list[DocIds]] = {}
        self._lists: dict[int, array[int]] = {}

    def add_list(self, part: int, docids: array[int]) -> None:
        """Add documents, in any order."""
        known = self._lists.get(part)
        if known is None:
            self._lists[part] = docids
        elif len(known) + len(docids) < _LONGEST_LIST:
            known.extend(docids)
        else:
            self._sets.setdefault(part, []).append(DocIds(known + docids))
            del self._lists[part]
        self._occurrences += len(docids)

    def add(self, longer: _Prefix) -> None:
        """Add the documents of a longer prefix, which is of no use any more."""
        occurrences = self._occurrences + longer._occurrences
        for part, docids in longer._lists.items():
            self.add_list(part, docids)
        for part, sets in longer._sets.items():
            self._sets.setdefault(part, []).extend(sets)
        self._occurrences = occurrences
        self.words += longer.words

    def common_parts(self) -> Mapping[int, DocIds]:
        """The documents by part; none if they are fewer than LEAST."""
        if self._occurrences < LEAST:
            return {}
        for part, docids in self._lists.items():
            self._sets.setdefault(part, []).append(DocIds(docids))
        self._lists = {}
        self._sets = {part: [union_of(sets)] for part, sets in self._sets.items()}
        parts = {part: docids for part, (docids,) in self._sets.items()}
        return parts if len(union_of(parts.values())) >= LEAST else {}


def _parsed(listed: str) -> array[int]:
    """The docids of a list with commas; of a long one piece by piece, as integers take nine times the room."""
    docids, at = array("I"), 0
    while (end := listed.find(",", at + _PARSED_AT_ONCE)) > 0:
        docids.extend(json.loads(f"[{listed[at:end]}]"))
        at = end + 1
    docids.extend(map(int, listed[at:].split(",")))
    return docids


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
