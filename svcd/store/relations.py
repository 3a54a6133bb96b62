"""The relations of words in one index: which documents hold a word, where, how many.

Knows FTS5's queries and the forward rows; refuses to know documents and queries of users. Sets of documents
are integers, bit d standing for docid d. What was read is kept, and carried over later writes: see delta.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from svcd.bitsets import Packed, from_bytes_equal, from_docids, listed, packed, to_docids, unpacked
from svcd.store import beginnings, words
from svcd.store.cache import Cache
from svcd.store.delta import Delta
from svcd.store.schema import COUNT_BLOCK, COUNTED_WORDS, SHARED_COLUMN

T = TypeVar("T")
DocIds = int
Key = tuple[Hashable, ...]

# SQLite takes 32,766 parameters; longer lists are asked for in parts.
_PARAMETERS = 500
# Words of one OR: one walk through the index for all of them.
_PHRASES = 100
# What the engine asks of the words with a beginning, to see whether they are many.
_FIRST_WORDS = 100
# Words of so many documents are read one by one, for other searches too.
_COMMON = 512
_MOST_COMMON = 4
# To look a term up among places takes as long as it takes to put together what so many documents hold there.
_DOCUMENTS_A_TERM = 600
# With so many words a first character has a list of its own.
_MANY_WORDS = 50
_MOST_RARE = 20_000
# Fields whose sets are compared to find the others.
_MOST_COMPARED = 8
# Beyond so many written documents reading the index again is quicker than looking at each of them.
MOST_WRITTEN = 1000
# Searches that began before the newest write go on beside those that began after it.
_STATES = 2
_AFTER_ANY_WORD = "\U0010ffff"
# These begin many words in most languages, and what lies before, between and behind them hardly any.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BESIDE_LETTERS = (("", "0"), ("9" + _AFTER_ANY_WORD, "a"), ("z" + _AFTER_ANY_WORD, _AFTER_ANY_WORD))


class _Span(NamedTuple):
    """What was written up to a generation. lost: from there on, and from before, it can't be told."""

    until: int
    since: int
    delta: Delta | None = None
    lost: int = -1


class _Begun(NamedTuple):
    """The first words with a beginning; few: all their terms with the number of documents, if hardly one is common."""

    few: Mapping[str, int] | None
    words: Sequence[str]

    @classmethod
    def of(cls, terms: Mapping[str, int]) -> _Begun:
        """terms: up to _FIRST_WORDS of them."""
        common = sum(documents >= _COMMON for documents in terms.values())
        are_few = len(terms) < _FIRST_WORDS and common <= _MOST_COMMON
        return cls(terms if are_few else None, words.spelled_words(terms))


class Relations:
    """The words of one index in the read transaction of `connection`, at its generation."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache, generation: int) -> None:
        self._connection = connection
        self._uuid = uuid
        self._cache = cache
        self.generation = generation

    @property
    def state(self) -> Hashable:
        """Equal for readers of the same state of the same index, whatever was written to others."""
        return self._uuid, self.generation

    # What is kept between searches: (generation, value) under (uuid, ...)

    def _kept(self, key: Key, make: Callable[[], T], carry: Callable[[T, Delta], T | None] = lambda *_: None) -> T:
        """The value of a key at this generation. carry: an older value brought up to date, or None to make it anew."""
        scoped = (self._uuid, *key)
        held: tuple[int, T] | None = self._cache.peek(scoped)
        if held and held[0] == self.generation:
            return held[1]
        delta = self._delta_since(held[0]) if held and held[0] < self.generation else None
        carried = carry(held[1], delta) if held and delta else None
        value = make() if carried is None else carried
        if not held or held[0] < self.generation:  # a reader that began earlier must not take the place of a later one
            self._cache.put(scoped, (self.generation, value))
        return value

    def _held(self, key: Key) -> Any:
        """The value of a key, if it is kept and of this generation."""
        held = self._cache.peek((self._uuid, *key))
        return held[1] if held and held[0] == self.generation else None

    def _keep(self, key: Key, value: object) -> None:
        """Another value for a key whose value _kept() gave."""
        self._cache.put((self._uuid, *key), (self.generation, value))

    def remembered(self, key: Key, make: Callable[[], T]) -> T:
        """What somebody else made of this state of the index, and would make again: kept as long as it stands."""
        return self._kept(("made", *key), make)

    def _set(self, key: Key, make: Callable[[], Packed], written: Callable[[Delta], DocIds]) -> DocIds:
        """A set that is kept. written: what it is among the documents of a delta."""
        return unpacked(self._kept(key, lambda: packed(make()),
                                   lambda known, delta: packed(delta.carried(unpacked(known), written(delta)))))

    # Sets that may be written down ready-made: ("word", term, is_prefix, slot), ("place", term, is_prefix, bucket)

    def set_of(self, key: Key) -> DocIds:
        """The set of such a key."""
        kind, spelled, is_prefix, where = key
        return (self._holding if kind == "word" else self._at)(spelled, is_prefix, where)  # type: ignore[operator]

    @staticmethod
    def dense_name(key: Key) -> str:
        """Under which a ready-made set is kept."""
        return "\t".join(map(str, key))

    def _ready(self, key: Key, make: Callable[[], Packed], written: Callable[[Delta], DocIds]) -> DocIds:
        """A set that is kept, in memory or ready-made."""
        def find() -> Packed:
            ready = self._ready_made(key, written)
            return make() if ready is None else ready

        return self._set(key, find, written)

    def _ready_made(self, key: Key, written: Callable[[Delta], DocIds]) -> DocIds | None:
        row = self._connection.execute("SELECT generation, bits FROM dense WHERE key = ?", (self.dense_name(key),)).fetchone()
        if row is None or row[0] > self.generation:
            return None
        bits = int.from_bytes(row[1], "little")
        if row[0] == self.generation:
            return bits
        delta = self._delta_since(row[0])
        return delta.carried(bits, written(delta)) if delta else None

    def term_counts(self) -> Iterator[tuple[str, int]]:
        """(term, documents that hold it) of the whole vocabulary."""
        return self._connection.execute("SELECT term, doc FROM vocabulary WHERE term <> ?", (words.HOLE,))

    def _delta_since(self, generation: int) -> Delta | None:
        """The documents written since a generation, or earlier too; None when they are too many, or not known.

        It tells what written documents are now, so that the one that reaches farthest back does for all: one is held
        for this state of the index, and one for that before or after it, as each may take the room of thousands of sets.
        """
        key = (self._uuid, "delta", self.generation % _STATES)
        held: _Span | None = self._cache.peek(key)
        if held is None or held.until != self.generation:
            held = _Span(self.generation, self.generation)
        if generation < held.since and generation > held.lost:
            delta = self._read_delta(generation)
            held = held._replace(lost=generation) if delta is None else held._replace(since=generation, delta=delta)
            self._cache.put(key, held)
        return None if generation <= held.lost else held.delta

    def _read_delta(self, generation: int) -> Delta | None:
        changes = self._connection.execute("SELECT docids, gone FROM changes WHERE generation > ? AND generation <= ?",
                                           (generation, self.generation)).fetchall()
        if len(changes) != self.generation - generation or any(docids is None for docids, _ in changes):
            return None
        changed = from_docids([docid for docids, _ in changes for docid in array("I", docids)])
        if changed.bit_count() > MOST_WRITTEN:
            return None
        rows = {docid: {slot: row.split(" ") for slot, row in words.forward_rows(forward).items()}
                for docid, forward in self.forward_rows(to_docids(changed))}
        is_known = all(gone is not None for _, gone in changes)
        terms = frozenset(term for _, gone in changes for term in json.loads(gone)) if is_known else None
        return Delta(changed, rows, terms, dict(self._facet_rows(to_docids(changed))))

    # Fields

    def slots(self) -> dict[str, int]:
        """Field -> slot of those that hold words, by field number."""
        return self._kept(("slots",), lambda: dict(self._connection.execute(
            "SELECT name, slot FROM fields WHERE slot IS NOT NULL ORDER BY fid")))

    def indexed_fields(self) -> list[str]:
        """The fields that hold words, by field number."""
        return list(self.slots())

    # Words

    def _matching(self, table: str, query: str) -> Packed:
        (docids,) = self._connection.execute(
            f"SELECT group_concat(rowid) FROM {table} WHERE {table} MATCH ?", (query,)).fetchone()
        return listed(docids)

    def has_word(self, word: str) -> bool:
        """Does any document hold the word?"""
        several = self._listed(word)
        if several is None:
            return self._matches("terms", words.quoted(words.term(word)))
        at = bisect_left(several, word)
        return several[at:at + 1] == [word]

    def _matches(self, table: str, query: str) -> bool:
        row = self._connection.execute(f"SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT 1", (query,)).fetchone()
        return row is not None

    def word_docids(self, word: str) -> DocIds:
        """Documents that hold the word in any field."""
        return self._holding(words.term(word), False)

    def prefix_docids(self, prefix: str) -> DocIds:
        """Documents that hold a word that starts with the prefix."""
        return self._holding(words.term(prefix), True)

    def _holding(self, spelled: str, is_prefix: bool, slot: int | None = None) -> DocIds:
        """Documents with a term, anywhere or in the column of a slot below the shared one."""
        if is_prefix and beginnings.is_kept(spelled):
            return self._beginning(spelled, slot)
        return self._ready(("word", spelled, is_prefix, slot), lambda: self._read_holding(spelled, is_prefix, slot),
                           lambda delta: delta.word(spelled, is_prefix, slot))

    def _read_holding(self, spelled: str, is_prefix: bool, slot: int | None) -> Packed:
        """From the index, with as few documents handed over as can be: that takes longer than to look at them."""
        query, column = phrase(spelled, is_prefix), "" if slot is None else f"{{c{slot}}} : "
        several = self._few_terms(spelled) if is_prefix else None
        if several is not None:
            return _union(several, lambda term: self._holding(term, False, slot),
                          lambda rare: self._matching("terms", f"{column}({_any_of(rare)})"))
        anywhere = self._held_set(("word", spelled, is_prefix, None)) if slot is not None else None
        if anywhere and self._stands_mostly_in(slot, spelled, is_prefix, anywhere):
            return anywhere & ~unpacked(self._matching("terms", f"{query} NOT {column}{query}"))
        return self._matching("terms", column + query)

    def _stands_mostly_in(self, slot: int | None, spelled: str, is_prefix: bool, anywhere: DocIds) -> bool:
        """Do the other fields, as far as it is known, tell that most documents have the term in this one?"""
        others = [other for other in self.slots().values() if other != slot]
        apart = anywhere
        for other in others if len(others) <= _MOST_COMPARED else ():
            docids = self._held_set(("word", spelled, is_prefix, other))
            if docids is None:
                return False
            apart &= ~docids
        return len(others) <= _MOST_COMPARED and 2 * apart.bit_count() > anywhere.bit_count()

    def _held_set(self, key: Key) -> DocIds | None:
        held = self._held(key)
        return None if held is None else unpacked(held)

    def _few_terms(self, spelled: str) -> Mapping[str, int] | None:
        """The terms that start so with the number of their documents; None if they are many, or were not asked for."""
        held: _Begun | None = self._held(("begun", words.word(spelled)))
        return held and held.few

    def _beginning(self, letter: str, slot: int | None) -> DocIds:
        return self._set(("beginning", letter, slot), lambda: beginnings.read(self._connection, letter, slot),
                         lambda delta: delta.word(letter, True, slot))

    def words_docids(self, several: Sequence[str]) -> DocIds:
        """Documents that hold any of several words."""
        held = 0
        for start in range(0, len(several), _PHRASES):
            held |= self._holding_any(tuple(map(words.term, several[start:start + _PHRASES])))
        return held

    def _holding_any(self, terms: tuple[str, ...]) -> DocIds:
        return self._set(("any", terms), lambda: self._matching("terms", _any_of(terms)),
                         lambda delta: delta.any_word(terms))

    def word_field_docids(self, word: str, field: str) -> DocIds:
        """Documents that hold the word in one field."""
        return self._in_field(words.term(word), False, field)

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        """Documents that hold a word with the prefix in one field."""
        return self._in_field(words.term(prefix), True, field)

    def _in_field(self, spelled: str, is_prefix: bool, field: str) -> DocIds:
        slot = self.slots().get(field)
        if slot is None:
            return 0
        if slot < SHARED_COLUMN or (is_prefix and beginnings.is_kept(spelled)):
            return self._holding(spelled, is_prefix, slot)
        return self._set(("word", spelled, is_prefix, slot), lambda: self._in_shared_column(spelled, is_prefix, slot),
                         lambda delta: delta.word(spelled, is_prefix, slot))

    def _in_shared_column(self, spelled: str, is_prefix: bool, slot: int) -> DocIds:
        column = unpacked(self._matching("terms", f"{{c{SHARED_COLUMN}}} : {phrase(spelled, is_prefix)}"))
        found = []
        for docid, forward in self.forward_rows(to_docids(column)):
            terms = words.forward_rows(forward).get(slot, "").split(" ")
            if any(map(lambda term: term.startswith(spelled), terms)) if is_prefix else spelled in terms:
                found.append(docid)
        return from_docids(found)

    def word_fields(self, word: str) -> list[str]:
        """The fields that hold the word, by field number."""
        return [field for field in self.indexed_fields() if self.word_field_docids(word, field)]

    def prefix_fields(self, prefix: str) -> list[str]:
        """The fields that hold a word with the prefix, by field number."""
        return [field for field in self.indexed_fields() if self.prefix_field_docids(prefix, field)]

    def forward_rows(self, docids: Sequence[int]) -> Iterator[tuple[int, str]]:
        """(docid, forward row) of those of some documents that hold words."""
        for part in parts(docids):
            yield from self._connection.execute(
                f"SELECT docid, words FROM forward WHERE docid IN ({marks(part)})", part)

    def rows(self, docids: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Sequence[str]]]]:
        """(docid, field -> its words by position, "" for a hole) of some documents."""
        names = self._kept(("names of slots",), lambda: {slot: name for name, slot in self.slots().items()})
        found = dict(self.forward_rows(docids))
        for docid in docids:
            rows = words.forward_rows(found.get(docid, ""))
            yield docid, {names[slot]: words.positions(row) for slot, row in rows.items()}

    def _facet_rows(self, docids: Sequence[int]) -> Iterator[tuple[int, str]]:
        """(docid, the text of its values) of those of some documents that have any."""
        for part in parts(docids):
            yield from self._connection.execute(
                f"SELECT docid, held FROM facet_rows WHERE docid IN ({marks(part)})", part)

    # The vocabulary

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """The first `limit` words that start with the prefix, itself included, in byte order; "" gives all."""
        if limit is None:
            several = self._listed(prefix) if len(prefix) > 1 else None
            if several is not None:
                return several[bisect_left(several, prefix):bisect_left(several, prefix + _AFTER_ANY_WORD)]
            return self._kept(("words", prefix), lambda: words.spelled_words(self._read_terms(prefix, -1)),
                              lambda known, delta: delta.carried_words(known, prefix))
        if limit <= _FIRST_WORDS:
            return self._kept(("begun", prefix), lambda: _Begun.of(self._read_terms(prefix, _FIRST_WORDS))).words[:limit]
        return self._kept(("words", prefix, limit), lambda: words.spelled_words(self._read_terms(prefix, limit)))

    def _read_terms(self, prefix: str, limit: int) -> dict[str, int]:
        """The first terms that start so, each with the number of its documents."""
        start = words.term(prefix)
        return dict(self._connection.execute(
            "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND term <> ? LIMIT ?",
            (start, start + _AFTER_ANY_WORD, words.HOLE, limit)))

    def first_characters(self) -> Sequence[str]:
        """The distinct first characters of all words."""
        common, rare = self._kept(("first characters",), self._read_first_characters)
        return sorted(common.union(spelled[0] for spelled in rare))

    def _read_first_characters(self) -> tuple[frozenset[str], list[str]]:
        """The first characters of many words, and the words with any other, in byte order."""
        common = {letter for letter in _LETTERS if beginnings.has(self._connection, letter)}
        rare: list[str] = []
        for after, before in _BESIDE_LETTERS:
            self._add_characters(after, before, common, rare)
        return frozenset(common), sorted(word for word in rare if word[0] not in common)

    def _add_characters(self, after: str, before: str, common: set[str], rare: list[str]) -> None:
        while terms := self._connection.execute("SELECT term FROM vocabulary WHERE term > ? AND term < ? LIMIT ?",
                                                (after, before, _MANY_WORDS)).fetchall():
            found = [words.word(term) for (term,) in terms if term != words.HOLE]
            after = terms[-1][0]
            are_many = len(found) == _MANY_WORDS and found[0][0] == found[-1][0]
            if are_many or len(rare) > _MOST_RARE:  # jump over all others of the last one
                common.update(word[0] for word in found)
                after = words.term(found[-1][0]) + _AFTER_ANY_WORD if found else after
            else:
                rare += found

    def _listed(self, start: str) -> Sequence[str] | None:
        """All words with the same first character, and perhaps others, in byte order; None where they are not held.

        Words are asked for by the hundred to find splits and other first letters, most of which do not exist.
        """
        characters: tuple[frozenset[str], list[str]] | None = self._held(("first characters",))
        if characters and start[:1] not in characters[0]:
            return characters[1]
        return self._held(("words", start[:1]))

    def joined_words(self, character: str) -> str:
        """All words that start with a character, a NUL (which no word has) around each; "" when there is none."""
        return self._kept(("joined", character), lambda: _joined(self.words_with_prefix(character)))

    # Positions

    def word_positions(self, word: str) -> list[int]:
        """The bucketed positions at which the word stands, ascending."""
        return self._positions(words.term(word), False)

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        """Documents that hold the word at a bucketed position of any field."""
        return self._at(words.term(word), False, bucketed)

    def prefix_positions(self, prefix: str) -> list[int]:
        """The bucketed positions of the words with the prefix, ascending."""
        return self._positions(words.term(prefix), True)

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        """Documents that hold a word with the prefix at a bucketed position of any field."""
        return self._at(words.term(prefix), True, bucketed)

    def _at(self, spelled: str, is_prefix: bool, bucket: int) -> DocIds:
        return self._ready(("place", spelled, is_prefix, bucket),
                           lambda: self._read_at(spelled, is_prefix, bucket),
                           lambda delta: delta.place(spelled, is_prefix, bucket))

    def _read_at(self, spelled: str, is_prefix: bool, bucket: int) -> Packed:
        several = self._few_terms(spelled) if is_prefix else None
        if several is None or sum(several.values()) < _DOCUMENTS_A_TERM * len(several):
            return self._matching("places", phrase(words.place(bucket, spelled), is_prefix))
        return _union(several, lambda term: self._at(term, False, bucket),
                      lambda rare: self._matching("places", _any_of([words.place(bucket, term) for term in rare])))

    def _positions(self, spelled: str, is_prefix: bool) -> list[int]:
        return self._kept(("positions", spelled, is_prefix), lambda: [
            bucket for bucket in words.BUCKETS if self._matches("places", phrase(words.place(bucket, spelled), is_prefix))])

    # Counts

    def field_count_docids(self, field: str, count: int) -> DocIds:
        """Documents whose field holds exactly `count` (1 to 30) words."""
        slot = self.slots().get(field)
        if slot is None or not 1 <= count <= COUNTED_WORDS:
            return 0
        return self._set(("count", slot, count), lambda: self._read_count(slot, count),
                         lambda delta: delta.count(slot, count))

    def _read_count(self, slot: int, count: int) -> DocIds:
        found = 0
        for block, counts in self._connection.execute(
                "SELECT block, counts FROM word_counts WHERE slot = ?", (slot,)):
            found |= from_bytes_equal(counts, count) << (block * COUNT_BLOCK)
        return found


def phrase(spelled: str, is_prefix: bool) -> str:
    """Terms with spaces between, one behind the other, as FTS5 is asked for them; the last one may go on."""
    return words.quoted(spelled) + (" *" if is_prefix else "")


def _any_of(terms: Iterable[str]) -> str:
    return " OR ".join(map(words.quoted, terms))


def _union(terms: Mapping[str, int], of: Callable[[str], DocIds], of_any: Callable[[Sequence[str]], Packed]) -> Packed:
    """The documents of terms of which their number is known: of the common ones each, of all others at once."""
    rare = [term for term, documents in terms.items() if documents < _COMMON]
    if rare and len(rare) == len(terms):
        return of_any(rare)
    docids = unpacked(of_any(rare)) if rare else 0
    for term in terms.keys() - rare:
        docids |= of(term)
    return docids


def _joined(several: Sequence[str]) -> str:
    return "\0".join(("", *several, "")) if several else ""


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """A list in portions that one statement takes as parameters."""
    for start in range(0, len(values), _PARAMETERS):
        yield values[start:start + _PARAMETERS]


def marks(part: Iterable[object]) -> str:
    """The places of a portion's parameters."""
    return ",".join("?" for _ in part)
