"""Which result lists can be merged (docs/search.md#compatible-orders). What must hold:

1. Lists are compatible if the kinds of their steps agree, as far as the shorter list goes.
2. Neighbouring relevancy rules are one step; each expression of `sort` is one.
3. Rules without effect are removed first, and an error message lists what was changed.
4. A list is compared with the longest one so far; of equally long ones with the later.
5. An error names the rules by their index in the remaining settings, and in `sort`.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.ranking.sort import parse_rule
from svcd.search.compatibility import Compatibility, Incompatible, QueryOrder

DEFAULT = ["words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"]


def ordered(number: int, rules: list[str], *sort: str, **members: Any) -> QueryOrder:
    """A query of the index `i`; sort: "-" for an empty list."""
    parsed = None if not sort else [] if sort == ("-",) else [parse_rule(rule) for rule in sort]
    return QueryOrder(number, "i", rules, parsed, **members)


def refusal(*queries: QueryOrder) -> str | None:
    """Why the queries can't be merged, None if they can."""
    compatibility = Compatibility()
    try:
        for query in queries:
            compatibility.add(query)
    except Incompatible as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((["words"],), (DEFAULT,)),
        ((["words", "sort", "exactness"], "a:asc"), (["typo", "b:asc", "exactness"],)),
        ((["words", "sort"], "a:asc"), (["words", "sort"], "b:asc", "c:desc")),
        ((["words", "sort", "exactness"], "-"), (["words", "typo", "a:desc"],)),
        ((["sort"], "_geoPoint(1,2):asc"), (["sort"], "_geoPoint(3,4):asc")),
        (([],), (["a:asc"],)),
    ],
)
def test_lists_of_the_same_kinds_agree(left: tuple, right: tuple) -> None:
    assert refusal(ordered(0, *left), ordered(1, *right)) is None
    assert refusal(ordered(0, *right), ordered(1, *left)) is None


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (["words"], ["a:asc"], "cannot compare a relevancy rule with a sort rule"),
        (["words"], ["_geoPoint(1,2):asc"], "cannot compare a relevancy rule with a geosort rule"),
        (["a:asc"], ["a:desc"], "cannot compare two sort rules in opposite directions"),
        (["a:asc"], ["_geoPoint(1,2):asc"], "cannot compare a sort rule with a geosort rule"),
        (["_geoPoint(1,2):asc"], ["_geoPoint(1,2):desc"], "cannot compare two geosort rules in opposite directions"),
    ],
)
def test_the_reason_of_a_refusal(left: list[str], right: list[str], reason: str) -> None:
    def made(number: int, rules: list[str]) -> QueryOrder:
        return ordered(number, rules) if rules == ["words"] else ordered(number, ["sort"], *rules)

    for first, second in ((left, right), (right, left)):
        message = refusal(made(0, first), made(1, second))
        assert message is not None and f"\n  - {reason}\n" in message


def test_a_refusal_names_rules_and_places() -> None:
    assert refusal(ordered(3, DEFAULT, "a:asc", "b:desc"), ordered(5, ["proximity", "c:asc", "sort"], "_geoPoint(1,2):desc")) == (
        "The results of queries #3 and #5 are incompatible: \n"
        "  1. `queries[3].sort[1]`, `i.rankingRules[4]`: descending sort rule(s) on field `b`\n"
        "  2. `queries[5].sort[0]`, `i.rankingRules[3]`: descending geo sort rule(s) default\n"
        "  - cannot compare a sort rule with a geosort rule\n"
        "  - note: The ranking rules of query #5 were modified during canonicalization:\n"
        "    1. Prepended rule `words` before first relevancy rule `proximity` at position #0 in ranking rules\n"
    )


def notes(query: QueryOrder) -> list[str]:
    """What the refusal says of the changes to the first query."""
    against = ordered(9, ["sort"], *["_geoPoint(1,2):asc"] * 1)
    message = refusal(query, against) or ""
    return [line for line in message.splitlines()[4:] if line.strip()[0].isdigit()]


def test_what_is_left_out_is_listed() -> None:
    assert notes(ordered(0, ["typo", "words", "typo", "words"])) == [
        "    1. Prepended rule `words` before first relevancy rule `typo` at position #0 in ranking rules",
        "    2. Removed rule `words` at position #1 in ranking rules because it was previously prepended",
        "    3. Removed duplicate rule `typo` at position #2 in ranking rules as it already appears at position #0 in "
        "ranking rules",
        "    4. Removed duplicate rule `words` at position #3 in ranking rules as it already appears at position #1 in "
        "ranking rules",
    ]
    assert notes(ordered(0, ["typo", "words"], keeps_all_words=True)) == [
        "    1. Removed rule `words` at position #1 in ranking rules because `query.matchingWords` is set to `all`"]
    assert notes(ordered(0, ["words", "words", "sort"])) == [
        "    1. Removed duplicate rule `words` at position #1 in ranking rules as it already appears at position #0 in "
        "ranking rules",
        "   2. Removed rule `sort` at position #2 in ranking rules because `query.sort` is empty",
    ]
    assert notes(ordered(0, ["words", "a:asc", "sort", "b:desc", "sort"], "a:desc", "b:asc", "b:asc")) == [
        "    1. Removed duplicate rule `a:asc` at position #0 in `query.sort` (as `sort` is #2 in ranking rules) as "
        "it already appears at position #1 in ranking rules",
        "    2. Removed duplicate rule `b:asc` at position #2 in `query.sort` (as `sort` is #2 in ranking rules) as "
        "it already appears at position #1 in `query.sort` (as `sort` is #2 in ranking rules)",
        "    3. Removed duplicate rule `b:asc` at position #3 in ranking rules as it already appears at position #1 in "
        "`query.sort` (as `sort` is #2 in ranking rules)",
        "    4. Removed duplicate rule `sort` at position #4 in ranking rules as it already appears at position #2 in "
        "ranking rules",
    ]


def test_a_rule_that_is_met_again_is_called_as_where_it_was_met_first() -> None:
    assert [line.partition(" at position")[0] for line in notes(ordered(
        0, ["words", "sort"], "_geoPoint(1,2):desc", "_geoPoint(3,4):asc", "_geoPoint(5,6):asc"))] == [
        "    1. Removed duplicate rule `_geo(..):desc`", "    2. Removed duplicate rule `_geo(..):desc`"]


def test_words_stay_where_they_stood_though_they_are_said_to_be_removed() -> None:
    message = refusal(ordered(0, ["typo", "a:asc", "words", "sort"], "b:asc"), ordered(1, ["words", "b:asc", "c:asc"]))
    assert message is not None
    assert "\n  1. `queries[0]`, `i.rankingRules[3]`: relevancy rule(s) words\n" in message
    message = refusal(ordered(0, ["typo", "words", "exactness"]), ordered(1, ["a:asc"]))
    assert message is not None
    assert "  1. `queries[0]`, `i.rankingRules[0..=3]`: relevancy rule(s) words, typo, words, exactness\n" in message


def test_a_placeholder_has_no_relevancy() -> None:
    assert refusal(ordered(0, DEFAULT, "a:asc", has_text=False), ordered(1, ["a:asc", "words"])) is None
    assert refusal(ordered(0, DEFAULT, has_text=False), ordered(1, ["a:asc", "words"])) is None


def test_vectors_stand_for_the_first_relevancy_rule() -> None:
    by_vectors = ordered(0, ["words", "typo", "sort", "a:asc", "exactness", "b:asc"], is_semantic=True)
    assert refusal(by_vectors, ordered(1, ["typo", "a:asc", "words"])) is None  # both lists end with the field
    assert notes(by_vectors) == [
        "    1. Removed relevancy rule `typo` at position #1 in ranking rules because the query is a vector search and `vector` was "
        "already inserted at position #0 in ranking rules",
        "   2. Removed rule `sort` at position #2 in ranking rules because `query.sort` is empty",
        "    3. Truncated relevancy rule `exactness` at position #4 in ranking rules and later rules because the query is a vector "
        "search and `vector` was inserted at position #0 in ranking rules",
    ]
    message = refusal(ordered(0, ["a:asc", "typo"], is_semantic=True), ordered(1, ["a:asc", "b:asc"]))
    assert message is not None and "  1. `queries[0]`, `i.rankingRules[1]`: relevancy rule(s) typo\n" in message


def test_the_longest_order_is_the_one_to_agree_with() -> None:
    short, ascending, descending = ordered(0, []), ordered(1, ["a:asc"]), ordered(2, ["a:desc"])
    for queries in ((short, ascending, descending), (ascending, short, descending)):
        message = refusal(*queries)
        assert message is not None and message.startswith("The results of queries #1 and #2 are incompatible")
    same = ordered(7, ["b:asc"])
    message = refusal(ascending, same, descending)
    assert message is not None and message.startswith("The results of queries #7 and #2 are incompatible")
