"""Which words of an index are one or two typos away from a query word (docs/ranking.md#typos).

A search takes two steps: regular expressions and string searches over the joined words of one first character find all
words that can be near, and some more; then the distance is computed for these few. The tests compare the result with
the distance to every word.
"""
from __future__ import annotations

import re
from functools import lru_cache
from typing import Callable, Iterable, Iterator, NamedTuple, Protocol, Sequence

from svcd.query.reader import WORD_MARK

ONE_TYPO_WORDS = 150
TWO_TYPO_WORDS = 50

# From this length on few words share a half of the word, so finding these is quicker than compiling and running a
# pattern. Shorter words have halves that too many words share.
LONG_WORD = 8

# Compiled patterns that are kept, a few kilobytes each; compiling one takes as long as a search.
_CACHED_PATTERNS = 256


class Vocabulary(Protocol):
    """The part of a Reader that typos need."""

    def has_word(self, word: str) -> bool: ...
    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]: ...
    def first_characters(self) -> Sequence[str]: ...
    def joined_words(self, character: str) -> str: ...


class Typos(NamedTuple):
    """Words at one typo and at two, each in byte order, the first ones up to its limit."""

    one: list[str]
    two: list[str]


def typos(
    vocabulary: Vocabulary, word: str, budget: int, is_prefix: bool, accepts: Callable[[str], bool]
) -> Typos:
    """The words that a query word with a budget of 0, 1 or 2 typos may match with typos.

    accepts: may a word be reached by a typo at all (has it tolerant occurrences)?
    """
    if budget == 1:
        return _one_typo(vocabulary, word, is_prefix, accepts)
    if budget == 2:
        return _two_typos(vocabulary, word, is_prefix, accepts)
    return Typos([], [])


def _one_typo(
    vocabulary: Vocabulary, word: str, is_prefix: bool, accepts: Callable[[str], bool]
) -> Typos:
    found: list[str] = []
    for near in _maybe_one_typo(vocabulary, word, is_prefix):
        is_near = distance(word, near, 1, True) == 1 if is_prefix else is_one_edit(word, near)
        if is_near and accepts(near):
            found.append(near)
            if len(found) == ONE_TYPO_WORDS:
                break
    return Typos(found, [])


def _two_typos(
    vocabulary: Vocabulary, word: str, is_prefix: bool, accepts: Callable[[str], bool]
) -> Typos:
    one: list[str] = []
    two: list[str] = []
    for near in sorted(_maybe_two_typos(vocabulary, word, is_prefix)):
        typo_count = _typo_count(word, near, is_prefix)
        found, cap = (one, ONE_TYPO_WORDS) if typo_count == 1 else (two, TWO_TYPO_WORDS)
        if typo_count in (1, 2) and len(found) < cap and accepts(near):
            found.append(near)
        if len(one) == ONE_TYPO_WORDS and len(two) == TWO_TYPO_WORDS:
            break
    return Typos(one, two)


def _typo_count(word: str, near: str, is_prefix: bool) -> int:
    """A wrong first character counts as two typos and leaves no other; 3 stands for too many."""
    if near[0] == word[0]:
        return distance(word, near, 2, is_prefix)
    if is_prefix:
        return 2 if distance(word, near, 1, True) <= 1 else 3
    return 2 if is_one_edit(word, near) else 3


# The distance


def distance(term: str, word: str, most: int, is_prefix: bool) -> int:
    """The edits (insert, delete, replace, swap neighbours) from the term to the word; `most` + 1 if more.

    For a prefix: to the shortest beginning of the word that is within `most` edits of the term and no nearer to any
    shorter part of the term; to the whole word if there is none.
    """
    if not is_prefix and abs(len(term) - len(word)) > most:
        return most + 1
    if term == word or (is_prefix and word.startswith(term)):
        return 0
    if is_prefix:
        return _distance_by_columns(term, word, most, True)
    return _distance_by_columns(*_without_common_ends(term, word), most, False)


def _without_common_ends(term: str, word: str) -> tuple[str, str]:
    """Two different words without their common beginning and end, which need no edit."""
    shorter = min(len(term), len(word))
    start = 0
    while start < shorter and term[start] == word[start]:
        start += 1
    end = 0
    while end < shorter - start and term[-1 - end] == word[-1 - end]:
        end += 1
    return term[start : len(term) - end], word[start : len(word) - end]


def is_one_edit(term: str, word: str) -> bool:
    """Is the distance of two whole words exactly 1: after their common beginning, one edit and the same rest?"""
    longer = len(term) - len(word)
    if not -1 <= longer <= 1 or term == word:
        return False
    at = 0
    while term[at : at + 1] == word[at : at + 1]:
        at += 1
    if longer:
        return term[at + (longer > 0) :] == word[at + (longer < 0) :]
    is_swapped = term[at : at + 2] == word[at : at + 2][::-1]
    return term[at + 1 :] == word[at + 1 :] or (is_swapped and term[at + 2 :] == word[at + 2 :])


def _distance_by_columns(term: str, word: str, most: int, is_prefix: bool) -> int:
    before: list[int] = []
    last = list(range(len(term) + 1))
    last_minimum = 0
    previous = ""
    for index, character in enumerate(word, 1):
        column = _column(term, character, previous, index, last, before)
        minimum = min(column)
        if is_prefix and column[-1] <= most and column[-1] == minimum:
            return minimum
        # A swap reaches back two columns, so both must be too far.
        if minimum > most and last_minimum > most:
            return most + 1
        before, last, last_minimum, previous = last, column, minimum, character
    return min(last[-1], most + 1)


def _column(
    term: str, character: str, previous: str, index: int, last: list[int], before: list[int]
) -> list[int]:
    """Distances of every beginning of the term to the first `index` characters of the word."""
    column = [index]
    above = index
    earlier = ""
    for row, own in enumerate(term):
        if own == character:
            cost = last[row]
        else:
            cost = 1 + min(last[row], last[row + 1], above)
            if own == previous and earlier == character:
                cost = min(cost, before[row - 1] + 1)
        column.append(cost)
        above = cost
        earlier = own
    return column


# Finding the words that can be near


def _maybe_one_typo(vocabulary: Vocabulary, word: str, is_prefix: bool) -> Iterable[str]:
    """All words with the same first character that can be within one typo, and some that are not; in byte order."""
    joined = vocabulary.joined_words(word[0])
    if len(word) < LONG_WORD:
        return _matching_words(_one_typo_pattern(word, is_prefix), joined, is_prefix)
    return sorted(_sharing_a_half(joined, word, is_prefix))


def _maybe_two_typos(vocabulary: Vocabulary, word: str, is_prefix: bool) -> set[str]:
    """All words that can be within two typos, and some that are not: each half of the word has one, or one half none."""
    joined = vocabulary.joined_words(word[0])
    near = set(_matching_words(_two_halves_pattern(word, is_prefix), joined, is_prefix))
    near |= _sharing_a_half(joined, word, is_prefix)
    near |= _maybe_other_first_character(vocabulary, word, is_prefix)
    if is_prefix:  # these are at distance 0, and can be very many
        return {found for found in near if not found.startswith(word)}
    return near


def _sharing_a_half(joined: str, word: str, is_prefix: bool) -> set[str]:
    """Words that contain one half of the word without any typo, or with the characters around the cut swapped."""
    cut = len(word) // 2
    left, right = word[:cut], word[cut:]
    swapped = right[:1] + left[-1:]
    close = "" if is_prefix else WORD_MARK
    near: set[str] = set()
    for part in (left, left[:-1] + swapped):
        near.update(_words_around(joined, WORD_MARK + part))
    for part in (right, swapped + right[1:]):
        near.update(_words_around(joined, part + close))
    return {found for found in near if found[0] == word[0]}


def _maybe_other_first_character(vocabulary: Vocabulary, word: str, is_prefix: bool) -> set[str]:
    """Words with another first character: the one edit is spent there, so the rest must be the same."""
    rest = word[1:]
    forms = [rest, rest[:1] + word[:1] + rest[1:]]
    for character in vocabulary.first_characters():
        forms.append(character + rest)
        forms.append(character + word)
    if is_prefix:
        near = {found for form in forms if form for found in vocabulary.words_with_prefix(form)}
    else:
        near = {form for form in forms if form and vocabulary.has_word(form)}
    return {found for found in near if found[0] != word[0]}


def _matching_words(pattern: re.Pattern[str], joined: str, is_prefix: bool) -> Iterator[str]:
    for match in pattern.finditer(joined):
        if is_prefix:
            yield joined[match.start() + 1 : joined.index(WORD_MARK, match.end())]
        else:
            yield joined[match.start() + 1 : match.end()]


def _words_around(joined: str, part: str) -> Iterator[str]:
    """The words that contain the part (a WORD_MARK in the part is a border of the word)."""
    at = joined.find(part)
    while 0 <= at < len(joined) - 1:  # no word starts at the last mark
        start = at if joined[at] == WORD_MARK else joined.rindex(WORD_MARK, 0, at)
        end = joined.index(WORD_MARK, start + 1)
        yield joined[start + 1 : end]
        at = joined.find(part, end)


@lru_cache(maxsize=_CACHED_PATTERNS)
def _one_typo_pattern(word: str, is_prefix: bool) -> re.Pattern[str]:
    """Words with the same first character and at most one edit after it."""
    return _pattern(word[0], [_within_one_edit(word[1:])], is_prefix)


@lru_cache(maxsize=_CACHED_PATTERNS)
def _two_halves_pattern(word: str, is_prefix: bool) -> re.Pattern[str]:
    cut = max(1, len(word) // 2)
    halves = [_within_one_edit(word[1:cut]), _within_one_edit(word[cut:])]
    return _pattern(word[0], halves, is_prefix)


def _pattern(letter: str, parts: Iterable[str], is_prefix: bool) -> re.Pattern[str]:
    close = "" if is_prefix else f"(?={WORD_MARK})"
    body = "".join(f"(?:{part})" for part in parts)
    return re.compile(WORD_MARK + re.escape(letter) + body + close)


def _within_one_edit(text: str) -> str:
    """A pattern for all strings at most one edit away.

    Nested from the end, so that common beginnings are matched once: a(?:EDITS|b(?:EDITS|c...)).
    """
    pattern = ""
    for index in range(len(text), -1, -1):
        choices = _edits_at(text[index:])
        choices.append(f"{re.escape(text[index])}(?:{pattern})" if index < len(text) else "")
        pattern = "|".join(choices)
    return pattern


def _edits_at(rest: str) -> list[str]:
    """The patterns of one edit at the start of `rest`: insert, replace, delete, swap."""
    other = f"[^{WORD_MARK}]"
    edits = [other + re.escape(rest)]
    if rest:
        edits += [other + re.escape(rest[1:]), re.escape(rest[1:])]
    if len(rest) > 1:
        edits.append(re.escape(rest[1] + rest[0] + rest[2:]))
    return edits
