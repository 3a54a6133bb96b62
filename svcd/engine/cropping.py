"""Which part of a text is shown when only so many of its words may be.

Knows the best interval of matches and how the window grows around it (relevance contract 7.5). Refuses
to know what matches look like and what marks the cut.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from svcd.engine.analysis import HARD, SOFT, WORD, Token
from svcd.engine.matching import Match

# Words between two matches that count, at most, when intervals are compared.
_FARTHEST = 7

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


class _Growth(NamedTuple):
    """A window about to grow: token numbers still to be taken on each side, words still allowed."""

    words: int
    before: Sequence[int]
    after: Sequence[int]


def window(tokens: Sequence[Token], matches: Sequence[Match], size: int) -> tuple[int, int]:
    """(start, end) in characters of the part to show, around the best matches; about `size` words.

    The end may lie before the start, between two phrases longer than the window: nothing is shown then.
    """
    everything = (0, tokens[-1].end if tokens else 0)
    if not matches:
        return _grown(tokens, _Growth(size, (), range(len(tokens))))
    first, last = best_interval(matches, size)
    growth = _around(len(tokens), matches[first], matches[last], size)
    return _grown(tokens, growth) if growth else everything


def best_interval(matches: Sequence[Match], size: int) -> tuple[int, int]:
    """Numbers of the first and last match of the interval of at most `size` words that shows the query best."""
    best = (0, 0)
    best_score: tuple[int, int, int] | None = None
    for first, last in _intervals(matches, size):
        score = _score(matches[first : last + 1])
        if best_score is None or score > best_score:
            best, best_score = (first, last), score
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
            distance += min(_FARTHEST, following.first_word - match.last_word)
            in_order += following.positions[0] > first
    return len(covered), -distance, in_order


def _around(count: int, first: Match, last: Match, size: int) -> _Growth | None:
    """Where to grow from, given the interval's first and last match; None shows the whole text.

    The odd cases are those of phrases longer than the window; the contract keeps them as they are.
    """
    words = last.last_word - first.first_word + 1
    before = range(first.first_token - 1, -1, -1)
    if words < 0:
        return None
    if words == 0:
        return _Growth(size, before, range(count))
    if words <= size:
        return _Growth(size - words, before, range(last.last_token + 1, count))
    # The text from its start to the phrase, less the words that are too many.
    return _Growth(words - size, (), range(min(last.last_token + 1, count - 1), -1, -1))


def _grown(tokens: Sequence[Token], growth: _Growth) -> tuple[int, int]:
    left, before, after = growth
    taken_before = taken_after = 0
    while left > 0 and (taken_before < len(before) or taken_after < len(after)):
        side = _next_side(tokens, before[taken_before:][:1], after[taken_after:][:1])
        # One of two: the second is taken only if something would still be left for it.
        take_after = side == _AFTER or (side == _BOTH and left > 1)
        if side != _AFTER:
            left -= tokens[before[taken_before]].kind == WORD
            taken_before += 1
        if take_after:
            left -= tokens[after[taken_after]].kind == WORD
            taken_after += 1
    start = tokens[before[taken_before]].end if taken_before < len(before) else 0
    end = tokens[after[taken_after]].start if taken_after < len(after) else tokens[-1].end if tokens else 0
    return start, end


def _next_side(tokens: Sequence[Token], before: Sequence[int], after: Sequence[int]) -> str:
    if not before:
        return _AFTER
    if not after:
        return _BEFORE
    return _GROWTH[tokens[before[0]].kind, tokens[after[0]].kind]
