"""Which tokens of a text a query matched, for highlighting, cropping and match positions (docs/search.md#matched-words).

A MatchFinder is built from the terms of a query:

    MatchFinder([
        LocatedTerm(
            positions=(0, 0),          # first and last word position of the term in the query
            is_prefix=True,            # the term may be continued (only ever the last one)
            length=4,                  # characters of its text as typed (n-gram: concatenated); 0 for a phrase
            words=("wood", "woods"),   # exact, prefix and computed typo words, in order of interning
            phrases=(("new", "york"),),  # own phrase, synonyms, computed split; None = stop-word position gap
        ),
        ...                            # located terms in query order, then the n-grams
    ])

`MatchFinder()` without terms matches nothing (placeholder search).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from svcd.text.analyzer import WORD, Token

# Limits on the work of formatting the hits of one search (docs/search.md#time-limit).
#
# Formatting counts towards the time limit of the search, so that a hit of 20 MB cannot occupy a place for a minute. A fixed
# amount is always allowed, so that hits of usual size are formatted however long ranking took.


# Characters of text that are read whatever the time: the hits of most pages, in a tenth of a second, in half of one where
# words have to be found without spaces.
ASSURED = 65_536
# Matches of one hit that are told where its texts are long; each takes some 300 bytes of memory.
MOST_MATCHES = 100_000
# Characters that tags and markers may add to the answer: they come with the request, and may be long.
MOST_ADDED = 16_777_216


class FormattingBudget:
    """What is left for one search. expired: tells whether its time is over; None never asks."""

    def __init__(self, expired: Callable[[], bool] | None = None) -> None:
        self._expired = expired
        self._assured = ASSURED
        self._addable = MOST_ADDED
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True once something was refused because of the time."""
        return self._is_over

    def allows(self, amount: int) -> bool:
        """May so many more characters be read, or as simple things be done? Counts them when it says yes."""
        if self._assured > 0:
            self._assured -= amount
            return True
        if not self._is_over and self._expired is not None:
            self._is_over = self._expired()
        return not self._is_over

    def adds(self, characters: int) -> bool:
        """May so many characters be added to the texts of hits? Counts them when it says yes."""
        if characters > self._addable:
            return False
        self._addable -= characters
        return True


Phrase = Sequence["str | None"]


@dataclass(frozen=True, slots=True)
class LocatedTerm:
    """One term of the query with all it was allowed to match."""

    positions: tuple[int, int]
    is_prefix: bool
    length: int
    words: Sequence[str] = ()
    phrases: Sequence[Phrase] = ()

    @property
    def width(self) -> int:
        """Word positions the term covers, less one."""
        return self.positions[1] - self.positions[0]


class Match(NamedTuple):
    """A run of tokens that matched one term; counts of tokens, words and characters from 0."""

    first_token: int
    last_token: int
    first_word: int  # number of the first matched word among the word tokens of the text
    last_word: int
    start: int  # characters
    length: int  # characters: less than the token when only its prefix matched
    positions: tuple[int, int]  # of the term in the query

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def words(self) -> int:
        return self.last_word - self.first_word + 1


class _Candidate(NamedTuple):
    """A word of a term with its place in the order in which words are tried."""

    rank: int
    word: str
    term: LocatedTerm


class MatchFinder:
    """The words and phrases a query may match, ready to be looked up by lemma."""

    def __init__(self, terms: Iterable[LocatedTerm] = ()) -> None:
        located = list(terms)
        self._phrases: dict[str, list[tuple[Phrase, LocatedTerm]]] = {}
        for term in located:
            self._add_phrases(term)
        self._candidates = _Candidates(located)
        # A match begins with a word whose lemma begins with one of these. ("" begins any, and matches nothing but itself.)
        self.beginnings = frozenset({*self._phrases, *self._candidates.whole, *self._candidates.beginnings})
        self.longest_phrase = max((len(phrase) for several in self._phrases.values() for phrase, _ in several), default=1)

    def __bool__(self) -> bool:
        return bool(self._phrases or self._candidates.whole or self._candidates.beginnings)

    def find(self, tokens: Sequence[Token]) -> list[Match]:
        """The matches of the tokens of one text, left to right, none overlapping another."""
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
        free = 0  # words before this number are part of a match
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
            if _reads(tokens, places, number, phrase):
                last = number + len(phrase) - 1
                length = tokens[places[last]].end - token.start
                return Match(place, places[last], number, last, token.start, length, term.positions)
        candidate = self._candidates[token.lemma]
        if candidate is None:
            return None
        length = _matched_length(token, candidate)
        return Match(place, place, number, number, token.start, length, candidate.term.positions)


class _Candidates(dict[str, "_Candidate | None"]):
    """Lemma -> the first word that matches it; remembers what it was asked."""

    def __init__(self, located: Sequence[LocatedTerm]) -> None:
        super().__init__()
        self.whole: dict[str, _Candidate] = {}
        self.beginnings: dict[str, _Candidate] = {}
        for candidate in _ranked(located):
            table = self.beginnings if candidate.term.is_prefix else self.whole
            table.setdefault(candidate.word, candidate)
        self._lengths = sorted({len(word) for word in self.beginnings})

    def __missing__(self, lemma: str) -> _Candidate | None:
        found = self[lemma] = self.whole.get(lemma) or self._beginning(lemma)
        return found

    def _beginning(self, lemma: str) -> _Candidate | None:
        beginnings = (lemma[:length] for length in self._lengths if length <= len(lemma))
        found = [self.beginnings[beginning] for beginning in beginnings if beginning in self.beginnings]
        return min(found, default=None, key=lambda candidate: candidate.rank)


def _ranked(located: Sequence[LocatedTerm]) -> Iterator[_Candidate]:
    """Words in the order in which they are tried: prefixes last, wide terms (n-grams) first."""
    ordered = sorted(located, key=lambda term: (term.is_prefix, -term.width))
    words = ((word, term) for term in ordered for word in term.words)
    for rank, (word, term) in enumerate(words):
        yield _Candidate(rank, word, term)


def _reads(tokens: Sequence[Token], places: Sequence[int], number: int, phrase: Phrase) -> bool:
    """Whether the word tokens from `number` on are the words of the phrase; a hole is never met."""
    if number + len(phrase) > len(places):
        return False
    return all(tokens[places[number + step]].lemma == word for step, word in enumerate(phrase))


def _matched_length(token: Token, candidate: _Candidate) -> int:
    """Characters of the token to mark: those that gave the typed beginning, or all of it."""
    if not candidate.term.is_prefix:
        return token.end - token.start
    typed = candidate.word[: candidate.term.length]
    return token.characters_of(len(typed.encode()))
