"""Find the words of an index that are one or two typos away from a query word (docs/ranking.md#typos).

The search uses the sorted list of the words with one first character. The words that start with a string are a range of this
list. For one typo, the search looks up the range of each string that an edit near the end of the query word makes; to insert or
replace a character, it tries only characters that some word has at this position. For an edit further ahead, it scans the words
for the unchanged end. For two typos, it collects words with a prefix one edit from the left half and the rest at most one edit
from the right half, and words that contain one half unchanged, and computes their distances. The tests compare the result with
the distance to every word.
"""
from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import Callable, NamedTuple, Sequence

from svcd.query.reader import WORD_MARK, Vocabulary

ONE_TYPO_WORDS = 150
TWO_TYPO_WORDS = 50

_LAST_CHARACTER = "\U0010ffff"
_ANY_LENGTH = 250
_UNCHANGED = 3  # characters at the end of a word that a search for one typo finds by scanning all words with its first character
_MOST_SCANNED = 100_000  # characters: scanning more takes longer than trying the characters of each position

# Words that begin with the same string: the index of the first word, of the word after the last one, the length of the string.
Range = tuple[int, int, int]


class Typos(NamedTuple):
    """Words with one typo and words with two, each in byte order and up to a limit."""

    one: list[str]
    two: list[str]


def typos(vocabulary: Vocabulary, word: str, budget: int, is_prefix: bool, accepts: Callable[[str], bool]) -> Typos:
    """Return the words that a query word matches with typos. budget: 0, 1 or 2 typos.

    accepts: returns whether a typo may reach a word, which must have tolerant occurrences.
    """
    if budget == 1:
        accepted = filter(accepts, _one_typo_words(vocabulary, word, is_prefix))
        return Typos(list(islice(accepted, ONE_TYPO_WORDS)), [])
    one: list[str] = []
    two: list[str] = []
    if budget < 2:
        return Typos(one, two)
    words = vocabulary.words_with_prefix(word[0])
    # A superset of the words within two typos: either each half of the word has one typo, or one half has zero.
    maybe = _with_an_edit_in_each_half(words, word, is_prefix)
    maybe |= _sharing_a_half(words, vocabulary.joined_words(word[0]), word, is_prefix)
    maybe |= _maybe_other_first_character(vocabulary, word, is_prefix)
    if is_prefix:  # words with the prefix are at distance 0, and their number can be very large
        maybe = {near for near in maybe if not near.startswith(word)}
    for near in sorted(maybe):
        # A wrong first character counts as two typos and leaves none for the rest; 3 means too many.
        if near[0] == word[0]:
            typo_count = distance(word, near, 2, is_prefix)
        elif is_prefix:
            typo_count = 2 if distance(word, near, 1, True) <= 1 else 3
        else:
            typo_count = 2 if is_one_edit(word, near) else 3
        found, cap = (one, ONE_TYPO_WORDS) if typo_count == 1 else (two, TWO_TYPO_WORDS)
        if typo_count in (1, 2) and len(found) < cap and accepts(near):
            found.append(near)
        if len(one) == ONE_TYPO_WORDS and len(two) == TWO_TYPO_WORDS:
            break
    return Typos(one, two)


# The distance


def distance(term: str, word: str, most: int, is_prefix: bool) -> int:
    """Return the number of edits (insert, delete, replace, swap neighbours) from the term to the word; at most `most` + 1.

    For a prefix: the number of edits to the shortest beginning of the word that is within `most` edits of the term and no
    nearer to any shorter part of the term; to the whole word if no beginning is.
    """
    if not is_prefix and abs(len(term) - len(word)) > most:
        return most + 1
    if term == word or (is_prefix and word.startswith(term)):
        return 0
    # The common beginning and, for whole words, the common end need no edit.
    shorter = min(len(term), len(word))
    start = end = 0
    while start < shorter and term[start] == word[start]:
        start += 1
    while not is_prefix and end < shorter - start and term[-1 - end] == word[-1 - end]:
        end += 1
    return _distance_by_columns(term[start : len(term) - end], word[start : len(word) - end], most, is_prefix)


def is_one_edit(term: str, word: str) -> bool:
    """Return whether the distance of two whole words is exactly 1: a common beginning, one edit, and the same rest."""
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
    last_minimum, previous = 0, ""
    for index, character in enumerate(word, 1):
        # The distances of all beginnings of the term to the first `index` characters of the word.
        column = [index]
        above, earlier = index, ""
        for row, own in enumerate(term):
            cost = last[row]
            if own != character:
                if last[row + 1] < cost:
                    cost = last[row + 1]
                if above < cost:
                    cost = above
                if own == previous and earlier == character and before[row - 1] < cost:
                    cost = before[row - 1]
                cost += 1
            column.append(cost)
            above, earlier = cost, own
        minimum = min(column)
        if is_prefix and column[-1] <= most and column[-1] == minimum:
            return minimum
        # A swap uses the last two columns, so both must exceed the limit.
        if minimum > most and last_minimum > most:
            return most + 1
        before, last, last_minimum, previous = last, column, minimum, character
    return min(last[-1], most + 1)


# Words that can be near


def _one_typo_words(vocabulary: Vocabulary, word: str, is_prefix: bool) -> list[str]:
    """Return the words with the same first character that are one edit away, or begin so for a prefix, in byte order."""
    words, joined = vocabulary.words_with_prefix(word[0]), vocabulary.joined_words(word[0])
    # An edit before the cut leaves the rest of the word unchanged. Only an edit after it is tried character by character.
    cut = max(len(word) - _UNCHANGED, 1) if len(joined) <= _MOST_SCANNED else 1
    left, right = word[:cut], word[cut:]
    ranges = _one_edit_ranges(words, word, cut)
    near: set[str] = set()
    if cut > 1:
        ranges += _range_of(words, left[:-1] + right[0] + left[-1] + right[1:], 0, len(words))  # swapped around the cut
        part = right if is_prefix else right + WORD_MARK
        at = joined.find(part)
        while at >= 0:
            start = joined.rindex(WORD_MARK, 0, at) + 1
            if cut - 1 <= at - start <= cut + 1 and is_one_edit(left, joined[start:at]):
                near.add(joined[start:joined.index(WORD_MARK, at)])
            at = joined.find(part, at + 1)
    for low, high, length in ranges:
        near.update(words[low:high] if is_prefix else words[low:low + (len(words[low]) == length)])
    # Distance 0: the word itself, reached by a swap of two equal characters, and words that begin with a prefix.
    return sorted(found for found in near if (not found.startswith(word) if is_prefix else found != word))


def _sharing_a_half(words: Sequence[str], joined: str, word: str, is_prefix: bool) -> set[str]:
    """Return words that contain one half of the word without typos, or with the characters around the cut swapped."""
    cut = len(word) // 2
    left, right = word[:cut], word[cut:]
    swapped = right[:1] + left[-1:]
    close = "" if is_prefix else WORD_MARK  # a mark in a part is an end of a word
    shortest, longest = len(word) - 2, len(word) + (_ANY_LENGTH if is_prefix else 2)
    near: set[str] = set()
    for part in (left, left[:-1] + swapped):
        low, high = bisect_left(words, part), bisect_left(words, part + _LAST_CHARACTER)
        near.update([found for found in words[low:high] if shortest <= len(found) <= longest])
    for part in (right + close, swapped + right[1:] + close):
        at = joined.find(part)
        while 0 <= at < len(joined) - 1:  # no word starts at the last mark
            start = at if joined[at] == WORD_MARK else joined.rindex(WORD_MARK, 0, at)
            end = joined.index(WORD_MARK, start + 1)
            if shortest <= end - start - 1 <= longest:
                near.add(joined[start + 1 : end])
            at = joined.find(part, end)
    return {found for found in near if found[0] == word[0]}


def _with_an_edit_in_each_half(words: Sequence[str], word: str, is_prefix: bool) -> set[str]:
    """Return words with a prefix one edit from the left half; the rest may be at most one edit from the right half."""
    cut = max(1, len(word) // 2)
    right = word[cut:]
    middle = len(right) // 2
    # One edit leaves the beginning or the end of the right half unchanged, or swaps the characters between them.
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
    """Return words with a different first character: it uses up both typos, so the rest must be the same."""
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


def _one_edit_ranges(words: Sequence[str], text: str, start: int = 1) -> list[Range]:
    """Return the ranges of words that begin with a string that an edit behind the first `start` characters of a text makes.

    words: in byte order, all with the first character of the text. The ranges are not empty, in no order, with duplicates.
    Inserted and replaced characters are characters of words at this position.
    """
    found: list[Range] = []
    low, high = 0, len(words)
    if start > 1:
        low = bisect_left(words, text[:start])
        high = bisect_left(words, text[:start] + _LAST_CHARACTER, low)
    for at in range(start, len(text) + 1):  # words[low:high] begin with text[:at]
        if low == high:
            break
        begin, rest, after = text[:at], text[at:], text[at + 1:]
        if rest:
            found += _range_of(words, begin + after, low, high)
        if after:
            found += _range_of(words, begin + after[0] + rest[0] + after[1:], low, high)
        same = high, high
        current = low + (words[low] == begin)  # this word ends here
        while current < high:
            character = words[current][at]
            end = bisect_left(words, begin + character + _LAST_CHARACTER, current, high)
            found += _range_of(words, begin + character + rest, current, end)  # inserted
            if character == rest[:1]:
                same = current, end
            elif rest:
                found += _range_of(words, begin + character + after, current, end)  # replaced
            current = end
        low, high = same
    return found


def _range_of(words: Sequence[str], form: str, low: int, high: int) -> tuple[Range, ...]:
    """Return the range of the words that begin with a string, within words[low:high]; nothing if it is empty."""
    first = bisect_left(words, form, low, high)
    if first == high or not words[first].startswith(form):
        return ()
    return (first, bisect_left(words, form + _LAST_CHARACTER, first, high), len(form)),
