"""Which words of an index are one or two typos away from a query word (docs/ranking.md#typos).

Words are found in the sorted list of those with one first character. A string that is one edit away from the query word
is a range of that list, and where a character is inserted or replaced only those are tried that some word has at this
place. For two typos the same is done for the first half of the word; what is found then, and what has one half as it is,
has its distance computed. The tests compare the result with the distance to every word.
"""
from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import Callable, Iterator, NamedTuple, Protocol, Sequence

from svcd.query.reader import WORD_MARK

ONE_TYPO_WORDS = 150
TWO_TYPO_WORDS = 50

_LAST_CHARACTER = "\U0010ffff"
_ANY_LENGTH = 250


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
    near = _one_typo_words(vocabulary, word, is_prefix)
    return Typos(list(islice(filter(accepts, near), ONE_TYPO_WORDS)), [])


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
    return _distance_by_columns(*_without_common_ends(term, word, is_prefix), most, is_prefix)


def _without_common_ends(term: str, word: str, is_prefix: bool) -> tuple[str, str]:
    """Two different words without their common beginning and, if the term is no prefix, end: these need no edit."""
    shorter = min(len(term), len(word))
    start = 0
    while start < shorter and term[start] == word[start]:
        start += 1
    if is_prefix:
        return term[start:], word[start:]
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


def _one_typo_words(vocabulary: Vocabulary, word: str, is_prefix: bool) -> Iterator[str]:
    """The words with the same first character that are one edit away, in byte order; for a prefix, that begin so."""
    words = vocabulary.words_with_prefix(word[0])
    last = 0
    for low, high, length in sorted(_one_edit_ranges(words, word)):
        if not is_prefix:
            high = low + (len(words[low]) == length)
        for found in words[max(low, last):high]:
            # At distance 0 are the word itself, by a swap of two equal characters, and what begins with a prefix.
            if not found.startswith(word) if is_prefix else found != word:
                yield found
        last = max(last, high)


def _maybe_two_typos(vocabulary: Vocabulary, word: str, is_prefix: bool) -> set[str]:
    """All words that can be within two typos, and some that are not: each half of the word has one, or one half none."""
    words = vocabulary.words_with_prefix(word[0])
    near = _with_an_edit_in_each_half(words, word, is_prefix)
    near |= _sharing_a_half(words, vocabulary.joined_words(word[0]), word, is_prefix)
    near |= _maybe_other_first_character(vocabulary, word, is_prefix)
    if is_prefix:  # these are at distance 0, and can be very many
        return {found for found in near if not found.startswith(word)}
    return near


def _sharing_a_half(words: Sequence[str], joined: str, word: str, is_prefix: bool) -> set[str]:
    """Words that contain one half of the word without any typo, or with the characters around the cut swapped."""
    cut = len(word) // 2
    left, right = word[:cut], word[cut:]
    swapped = right[:1] + left[-1:]
    close = "" if is_prefix else WORD_MARK
    longest = len(word) + (_ANY_LENGTH if is_prefix else 2)
    near: set[str] = set()
    for part in (left, left[:-1] + swapped):
        low, high = _range_of(words, part, 0, len(words))
        near.update([found for found in words[low:high] if len(word) - 2 <= len(found) <= longest])
    for part in (right, swapped + right[1:]):
        near.update([found for found in _words_around(joined, part + close) if len(word) - 2 <= len(found) <= longest])
    return {found for found in near if found[0] == word[0]}


def _with_an_edit_in_each_half(words: Sequence[str], word: str, is_prefix: bool) -> set[str]:
    """Words of which a beginning is one edit away from the left half, and the rest may be one away from the right one."""
    cut = max(1, len(word) // 2)
    right = word[cut:]
    middle = len(right) // 2
    # One edit leaves the beginning or the end of the right half as it is, or swaps the characters between them.
    begin, end = right[:middle], right[middle:]
    swapped = begin[:-1] + end[:1]
    near: set[str] = set()
    for low, high, length in _one_edit_ranges(words, word[:cut]):
        for found in words[low:high]:
            rest = found[length:]
            if rest.startswith((begin, swapped)) or (end in rest if is_prefix else rest.endswith(end)):
                near.add(found)
    return near


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


def _one_edit_ranges(words: Sequence[str], text: str) -> list[tuple[int, int, int]]:
    """Ranges of words that begin with a string one edit away from the text, its first character kept.

    words: in byte order, all with that first character. Returns (first, end, length of the string) of ranges that are not
    empty, in no order, some twice. Where a character is inserted or replaced, only those that some word has there are tried.
    """
    found: list[tuple[int, int, int]] = []
    for form, low, high in _one_edit_forms(words, text):
        first = bisect_left(words, form, low, high)
        if first < high and words[first].startswith(form):
            found.append((first, bisect_left(words, form + _LAST_CHARACTER, first, high), len(form)))
    return found


def _one_edit_forms(words: Sequence[str], text: str) -> list[tuple[str, int, int]]:
    """(string, two indexes between which the words are that begin with it), for those ranges."""
    found: list[tuple[str, int, int]] = []
    low, high = 0, len(words)
    for at in range(1, len(text) + 1):  # words[low:high] begin with text[:at]
        begin, rest, after = text[:at], text[at:], text[at + 1:]
        if rest:
            found.append((begin + after, low, high))
        if after:
            found.append((begin + after[0] + rest[0] + after[1:], low, high))
        same = (high, high)
        current = low + (words[low:low + 1] == [begin])  # this word has no character here
        while current < high:
            character = words[current][at]
            end = bisect_left(words, begin + character + _LAST_CHARACTER, current, high)
            found.append((begin + character + rest, current, end))  # inserted
            if character == rest[:1]:
                same = current, end
            elif rest:
                found.append((begin + character + after, current, end))  # replaced
            current = end
        low, high = same
        if low == high:
            break
    return found


def _range_of(words: Sequence[str], form: str, low: int, high: int) -> tuple[int, int]:
    return bisect_left(words, form, low, high), bisect_left(words, form + _LAST_CHARACTER, low, high)


def _words_around(joined: str, part: str) -> Iterator[str]:
    """The words that contain the part (a WORD_MARK in the part is a border of the word)."""
    at = joined.find(part)
    while 0 <= at < len(joined) - 1:  # no word starts at the last mark
        start = at if joined[at] == WORD_MARK else joined.rindex(WORD_MARK, 0, at)
        end = joined.index(WORD_MARK, start + 1)
        yield joined[start + 1 : end]
        at = joined.find(part, end)
