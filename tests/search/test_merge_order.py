"""The order of merged hits (docs/search.md#merge-order). What must hold:

1. Scores are multiplied by their weight; scores within 2^-52 are equal.
2. Values are ordered as in a sort of their direction: numbers, strings, none.
3. The first different entry decides; the longer key is better, also if entries cannot be compared.
4. Equal hits are in the order of their queries.
5. Consecutive ranks are one score.
6. Equal hits of one query come in the order of a binary heap: a list goes on to its end, and the last list takes its place.
"""
from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import Ranked, Skipped, Sorted, score
from svcd.search.federation import MergedHit
from svcd.search.merge_order import Compared, MergeKey, compare, merge_keys, merged

WORDS, TYPO = Ranked("words", 2, 2), Ranked("typo", 2, 3)


def up(value: float | str | None, field: str = "a") -> Sorted:
    return Sorted(field, True, value)


def down(value: float | str | None, field: str = "a") -> Sorted:
    return Sorted(field, False, value)


def key(*compared: Compared, score: float = 1.0) -> MergeKey:
    return MergeKey(compared, score)


@pytest.mark.parametrize(
    "better_to_worse",
    [
        [key(0.9), key(0.5)],
        [key(0.5, up(1.0)), key(0.5 + 2.0 ** -53, up(2.0))],
        [key(up(value)) for value in (-1.0, 10.0, "10", "a", "b", None)],
        [key(down(value)) for value in (10.0, -1.0, "b", "a", "10", None)],
        [key(up(1.0, "a")), key(up(2.0, "b"))],
        [key(0.5, up(None)), key(0.5)],
        [key(0.5), key()],
        [key(0.1, up(1.0), 0.5), key(down(1.0))],
        [key(0.5, up(1.0)), key(0.5, down(1.0), score=0.5)],
    ],
)
def test_which_hit_is_better(better_to_worse: list[MergeKey]) -> None:
    for left, right in permutations(range(len(better_to_worse)), 2):
        order = compare(better_to_worse[left], better_to_worse[right])
        assert order and (order < 0) == (left < right)


def test_equal_hits_are_equal() -> None:
    assert compare(key(0.5, up("x", "a")), key(0.5 + 2.0 ** -53, up("x", "b"), score=9.0)) == 0
    assert compare(key(up(None)), key(up(None))) == 0


def test_ranks_that_follow_each_other_are_one_score() -> None:
    details = (WORDS, TYPO, up(1.0), Ranked("exactness", 1, 2), Skipped())
    found = merge_keys(0.5)(details)
    assert found.compared == (score((WORDS, TYPO)) / 2, up(1.0), 0.0)
    assert found.score == score(details) / 2
    assert merge_keys(2.0)(()) == ((), 2.0)


VALUES = [1.0, 2.0, "x", None]


@given(st.lists(st.lists(st.tuples(st.integers(0, 4).map(lambda part: part / 4), st.sampled_from(VALUES))), max_size=4))
def test_merged_lists_are_sorted_and_keep_every_hit(lists: list[list[tuple]]) -> None:
    made = [[MergedHit(Hit(docid, ()), key(first, up(value)), number, None) for docid, (first, value) in
             enumerate(sorted(listed, key=lambda each: (-each[0], VALUES.index(each[1]))))]
            for number, listed in enumerate(lists)]
    found = list(merged(made))
    assert sorted((each.number, each.hit.docid) for each in found) == [
        (each.number, each.hit.docid) for listed in made for each in listed]
    for left, right in zip(found, found[1:]):
        order = compare(left.key, right.key)
        assert order < 0 or order == 0 and left.number <= right.number


def test_a_list_that_ends_is_replaced_by_the_last_one() -> None:
    """As five remotes and this instance are merged: the first list, and then the last one back to the second."""
    lists = [[MergedHit(Hit(10 * place + number, ()), key(0.5), 0, None) for number in range(2)] for place in range(6)]
    assert [hit.hit.docid // 10 for hit in merged(lists)] == [0, 0, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1]


@given(st.lists(st.lists(st.integers(0, 5)), max_size=6))
def test_merged_lists_are_sorted_and_whole(scores: list[list[int]]) -> None:
    lists = [[MergedHit(Hit(0, ()), key(float(score)), place, None) for score in sorted(several, reverse=True)]
             for place, several in enumerate(scores)]
    found = [(-hit.key.compared[0], hit.number) for hit in merged(lists)]
    assert found == sorted((-score, place) for place, several in enumerate(scores) for score in several)
