"""Chooses the part of a text that a crop shows: the best interval of matches and a window around it (docs/search.md#cropping)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from svcd.search.matches import FormattingBudget, Match
from svcd.text.analyzer import HARD, SOFT, WORD, Token

# The distance in words of two matches counts as at most this when intervals are compared.
MAX_DISTANCE = 7

# Tokens that a window takes even after the time limit: a crop of usual length is complete then, too.
_GUARANTEED_TOKENS = 100

_BEFORE, _AFTER, _BOTH = "before", "after", "both"
# On which side the window grows, by the kinds of the next tokens (before, after) it.
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


class TokenSource(Protocol):
    """The tokens of one text; each is made when it is asked for."""

    @property
    def end(self) -> int:
        """The end of the text, in the unit of the tokens."""

    def forwards(self) -> Iterator[Token]:
        """All tokens."""

    def before(self, match: Match) -> Iterator[Token]:
        """The tokens before a match, the nearest first."""

    def after(self, match: Match) -> Iterator[Token]:
        """The tokens after a match."""

    def backwards(self, match: Match) -> Iterator[Token]:
        """The token after a match, if there is one, and all tokens before that, the last one first."""


class _Growth(NamedTuple):
    """A window that grows: how many words it may still take, and the next tokens on each side."""

    words: int
    before: Iterator[Token]
    after: Iterator[Token]


def window(source: TokenSource, matches: Sequence[Match], size: int, budget: FormattingBudget) -> tuple[int, int]:
    """(start, end) of the part to show: about `size` words around the best matches, in the unit of the tokens.

    The end is before the start between two phrases longer than the window: nothing is shown then. When the budget is used up,
    it is the best part found until then.
    """
    if not matches:
        return _grow(source, _Growth(size, iter(()), source.forwards()), budget)
    first, last = best_interval(matches, size, budget)
    growth = _growth_around(source, matches[first], matches[last], size)
    return _grow(source, growth, budget) if growth else (0, source.end)


def best_interval(matches: Sequence[Match], size: int, budget: FormattingBudget) -> tuple[int, int]:
    """The indexes of the first and last match of the interval of at most `size` words with the best score."""
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
    """(first, last) of the longest intervals that fit; after a phrase that does not fit, an empty one (last before first)."""
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
        # A phrase counts as one match for each of its words, adjacent and in order.
        distance += match.words - 1
        in_order += match.words - 1
        if number + 1 < len(matches):
            following = matches[number + 1]
            distance += min(MAX_DISTANCE, following.first_word - match.last_word)
            in_order += following.positions[0] > first
    return len(covered), -distance, in_order


def _growth_around(source: TokenSource, first: Match, last: Match, size: int) -> _Growth | None:
    """How a window grows from an interval, given its first and last match; None to show the whole text.

    The odd cases are phrases longer than the window; their results are those of the reference engine.
    """
    words = last.last_word - first.first_word + 1
    if words < 0:
        return None
    if words == 0:
        return _Growth(size, source.before(first), source.forwards())
    if words <= size:
        return _Growth(size - words, source.before(first), source.after(last))
    # The text from its start to the end of the phrase, without as many words as the phrase is too long.
    return _Growth(words - size, iter(()), source.backwards(last))


def _grow(source: TokenSource, growth: _Growth, budget: FormattingBudget) -> tuple[int, int]:
    """(start, end) of the window after it took tokens until no more words are allowed."""
    left, tokens_before, tokens_after = growth
    before, after = next(tokens_before, None), next(tokens_after, None)
    taken = 0
    while left > 0 and (before or after) and (taken < _GUARANTEED_TOKENS or budget.allows(1)):
        taken += 1
        side = _next_side(before, after)
        # Of two words the one after is only taken if it is still allowed.
        take_after = side == _AFTER or (side == _BOTH and left > 1)
        if side != _AFTER and before:
            left -= before.kind == WORD
            before = next(tokens_before, None)
        if take_after and after:
            left -= after.kind == WORD
            after = next(tokens_after, None)
    return before.end if before else 0, after.start if after else source.end


def _next_side(before: Token | None, after: Token | None) -> str:
    if not before:
        return _AFTER
    if not after:
        return _BEFORE
    return _GROWTH[before.kind, after.kind]
