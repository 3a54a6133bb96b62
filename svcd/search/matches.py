"""Finds the tokens of a text that a query matched, and limits the work of formatting them (docs/search.md#matched-words).

A MatchFinder is built from the terms of a query:

    MatchFinder([
        LocatedTerm(
            positions=(0, 0),          # first and last word position of the term in the query
            is_prefix=True,            # the term may be continued (only ever the last one)
            length=4,                  # characters of its text as typed (n-gram: concatenated); 0 for a phrase
            words=("wood", "woods"),   # exact, prefix and computed typo words, in order of interning
            phrases=(("new", "york"),),  # own phrase, synonyms, computed split; None = stop-word position gap
        ),
        ...                            # terms in query order, then the n-grams
    ])

`MatchFinder()` without terms matches nothing (placeholder search).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from svcd.text.analyzer import WORD, Token

# Characters of text that one search may read after its time limit: those of the hits of most pages. Reading them takes a tenth
# of a second, half a second where a segmenter finds the words.
GUARANTEED_CHARACTERS = 65_536
# Bytes that tags and markers may add to the answer of one search: the request gives them, and they may be long.
MAX_ADDED_BYTES = 16_777_216

Phrase = Sequence["str | None"]


@dataclass(frozen=True, slots=True)
class LocatedTerm:
    """One term of the query with its positions there, and the words and phrases that it matches."""

    positions: tuple[int, int]
    is_prefix: bool
    length: int
    words: Sequence[str] = ()
    phrases: Sequence[Phrase] = ()

    @property
    def width(self) -> int:
        """The number of word positions that the term covers, less one."""
        return self.positions[1] - self.positions[0]


class Match(NamedTuple):
    """A run of tokens that matched one term; tokens, words and characters are counted from 0."""

    first_token: int
    last_token: int
    first_word: int  # the number of the first matched word among the words of the text
    last_word: int
    start: int  # in characters
    length: int  # in characters: fewer than those of the token if only its prefix matched
    positions: tuple[int, int]  # of the term in the query

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def words(self) -> int:
        return self.last_word - self.first_word + 1


class _Candidate(NamedTuple):
    """A word that may match. rank: its place in the order in which words are tried."""

    rank: int
    word: str
    term: LocatedTerm


class MatchFinder:
    """The words and phrases that a query matches, by lemma."""

    def __init__(self, terms: Iterable[LocatedTerm] = ()) -> None:
        located = list(terms)
        self._phrases: dict[str, list[tuple[Phrase, LocatedTerm]]] = {}
        for term in located:
            self._add_phrases(term)
        self._candidates = _Candidates(located)
        # The first word of a match has a lemma that starts with one of these. ("" matches the empty lemma only.)
        self.prefixes = frozenset({*self._phrases, *self._candidates.whole, *self._candidates.prefixes})
        self.longest_phrase = max((len(phrase) for phrases in self._phrases.values() for phrase, _ in phrases), default=1)

    def __bool__(self) -> bool:
        return bool(self._phrases or self._candidates.whole or self._candidates.prefixes)

    def find(self, tokens: Sequence[Token]) -> list[Match]:
        """The matches in the tokens of one text, from left to right, without overlaps."""
        if not self:
            return []
        places = [place for place, token in enumerate(tokens) if token.kind == WORD]
        return list(self._scan(tokens, places))

    def _add_phrases(self, term: LocatedTerm) -> None:
        for phrase in term.phrases:
            if phrase and phrase[0] is not None:
                self._phrases.setdefault(phrase[0], []).append((phrase, term))

    def _scan(self, tokens: Sequence[Token], places: Sequence[int]) -> Iterator[Match]:
        phrases, candidates = self._phrases, self._candidates
        free = 0  # the first word after the last match
        for number, place in enumerate(places):
            lemma = tokens[place].lemma
            if number < free or (candidates[lemma] is None and lemma not in phrases):
                continue
            match = self._match_at(tokens, places, number)
            if match:
                yield match
                free = match.last_word + 1

    def _match_at(self, tokens: Sequence[Token], places: Sequence[int], number: int) -> Match | None:
        place = places[number]
        token = tokens[place]
        for phrase, term in self._phrases.get(token.lemma, ()):
            if _is_phrase_at(tokens, places, number, phrase):
                last = number + len(phrase) - 1
                length = tokens[places[last]].end - token.start
                return Match(place, places[last], number, last, token.start, length, term.positions)
        candidate = self._candidates[token.lemma]
        if candidate is None:
            return None
        length = _matched_length(token, candidate)
        return Match(place, place, number, number, token.start, length, candidate.term.positions)


class _Candidates(dict[str, "_Candidate | None"]):
    """Lemma -> the first word, in the order of ranks, that matches it; None if no word does. Filled on demand."""

    def __init__(self, located: Sequence[LocatedTerm]) -> None:
        super().__init__()
        self.whole: dict[str, _Candidate] = {}
        self.prefixes: dict[str, _Candidate] = {}
        for candidate in _ranked(located):
            table = self.prefixes if candidate.term.is_prefix else self.whole
            table.setdefault(candidate.word, candidate)
        self._lengths = sorted({len(word) for word in self.prefixes})

    def __missing__(self, lemma: str) -> _Candidate | None:
        found = self[lemma] = self.whole.get(lemma) or self._by_prefix(lemma)
        return found

    def _by_prefix(self, lemma: str) -> _Candidate | None:
        prefixes = (lemma[:length] for length in self._lengths if length <= len(lemma))
        found = [self.prefixes[prefix] for prefix in prefixes if prefix in self.prefixes]
        return min(found, default=None, key=lambda candidate: candidate.rank)


def _ranked(located: Sequence[LocatedTerm]) -> Iterator[_Candidate]:
    """The words of all terms in the order in which they are tried: wide terms (n-grams) first, prefixes last."""
    ordered = sorted(located, key=lambda term: (term.is_prefix, -term.width))
    words = ((word, term) for term in ordered for word in term.words)
    for rank, (word, term) in enumerate(words):
        yield _Candidate(rank, word, term)


def _is_phrase_at(tokens: Sequence[Token], places: Sequence[int], number: int, phrase: Phrase) -> bool:
    """Are the words from `number` on those of the phrase? Never if it has a position gap.

    places: the indexes of the tokens that are words.
    """
    if number + len(phrase) > len(places):
        return False
    return all(tokens[places[number + step]].lemma == word for step, word in enumerate(phrase))


def _matched_length(token: Token, candidate: _Candidate) -> int:
    """The number of characters of the token to mark: of a prefix those that became the typed characters, else all."""
    if not candidate.term.is_prefix:
        return token.end - token.start
    typed = candidate.word[: candidate.term.length]
    return token.characters_of(len(typed.encode()))


# Limits on formatting


class FormattingBudget:
    """How much work the formatting of one search may still do. expired: has the time limit passed? None for no limit.

    Formatting counts towards the time limit of the search, so that a hit of 20 MB cannot occupy a search slot for a minute. A
    fixed amount is always allowed, so that hits of usual size are formatted however long ranking took. A page that is rendered in
    portions has one budget, which each portion renews.
    """

    def __init__(self, expired: Callable[[], bool] | None = None) -> None:
        self._expired = expired
        self._guaranteed = GUARANTEED_CHARACTERS
        self._addable = MAX_ADDED_BYTES
        self._is_over = False

    def renew(self) -> None:
        """Allow the fixed amount again, for the next portion of a page."""
        self._guaranteed = GUARANTEED_CHARACTERS

    def allows(self, characters: int) -> bool:
        """May so many more characters be read, or a step of similar cost be made? If so, they are counted."""
        if self._guaranteed > 0:
            self._guaranteed -= characters
            return True
        if not self._is_over and self._expired is not None:
            self._is_over = self._expired()
        return not self._is_over

    def adds(self, size: int) -> bool:
        """May so many bytes be added to the texts of hits? If so, they are counted."""
        if size > self._addable:
            return False
        self._addable -= size
        return True
