"""One read transaction of an index file, with the values that are cached between searches.

The parts of an `IndexReader` (terms, values, locations) share one `ReadTransaction`: it has the connection, the generation of
the index that the transaction sees, and the cache of decoded sets and lists. A cached value of an older generation is brought up
to date from a `Delta`, the documents written since, if possible; otherwise it is loaded from the tables again:
docs/storage.md#delta-and-cache.
"""
from __future__ import annotations

import json
import sqlite3
import sys
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from itertools import accumulate, chain, takewhile
from typing import IO, Any, NamedTuple, TypeVar

from svcd.base.docids import DocIds, from_bytes, memory_bytes, union_of
from svcd.base.positions import FIELD_SHIFT, POSITION, bucketed_position
from svcd.index import fts

Rows = Mapping[int, Mapping[int, str]]  # docid -> FTS column -> terms by position, separated by spaces, "" for a position gap

# The place of a word is one integer, which takes a third of the memory of a tuple: the docid, shifted, plus the occurrence in the
# document (svcd.base.positions) with the FTS column as the number of the field. SQLite has at most 32,767 columns.
_DOCUMENT_SHIFT = FIELD_SHIFT + 15
_COLUMNS = (1 << 15) - 1
# Bytes of memory of a word (in its row and among the occurrences), of a document or one of its fields, of a character of values.
_WORD_BYTES, _ROW_BYTES, _CHARACTER_BYTES = 100, 600, 4
_OWN_PART = 0.25  # of the memory of a delta that was extended; the extended one shares the rest


class Delta:
    """Written documents and their current content.

    written: their docids, including deleted documents. rows: the words of the existing ones. removed_terms: terms that no
    document held any more after one of the writes; None when unknown. value_texts: docid -> its row of document_values.
    """

    def __init__(self, written: DocIds, rows: Rows, removed_terms: frozenset[str] | None, value_texts: Mapping[int, str]) -> None:
        self.written = written
        self._rows = rows
        self.removed_terms = removed_terms
        self.value_texts = value_texts
        self.values: dict[int, Any] = {}  # by field number: the values that ValueReader has decoded from value_texts
        self._bytes = _bytes_of_documents(rows, value_texts)
        self._own_part = 1.0  # of its memory: the rest is shared

    def __sizeof__(self) -> int:
        """Estimate the memory of the delta once everything in it is decoded; the cache is limited by it."""
        return super().__sizeof__() + int(self._bytes * self._own_part)

    def extended(self, later: Delta) -> Delta:
        """Return these documents together with those written later, at the cost of the latter. The two share most memory."""
        rows, texts = {**self._rows}, {**self.value_texts}
        replaced = {docid: row for docid in later.written if (row := rows.pop(docid, None)) is not None}
        replaced_texts = {docid: text for docid in later.written if (text := texts.pop(docid, None)) is not None}
        rows.update(later._rows)
        texts.update(later.value_texts)
        both = copy(self)
        both.written = self.written | later.written
        both._rows, both.value_texts, both.values = rows, texts, {}
        both.removed_terms = None if self.removed_terms is None or later.removed_terms is None else (
            self.removed_terms | later.removed_terms)
        both._bytes += later._bytes - _bytes_of_documents(replaced, replaced_texts)
        if "_occurrences" in vars(self):
            changed = {term for row in replaced.values() for text in row.values() for term in text.split(" ") if term}
            both._occurrences = _replaced_occurrences(self._occurrences, replaced, changed, later._occurrences)
            if "terms" in vars(self):
                both.terms = [*self.terms]
                for term in changed.difference(both._occurrences):
                    del both.terms[bisect_left(both.terms, term)]
                both.terms += later._occurrences.keys() - self._occurrences.keys()
                both.terms.sort()
        self._own_part, both._own_part = _OWN_PART, 1.0
        return both

    def updated(self, known: DocIds, fresh: DocIds) -> DocIds:
        """Bring a set of an older generation up to date. fresh: the written documents that now belong to it."""
        return known if known & self.written == fresh else (known - self.written) | fresh

    @cached_property
    def _occurrences(self) -> dict[str, list[int]]:
        """The places of each term."""
        found: dict[str, list[int]] = {}
        for docid, rows in self._rows.items():
            for column, row in rows.items():
                for place, term in enumerate(row.split(" "), (docid << _DOCUMENT_SHIFT) + (column << FIELD_SHIFT)):
                    if term:
                        found.setdefault(term, []).append(place)
        return found

    @cached_property
    def terms(self) -> list[str]:
        """The terms of the written documents, in byte order, which equals the order of characters in UTF-8."""
        return sorted(self._occurrences)

    def _terms_matching(self, term: str, is_prefix: bool) -> Iterable[str]:
        if not is_prefix:
            return (term,) if term in self._occurrences else ()
        start = bisect_left(self.terms, term)
        return takewhile(lambda each: each.startswith(term), self.terms[start:])

    def _places(self, term: str, is_prefix: bool) -> Iterable[int]:
        return chain.from_iterable(map(self._occurrences.__getitem__, self._terms_matching(term, is_prefix)))

    def term_docids(self, term: str, is_prefix: bool = False, column: int | None = None) -> DocIds:
        """Documents with the term (or any term that starts with it), in any field or in one FTS column."""
        return DocIds([place >> _DOCUMENT_SHIFT for place in self._places(term, is_prefix)
                       if column is None or place >> FIELD_SHIFT & _COLUMNS == column])

    def any_term_docids(self, terms: Iterable[str]) -> DocIds:
        """Documents with any of several terms."""
        return DocIds([place >> _DOCUMENT_SHIFT for term in terms for place in self._occurrences.get(term, ())])

    def position_docids(self, term: str, is_prefix: bool, bucket: int) -> DocIds:
        """Documents with the term (or any term that starts with it) at a bucketed position of any field."""
        return DocIds([place >> _DOCUMENT_SHIFT for place in self._places(term, is_prefix)
                       if bucketed_position(place & POSITION) == bucket])

    def adjacent_docids(self, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents in which `right` (or a term that starts with it) directly follows `left`."""
        before = set(self._occurrences.get(left, ()))
        return DocIds([place >> _DOCUMENT_SHIFT for place in self._places(right, is_prefix) if place - 1 in before])

    def count_docids(self, column: int, count: int) -> DocIds:
        """Documents whose field holds exactly `count` words."""
        return DocIds([docid for docid, rows in self._rows.items() if column in rows and _word_count(rows[column]) == count])

    def updated_words(self, known: Sequence[str], prefix: str, left_out: Collection[str] = ()) -> Sequence[str] | None:
        """Bring the list of all words with a prefix up to date; None when it is unknown which terms were removed.

        known: in byte order; returned itself if nothing changes. left_out: first characters of words that the list leaves out.
        """
        if self.removed_terms is None:
            return None
        # A later write may have brought back a term that an earlier one removed.
        removed = {word for term in self.removed_terms if term not in self._occurrences
                   and is_among(known, word := fts.word_of_term(term))}
        fresh = {word for term in self._terms_matching(fts.term_of_word(prefix), True)
                 if (word := fts.word_of_term(term))[0] not in left_out and not is_among(known, word)}
        return sorted(fresh.union(known) - removed) if removed or fresh else known


def _bytes_of_documents(rows: Rows, value_texts: Mapping[int, str]) -> int:
    """Estimate the memory of documents in a delta: their words and values, decoded."""
    words = sum(row.count(" ") + 1 for of_document in rows.values() for row in of_document.values())
    fields = sum(text.count(":[") for text in value_texts.values())
    return _WORD_BYTES * words + _ROW_BYTES * (len(rows) + fields) + _CHARACTER_BYTES * sum(map(len, value_texts.values()))


def _word_count(row: str) -> int:
    """How many words a row has: its terms without gaps."""
    # Two spaces side by side are a gap. Most rows have none, and to split a row of 30 words takes twice as long.
    spaced = f" {row} "
    return spaced.count(" ") - 1 if "  " not in spaced else len(list(filter(None, row.split(" "))))


def _replaced_occurrences(known: Mapping[str, list[int]], replaced: Collection[int], changed: Iterable[str],
                          later: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Return places by term, without those in replaced documents, and with later ones. Lists that change are copied.

    changed: the terms of the replaced documents.
    """
    found = {**known}
    for term in changed:
        found[term] = [place for place in known[term] if place >> _DOCUMENT_SHIFT not in replaced]
        if not found[term]:
            del found[term]
    for term, occurrences in later.items():
        found[term] = [*found.get(term, ()), *occurrences]
    return found


def is_among(words: Sequence[str], word: str) -> bool:
    """Return whether a list in byte order has the word."""
    at = bisect_left(words, word)  # characters have the same order as their bytes in UTF-8
    return words[at:at + 1] == [word]


T = TypeVar("T")
# Parts of a cache key; a class may be a part like any other hashable value (mypy checks how its instances are hashed).
Key = tuple[Hashable | type, ...]

# SQLite takes 32,766 parameters a statement; longer lists are divided into portions.
_PARAMETERS = 500
# The documents of a delta, at most. Each generation extends the delta in each process, which copies its dictionaries, and values
# of older generations have it loaded anew: with 1,000 documents that took longer than to read sets from tables (BENCHMARKS.md).
MOST_WRITTEN = 250
# Load at most this many at once: the rest is room to extend the delta, which costs less than loading another.
_LOADED_PART = 0.7
# Deltas cached per index: searches that began before the newest write run beside later ones.
_DELTAS = 2


class _DeltaRange(NamedTuple):
    """The delta of the generations after `since` up to `until`; earlier changes, up to `unknown`, are not known.

    recent: the delta of the generations after `recent_since` alone. Most values that are asked for are as recent.
    """

    until: int
    since: int
    delta: Delta | None = None
    unknown: int = -1
    recent_since: int = sys.maxsize
    recent: Delta | None = None


class ReadTransaction:
    """An index in the read transaction of `connection`, and the cache that its readers share.

    uuid: of the index, part of every cache key. generation: number of batches that have written the index.
    """

    def __init__(self, connection: sqlite3.Connection, uuid: str, generation: int, cache: Cache) -> None:
        self.connection = connection
        self.uuid = uuid
        self.generation = generation
        self.cache = cache

    # The cache has entries (generation, value) under (uuid, *key).

    def cached(self, key: Key, load: Callable[[], T], update: Callable[[T, Delta], T | None] | None = None) -> T:
        """Return the value of a key at this generation.

        load: reads it from the tables. update: brings the value of an older generation up to date, given the documents
        written since; it returns None if that is not possible. Values are never None.
        """
        scoped = (self.uuid, *key)
        entry: tuple[int, T] | None = self.cache.peek(scoped)
        if entry and entry[0] == self.generation:
            return entry[1]
        value = self._updated(scoped, entry, update) if entry and update else None
        if value is None:
            value = load()
            # A transaction that began earlier must not replace a value that a later one cached.
            if not entry or entry[0] < self.generation:
                self.cache.put(scoped, (self.generation, value))
        return value

    def _updated(self, scoped: Key, entry: tuple[int, T], update: Callable[[T, Delta], T | None]) -> T | None:
        """Bring a cached value of an older generation up to date; None if that is not possible."""
        delta = self.delta_since(entry[0]) if entry[0] < self.generation else None
        value = None if delta is None else update(entry[1], delta)
        if value is entry[1]:
            self.cache.renew(scoped, (self.generation, value))
        elif value is not None:
            self.cache.put(scoped, (self.generation, value))
        return value

    def cached_set(self, key: Key, load: Callable[[], DocIds], written_members: Callable[[Delta], DocIds]) -> DocIds:
        """Return a set of documents at this generation.

        load: reads it from the tables. written_members: returns the documents of a delta that belong to the set now.
        """
        # A copy takes the least memory; the result of an operator may take several times as much.
        def update(known: DocIds, delta: Delta) -> DocIds:
            docids = delta.updated(known, written_members(delta))
            return known if docids is known else DocIds(docids)

        return self.cached(key, lambda: DocIds(load()), update)

    def cached_value(self, key: Key, update: Callable[[Any, Delta], Any] | None = None) -> Any:
        """Return the value of a key if it is cached for this generation, or `update` can bring it up to date, else None."""
        scoped = (self.uuid, *key)
        entry = self.cache.peek(scoped)
        if entry is None or entry[0] == self.generation:
            return entry and entry[1]
        return self._updated(scoped, entry, update) if update else None

    def replace_cached(self, key: Key, value: object) -> None:
        """Replace the value of a key for which cached() returned in this transaction."""
        self.cache.put((self.uuid, *key), (self.generation, value))

    def delta_since(self, generation: int) -> Delta | None:
        """The documents written after a generation, maybe earlier ones too; None if too many, or not known any more.

        A delta has the current content of written documents, so the one that reaches back farthest serves all older values. Two
        are cached, one for this generation and one for its neighbour: each may take the room of thousands of sets. While every
        search finds another generation, to load all documents each time took three quarters of its time.
        """
        known = self._cached_range()
        if known is None or known.unknown < generation < known.since:
            with self.cache.loading_delta:
                known = self._cached_range() or self._extended_range()
                if known.unknown < generation < known.since:
                    delta = self._load_delta(generation)
                    known = known._replace(unknown=generation) if delta is None else known._replace(since=generation, delta=delta)
                self.cache.put(self._delta_key(self.generation), known)
        if generation >= known.recent_since:
            return known.recent
        return None if generation <= known.unknown else known.delta

    def _cached_range(self) -> _DeltaRange | None:
        known: _DeltaRange | None = self.cache.peek(self._delta_key(self.generation))
        return known if known and known.until == self.generation else None

    def _delta_key(self, generation: int) -> Key:
        return self.uuid, "delta", generation % _DELTAS

    def _extended_range(self) -> _DeltaRange:
        """The range of the newest earlier delta, extended up to this generation; empty without one, or if it became too large."""
        places = [self.cache.peek(self._delta_key(number)) for number in range(_DELTAS)]
        earlier: list[_DeltaRange] = [known for known in places if known is not None and known.until < self.generation]
        newest = max(earlier, key=lambda known: known.until, default=_DeltaRange(self.generation, self.generation))
        empty = _DeltaRange(self.generation, self.generation, unknown=newest.unknown)
        if newest.delta is None or (later := self._load_delta(newest.until)) is None:
            return empty
        if len(newest.delta.written | later.written) > MOST_WRITTEN or not self._has_room(newest.delta, later):
            return empty
        delta = newest.delta.extended(later)
        self.cache.put(self._delta_key(newest.until), newest)  # it takes less memory now
        return newest._replace(until=self.generation, delta=delta, recent_since=newest.until, recent=later)

    def _has_room(self, *deltas: Delta) -> bool:
        return _DELTAS * sum(map(sys.getsizeof, deltas)) <= self.cache.limit

    def _load_delta(self, generation: int) -> Delta | None:
        changes = self.connection.execute("SELECT docids, removed_terms FROM changes WHERE generation > ? AND generation <= ?",
                                          (generation, self.generation)).fetchall()
        if len(changes) != self.generation - generation or any(written is None for written, _ in changes):
            return None
        written = union_of(from_bytes(docids) for docids, _ in changes)
        if len(written) > MOST_WRITTEN * _LOADED_PART:
            return None
        docids = written.to_array()
        rows = {docid: fts.forward_rows(forward) for docid, forward in rows_by_docid(self.connection, FORWARD_TEXTS, docids)}
        is_known = all(removed is not None for _, removed in changes)
        removed_terms = frozenset(term for _, removed in changes for term in json.loads(removed)) if is_known else None
        delta = Delta(written, rows, removed_terms, dict(rows_by_docid(self.connection, VALUE_TEXTS, docids)))
        return delta if self._has_room(delta) else None


FORWARD_TEXTS = "SELECT docid, words FROM forward_index"  # of documents that hold words
VALUE_TEXTS = "SELECT docid, field_values FROM document_values"  # of documents that have values, as JSON


def rows_by_docid(connection: sqlite3.Connection, select: str, docids: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Return the rows of a SELECT without WHERE for some documents, in no order; read lazily."""
    if len(docids) <= _PARAMETERS:
        return connection.execute(f"{select} WHERE docid IN ({placeholders(docids)})", docids)
    return chain.from_iterable(rows_by_docid(connection, select, portion) for portion in statement_portions(docids))


def statement_portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide a list into portions that one statement takes as parameters."""
    for start in range(0, len(values), _PARAMETERS):
        yield values[start:start + _PARAMETERS]


def placeholders(portion: Sequence[object]) -> str:
    """Return the placeholders for a portion's parameters in an IN list."""
    return ",".join("?" * len(portion))


# Bytes of one entry beside its value: a usual key, and the links of the dictionary.
_ENTRY_BYTES = 200
# Entries that pickle writes in one call, in which no other thread runs: a third of a millisecond.
_DUMPED_AT_ONCE = 64
# Characters of a text in a key. Longer texts come from requests, and nobody repeats a request of megabytes.
_LONGEST_TEXT = 100_000


def _bytes_of(value: Any) -> int:
    """Estimate the memory of a value; containers are followed to the second level."""
    if isinstance(value, tuple):
        size = sys.getsizeof(value)
        for part in value:
            if isinstance(part, DocIds):
                size += memory_bytes(part)
            elif not isinstance(part, int):  # generations
                size += _bytes_of(part)
        return size
    if isinstance(value, DocIds):
        return memory_bytes(value)
    if isinstance(value, (list, dict)):
        parts = value.values() if isinstance(value, dict) else value  # of one kind, so the first one tells which
        first = next(iter(parts), None)
        return sys.getsizeof(value) + sum(map(memory_bytes if isinstance(first, DocIds) else sys.getsizeof, parts))
    return sys.getsizeof(value)


class _Entry:
    """A cached value, its bytes with its key, and whether it was used since it was put or spared."""

    __slots__ = ("value", "size", "is_used")

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size
        self.is_used = False


def _dump(entries: Sequence[tuple[Hashable, object, int]], file: IO[bytes]) -> None:
    """Pickle entries, without those that pickle refuses, or that another thread changes meanwhile."""
    import pickle  # few daemons start further processes

    try:
        file.write(pickle.dumps(entries, pickle.HIGHEST_PROTOCOL))
    except Exception:
        for each in entries if len(entries) > 1 else ():
            _dump([each], file)


class Cache:
    """A cache of at most `limit` bytes; safe for many threads. It evicts entries in the order of put(), but spares an entry that
    was used since it was put or spared: nearly the least recently used entries, and using one costs no lock.

    A value is not cached under a key with a text of more than _LONGEST_TEXT characters. limit: may be changed at any time; the
    next put() evicts the excess. bytes: the estimated memory of the cached values. loading_delta: held while a thread loads or
    extends a delta; threads that did so at once took some megabytes each.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.loading_delta = threading.Lock()
        self._lock = threading.Lock()  # guards _entries and bytes

    def peek(self, key: Hashable) -> Any:
        """Return the value of a key, None when it is not cached; the value counts as used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.is_used = True
        return entry.value

    def put(self, key: Hashable, value: Any) -> None:
        """Cache a value. A value larger than the limit is not cached, and evicts only the key's old value."""
        length = 0
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, (str, bytes)) and len(part) > length:
                length = len(part)
        size = _bytes_of(value) + _ENTRY_BYTES + length
        with self._lock:
            if (before := self._entries.pop(key, None)) is not None:
                self.bytes -= before.size
            if size > self.limit or length > _LONGEST_TEXT:
                return
            self.bytes += size
            while self.bytes > self.limit:
                oldest, entry = self._entries.popitem(last=False)
                if entry.is_used:
                    entry.is_used = False
                    self._entries[oldest] = entry
                else:
                    self.bytes -= entry.size
            self._entries[key] = _Entry(value, size)  # last, or entries that were spared would outlive it

    def renew(self, key: Hashable, value: object) -> None:
        """Replace the value of a key by a value of the same size, if the key is cached."""
        if (entry := self._entries.get(key)) is not None:
            entry.value = value

    def items(self) -> list[tuple[Any, Any]]:
        """All keys with their values, those that are evicted next first."""
        with self._lock:
            return [(key, entry.value) for key, entry in self._in_order()]

    def dump(self, file: IO[bytes], limit: int) -> None:
        """Write the most recently used entries, `limit` bytes at most, for load()."""
        with self._lock:
            entries = [(key, entry.value, entry.size) for key, entry in reversed(self._in_order())]
        count = bisect_right(list(accumulate(size for _, _, size in entries)), limit)
        for start in range(0, count, _DUMPED_AT_ONCE):
            _dump(entries[start:min(start + _DUMPED_AT_ONCE, count)], file)

    def load(self, file: IO[bytes]) -> None:
        """Read the entries of dump() into an empty cache; they become its limit."""
        import pickle

        with suppress(EOFError):
            while True:
                for key, value, size in pickle.load(file):
                    self._entries[key] = _Entry(value, size)
                    self._entries.move_to_end(key, last=False)
                    self.bytes += size
        self.limit = self.bytes

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, made if it is not cached. Two threads may both make it."""
        value: T | None = self.peek(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def forget(self, is_stale: Callable[[Hashable], bool]) -> None:
        """Remove the entries whose key is stale."""
        with self._lock:
            for key in [key for key in self._entries if is_stale(key)]:
                self.bytes -= self._entries.pop(key).size

    def _in_order(self) -> list[tuple[Hashable, _Entry]]:
        return sorted(self._entries.items(), key=lambda each: each[1].is_used)
