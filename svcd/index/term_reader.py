"""The postings of one index: the documents that hold a term, in which field, at which position, next to which other.

Sets come from FTS5, prefix postings and materialized postings, and for small candidate sets from the forward index;
docs/storage.md describes these tables. Read sets are cached.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import islice
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, from_bytes_equal, union_of
from svcd.index import fts, prefix_postings
from svcd.index.fts import StoredWords, docids_of_any, fts_phrase, matching_docids
from svcd.index.materialized_reader import MaterializedReader, stored_terms
from svcd.index.read_transaction import FORWARD_TEXTS, Delta, ReadTransaction, is_among, rows_by_docid
from svcd.index.schema import COUNTED_WORDS, COUNT_BLOCK, SHARED_COLUMN

# The words of one index: whether a word exists, which words start with a prefix, which first characters occur.
#
# Words are read from the vocabulary table of FTS5; lists are in byte order and cached. docs/storage.md#vocabulary


# The ranking asks for this many words of a prefix, to see whether there are more than its limit.
_FIRST_WORDS = 100
# The set of a term with at least this many documents is read and cached by itself: other searches ask for it too.
COMMON = 512
_MOST_COMMON = 4
# A first character with at least _MANY_WORDS words has a cached list of its own; the words of all others share one list.
_MANY_WORDS = 50
_MOST_RARE = 20_000
_AFTER_ANY_WORD = "\U0010ffff"
# Most languages have many words under each of these characters, and hardly any before, between or after them.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BESIDE_LETTERS = (
    ("", fts.end_before("0")), ("9" + _AFTER_ANY_WORD, fts.end_before("a")), ("z" + _AFTER_ANY_WORD, _AFTER_ANY_WORD))


class _PrefixWords(NamedTuple):
    """The first words with a prefix. terms: all its terms and their document frequencies; None for many, or many common ones."""

    terms: Mapping[str, int] | None
    words: Sequence[str]


# The first characters of many words, and the words with any other first character, in byte order
_FirstCharacters = tuple[frozenset[str], Sequence[str]]


class VocabularyReader:
    """The vocabulary of an index in a read transaction; a `svcd.query.reader.Vocabulary`."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._lists: dict[str, Sequence[str] | None] = {}  # by first character: the list that _cached_list() found

    def has_word(self, word: str) -> bool:
        """Return whether any document holds the word."""
        character = word[:1]
        words = self._lists[character] if character in self._lists else self._cached_list(word)
        return self._has_term(fts.term_of_word(word)) if words is None else is_among(words, word)

    def _has_term(self, term: str) -> bool:
        row = self._connection.execute("SELECT 1 FROM terms WHERE terms MATCH ? LIMIT 1", (fts.fts_string(term),)).fetchone()
        return row is not None

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """Return the first `limit` words that start with the prefix, itself included, in byte order; "" selects all words."""
        if limit is None:
            words = self._cached_list(prefix) if len(prefix) > 1 else None
            if words is not None:
                return words[bisect_left(words, prefix):bisect_left(words, prefix + _AFTER_ANY_WORD)]
            self._lists.pop(prefix, None)
            return self._transaction.cached(
                ("words", prefix), lambda: fts.spelled_words(term for term, _ in self.terms(fts.term_of_word(prefix))),
                lambda known, delta: delta.updated_words(known, prefix))
        words = self._cached_list(prefix)
        if words is not None:
            first = bisect_left(words, prefix)
            return words[first:bisect_left(words, prefix + _AFTER_ANY_WORD, first, min(first + limit, len(words)))]
        if limit <= _FIRST_WORDS:
            return self._prefix_words(prefix).words[:limit]
        return self._transaction.cached(("words", prefix, limit), lambda: fts.spelled_words(
            term for term, _ in islice(self.terms(fts.term_of_word(prefix)), limit)))

    def _prefix_words(self, prefix: str) -> _PrefixWords:
        def load() -> _PrefixWords:
            found = dict(islice(self.terms(fts.term_of_word(prefix)), _FIRST_WORDS))
            words = fts.spelled_words(found)
            common = sum(frequency is None or frequency >= COMMON for frequency in found.values())
            if len(found) == _FIRST_WORDS or common > _MOST_COMMON:
                return _PrefixWords(None, words)
            counted = {term: self._connection.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()[0]
                       if frequency is None else frequency for term, frequency in found.items()}
            return _PrefixWords(counted, words)

        def updated(known: _PrefixWords, delta: Delta) -> _PrefixWords | None:
            """Frequencies may be out of date: they only decide how to read the terms."""
            words = delta.updated_words(known.words, prefix)
            # A later word is not among the first; where words are escaped, the order of terms decides.
            if words is not None and len(known.words) >= _FIRST_WORDS and not fts.is_escaped("".join(known.words)):
                words = words[:len(known.words)]
            return known if words == known.words else None

        return self._transaction.cached(("prefix words", prefix), load, updated)

    def terms(self, start: str, end: str | None = None) -> Iterator[tuple[str, int | None]]:
        """Yield the terms from `start` to before `end`, or that start with `start`, in byte order.

        Each comes with its document frequency, or None for a common term.

        FTS5 reads all documents of each term that it lists, and of a term at the end of a range. So ranges leave out position
        gaps and terms with materialized sets, which have most documents: those are looked up one by one.
        """
        end = start + _AFTER_ANY_WORD if end is None else end
        gaps = [fts.POSITION_GAP] if start <= fts.POSITION_GAP < end else []
        for common in merge(stored_terms(self._connection, start, end), gaps):
            yield from self._terms_between(start, fts.end_before(common))
            if common != fts.POSITION_GAP and self._has_term(common):
                yield common, None
            start = common + "\0"
        yield from self._terms_between(start, end)

    def _terms_between(self, start: str, end: str) -> Iterator[tuple[str, int]]:
        return self._connection.execute("SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ?", (start, end))

    def first_characters(self) -> Sequence[str]:
        """Return the distinct first characters of all words."""
        common, rare = self._transaction.cached(
            ("first characters",), self._load_first_characters, self._updated_first_characters)
        self._lists.clear()
        # The caller looks up words with each of them: 20 us each without a list. Each call loads one list that is not cached.
        if (missing := next((character for character in common if self._cached_list(character) is None), None)) is not None:
            self._lists[missing] = self.words_with_prefix(missing)
        return sorted(common.union(word[0] for word in rare))

    def _load_first_characters(self) -> _FirstCharacters:
        common = {letter for letter in _LETTERS if self._connection.execute(
            "SELECT 1 FROM prefix_postings WHERE letter = ? LIMIT 1", (letter,)).fetchone()}
        rare: list[str] = []
        for start, end in _BESIDE_LETTERS:
            while terms := list(islice(self.terms(start, end), _MANY_WORDS)):
                found = [fts.word_of_term(term) for term, _ in terms]
                are_many = len(found) == _MANY_WORDS and found[0][0] == found[-1][0]
                if are_many or len(rare) > _MOST_RARE:  # skip the remaining words of the last first character
                    common.update(word[0] for word in found)
                    start = fts.term_of_word(found[-1][0]) + _AFTER_ANY_WORD
                else:
                    rare += found
                    start = terms[-1][0] + "\0"
        return frozenset(common), sorted(word for word in rare if word[0] not in common)

    def _updated_first_characters(self, known: _FirstCharacters, delta: Delta) -> _FirstCharacters | None:
        """Bring the result of _load_first_characters() up to date; None if a character may have lost its last word."""
        common, rare = known
        words = delta.updated_words(rare, "", common)
        removed = {fts.word_of_term(term)[0] for term in delta.removed_terms or ()}
        if words is None or not all(any(self.terms(fts.term_of_word(character))) for character in common & removed):
            return None
        return common, words

    def _cached_list(self, start: str) -> Sequence[str] | None:
        """Return a cached list that has all words with the same first character, maybe others too; None if none is cached.

        Splits and typos at the first letter ask for hundreds of words, and most of them do not exist.
        """
        character = start[:1]
        if character in self._lists:
            return self._lists[character]
        characters: _FirstCharacters | None = self._transaction.cached_value(
            ("first characters",), self._updated_first_characters)
        if characters and character not in characters[0]:
            words: Sequence[str] | None = characters[1]
        else:
            words = self._transaction.cached_value(
                ("words", character), lambda known, delta: delta.updated_words(known, character))
        self._lists[character] = words
        return words

    def joined_words(self, character: str) -> str:
        """Return all words that start with a character, a NUL (which no word contains) around each; "" without any."""
        def load() -> str:
            words = self.words_with_prefix(character)
            return "\0".join(("", *words, "")) if words else ""

        return self._transaction.cached(("joined", character), load)

    def few_terms(self, start: str) -> Mapping[str, int] | None:
        """Return all terms that start with a term, with their document frequencies; None if there are many."""
        return self._prefix_words(fts.word_of_term(start)).terms


# A set of postings: "word" or "position"; the term; whether the term is a prefix; for a word the FTS column or None for all
# fields, for a position the bucketed position.
PostingKey = tuple[str, str, bool, int | None]


# The union of the documents of this many words is cached as one set.
_WORDS_PER_SET = 100
# Looking up one more term in `term_positions` takes as long as joining the postings of this many documents of a prefix.
_DOCUMENTS_A_TERM = 600
# Microseconds of FTS5 for one more term, for each of its documents, and for each document merged into the set of a prefix.
_TERM_COST, _DOCUMENT_COST, _MERGED_COST = 50, 0.15, 0.3
_STORED_COST = 25  # of a materialized set
# Most fields whose cached sets are subtracted to find whether most documents hold a term in one field.
_MOST_COMPARED = 8
# A term with at most RARE documents is looked up in these documents to find its fields and positions: 8 us each. A position takes
# 40 us, and most words are asked for at nine positions or at one. With 48, single words took 4 % longer.
RARE = 16


class _TermPositions(NamedTuple):
    """The documents of a rare term by FTS column, and by bucketed position in any field."""

    columns: Mapping[int, DocIds]
    positions: Mapping[int, DocIds]


_NO_POSITIONS = _TermPositions({}, {})


class TermReader:
    """The postings of single terms in a read transaction. materialized: the generation of these sets, None without any."""

    def __init__(self, transaction: ReadTransaction, vocabulary: VocabularyReader, materialized: int | None) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._vocabulary = vocabulary
        self._built_at = materialized
        self._word_docids: dict[str, DocIds] = {}
        self._with_position: set[str] = set()  # rare terms for which one position was asked

    @cached_property
    def _materialized(self) -> MaterializedReader:
        return MaterializedReader(self._transaction, self._built_at)

    @cached_property
    def columns(self) -> dict[str, int]:
        """Field -> FTS column of the fields that hold words, by field number."""
        return self._transaction.cached(("columns",), lambda: dict(self._connection.execute(
            "SELECT name, fts_column FROM fields WHERE fts_column IS NOT NULL ORDER BY fid")))

    def indexed_fields(self) -> list[str]:
        """The fields that hold words, by field number."""
        return list(self.columns)

    def word_docids(self, word: str) -> DocIds:
        """Documents that hold the word in any field."""
        docids = self._word_docids.get(word)
        if docids is None:
            docids = self._word_docids[word] = self._term_docids(fts.term_of_word(word), False)
        return docids

    def prefix_docids(self, prefix: str) -> DocIds:
        """Documents that hold a word that starts with the prefix."""
        return self._term_docids(fts.term_of_word(prefix), True)

    def _term_docids(self, term: str, is_prefix: bool, column: int | None = None) -> DocIds:
        """Documents with a term, in any field or in an FTS column other than the shared one."""
        def written_members(delta: Delta) -> DocIds:
            return delta.term_docids(term, is_prefix, column)

        if is_prefix and prefix_postings.has_prefix_postings(term):
            return self._transaction.cached_set(
                ("prefix postings", term, column),
                lambda: prefix_postings.read_prefix_postings(self._connection, term, column), written_members)

        key = "word", term, is_prefix, column
        return self._transaction.cached_set(key, lambda: self._materialized_or(
            key, written_members, lambda: self._load_term_docids(term, is_prefix, column)), written_members)

    def _load_term_docids(self, term: str, is_prefix: bool, column: int | None) -> DocIds:
        """Read a set from FTS5, with the query that returns the fewest documents: returning one takes longer than checking it."""
        query, in_column = fts_phrase(term, is_prefix), "" if column is None else f"{{c{column}}} : "
        terms = self._vocabulary.few_terms(term) if is_prefix else None
        if terms is not None and self._is_union_cheaper(terms, column):
            return _union(terms, lambda common: self._term_docids(common, False, column),
                          lambda rare: docids_of_any(self._connection, "terms", rare, in_column))
        if column is not None and self._is_mostly_in(column, term, is_prefix):
            anywhere: DocIds = self._transaction.cached_value(("word", term, is_prefix, None))
            return anywhere - matching_docids(self._connection, "terms", f"{query} NOT {in_column}{query}")
        return matching_docids(self._connection, "terms", in_column + query)

    def _is_union_cheaper(self, terms: Mapping[str, int], column: int | None) -> bool:
        """Return whether asking for each term of a prefix, or its cached set, costs less than merging all postings in FTS5."""
        least: float = 0
        for term, frequency in terms.items():
            if frequency < COMMON or self._transaction.cached_value(("word", term, False, column)) is None:
                is_stored = self._materialized.may_have(frequency)
                least += _STORED_COST if is_stored else _TERM_COST + frequency * _DOCUMENT_COST
        return least < _TERM_COST + sum(terms.values()) * _MERGED_COST

    def _is_mostly_in(self, column: int, term: str, is_prefix: bool) -> bool:
        """Return whether cached sets of the other fields show that most documents hold the term in this one."""
        anywhere: DocIds | None = self._transaction.cached_value(("word", term, is_prefix, None))
        others = [other for other in self.columns.values() if other != column]
        if not anywhere or len(others) > _MOST_COMPARED:
            return False
        only_here = anywhere
        for other in others:
            docids: DocIds | None = self._transaction.cached_value(("word", term, is_prefix, other))
            if docids is None:
                return False
            only_here -= docids
        return 2 * len(only_here) > len(anywhere)

    def words_docids(self, words: Sequence[str]) -> DocIds:
        """Documents that hold any of several words."""
        return union_of(self._any_term_docids(tuple(map(fts.term_of_word, words[start:start + _WORDS_PER_SET])))
                        for start in range(0, len(words), _WORDS_PER_SET))

    def _any_term_docids(self, terms: tuple[str, ...]) -> DocIds:
        def load() -> DocIds:
            common, docids = self._materialized.any_docids(terms)
            rare = [term for term in terms if term not in common]
            return docids | docids_of_any(self._connection, "terms", rare) if rare else docids

        return self._transaction.cached_set(("any", terms), load, lambda delta: delta.any_term_docids(terms))

    def word_field_docids(self, word: str, field: str) -> DocIds:
        """Documents that hold the word in one field."""
        docids = self.word_docids(word)
        if len(docids) <= RARE:
            return self._positions_of(word, docids).columns.get(self.columns.get(field, -1), EMPTY)
        return self._field_docids(fts.term_of_word(word), False, field)

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        """Documents that hold a word with the prefix in one field."""
        return self._field_docids(fts.term_of_word(prefix), True, field)

    def _field_docids(self, term: str, is_prefix: bool, field: str) -> DocIds:
        column = self.columns.get(field)
        if column is None:
            return EMPTY
        if column < SHARED_COLUMN or (is_prefix and prefix_postings.has_prefix_postings(term)):
            return self._term_docids(term, is_prefix, column)
        def load() -> DocIds:
            """Ask FTS5 for the shared column, then the forward index for the field."""
            in_column = matching_docids(self._connection, "terms", f"{{c{SHARED_COLUMN}}} : {fts_phrase(term, is_prefix)}")
            found = []
            for docid, forward in rows_by_docid(self._connection, FORWARD_TEXTS, in_column.to_array()):
                terms = fts.forward_rows(forward).get(column, "").split(" ")
                if any(other.startswith(term) for other in terms) if is_prefix else term in terms:
                    found.append(docid)
            return DocIds(found)

        return self._transaction.cached_set(("word", term, is_prefix, column), load,
                                            lambda delta: delta.term_docids(term, is_prefix, column))

    def word_fields(self, word: str) -> list[str]:
        """Return the fields that hold the word, by field number."""
        return [field for field in self.indexed_fields() if self.word_field_docids(word, field)]

    def prefix_fields(self, prefix: str) -> list[str]:
        """Return the fields that hold a word with the prefix, by field number."""
        return [field for field in self.indexed_fields() if self.prefix_field_docids(prefix, field)]

    def document_words(self, docids: Sequence[int]) -> Iterator[StoredWords]:
        """Return the words of some documents, in the order of docids."""
        fields = self._transaction.cached(("fields by written column",), lambda: {
            str(column): name for name, column in self.columns.items()})
        forward = dict(rows_by_docid(self._connection, FORWARD_TEXTS, docids))
        return iter([StoredWords(docid, forward.get(docid, ""), fields) for docid in docids])

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        """Documents that hold the word at a bucketed position of any field."""
        docids = self.word_docids(word)
        if len(docids) <= RARE:
            if word in self._with_position or not docids:
                return self._positions_of(word, docids).positions.get(bucketed, EMPTY)
            self._with_position.add(word)
        return self._position_docids(fts.term_of_word(word), False, bucketed)

    def _positions_of(self, word: str, docids: DocIds) -> _TermPositions:
        """Return the positions of a rare word, from the forward index rows of its documents."""
        def load() -> _TermPositions:
            term = fts.term_of_word(word)
            columns: defaultdict[int, list[int]] = defaultdict(list)
            positions: defaultdict[int, set[int]] = defaultdict(set)
            for docid, forward in rows_by_docid(self._connection, FORWARD_TEXTS, docids.to_array()):
                for column, bucketed in fts.term_positions(forward, term):
                    columns[column].append(docid)
                    for position in bucketed:
                        positions[position].add(docid)
            return _TermPositions({column: DocIds(found) for column, found in columns.items()},
                                  {position: DocIds(found) for position, found in positions.items()})

        return self._transaction.cached(("positions of", word), load) if docids else _NO_POSITIONS

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        """Documents that hold a word with the prefix at a bucketed position of any field."""
        return self._position_docids(fts.term_of_word(prefix), True, bucketed)

    def _position_docids(self, term: str, is_prefix: bool, bucketed: int) -> DocIds:
        def written_members(delta: Delta) -> DocIds:
            return delta.position_docids(term, is_prefix, bucketed)

        def load() -> DocIds:
            terms = self._vocabulary.few_terms(term) if is_prefix else None
            if terms is None or sum(terms.values()) < _DOCUMENTS_A_TERM * len(terms):
                phrase = fts_phrase(fts.position_term(bucketed, term), is_prefix)
                return matching_docids(self._connection, "term_positions", phrase)
            return _union(terms, lambda common: self._position_docids(common, False, bucketed), lambda rare: docids_of_any(
                self._connection, "term_positions", [fts.position_term(bucketed, each) for each in rare]))

        key = "position", term, is_prefix, bucketed
        return self._transaction.cached_set(key, lambda: self._materialized_or(key, written_members, load), written_members)

    def field_count_docids(self, field: str, count: int) -> DocIds:
        """Documents whose field holds exactly `count` (1 to 30) words."""
        column = self.columns.get(field)
        if column is None or not 1 <= count <= COUNTED_WORDS:
            return EMPTY
        def load() -> DocIds:
            whole = bytearray()  # the count of each document
            for block, counts in self._connection.execute(
                    "SELECT block, counts FROM field_word_counts WHERE fts_column = ? ORDER BY block", (column,)):
                whole.extend(bytes(block * COUNT_BLOCK - len(whole)))
                whole += counts
            return from_bytes_equal(bytes(whole), count)

        return self._transaction.cached_set(("count", column, count), load, lambda delta: delta.count_docids(column, count))

    def _materialized_or(self, key: PostingKey, written_members: Callable[[Delta], DocIds], load: Callable[[], DocIds]) -> DocIds:
        """Return a materialized set, or load() if no usable set is stored."""
        kind, term, is_prefix, part = key
        docids = self._materialized.docids(kind, term, is_prefix, part, written_members)
        return load() if docids is None else docids


def _union(frequencies: Mapping[str, int], docids_of: Callable[[str], DocIds],
           docids_of_any: Callable[[Sequence[str]], DocIds]) -> DocIds:
    """Return the documents of terms with known document frequencies: common terms one by one, the others in one query."""
    rare = [term for term, frequency in frequencies.items() if frequency < COMMON]
    found = [docids_of_any(rare)] if rare else []
    return union_of([*found, *map(docids_of, frequencies.keys() - rare)])
