"""Typo words and the typo rule.

What must hold:
1. The lists equal those of the distance to every word of the index, cut in byte order (1 typo: 150, 2 typos: 50).
2. A distance is that of the full table, with neighbours swapped as one edit.
3. A beginning is compared with the beginning of a word that is nearest to it.
4. Words of less than 5 characters forgive nothing, of less than 9 one typo, longer ones two.
5. A wrong first letter costs two typos; words with one typo never forgive it.
6. A word that begins with a prefix term costs no typo.
7. A word written in two parts is one typo away, also where typos are forbidden.
8. Two words written as one cost two typos, three words three.
9. Fewer typos come first; documents of equal typos stay together.
10. Words in disableOnWords, fields in disableOnAttributes and numbers under disableOnNumbers are found as typed only.
11. Where typo tolerance is disabled nothing but a split is forgiven.
"""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.query.reader import WORD_MARK
from svcd.query.typos import ONE_TYPO_WORDS, TWO_TYPO_WORDS, Typos, distance, is_one_edit, typos
from tests.support.dict_reader import DictReader
from tests.support.searching import details_of, found_ids, titled


class Words:
    """A vocabulary in memory."""

    def __init__(self, words: set[str]) -> None:
        self.words = sorted(words)

    def has_word(self, word: str) -> bool:
        return word in self.words

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> list[str]:
        return [word for word in self.words if word.startswith(prefix)][:limit]

    def first_characters(self) -> list[str]:
        return sorted({word[0] for word in self.words})

    def joined_words(self, character: str) -> str:
        words = self.words_with_prefix(character)
        return WORD_MARK + WORD_MARK.join(words) + WORD_MARK if words else ""


def full_table(term: str, word: str) -> list[list[int]]:
    """Distances of all beginnings of the term (rows) to all beginnings of the word (columns)."""
    table = [[row + column if not (row and column) else 0 for column in range(len(word) + 1)] for row in range(len(term) + 1)]
    for row in range(1, len(term) + 1):
        for column in range(1, len(word) + 1):
            replaced = table[row - 1][column - 1] + (term[row - 1] != word[column - 1])
            table[row][column] = min(table[row - 1][column] + 1, table[row][column - 1] + 1, replaced)
            is_swap = row > 1 and column > 1 and term[row - 1] == word[column - 2] and term[row - 2] == word[column - 1]
            if is_swap:
                table[row][column] = min(table[row][column], table[row - 2][column - 2] + 1)
    return table


def plain_distance(term: str, word: str, most: int, is_prefix: bool) -> int:
    """The distance by its definition, `most` + 1 for all that is further."""
    table = full_table(term, word)
    if is_prefix:
        for column in range(len(word) + 1):
            rows = [table[row][column] for row in range(len(term) + 1)]
            if rows[-1] <= most and rows[-1] == min(rows):
                return rows[-1]
    return min(table[-1][-1], most + 1)


def plain_typos(words: list[str], term: str, budget: int, is_prefix: bool) -> Typos:
    """The lists by their definition: every word is looked at."""
    one: list[str] = []
    two: list[str] = []
    for word in words:
        if word[0] != term[0]:
            if budget == 2 and plain_distance(term, word, 1, is_prefix) <= 1:
                two.append(word)
            continue
        typo_count = plain_distance(term, word, budget, is_prefix)
        (one if typo_count == 1 else two if typo_count == 2 <= budget else []).append(word)
    return Typos(one[:ONE_TYPO_WORDS], two[:TWO_TYPO_WORDS])


SOME_WORDS = st.text(alphabet="abcdé", min_size=1, max_size=11)
EDITS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abcdéx"), st.integers(0, 3)), max_size=3)


def edited(word: str, edits: list[tuple[int, str, int]]) -> str:
    """The word after some insertions, deletions, replacements and swaps."""
    for place, letter, kind in edits:
        at = min(place, len(word))
        head, tail = word[:at], word[at:]
        word = (head + letter + tail, head + tail[1:], head + letter + tail[1:], head + tail[1:2] + tail[:1] + tail[2:])[kind]
    return word


@given(SOME_WORDS, SOME_WORDS, st.sampled_from([1, 2]), st.booleans())
def test_distance_is_that_of_the_full_table(term: str, word: str, most: int, is_prefix: bool) -> None:
    assert distance(term, word, most, is_prefix) == plain_distance(term, word, most, is_prefix)


@given(SOME_WORDS, EDITS)
def test_one_edit_is_a_distance_of_one(term: str, edits: list[tuple[int, str, int]]) -> None:
    word = edited(term, edits[:2])
    assert is_one_edit(term, word) == (plain_distance(term, word, 1, False) == 1)


@settings(max_examples=150, deadline=None)
@given(SOME_WORDS, st.lists(EDITS, max_size=40), st.sets(SOME_WORDS, max_size=20), st.sampled_from([1, 2]), st.booleans())
def test_lists_equal_those_of_looking_at_every_word(
    term: str, variants: list[Any], others: set[str], budget: int, is_prefix: bool
) -> None:
    near = {edited(term, edits) for edits in variants} - {""}
    words = Words(near | others | {word + "abc" for word in near})
    found = typos(words, term, budget, is_prefix, lambda word: True)
    assert found == plain_typos(words.words, term, budget, is_prefix)


@pytest.mark.parametrize("is_prefix", [False, True])
def test_lists_are_cut_in_byte_order(is_prefix: bool) -> None:
    words = Words({f"abcdefgh{chr(97 + i)}{chr(97 + j)}" for i in range(26) for j in range(26)})
    for term in ("abcdefghaa", "abcdefgaa", "xbcdefghaa"):
        found = typos(words, term, 2, is_prefix, lambda word: True)
        assert found == plain_typos(words.words, term, 2, is_prefix)
    assert (ONE_TYPO_WORDS, TWO_TYPO_WORDS) == (150, 50)


def test_words_out_of_reach_of_typos_take_no_place_in_the_lists() -> None:
    words = Words({f"abcd{chr(97 + i)}{chr(97 + j)}" for i in range(26) for j in range(26)})
    accepted = {word for word in words.words if word.endswith("z")}
    found = typos(words, "abcdz", 1, False, accepted.__contains__)
    assert found.one == [word for word in words.words if word in accepted and distance("abcdz", word, 1, False) == 1]


def typo_counts(reader: DictReader, q: str) -> dict[int, int]:
    """id -> typos, for the hits of a query."""
    return {hit: shown["typo"]["typoCount"] for hit, shown in details_of(reader, q).items()}


def test_budget_grows_with_length() -> None:
    reader = titled("star", "stars", "starlight", "starlights")
    assert typo_counts(reader, "stra ") == {}
    assert typo_counts(reader, "strars ") == {2: 1}
    assert typo_counts(reader, "starrlihgt ") == {3: 2}


def test_wrong_first_letter_costs_two_typos() -> None:
    reader = titled("starlight", "interstellar")
    assert typo_counts(reader, "ztarlight ") == {1: 2}
    assert typo_counts(reader, "zinterstellar ") == {2: 2}
    assert typo_counts(titled("stars"), "ztars ") == {}


def test_prefix_costs_no_typo() -> None:
    assert typo_counts(titled("starlight", "stark", "stat"), "star") == {1: 0, 2: 0}


def test_prefix_with_typo_reaches_longer_words() -> None:
    assert typo_counts(titled("starlight", "sunlight"), "strali") == {1: 1}


def test_split_is_one_typo_even_without_budget() -> None:
    reader = titled("sun day", "sunday", "day sun")
    assert typo_counts(reader, "sunday ") == {1: 1, 2: 0}
    reader = titled("a b", typoTolerance={"enabled": False})
    assert typo_counts(reader, "ab ") == {1: 1}


def test_words_written_as_one_cost_their_number() -> None:
    reader = titled("starwars", "star wars", "thestarwars", rankingRules=["words", "typo"])
    assert typo_counts(reader, "star wars ") == {2: 0, 1: 2}
    assert typo_counts(reader, "the star wars ")[3] == 3


def test_fewer_typos_come_first() -> None:
    reader = titled("interstelar", "interstellar", "intrstelar", "interstellar", rankingRules=["words", "typo"])
    assert found_ids(reader, "interstellar ") == [2, 4, 1, 3]


def test_words_out_of_tolerance_are_found_as_typed() -> None:
    reader = titled("stars", typoTolerance={"disableOnWords": ["Strars"]})
    assert typo_counts(reader, "strars ") == {}
    reader = DictReader([{"id": 1, "title": "stars"}, {"id": 2, "body": "stars"}],
                        {"typoTolerance": {"disableOnAttributes": ["title"]}})
    assert typo_counts(reader, "strars ") == {2: 1}
    assert typo_counts(reader, "stars ") == {1: 0, 2: 0}
    reader = titled("12345", "star5", typoTolerance={"disableOnNumbers": True})
    assert typo_counts(reader, "12346 ") == {}
    assert typo_counts(reader, "12345 ") == {1: 0}


def test_disabled_tolerance_forgives_nothing_but_a_split() -> None:
    reader = titled("stars", "st rars", typoTolerance={"enabled": False})
    assert typo_counts(reader, "strars ") == {2: 1}
