"""The relations of words in one index: which documents hold a word, where, how many.

Knows FTS5's queries and the forward rows; refuses to know documents and queries of users, and which words there are.
Sets of documents are integers, bit d standing for docid d. What was read is kept: see keeping.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from svcd.base.bitmaps import DocIds, Packed, from_bytes_equal, from_docids, listed, packed, to_docids, unpacked
from svcd.index import fts_encoding, prefix_postings, vocabulary
from svcd.index.cached_reader import Key
from svcd.index.delta import Delta
from svcd.index.schema import COUNT_BLOCK, COUNTED_WORDS, SHARED_COLUMN

# kind ("word" or "place"), term, whether it is a beginning, and the slot (None for all fields) or the bucket.
DenseKey = tuple[str, str, bool, int | None]

# Words of one OR: one walk through the index for all of them.
_PHRASES = 100
# To look a term up among places takes as long as it takes to put together what so many documents hold there.
_DOCUMENTS_A_TERM = 600
# Fields whose sets are compared to find the others.
_MOST_COMPARED = 8


class PostingReader(vocabulary.VocabularyReader):
    """The words of one index, and what of it holds them, in a read transaction."""

    # Sets that may be written down ready-made: ("word", term, is_prefix, slot), ("place", term, is_prefix, bucket)

    def set_of(self, key: DenseKey) -> DocIds:
        """The set of such a key."""
        kind, spelled, is_prefix, where = key
        if kind == "place" and where is not None:  # as it always is of a place
            return self._at(spelled, is_prefix, where)
        return self._holding(spelled, is_prefix, where)

    @staticmethod
    def dense_name(key: DenseKey) -> str:
        """Under which a ready-made set is kept."""
        return "\t".join(map(str, key))

    def _ready(self, key: DenseKey, make: Callable[[], Packed], written: Callable[[Delta], DocIds]) -> DocIds:
        """A set that is kept, in memory or ready-made."""
        def find() -> Packed:
            ready = self._ready_made(key, written)
            return make() if ready is None else ready

        return self._set(key, find, written)

    def _ready_made(self, key: DenseKey, written: Callable[[Delta], DocIds]) -> DocIds | None:
        row = self._connection.execute("SELECT generation, bits FROM dense WHERE key = ?", (self.dense_name(key),)).fetchone()
        if row is None or row[0] > self.generation:
            return None
        bits = int.from_bytes(row[1], "little")
        if row[0] == self.generation:
            return bits
        delta = self._delta_since(row[0])
        return delta.carried(bits, written(delta)) if delta else None

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
            return self._matches("terms", fts_encoding.fts_string(fts_encoding.term_of_word(word)))
        at = bisect_left(several, word)
        return several[at:at + 1] == [word]

    def _matches(self, table: str, query: str) -> bool:
        row = self._connection.execute(f"SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT 1", (query,)).fetchone()
        return row is not None

    def word_docids(self, word: str) -> DocIds:
        """Documents that hold the word in any field."""
        return self._holding(fts_encoding.term_of_word(word), False)

    def prefix_docids(self, prefix: str) -> DocIds:
        """Documents that hold a word that starts with the prefix."""
        return self._holding(fts_encoding.term_of_word(prefix), True)

    def _holding(self, spelled: str, is_prefix: bool, slot: int | None = None) -> DocIds:
        """Documents with a term, anywhere or in the column of a slot below the shared one."""
        if is_prefix and prefix_postings.has_prefix_postings(spelled):
            return self._beginning(spelled, slot)
        return self._ready(("word", spelled, is_prefix, slot), lambda: self._read_holding(spelled, is_prefix, slot),
                           lambda delta: delta.word(spelled, is_prefix, slot))

    def _read_holding(self, spelled: str, is_prefix: bool, slot: int | None) -> Packed:
        """From the index, with as few documents handed over as can be: that takes longer than to look at them."""
        query, column = fts_phrase(spelled, is_prefix), "" if slot is None else f"{{c{slot}}} : "
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

    def _beginning(self, letter: str, slot: int | None) -> DocIds:
        return self._set(("beginning", letter, slot),
                         lambda: prefix_postings.read_prefix_postings(self._connection, letter, slot),
                         lambda delta: delta.word(letter, True, slot))

    def words_docids(self, several: Sequence[str]) -> DocIds:
        """Documents that hold any of several words."""
        held = 0
        for start in range(0, len(several), _PHRASES):
            held |= self._holding_any(tuple(map(fts_encoding.term_of_word, several[start:start + _PHRASES])))
        return held

    def _holding_any(self, terms: tuple[str, ...]) -> DocIds:
        return self._set(("any", terms), lambda: self._matching("terms", _any_of(terms)),
                         lambda delta: delta.any_word(terms))

    def word_field_docids(self, word: str, field: str) -> DocIds:
        """Documents that hold the word in one field."""
        return self._in_field(fts_encoding.term_of_word(word), False, field)

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        """Documents that hold a word with the prefix in one field."""
        return self._in_field(fts_encoding.term_of_word(prefix), True, field)

    def _in_field(self, spelled: str, is_prefix: bool, field: str) -> DocIds:
        slot = self.slots().get(field)
        if slot is None:
            return 0
        if slot < SHARED_COLUMN or (is_prefix and prefix_postings.has_prefix_postings(spelled)):
            return self._holding(spelled, is_prefix, slot)
        return self._set(("word", spelled, is_prefix, slot), lambda: self._in_shared_column(spelled, is_prefix, slot),
                         lambda delta: delta.word(spelled, is_prefix, slot))

    def _in_shared_column(self, spelled: str, is_prefix: bool, slot: int) -> DocIds:
        column = unpacked(self._matching("terms", f"{{c{SHARED_COLUMN}}} : {fts_phrase(spelled, is_prefix)}"))
        found = []
        for docid, forward in self.forward_rows(to_docids(column)):
            terms = fts_encoding.forward_rows(forward).get(slot, "").split(" ")
            if any(term.startswith(spelled) for term in terms) if is_prefix else spelled in terms:
                found.append(docid)
        return from_docids(found)

    def word_fields(self, word: str) -> list[str]:
        """The fields that hold the word, by field number."""
        return [field for field in self.indexed_fields() if self.word_field_docids(word, field)]

    def prefix_fields(self, prefix: str) -> list[str]:
        """The fields that hold a word with the prefix, by field number."""
        return [field for field in self.indexed_fields() if self.prefix_field_docids(prefix, field)]

    def rows(self, docids: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Sequence[str]]]]:
        """(docid, field -> its words by position, "" for a hole) of some documents."""
        names = self._kept(("names of slots",), lambda: {slot: name for name, slot in self.slots().items()})
        found = dict(self.forward_rows(docids))
        for docid in docids:
            rows = fts_encoding.forward_rows(found.get(docid, ""))
            yield docid, {names[slot]: fts_encoding.positions(row) for slot, row in rows.items()}

    # Positions

    def word_positions(self, word: str) -> list[int]:
        """The bucketed positions at which the word stands, ascending."""
        return self._positions(fts_encoding.term_of_word(word), False)

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        """Documents that hold the word at a bucketed position of any field."""
        return self._at(fts_encoding.term_of_word(word), False, bucketed)

    def prefix_positions(self, prefix: str) -> list[int]:
        """The bucketed positions of the words with the prefix, ascending."""
        return self._positions(fts_encoding.term_of_word(prefix), True)

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        """Documents that hold a word with the prefix at a bucketed position of any field."""
        return self._at(fts_encoding.term_of_word(prefix), True, bucketed)

    def _at(self, spelled: str, is_prefix: bool, bucket: int) -> DocIds:
        return self._ready(("place", spelled, is_prefix, bucket),
                           lambda: self._read_at(spelled, is_prefix, bucket),
                           lambda delta: delta.place(spelled, is_prefix, bucket))

    def _read_at(self, spelled: str, is_prefix: bool, bucket: int) -> Packed:
        several = self._few_terms(spelled) if is_prefix else None
        if several is None or sum(several.values()) < _DOCUMENTS_A_TERM * len(several):
            return self._matching("places", fts_phrase(fts_encoding.position_term(bucket, spelled), is_prefix))
        return _union(several, lambda term: self._at(term, False, bucket),
                      lambda rare: self._matching("places", _any_of([fts_encoding.position_term(bucket, term) for term in rare])))

    def _positions(self, spelled: str, is_prefix: bool) -> list[int]:
        return self._kept(("positions", spelled, is_prefix), lambda: [
            bucket for bucket in fts_encoding.BUCKETS
            if self._matches("places", fts_phrase(fts_encoding.position_term(bucket, spelled), is_prefix))])

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


def fts_phrase(spelled: str, is_prefix: bool) -> str:
    """Terms with spaces between, one behind the other, as FTS5 is asked for them; the last one may go on."""
    return fts_encoding.fts_string(spelled) + (" *" if is_prefix else "")


def _any_of(terms: Iterable[str]) -> str:
    return " OR ".join(map(fts_encoding.fts_string, terms))


def _union(terms: Mapping[str, int], of: Callable[[str], DocIds], of_any: Callable[[Sequence[str]], Packed]) -> Packed:
    """The documents of terms of which their number is known: of the common ones each, of all others at once."""
    rare = [term for term, documents in terms.items() if documents < vocabulary.COMMON]
    if rare and len(rare) == len(terms):
        return of_any(rare)
    docids = unpacked(of_any(rare)) if rare else 0
    for term in terms.keys() - rare:
        docids |= of(term)
    return docids


# Which two words of one index stand near each other, and where.
#
# Knows what FTS5 tells of two words, what only the rows of documents tell, and which of both is the quicker one;
# refuses to know why it is asked.


# Microseconds. To look at the row of a document tells of all distances, but it is mostly looked at for the first time.
_ROW = 4
# FTS5 goes through the rarer word and seeks in the other one, or through both; once for each distance and order.
_SEEK, _STEP = 0.4, 0.035
# A beginning is put together from all its words each time.
_PREFIX_STEP = 0.25

_NEAR = 3


class WordPairReader(PostingReader):
    """Pairs of words in the read transaction of the connection."""

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Documents in which `distance` (1 to 3) is the smallest one from `left` to `right` behind it.

        candidates: the documents for which the answer must be right; others may be missing.
        """
        pair = fts_encoding.term_of_word(left), fts_encoding.term_of_word(right), False
        if candidates is None and distance == 1:
            return self._adjacent(*pair)
        lefts, rights = self.word_docids(left), self.word_docids(right)
        asked = lefts & rights if candidates is None else lefts & rights & candidates
        count = asked.bit_count()
        if not count:
            return 0
        if count * _ROW <= _microseconds(lefts.bit_count(), rights.bit_count()):
            return self._read(distance, *pair, asked)
        if distance == 1:
            return self._adjacent(*pair)
        asked &= self._within(distance, *pair) & ~self._adjacent(*pair)
        return self._read(distance, *pair, asked)

    def prefix_pair_docids(self, distance: int, left: str, prefix: str, candidates: DocIds | None = None) -> DocIds:
        """The union of pair_docids(distance, left, word) over the words that start with the prefix."""
        rights = self.prefix_docids(prefix)
        asked = self.word_docids(left) & rights
        if candidates is not None:
            asked &= candidates
        count = asked.bit_count()
        if not count:
            return 0
        pair = fts_encoding.term_of_word(left), fts_encoding.term_of_word(prefix), True
        if count * _ROW <= rights.bit_count() * _PREFIX_STEP:
            return self._read(distance, *pair, asked)
        if distance == 1:
            return self._adjacent(*pair)
        return self._read(distance, *pair, asked & self._within(distance, *pair))

    # By FTS5, for all documents

    def _adjacent(self, left: str, right: str, is_prefix: bool) -> DocIds:
        return self._set(("adjacent", left, right, is_prefix),
                         lambda: self._matching("terms", fts_phrase(f"{left} {right}", is_prefix)),
                         lambda delta: delta.pair(1, left, right, is_prefix))

    def _within(self, distance: int, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents with both at most so far apart, in any order."""
        query = f"NEAR({fts_encoding.fts_string(left)} {fts_phrase(right, is_prefix)}, {distance - 1})"
        return self._set(("near", distance, left, right, is_prefix), lambda: self._matching("terms", query),
                         lambda delta: delta.both(left, right, is_prefix))

    # By rows, for the documents asked

    def _read(self, distance: int, left: str, right: str, is_prefix: bool, asked: DocIds) -> DocIds:
        """The documents of a distance among those asked, and among those that were asked before."""
        key = "apart", left, right, is_prefix
        held: tuple[Packed, ...] = self._kept(key, lambda: (0,) * (1 + _NEAR), _carried)
        seen, *found = map(unpacked, held)
        if fresh := asked & ~seen:
            apart: list[list[int]] = [[] for _ in range(_NEAR)]
            for docid, forward in self.forward_rows(to_docids(fresh)):
                for nearest in set(fts_encoding.distances(forward, left, right, is_prefix)):
                    apart[nearest - 1].append(docid)
            found = [known | from_docids(docids) for known, docids in zip(found, apart)]
            # Put as a whole: two threads may look at once, and what each of both puts is true.
            self._keep(key, tuple(map(packed, (seen | fresh, *found))))
        return found[distance - 1]


def _microseconds(left: int, right: int) -> float:
    """What FTS5 takes to tell where two words of so many documents are together."""
    return min(min(left, right) * _SEEK, (left + right) * _STEP)


def _carried(known: tuple[Packed, ...], delta: Delta) -> tuple[Packed, ...]:
    """What was found in documents that were not written since."""
    return tuple(packed(unpacked(docids) & ~delta.changed) for docids in known)
