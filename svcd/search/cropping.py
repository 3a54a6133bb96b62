"""Choose the part of a text that a crop shows: the best interval of matches and a window around it (docs/search.md#cropping)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from svcd.search.matches import Match
from svcd.search.request import FormattingBudget
from svcd.text.analyzer import HARD, SOFT, WORD, Token

# When intervals are compared, the distance in words of two matches counts as at most this.
MAX_DISTANCE = 7

# Tokens that a window takes even after the time limit, enough to complete a crop of usual length.
_GUARANTEED_TOKENS = 100

_BEFORE, _AFTER, _BOTH = "before", "after", "both"
# The side on which the window grows, by the kinds of the next tokens (before, after) it.
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
    """The tokens of one text, created on demand."""

    @property
    def end(self) -> int:
        """Return the end of the text, in the unit of the tokens."""

    def forwards(self) -> Iterator[Token]:
        """All tokens."""

    def before(self, match: Match) -> Iterator[Token]:
        """The tokens before a match, the nearest first."""

    def after(self, match: Match) -> Iterator[Token]:
        """The tokens after a match."""

    def backwards(self, match: Match) -> Iterator[Token]:
        """The token after a match, if any, and all tokens before that one, in reverse order."""




def window(source: TokenSource, matches: Sequence[Match], size: int, budget: FormattingBudget) -> tuple[int, int]:
    """Return (start, end) of the part to show: about `size` words around the best matches, in the unit of the tokens.

    The end is before the start between two phrases longer than the window: nothing is shown then. When the budget is used up,
    the window is the best part found so far. The odd cases are phrases longer than the window, whose results follow the
    reference engine.
    """
    if not matches:
        return _grow(source, size, iter(()), source.forwards(), budget)
    first_number, last_number = best_interval(matches, size, budget)
    first, last = matches[first_number], matches[last_number]
    words = last.last_word - first.first_word + 1
    if words < 0:
        return 0, source.end
    if words == 0:
        return _grow(source, size, source.before(first), source.forwards(), budget)
    if words <= size:
        return _grow(source, size - words, source.before(first), source.after(last), budget)
    # The text from its start to the end of the phrase, without as many words as the phrase is too long.
    return _grow(source, words - size, iter(()), source.backwards(last), budget)

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


def _grow(source: TokenSource, left: int, tokens_before: Iterator[Token], tokens_after: Iterator[Token],
          budget: FormattingBudget) -> tuple[int, int]:
    """Return (start, end) of a window after it took `left` words, given the next tokens on each side."""
    before, after = next(tokens_before, None), next(tokens_after, None)
    taken = 0
    while left > 0 and (before or after) and (taken < _GUARANTEED_TOKENS or budget.allows(1)):
        taken += 1
        side = _GROWTH[before.kind, after.kind] if before and after else _BEFORE if before else _AFTER
        # If both sides offer a word, the one after is only taken if it is still allowed.
        take_after = side == _AFTER or (side == _BOTH and left > 1)
        if side != _AFTER and before:
            left -= before.kind == WORD
            before = next(tokens_before, None)
        if take_after and after:
            left -= after.kind == WORD
            after = next(tokens_after, None)
    return before.end if before else 0, after.start if after else source.end
