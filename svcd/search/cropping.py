"""Which part of a text a crop shows: the best interval of matches, and how its window grows (docs/search.md#cropping)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from svcd.search.matches import FormattingBudget, Match
from svcd.text.analyzer import HARD, SOFT, WORD, Token

# Words between two matches that count, at most, when intervals are compared.
FARTHEST = 7

# Steps of growing that are made whatever the time: a crop of usual length is shown even then.
_SURELY_TAKEN = 100

_BEFORE, _AFTER, _BOTH = "before", "after", "both"
# What is taken next, by the kinds of the next token on each side.
_GROWTH = {
    (WORD, WORD): _BOTH,
    (SOFT, SOFT): _BOTH,
    (HARD, HARD): _BOTH,
    (HARD, SOFT): _AFTER,
    (SOFT, HARD): _BEFORE,
    (WORD, SOFT): _BEFORE,
    (WORD, HARD): _BEFORE,
    (SOFT, WORD): _AFTER,
    (HARD, WORD): _AFTER,
}


class Reading(Protocol):
    """The tokens of one text, taken one after the other from a place on, none before it is asked for."""

    @property
    def end(self) -> int:
        """Characters of the text."""

    def forwards(self) -> Iterator[Token]:
        """All tokens."""

    def before(self, match: Match) -> Iterator[Token]:
        """The tokens in front of a match, the nearest first."""

    def behind(self, match: Match) -> Iterator[Token]:
        """The tokens behind a match."""

    def back_from(self, match: Match) -> Iterator[Token]:
        """The token behind a match and all in front of that, backwards; without one, all tokens backwards."""


class _Growth(NamedTuple):
    """A window about to grow: words still allowed, the tokens still to be taken on each side."""

    words: int
    before: Iterator[Token]
    after: Iterator[Token]


def window(reading: Reading, matches: Sequence[Match], size: int, allowance: FormattingBudget) -> tuple[int, int]:
    """(start, end) in characters of the part to show, around the best matches; about `size` words.

    The end may lie before the start, between two phrases longer than the window: nothing is shown then. When the time is
    over it is what was found until then.
    """
    if not matches:
        return _grown(reading, _Growth(size, iter(()), reading.forwards()), allowance)
    first, last = best_interval(matches, size, allowance)
    growth = _around(reading, matches[first], matches[last], size)
    return _grown(reading, growth, allowance) if growth else (0, reading.end)


def best_interval(matches: Sequence[Match], size: int, allowance: FormattingBudget) -> tuple[int, int]:
    """Numbers of the first and last match of the interval of at most `size` words that shows the query best."""
    best = (0, 0)
    best_score: tuple[int, int, int] | None = None
    for first, last in _intervals(matches, size):
        score = _score(matches[first : last + 1])
        if best_score is None or score > best_score:
            best, best_score = (first, last), score
        if not allowance.allows(last - first + 1):
            break
    return best


def _intervals(matches: Sequence[Match], size: int) -> Iterator[tuple[int, int]]:
    """The longest intervals that fit; behind a phrase that does not fit an empty one (last before first)."""
    first = 0
    end = len(matches) - 1
    for last, match in enumerate(matches):
        if match.last_word - matches[first].first_word < size:
            continue
        if last > 0:
            yield first, last - 1
        first += 1
        while first <= end and _is_too_long(matches[first], match, size):
            first += 1
        first = min(first, end)
    alone = matches[first]
    if first < end or alone.words < size:
        yield first, end


def _is_too_long(first: Match, last: Match, size: int) -> bool:
    return first.first_word <= last.last_word and last.last_word - first.first_word >= size


def _score(matches: Sequence[Match]) -> tuple[int, int, int]:
    """(query positions covered, minus the distances between matches, steps in query order)."""
    covered: set[int] = set()
    distance = in_order = 0
    for number, match in enumerate(matches):
        first, last = match.positions
        covered.update(range(first, last + 1))
        # A phrase counts as as many matches side by side and in order.
        distance += match.words - 1
        in_order += match.words - 1
        if number + 1 < len(matches):
            following = matches[number + 1]
            distance += min(FARTHEST, following.first_word - match.last_word)
            in_order += following.positions[0] > first
    return len(covered), -distance, in_order


def _around(reading: Reading, first: Match, last: Match, size: int) -> _Growth | None:
    """Where to grow from, given the interval's first and last match; None shows the whole text.

    The odd cases are phrases longer than the window; their results are those of the reference engine.
    """
    words = last.last_word - first.first_word + 1
    if words < 0:
        return None
    if words == 0:
        return _Growth(size, reading.before(first), reading.forwards())
    if words <= size:
        return _Growth(size - words, reading.before(first), reading.behind(last))
    # The text from its start to the phrase, less the words that are too many.
    return _Growth(words - size, iter(()), reading.back_from(last))


def _grown(reading: Reading, growth: _Growth, allowance: FormattingBudget) -> tuple[int, int]:
    left, befores, afters = growth
    before, after = next(befores, None), next(afters, None)
    taken = 0
    while left > 0 and (before or after) and (taken < _SURELY_TAKEN or allowance.allows(1)):
        taken += 1
        side = _next_side(before, after)
        # One of two: the second is taken only if something would still be left for it.
        take_after = side == _AFTER or (side == _BOTH and left > 1)
        if side != _AFTER and before:
            left -= before.kind == WORD
            before = next(befores, None)
        if take_after and after:
            left -= after.kind == WORD
            after = next(afters, None)
    return before.end if before else 0, after.start if after else reading.end


def _next_side(before: Token | None, after: Token | None) -> str:
    if not before:
        return _AFTER
    if not after:
        return _BEFORE
    return _GROWTH[before.kind, after.kind]
