"""Query terms, their derivations in one index, and the documents of derivations, phrases and pairs of words.

A term is a word, a phrase or an n-gram of the query. Its derivations are the words and phrases that it may match
(docs/ranking.md#terms-and-derivations). A subset selects some derivations. Each search has its own Terms and Postings, which
cache results. Postings adapts the results of the reader to the search: some occurrences allow no typos, the search may be
restricted to some fields, and proximity has two precisions (docs/ranking.md#original-and-tolerant-occurrences).
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import and_
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.infixes import words_with_part
from svcd.query.reader import Reader
from svcd.query.stems import words_with_stem
from svcd.query.typos import Typos, typos
from svcd.schema.attributes import is_beneath
from svcd.schema.index_settings import TypoTolerance
from svcd.schema.word_weights import Stemming
from svcd.text.analyzer import is_numeric
from svcd.text.stemming import Languages

# Words of a phrase; None is a position gap, left by a stop word.
Phrase = tuple["str | None", ...]

LONGEST_WORD = 250  # bytes; longer words are not indexed
PREFIX_WORDS = 1000
# A cached prefix has at least this number of words, and at most this number of bytes.
CACHED_PREFIX_WORDS = 100
CACHED_PREFIX_BYTES = 4
SYNONYM_PHRASES = 50
SYNONYM_WORDS = 100
SHORTEST_INFIX = 3
INFIX_WORDS = 1000
STEM_WORDS = 200  # most words at one typo, with the words of the same stem

# The zero-typo part of a subset: nothing, only the exact word, everything.
NONE, EXACT, ALL = 0, 1, 2


class Term:
    """A word, phrase or n-gram of the query with its derivations; equal only to itself.

    components: the words of an n-gram; () for a word or phrase. has_all_prefix_words: False if `prefix_words` contains only
    the first words with the prefix. The first use finds typos and split, and then sets `is_derived`.
    """

    def __init__(self, word: str, is_prefix: bool, budget: int, *, components: tuple[str, ...] = (),
                 phrase: Phrase | None = None) -> None:
        self.word = word
        self.is_prefix = is_prefix
        self.budget = budget
        self.components = components
        self.is_ngram = bool(components)
        self.phrase = phrase
        self.exact: str | None = None
        self.prefix_words: Sequence[str] = ()
        self.has_all_prefix_words = False
        self.cached_prefix: str | None = None
        self.synonyms: Sequence[Phrase] = ()
        self.typos = Typos([], [])
        self.split: Phrase | None = None
        self.is_derived = False


class Subset(NamedTuple):
    """A selection of the derivations of a term: its zero-, one- and two-typo parts.

    zero: NONE, EXACT or ALL. is_mandatory: whether the term can no longer be dropped, because a document has it as typed.
    """

    term: Term
    zero: int = ALL
    one: bool = True
    two: bool = True
    is_mandatory: bool = False

    @property
    def cached_prefix(self) -> str | None:
        """The cached prefix, if the subset selects it."""
        return self.term.cached_prefix if self.zero == ALL else None

    @property
    def whole_prefix(self) -> str | None:
        """The prefix whose postings cover the exact word and all prefix words, if the subset selects them all."""
        term = self.term
        if self.zero != ALL or not term.is_prefix:
            return None
        return term.word if term.has_all_prefix_words and term.prefix_words else term.cached_prefix

    @property
    def exact_phrase(self) -> Phrase | None:
        """The term as typed, as a phrase of one or more words (docs/ranking.md#exactness); None if it has no such form."""
        term = self.term
        if term.is_ngram or self.zero == NONE:
            return None
        if term.phrase is not None:
            return term.phrase
        return (term.exact,) if term.exact is not None else None


class Derivations(NamedTuple):
    """The derivations that a subset selects.

    words: single words, without the words of a cached prefix; the zero-typo part comes first. originals: its number of words.
    phrases: the phrase of the term, synonyms and the split.
    """

    words: Sequence[str]
    originals: int
    phrases: Sequence[Phrase]


class Terms:
    """Create the terms of one query in one index, and resolve their subsets.

    synonyms: words of a key -> its phrases, both normalized (docs/ranking.md#synonyms). numbers: the words of the query and
    of its derivations, numbered in the order of their first use; highlighting uses it to choose between equal matches. stemming:
    of the index. infix_fields: attributes whose words are found by their parts.
    """

    def __init__(self, postings: Postings, tolerance: TypoTolerance,
                 synonyms: Mapping[tuple[str, ...], Sequence[Phrase]], stemming: Stemming | None = None,
                 infix_fields: Sequence[str] = ()) -> None:
        self.postings = postings
        self._infix_fields = infix_fields
        self._languages: Languages = () if stemming is None else stemming.languages
        self.numbers: dict[str, int] = {}
        self._tolerance = tolerance
        self._synonyms = synonyms
        self._docids: dict[Subset, DocIds] = {}
        self._derivations: dict[Subset, Derivations] = {}

    @property
    def has_synonyms(self) -> bool:
        """Whether the index has any synonyms."""
        return bool(self._synonyms)

    # Creating terms

    def number_words(self, words: Iterable[str | None]) -> None:
        """Number the new words, in this order; skip None (a position gap)."""
        numbers = self.numbers
        for word in words:
            if word is not None and word not in numbers:
                numbers[word] = len(numbers)

    def phrase(self, phrase: Phrase) -> Term:
        """Return the term of a phrase, which has neither typos, prefix, synonyms nor split."""
        self.number_words(phrase)
        term = Term("", False, 0, phrase=phrase)
        term.is_derived = True
        return term

    def ngram(self, words: Sequence[str], is_prefix: bool) -> Term | None:
        """Return the term of words written as one word; None if it is too long."""
        joined = "".join(words)
        return None if len(joined.encode()) > LONGEST_WORD else self.word(joined, is_prefix, tuple(words))

    def word(self, word: str, is_prefix: bool, components: tuple[str, ...] = (), is_exact: bool = False) -> Term:
        """Return the term of a single word, with all derivations except typos and split, which are slower and may not be needed.

        components: the words of an n-gram. is_exact: it may have no typo.
        """
        budget = 0 if is_exact else self._tolerance.budget(word)
        if components:
            budget = max(0, budget - (len(components) - 1))  # each omitted space counts as a typo
        term = Term(word, is_prefix, budget, components=components)
        if len(word.encode()) > LONGEST_WORD:
            term.is_derived = True
            return term
        self.numbers.setdefault(word, len(self.numbers))
        if self.postings.has_word(word):
            term.exact = word
        if is_prefix:
            self._find_prefix_words(term)
        if self._synonyms:
            found: list[Phrase] = []
            word_count = 0
            for phrase in self._synonyms.get((word,), ())[:SYNONYM_PHRASES]:
                if word_count + len(phrase) <= SYNONYM_WORDS:
                    found.append(phrase)
                    word_count += len(phrase)
            if components:
                found.extend(self._synonyms.get(components, ()))
            term.synonyms = found
        return term

    def _find_prefix_words(self, term: Term) -> None:
        words_with_prefix = self.postings.reader.vocabulary.words_with_prefix
        words = words_with_prefix(term.word, CACHED_PREFIX_WORDS)
        if len(words) == CACHED_PREFIX_WORDS:
            is_tolerant = self.postings.is_tolerant
            # Usually the first words are all tolerant, so that the others need not be read.
            if len(term.word.encode()) <= CACHED_PREFIX_BYTES and (
                    all(map(is_tolerant, words))
                    or sum(map(is_tolerant, words_with_prefix(term.word))) >= CACHED_PREFIX_WORDS):
                term.cached_prefix = term.word
                return
            words = words_with_prefix(term.word, PREFIX_WORDS + 1)
        term.has_all_prefix_words = len(words) <= PREFIX_WORDS
        term.prefix_words = [word for word in words if word != term.word][:PREFIX_WORDS]
        if term.prefix_words:
            self.number_words(term.prefix_words)

    # Typos and split

    def _derive(self, term: Term) -> None:
        """Find the typo words and the split. They are cached across searches if they depend only on the words of the index."""
        postings, word, budget, is_prefix = self.postings, term.word, term.budget, term.is_prefix

        def find() -> tuple[Typos, Phrase | None]:
            vocabulary = postings.reader.vocabulary
            near = typos(vocabulary, word, budget, is_prefix, postings.is_tolerant)
            if self._languages and not term.is_ngram:
                near = self._with_stems(near, term)
            if self._infix_fields and not term.is_ngram and len(word) >= SHORTEST_INFIX:
                one = [each for each in self.infix_words(word) if not is_prefix or not each.startswith(word)]
                near = Typos(sorted({*near.one, *one}, key=str.encode), [each for each in near.two if word not in each])
            return near, self._best_split(word, term.components)

        term.is_derived = True
        if postings.is_by_attribute or not postings.is_tolerant_throughout:
            term.typos, term.split = find()
        else:
            term.typos, term.split = postings.reader.cached(("derived", word, budget, is_prefix, term.components), find)
        if reached := term.typos.one + term.typos.two:
            self.number_words(sorted(reached))

    def infix_words(self, word: str) -> Sequence[str]:
        """Return the words with a word inside, of the attributes whose words are found so; in byte order, except the word."""
        if not self._infix_fields or len(word) < SHORTEST_INFIX:
            return ()
        reader, fields = self.postings.reader, self._infix_fields
        return reader.cached(("infix", word), lambda: list(islice(
            (each for each in words_with_part(reader.vocabulary, word) if any(
                is_beneath(field, attribute) for field in reader.terms.word_fields(each) for attribute in fields)), INFIX_WORDS)))

    def stem_words(self, word: str) -> Sequence[str]:
        """Return the words of the index with a stem of a word, in byte order, except the word itself."""
        if not self._languages:
            return ()
        reader, languages = self.postings.reader, tuple(self._languages)
        return reader.cached(("stem", word, languages), lambda: words_with_stem(reader.vocabulary, word, languages))

    def _with_stems(self, near: Typos, term: Term) -> Typos:
        """Add the words with the same stem at one typo, so that exact forms rank before them; also those of typo words, for a
        word that the index lacks."""
        words = [term.word] if term.exact is not None or not near.one else [term.word, *near.one]
        found = {stem for word in words for stem in self.stem_words(word) if self.postings.is_tolerant(stem)}
        if term.is_prefix:
            found = {stem for stem in found if not stem.startswith(term.word)}
        one = list(islice(sorted(found.union(near.one) - {term.word}, key=str.encode), STEM_WORDS))
        return Typos(one, [word for word in near.two if word not in found])

    def _best_split(self, word: str, components: Phrase) -> Phrase | None:
        """Return the cut whose parts are adjacent in most documents, the leftmost of equal cuts; None for the words of an n-gram.

        components: the words of the n-gram, () for a single word.
        """
        postings, cuts = self.postings, [(word[:cut], word[cut:]) for cut in range(1, len(word))]
        best, most = None, 0
        if postings.is_by_attribute:  # there a cut without documents is a split too, and each pair must be looked up (quirks)
            found = [len(postings.pair(1, *parts)) for parts in cuts]
            best = cuts[found.index(max(found))] if found else None
            return None if best == components else best
        # Most parts are not words, and looking up a word is much faster than looking up a pair. A pair has no more documents than
        # both of its words, so the cut whose words share most documents comes first, and few others are looked up.
        docids, has_word = postings.reader.terms.word_docids, postings.has_word
        shared = [(-docids(left).intersection_cardinality(docids(right)), len(left), (left, right))
                  for left, right in cuts if (left, right) != components and has_word(left) and has_word(right)]
        place = 0
        for bound, at, parts in sorted(shared):
            if -bound < max(most, 1):
                break
            count = len(postings.pair(1, *parts))
            if count > most or count == most and count and at < place:
                best, most, place = parts, count, at
        # The words of an n-gram are common neighbours, so that looking them up takes long. Few n-grams have another split.
        if best is not None and components in cuts:
            count = len(postings.pair(1, *components))
            if count > most or count == most and len(components[0]) < place:
                return None
        return best

    # Subsets

    def derivations(self, subset: Subset) -> Derivations:
        """Return the derivations that a subset selects. A synonym is in all subsets (quirk)."""
        known = self._derivations.get(subset)
        if known is not None:
            return known
        term, zero, one, two, _ = subset
        if (one or two) and not term.is_derived:
            self._derive(term)
        words = [] if zero == NONE or term.exact is None else [term.exact]
        if zero == ALL:
            words += term.prefix_words
        originals = len(words)
        if one:
            words += term.typos.one
        if two:
            words += term.typos.two
        phrases = [*term.synonyms] if term.phrase is None else [term.phrase, *term.synonyms]
        if one and term.split is not None:
            phrases.append(term.split)
        found = self._derivations[subset] = Derivations(words, originals, phrases)
        return found

    def words_beside_prefix(self, subset: Subset) -> Sequence[str]:
        """Return the single words of a subset, without the words that `subset.whole_prefix` covers."""
        words, originals, _ = self.derivations(subset)
        return words if subset.whole_prefix is None else words[originals:]

    def docids(self, subset: Subset) -> DocIds:
        """Return the documents that match a subset."""
        docids = self._docids.get(subset)
        if docids is not None:
            return docids
        postings, prefix, is_ngram = self.postings, subset.whole_prefix, subset.term.is_ngram
        # For words of the zero-typo part all occurrences count, unless the prefix covers them. For words reached by typos, and
        # for all words of an n-gram, only tolerant occurrences count.
        words, originals, phrases = self.derivations(subset)
        tolerant = words if is_ngram and prefix is None else words[originals:]
        found = [postings.any_tolerant(tolerant)] if tolerant else []
        if not is_ngram and prefix is None:
            found += map(postings.original, words[:originals])
        found += map(postings.phrase, phrases)
        if prefix is not None:
            found.append(postings.tolerant_prefix(prefix) if is_ngram else postings.original_prefix(prefix))
        docids = self._docids[subset] = union_of(found)
        return docids


# The documents of words, phrases and pairs of words

# Number of words in the sliding window that checks a phrase (docs/ranking.md#phrases).
_WINDOW = 3


class _PrefixAnswer(NamedTuple):
    """The first result for a word and all words with a prefix. candidates: argument of the call."""

    candidates: DocIds
    docids: DocIds


class Postings:
    """The postings of one index for one search.

    fields: the fields to search, None for all. They restrict single words, but neither pairs (`byWord`) nor positions.
    """

    def __init__(self, reader: Reader, fields: Iterable[str] | None = None) -> None:
        settings = reader.settings
        self.reader = reader
        self.fields = self._fields = None if fields is None else list(dict.fromkeys(fields))
        self._exact_attributes = settings.typo_tolerance.exact_attributes
        self._has_exact_numbers = settings.typo_tolerance.has_exact_numbers
        self.is_by_attribute = settings.is_proximity_by_attribute
        # Whether the search uses only some fields.
        self.is_restricted = fields is not None
        # Whether all occurrences are tolerant.
        self.is_tolerant_throughout = not self._exact_attributes and not self._has_exact_numbers
        # Whether the documents of a word do not depend on fields.
        self.is_unrestricted = not self.is_restricted and self.is_tolerant_throughout
        self._words: dict[str, bool] = {}
        self._tolerant: dict[str, DocIds] = {}
        self._original: dict[str, DocIds] = {}
        self._phrases: dict[Phrase, DocIds] = {}
        # By attribute, by left word: the first result for each right word, and for all words with a prefix.
        self._first_answers: defaultdict[str, dict[str, DocIds]] = defaultdict(dict)
        self._first_prefix_answers: defaultdict[str, dict[str, _PrefixAnswer]] = defaultdict(dict)

    def looks_into(self, field: str) -> bool:
        """Return whether the search uses the field."""
        return self._fields is None or field in self._fields

    # Words

    def has_word(self, word: str) -> bool:
        """Return whether any field of any document contains the word. Cached, because splits look up the same parts often."""
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = self.reader.vocabulary.has_word(word)
        return known

    def original(self, word: str) -> DocIds:
        """Return the documents of a word as typed: all occurrences count."""
        docids = self._original.get(word)
        if docids is None:
            fields = self._fields
            docids = self.reader.terms.word_docids(word) if fields is None else self._word_in_fields(word, fields)
            self._original[word] = docids
        return docids

    def tolerant(self, word: str) -> DocIds:
        """Return the documents of a word reached by a typo or an n-gram: only tolerant occurrences count."""
        docids = self._tolerant.get(word)
        if docids is not None:
            return docids
        terms = self.reader.terms
        if self._fields is not None:
            docids = self._word_in_fields(word, self._tolerant_fields(self._fields))
        elif self._has_exact_numbers and is_numeric(word):
            docids = EMPTY
        elif not self._exact_attributes:
            docids = terms.word_docids(word)
        else:
            docids = self._word_in_fields(word, [field for field in terms.word_fields(word) if not self._is_exact_field(field)])
        self._tolerant[word] = docids
        return docids

    def any_tolerant(self, words: Sequence[str]) -> DocIds:
        """Return the union of `tolerant` over many words."""
        if self.is_unrestricted and len(words) > 1:
            return self.reader.terms.words_docids(words)
        return union_of(map(self.tolerant, words))

    def is_tolerant(self, word: str) -> bool:
        """Return whether the word has a tolerant occurrence in any field of the index."""
        if self._has_exact_numbers and is_numeric(word):
            return False
        if not self._exact_attributes:
            return True
        return any(not self._is_exact_field(field) for field in self.reader.terms.word_fields(word))

    def in_field(self, word: str, field: str) -> DocIds:
        """Return the documents with the word in a field; all occurrences count."""
        if not self.looks_into(field):
            return EMPTY
        return self.reader.terms.word_field_docids(word, field)

    def fields_of(self, word: str) -> list[str]:
        """Return the fields of the search that contain the word."""
        return [field for field in self.reader.terms.word_fields(word) if self.looks_into(field)]

    # Prefixes: cached prefixes (docs/ranking.md#prefixes), and prefixes with a complete list of words

    def original_prefix(self, prefix: str) -> DocIds:
        """Return the documents with any word that starts with the prefix."""
        if self._fields is None:
            return self.reader.terms.prefix_docids(prefix)
        return self._in_fields(prefix, self._fields)

    def tolerant_prefix(self, prefix: str) -> DocIds:
        """Return the documents with a tolerant occurrence of any word that starts with the prefix."""
        if self._fields is not None:
            return self._in_fields(prefix, self._tolerant_fields(self._fields))
        if self._has_exact_numbers and is_numeric(prefix):
            return self.any_tolerant(self.reader.vocabulary.words_with_prefix(prefix))
        if self._exact_attributes:
            fields = self.reader.terms.prefix_fields(prefix)
            return self._in_fields(prefix, [field for field in fields if not self._is_exact_field(field)])
        return self.reader.terms.prefix_docids(prefix)

    def prefix_in_field(self, prefix: str, field: str) -> DocIds:
        """Return the documents with any word in this field that starts with the prefix."""
        if not self.looks_into(field):
            return EMPTY
        return self.reader.terms.prefix_field_docids(prefix, field)

    # Pairs and phrases

    def pair(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Return the documents with the two words at this smallest distance, in this order.

        candidates: the result only has to be exact for them. By attribute, any distance in one field counts, and the result
        of the first call for a pair, within its candidates, is the result of all later calls (quirk,
        docs/ranking.md#proximity).
        """
        if not self.is_by_attribute:
            return self.reader.terms.pair_docids(distance, left, right, candidates)
        found = self._first_answers[left].get(right)
        if found is None:
            found = self._in_one_field(left, right)
            # An earlier call for a prefix of the right word was the first call for this pair.
            of_prefix = self._first_prefix_answers[left].items()
            first_candidates = next((answer.candidates for prefix, answer in of_prefix if right.startswith(prefix)), candidates)
            if first_candidates is not None:
                found &= first_candidates
            self._first_answers[left][right] = found
        return found

    def prefix_pair(self, distance: int, left: str, prefix: str, candidates: DocIds) -> DocIds:
        """Return the union of pair(distance, left, word, candidates) over the words that start with the prefix."""
        if not self.is_by_attribute:
            return self.reader.terms.prefix_pair_docids(distance, left, prefix, candidates)
        prefixes = self._first_prefix_answers[left]
        known = prefixes.get(prefix)
        if known is None:
            # First results for words of the prefix that had a call of their own. They can be reused unless one of them lacks a
            # candidate, or there was a call for a longer or shorter prefix.
            earlier = {right: docids for right, docids in self._first_answers[left].items() if right.startswith(prefix)}
            if (any(other.startswith(prefix) or prefix.startswith(other) for other in prefixes)
                    or any(not (candidates & self._in_one_field(left, right)).issubset(earlier[right]) for right in earlier)):
                return union_of(self.pair(distance, left, word, candidates)
                                for word in self.reader.vocabulary.words_with_prefix(prefix))
            fresh = candidates & union_of(self.in_field(left, field) & self.prefix_in_field(prefix, field)
                                          for field in self.fields_of(left))
            known = prefixes[prefix] = _PrefixAnswer(candidates, union_of([fresh, *earlier.values()]))
        return known.docids

    def phrase(self, phrase: Phrase) -> DocIds:
        """Return the documents of a phrase: with all words, and with neighbours near each other (docs/ranking.md#phrases)."""
        docids = self._phrases.get(phrase)
        if docids is not None:
            return docids
        words = [(place, word) for place, word in enumerate(phrase) if word is not None]
        docids = reduce(and_, [self.original(word) for _, word in words]) if words else EMPTY
        width = min(_WINDOW, len(phrase))
        # Every two words of one window, once: (left, right, whether they are adjacent).
        neighbours = dict.fromkeys((left, right, second - first == 1) for first, left in words for second, right in words
                                   if 0 < second - first < width)
        for left, right, is_next in neighbours:
            # By attribute, pair() must be called for each pair and for the whole index, as its first result is used later.
            if docids or self.is_by_attribute:
                within = None if self.is_by_attribute else docids
                near = self.pair(1, left, right, within)
                docids &= near if is_next else near | self.pair(2, left, right, within)
        self._phrases[phrase] = docids
        return docids

    def phrase_in_field(self, phrase: Phrase, field: str) -> DocIds:
        """Return the documents of a phrase whose first word is in this field."""
        word = first_word(phrase)
        return self.phrase(phrase) & self.in_field(word, field) if word is not None else EMPTY

    # Fields

    def _tolerant_fields(self, fields: Iterable[str]) -> list[str]:
        """Return the fields with tolerant occurrences under `attributesToSearchOn`.

        Quirk: there only literal names of `disableOnAttributes` count, and `disableOnNumbers` is ignored.
        """
        return [field for field in fields if field not in self._exact_attributes]

    def _is_exact_field(self, field: str) -> bool:
        return any(is_beneath(field, attribute) for attribute in self._exact_attributes)

    def _word_in_fields(self, word: str, fields: Iterable[str]) -> DocIds:
        return union_of(self.reader.terms.word_field_docids(word, field) for field in fields)

    def _in_fields(self, prefix: str, fields: Iterable[str]) -> DocIds:
        return union_of(self.reader.terms.prefix_field_docids(prefix, field) for field in fields)

    def _in_one_field(self, left: str, right: str) -> DocIds:
        return union_of(self.in_field(left, field) & self.in_field(right, field) for field in self.fields_of(left))


def first_word(phrase: Phrase) -> str | None:
    """Return the first word of a phrase, skipping position gaps; None for a phrase without words."""
    return next((word for word in phrase if word is not None), None)
