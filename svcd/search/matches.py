"""Find the tokens of a text that a query matched (docs/search.md#matched-words), and the best of them for a crop."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from svcd.search.request import FormattingBudget
from svcd.text.analyzer import PAIR, WORD, Token

Phrase = Sequence["str | None"]


class LocatedTerm(NamedTuple):
    """One term of the query, and the words and phrases that it matches."""

    positions: tuple[int, int]  # first and last word position of the term in the query
    is_prefix: bool  # the term may be continued (only ever the last one)
    length: int  # characters of its text as typed (n-gram: concatenated); 0 for a phrase
    words: Sequence[str] = ()  # exact, prefix and computed typo words, in order of interning
    phrases: Sequence[Phrase] = ()  # own phrase, synonyms, computed split; None is a position gap of a stop word


class Match(NamedTuple):
    """A run of tokens that matched one term; tokens, words and characters are counted from 0."""

    first_token: int
    last_token: int
    first_word: int  # the number of the first matched word among the words of the text
    last_word: int
    start: int  # in characters
    length: int  # in characters: less than the length of the token if only its prefix matched
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
    """The words and phrases that a query matches, by lemma. terms: in query order, then the n-grams; () matches nothing."""

    def __init__(self, terms: Iterable[LocatedTerm] = ()) -> None:
        located = list(terms)
        self._phrases: dict[str, list[tuple[Phrase, LocatedTerm]]] = {}
        for term in located:
            for phrase in term.phrases:
                if phrase and phrase[0] is not None:
                    self._phrases.setdefault(phrase[0], []).append((phrase, term))
        self._candidates = _Candidates(located)
        # The first word of a match has a lemma that starts with one of these. ("" matches the empty lemma only.)
        self.prefixes = frozenset({*self._phrases, *self._candidates.whole, *self._candidates.prefixes})
        self.longest_phrase = max((len(phrase) for phrases in self._phrases.values() for phrase, _ in phrases), default=1)

    def __bool__(self) -> bool:
        return bool(self._phrases or self._candidates.whole or self._candidates.prefixes)

    def find(self, tokens: Sequence[Token]) -> list[Match]:
        """Return the matches in the tokens of one text, from left to right, without overlaps."""
        found: list[Match] = []
        if not self:
            return found
        places = [place for place, token in enumerate(tokens) if token.kind == WORD]
        free = 0  # the first word after the last match
        for number, place in enumerate(places):
            lemma = tokens[place].lemma
            if number < free or (self._candidates[lemma] is None and lemma not in self._phrases):
                continue
            match = self._match_at(tokens, places, number)
            if match:
                found.append(match)
                free = match.last_word + 1
        return found

    def _match_at(self, tokens: Sequence[Token], places: Sequence[int], number: int) -> Match | None:
        """Return the match that begins at the word `number`. places: the indexes of the tokens that are words."""
        place = places[number]
        token = tokens[place]
        for phrase, term in self._phrases.get(token.lemma, ()):
            last = number + len(phrase) - 1
            # A phrase with a position gap (None) equals no lemma.
            if last < len(places) and all(tokens[places[number + step]].lemma == word for step, word in enumerate(phrase)):
                last += tokens[places[last]].pair is PAIR  # its lemma includes the next character
                length = tokens[places[last]].end - token.start
                return Match(place, places[last], number, last, token.start, length, term.positions)
        candidate = self._candidates[token.lemma]
        if candidate is None:
            return None
        length = token.end - token.start
        if token.pair is PAIR and not candidate.term.is_prefix:
            following = tokens[places[number + 1]]
            return Match(place, places[number + 1], number, number + 1, token.start, following.end - token.start,
                         candidate.term.positions)
        if candidate.term.is_prefix:  # mark only the characters that became the typed ones
            length = token.characters_of(len(candidate.word[: candidate.term.length].encode()))
        return Match(place, place, number, number, token.start, length, candidate.term.positions)


class _Candidates(dict[str, "_Candidate | None"]):
    """Lemma -> the first word, in the order of ranks, that matches it; None if no word does. Filled on demand.

    Wide terms (n-grams) are tried first, prefixes last.
    """

    def __init__(self, located: Sequence[LocatedTerm]) -> None:
        super().__init__()
        self.whole: dict[str, _Candidate] = {}
        self.prefixes: dict[str, _Candidate] = {}
        ordered = sorted(located, key=lambda term: (term.is_prefix, term.positions[0] - term.positions[1]))
        words = ((word, term) for term in ordered for word in term.words)
        for rank, (word, term) in enumerate(words):
            (self.prefixes if term.is_prefix else self.whole).setdefault(word, _Candidate(rank, word, term))
        self._lengths = sorted({len(word) for word in self.prefixes})

    def __missing__(self, lemma: str) -> _Candidate | None:
        found = self.whole.get(lemma)
        if found is None:
            prefixes = (lemma[:length] for length in self._lengths if length <= len(lemma))
            matching = [self.prefixes[prefix] for prefix in prefixes if prefix in self.prefixes]
            found = min(matching, default=None, key=lambda candidate: candidate.rank)
        self[lemma] = found
        return found


# The best interval of matches for a crop (docs/search.md#cropping)

# When intervals are compared, the distance in words of two matches counts as at most this.
MAX_DISTANCE = 7


def best_interval(matches: Sequence[Match], size: int, budget: FormattingBudget) -> tuple[int, int]:
    """Return the indexes of the first and last match of the interval of at most `size` words with the best score."""
    best = (0, 0)
    best_score: tuple[int, int, int] | None = None
    for first, last in _intervals(matches, size):
        score = _score(matches[first : last + 1])
        if best_score is None or score > best_score:
            best, best_score = (first, last), score
        if not budget.allows(last - first + 1):
            break
    return best


def _intervals(matches: Sequence[Match], size: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of the longest intervals that fit; after a phrase that does not fit, an empty one (last < first)."""
    first = 0
    end = len(matches) - 1
    for last, match in enumerate(matches):
        if match.last_word - matches[first].first_word < size:
            continue
        if last > 0:
            yield first, last - 1
        first += 1
        while first <= end and matches[first].first_word <= min(match.last_word, match.last_word - size):
            first += 1
        first = min(first, end)
    alone = matches[first]
    if first < end or alone.words < size:
        yield first, end


def _score(matches: Sequence[Match]) -> tuple[int, int, int]:
    """Return (query positions covered, minus the distances between matches, steps in query order)."""
    covered: set[int] = set()
    distance = in_order = 0
    for number, match in enumerate(matches):
        first, last = match.positions
        covered.update(range(first, last + 1))
        # A phrase counts as one match for each of its words, adjacent and in order.
        distance += match.words - 1
        in_order += match.words - 1
        if number + 1 < len(matches):
            following = matches[number + 1]
            distance += min(MAX_DISTANCE, following.first_word - match.last_word)
            in_order += following.positions[0] > first
    return len(covered), -distance, in_order
