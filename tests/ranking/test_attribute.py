"""The rules `attributeRank`, `wordPosition` and `attribute`.

What must hold:
1. A word costs the place of the best field that holds it; n-grams cost it for each of their words.
2. A list entry stands for the fields beneath it; entries that no field has stretch the scale.
3. By default all fields cost the same.
4. A word costs the more the further it is from its place in the query, by the table of docs/ranking.md#word-position.
5. The best position of any field counts, whatever `attributesToSearchOn` says.
6. `attribute` is one entry of two scores; the other two are entries of their own.
"""
from __future__ import annotations

import pytest

from tests.support.dict_reader import DictReader
from tests.support.searching import details_of, titled

pytestmark = pytest.mark.usefixtures("both_evaluators")

RANKED = {"searchableAttributes": ["title", "body", "nowhere"]}


def scores_of(reader: DictReader, q: str, rule: str, **asked: list[str]) -> dict[int, float]:
    return {hit: view[rule]["score"] for hit, view in details_of(reader, q, **asked).items()}


def test_best_field_counts() -> None:
    documents = [{"id": 1, "body": "star"}, {"id": 2, "title": "star", "body": "star"}]
    assert scores_of(DictReader(documents, RANKED), "star", "attributeRank") == {2: 1.0, 1: 2 / 3}


def test_words_add_up() -> None:
    documents = [{"id": 1, "title": "star", "body": "wars"}, {"id": 2, "title": "star wars"}]
    assert scores_of(DictReader(documents, RANKED), "star wars ", "attributeRank") == {2: 1.0, 1: 4 / 5}


def test_ngrams_cost_the_field_for_each_word() -> None:
    documents = [{"id": 1, "body": "starwars"}, {"id": 2, "title": "star", "body": "wars"}, {"id": 3, "title": "starwars"}]
    reader = DictReader(documents, {**RANKED, "rankingRules": ["words", "attributeRank"]})
    assert scores_of(reader, "star wars ", "attributeRank") == {3: 1.0, 2: 4 / 5, 1: 3 / 5}


def test_fields_beneath_an_entry_weigh_as_it() -> None:
    documents = [{"id": 1, "body": {"x": "star"}}, {"id": 2, "title": {"y": "star"}}]
    assert scores_of(DictReader(documents, RANKED), "star", "attributeRank") == {2: 1.0, 1: 2 / 3}


def test_by_default_all_fields_weigh_the_same() -> None:
    documents = [{"id": 1, "body": "star"}, {"id": 2, "title": "star"}]
    assert scores_of(DictReader(documents), "star", "attributeRank") == {1: 1.0, 2: 1.0}


# Positions from 16 on are kept coarsely: 16 as 24, 24 as 32, 65 as 128, 300 as 512.
COSTS = [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (7, 3), (8, 4), (11, 4), (12, 5), (15, 5), (16, 6), (24, 7), (65, 8), (300, 9)]


@pytest.mark.parametrize(("position", "cost"), COSTS)
def test_cost_of_a_position(position: int, cost: int) -> None:
    reader = titled(" ".join(["x"] * position + ["star"]))
    assert scores_of(reader, "star", "wordPosition")[1] == pytest.approx((11 - cost) / 11)


def test_cost_of_a_position_far_from_a_late_word() -> None:
    """A position of 30 is kept as 32: 25 from the eighth word of the query."""
    query = "a b c d e f g star"
    reader = titled(" ".join(["a b c d e f g", *["x"] * 23, "star"]))
    assert scores_of(reader, query, "wordPosition") == {1: pytest.approx((81 - 7) / 81)}


def test_ngrams_cost_the_distance_of_each_word() -> None:
    reader = titled("starwars", "x starwars", "x x starwars", rankingRules=["words", "wordPosition"])
    # Costs of distance 0 and 1, 1 and 2, 2 and 3.
    costs = {1: 0 + 1, 2: 1 + 2, 3: 2 + 2}
    assert scores_of(reader, "star wars ", "wordPosition") == {hit: (21 - cost) / 21 for hit, cost in costs.items()}


def test_phrases_stand_where_their_first_word_does() -> None:
    reader = titled("star wars", "x star wars", "star x wars star wars", rankingRules=["words", "wordPosition"])
    assert scores_of(reader, '"star wars"', "wordPosition") == {1: 1.0, 3: 1.0, 2: 10 / 11}


def test_position_is_compared_with_the_place_in_the_query() -> None:
    reader = titled("star wars", "wars star")
    assert scores_of(reader, "star wars ", "wordPosition") == {1: 1.0, 2: 19 / 21}


def test_best_position_of_any_field_counts() -> None:
    reader = DictReader([{"id": 1, "title": "x x x star", "body": "star"}])
    assert scores_of(reader, "star", "wordPosition", attributes_to_search_on=["title"]) == {1: 1.0}


def test_attribute_is_one_entry() -> None:
    reader = titled("x star", rankingRules=["words", "attribute"])
    assert details_of(reader, "star")[1] == {
        "words": {"order": 0, "matchingWords": 1, "maxMatchingWords": 1, "score": 1.0},
        "attribute": {
            "order": 1,
            "attributeRankingOrderScore": 1.0,
            "queryWordDistanceScore": 10 / 11,
            "score": 10 / 11,
        },
    }
