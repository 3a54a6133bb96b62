"""One index as a search sees it: documents, fields, and the relations of words, in one read transaction.

Knows the tables of an index file and how FTS5 answers; refuses to know what a query is or how hits are
ranked. An engine.reader.Reader by shape. Sets of documents are integers, bit d standing for docid d.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from svcd.bitsets import from_bytes_equal, from_docids, to_docids
from svcd.store import words
from svcd.store.cache import Cache
from svcd.store.schema import COUNT_BLOCK, SHARED_COLUMN

Value = float | str | None

T = TypeVar("T")
DocIds = int

# SQLite takes 32,766 parameters; longer lists are asked for in parts.
_PARAMETERS = 500
# A look-up into so few documents is made for all of them, and its answer kept.
_WORTH_KEEPING = 200
# Words of one OR: one walk through the index for all of them.
_PHRASES = 100
_AFTER_ANY_WORD = "\U0010ffff"


class IndexReader:
    """The committed state of one index when the transaction of `connection` began."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache,
                 resolve_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]],
                 sort_value: Callable[[Mapping[str, Any], str, bool], Value] = lambda *_: None) -> None:
        self._connection = connection
        self._meta: dict[str, Any] = dict(connection.execute("SELECT key, value FROM meta"))
        # The generation makes a key of the cache stale at once when a write commits.
        self._scope = (uuid, self._meta.get("generation", 0))
        self._cache = cache
        self._sort_value = sort_value
        self._all = int.from_bytes(self._meta.get("docids") or b"", "little")
        self.stored_settings: dict[str, Any] = json.loads(self._meta.get("settings") or "{}")
        self.settings = self._cached(("settings",), lambda: resolve_settings(self.stored_settings))
        self.primary_key: str | None = self._meta.get("primary_key")

    def _cached(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        return self._cache.get(self._scope + key, make)

    # Documents

    @property
    def number_of_documents(self) -> int:
        """How many documents the index holds."""
        return self._all.bit_count()

    def all_docids(self) -> DocIds:
        """Every document."""
        return self._all

    def raw_document_size(self) -> int:
        """The bytes of all stored documents' texts."""
        return int(self._meta.get("document_bytes", 0))

    def internal_database_sizes(self) -> dict[str, int]:
        """Table or index -> the bytes of its pages; empty where SQLite was built without `dbstat`."""
        try:
            return dict(self._connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY name"))
        except sqlite3.OperationalError:
            return {}

    def document(self, docid: int) -> str:
        """The JSON text of a document; KeyError when there is none."""
        row = self._connection.execute("SELECT json FROM documents WHERE docid = ?", (docid,)).fetchone()
        if row is None:
            raise KeyError(docid)
        return row[0]

    def documents(self, docids: Sequence[int]) -> list[str]:
        """The JSON texts of documents, in the order asked."""
        found: dict[int, str] = {}
        for part in _parts(docids):
            found.update(self._connection.execute(
                f"SELECT docid, json FROM documents WHERE docid IN ({_marks(part)})", part))
        return [found[docid] for docid in docids]

    def docid_of(self, document_id: str) -> int | None:
        """The docid of a document's identifier, or None."""
        row = self._connection.execute("SELECT docid FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        return row[0] if row else None

    def docids_page(self, offset: int, limit: int) -> list[int]:
        """A page of docids, ascending."""
        if limit <= 0 or offset >= self.number_of_documents:
            return []
        return [row[0] for row in self._connection.execute(
            "SELECT docid FROM documents ORDER BY docid LIMIT ? OFFSET ?", (min(limit, 1 << 62), min(offset, 1 << 62)))]

    # Fields

    def _fields(self) -> list[tuple[str, int | None, int]]:
        return self._cached(("fields",), lambda: self._connection.execute(
            "SELECT name, slot, documents FROM fields ORDER BY fid").fetchall())

    def fields(self) -> list[str]:
        """The names of all known fields, by field number."""
        return [name for name, _, _ in self._fields()]

    def field_distribution(self) -> dict[str, int]:
        """Top-level field -> how many documents have it, by name."""
        return {name: count for name, _, count in sorted(self._fields()) if count}

    def indexed_fields(self) -> list[str]:
        """The fields that hold words, by field number."""
        return [name for name, slot, _ in self._fields() if slot is not None]

    def _slots(self) -> dict[str, int]:
        return self._cached(("slots",), lambda: {name: slot for name, slot, _ in self._fields() if slot is not None})

    # Words

    def _matching(self, table: str, query: str) -> DocIds:
        return from_docids([row[0] for row in self._connection.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (query,))])

    def _docids_of(self, query: str, slot: int | None = None) -> DocIds:
        """Documents that hold an FTS5 phrase, anywhere or in the column of a slot below the shared one."""
        return self._cached((query, slot), lambda: self._matching(
            "terms", query if slot is None else f"{{c{slot}}} : {query}"))

    def has_word(self, word: str) -> bool:
        """Does any document hold the word?"""
        return bool(self.word_docids(word))

    def word_docids(self, word: str) -> DocIds:
        """Documents that hold the word in any field."""
        return self._docids_of(words.quoted(words.term(word)))

    def words_docids(self, several: Sequence[str]) -> DocIds:
        """Documents that hold any of several words."""
        held = 0
        for start in range(0, len(several), _PHRASES):
            part = several[start:start + _PHRASES]
            held |= self._docids_of(" OR ".join(words.quoted(words.term(each)) for each in part))
        return held

    def prefix_docids(self, prefix: str) -> DocIds:
        """Documents that hold a word that starts with the prefix."""
        return self._docids_of(_prefix_query(prefix))

    def word_field_docids(self, word: str, field: str) -> DocIds:
        """Documents that hold the word in one field."""
        return self._field_docids(words.quoted(words.term(word)), words.term(word), False, field)

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        """Documents that hold a word with the prefix in one field."""
        return self._field_docids(_prefix_query(prefix), words.term(prefix), True, field)

    def _field_docids(self, query: str, spelled: str, is_prefix: bool, field: str) -> DocIds:
        slot = self._slots().get(field)
        if slot is None:
            return 0
        if slot < SHARED_COLUMN:
            return self._docids_of(query, slot)
        return self._cached((query, "field", slot), lambda: from_docids(sorted(
            {docid for docid, terms in self._shared_rows(query, slot)
             if any(_matches(term, spelled, is_prefix) for term in terms)})))

    def _shared_rows(self, query: str, slot: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """(docid, terms of a field by position) for the fields in the shared column of the documents that match a query."""
        docids = to_docids(self._docids_of(query, SHARED_COLUMN))
        for docid, forward in self._forward_rows(docids):
            for found, row in words.forward_rows(forward).items():
                if found >= SHARED_COLUMN and slot in (None, found):
                    yield docid, row.split(" ")

    def _forward_rows(self, docids: Sequence[int]) -> Iterator[tuple[int, str]]:
        for part in _parts(docids):
            yield from self._connection.execute(
                f"SELECT docid, words FROM forward WHERE docid IN ({_marks(part)})", part)

    def rows(self, docids: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Sequence[str]]]]:
        """(docid, field -> its words by position, "" for a hole) of some documents."""
        names = self._cached(("names of slots",), lambda: {slot: name for name, slot in self._slots().items()})
        found = dict(self._forward_rows(docids))
        for docid in docids:
            rows = words.forward_rows(found.get(docid, ""))
            yield docid, {names[slot]: words.positions(row) for slot, row in rows.items()}

    def word_fields(self, word: str) -> list[str]:
        """The fields that hold the word, by field number."""
        return [field for field in self.indexed_fields() if self.word_field_docids(word, field)]

    def prefix_fields(self, prefix: str) -> list[str]:
        """The fields that hold a word with the prefix, by field number."""
        return [field for field in self.indexed_fields() if self.prefix_field_docids(prefix, field)]

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """The first `limit` words that start with the prefix, itself included, in byte order; "" gives all."""
        return self._cached(("words", prefix, limit), lambda: words.spelled_words(self._terms_from(
            words.term(prefix), -1 if limit is None else limit)))

    def _terms_from(self, start: str, limit: int) -> Iterator[str]:
        return (row[0] for row in self._connection.execute(
            "SELECT term FROM vocabulary WHERE term >= ? AND term < ? AND term <> ? LIMIT ?",
            (start, start + _AFTER_ANY_WORD, words.HOLE, limit)))

    def first_characters(self) -> Sequence[str]:
        """The distinct first characters of all words."""
        return self._cached(("first characters",), lambda: sorted(set(self._read_first_characters())))

    def _read_first_characters(self) -> Iterator[str]:
        """One look-up per character: behind the first word of each, jump over all its others."""
        after = ""
        while row := self._connection.execute("SELECT term FROM vocabulary WHERE term >= ? LIMIT 1", (after,)).fetchone():
            character = words.word(row[0])[0]
            after = (row[0] if row[0] == words.HOLE else words.term(character)) + _AFTER_ANY_WORD
            if row[0] != words.HOLE:
                yield character

    def joined_words(self, character: str) -> str:
        """All words that start with a character, a NUL (which no word has) around each; "" when there is none."""
        return self._cached(("joined", character), lambda: "\0".join(
            ("", *found, "")) if (found := self.words_with_prefix(character)) else "")

    # Positions

    def word_positions(self, word: str) -> list[int]:
        """The bucketed positions at which the word stands, ascending."""
        return self._positions(words.term(word), "")

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        """Documents that hold the word at a bucketed position of any field."""
        return self._docids_at(words.quoted(words.place(bucketed, words.term(word))))

    def prefix_positions(self, prefix: str) -> list[int]:
        """The bucketed positions of the words with the prefix, ascending."""
        return self._positions(words.term(prefix), " *")

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        """Documents that hold a word with the prefix at a bucketed position of any field."""
        return self._docids_at(words.quoted(words.place(bucketed, words.term(prefix))) + " *")

    def _docids_at(self, query: str) -> DocIds:
        return self._cached(("places", query), lambda: self._matching("places", query))

    def _positions(self, spelled: str, star: str) -> list[int]:
        return self._cached(("positions", spelled, star), lambda: [
            bucket for bucket in words.BUCKETS if self._has_place(words.quoted(words.place(bucket, spelled)) + star)])

    def _has_place(self, query: str) -> bool:
        return self._connection.execute("SELECT 1 FROM places WHERE places MATCH ? LIMIT 1", (query,)).fetchone() is not None

    # Pairs

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Documents in which `distance` (1 to 3) is the smallest one from `left` to `right` behind it.

        candidates: the documents for which the answer must be right; others may be in it.
        """
        near = self.word_docids(left) & self.word_docids(right)
        if not near or (candidates is not None and not near & candidates):
            return 0
        pattern = f"{words.term(left)} {words.term(right)}"
        if distance == 1:
            return self._docids_of(words.quoted(pattern))
        return self._looked_up(("pair", distance, left, right), self._near(left, right, "", distance), candidates,
                               lambda docids: self._read_pair(distance, left, right, docids))

    def _near(self, left: str, right: str, star: str, distance: int) -> DocIds:
        first, second = words.quoted(words.term(left)), words.quoted(words.term(right)) + star
        return self._docids_of(f"NEAR({first} {second}, {distance - 1})")

    def _looked_up(self, key: tuple[Hashable, ...], near: DocIds, candidates: DocIds | None,
                   read: Callable[[DocIds], DocIds]) -> DocIds:
        """What has to be looked up in documents: kept when it is for all of them, few or asked without candidates."""
        asked = near if candidates is None else near & candidates
        if not asked:
            return 0
        if candidates is None or near.bit_count() <= max(_WORTH_KEEPING, 2 * asked.bit_count()):
            return self._cached(key, lambda: read(near))
        return read(asked)

    def _read_pair(self, distance: int, left: str, right: str, near: DocIds) -> DocIds:
        for shorter in range(1, distance):
            near &= ~self.pair_docids(shorter, left, right, near)
        found = words.adjacent(words.term(left), words.term(right), distance).search
        return from_docids([docid for docid, forward in self._forward_rows(to_docids(near)) if found(forward)])

    def prefix_pair_docids(self, distance: int, left: str, prefix: str, candidates: DocIds | None = None) -> DocIds:
        """The union of pair_docids(distance, left, word) over the words that start with the prefix."""
        if distance == 1:
            return self._docids_of(f"{words.quoted(f'{words.term(left)} {words.term(prefix)}')} *")
        return self._looked_up(("prefix pair", distance, left, prefix), self._near(left, prefix, " *", distance),
                               candidates, lambda docids: self._read_prefix_pair(distance, left, prefix, docids))

    def _read_prefix_pair(self, distance: int, left: str, prefix: str, near: DocIds) -> DocIds:
        first = words.term(left)
        found = words.adjacent_prefix(first, words.term(prefix), distance)
        return from_docids([docid for docid, forward in self._forward_rows(to_docids(near))
                            if any(not words.is_nearer(forward, first, second, distance)
                                   for second in found.findall(forward))])

    # Counts

    def field_count_docids(self, field: str, count: int) -> DocIds:
        """Documents whose field holds exactly `count` (1 to 30) words."""
        slot = self._slots().get(field)
        if slot is None:
            return 0
        return self._cached(("count", slot, count), lambda: self._read_count(slot, count))

    def _read_count(self, slot: int, count: int) -> DocIds:
        found = 0
        for block, counts in self._connection.execute(
                "SELECT block, counts FROM word_counts WHERE slot = ?", (slot,)):
            found |= from_bytes_equal(counts, count) << (block * COUNT_BLOCK)
        return found


    # Values

    def sort_buckets(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value, DocIds]]:
        """The candidates by their value of a field: numbers, then texts, then those without; each in the order asked."""
        values = self._cached(("sort", field, ascending), lambda: self._read_sort_values(field, ascending))
        grouped: dict[Value, list[int]] = {}
        for docid in to_docids(candidates):
            grouped.setdefault(values.get(docid), []).append(docid)
        for kind in (float, str):
            for value in sorted((each for each in grouped if isinstance(each, kind)), reverse=not ascending):
                yield value, from_docids(grouped[value])
        if None in grouped:
            yield None, from_docids(grouped[None])

    def _read_sort_values(self, field: str, ascending: bool) -> dict[int, Value]:
        """docid -> what it is sorted by, for the documents that have it: all of them are read, once per change."""
        found = {}
        for docid, text in self._connection.execute("SELECT docid, json FROM documents"):
            value = self._sort_value(json.loads(text), field, ascending)
            if value is not None:
                found[docid] = value
        return found


def _prefix_query(prefix: str) -> str:
    return f"{words.quoted(words.term(prefix))} *"


def _matches(term: str, spelled: str, is_prefix: bool) -> bool:
    return term.startswith(spelled) if is_prefix else term == spelled


def _parts(docids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(docids), _PARAMETERS):
        yield docids[start:start + _PARAMETERS]


def _marks(part: Iterable[object]) -> str:
    return ",".join("?" for _ in part)
