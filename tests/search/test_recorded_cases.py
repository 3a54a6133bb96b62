"""Searches of small indexes whose answers are known, from the query text to scores, typo counts and cropped texts.

What must hold, for each case of tests/contract:
1. the same hits in the same order, with the same scores and score details (score-cases);
2. the same estimated total (score-cases);
3. each word is found with the number of typos that it has, and no other word is (typo-cases);
4. the same formatted texts and the same positions of matches (crop-cases).
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.search.search import Federation
from tests.support.contract import table
from tests.support.dict_reader import DEFAULTS, DictReader
from tests.support.searching import answer, hits

pytestmark = pytest.mark.usefixtures("no_word_lists")
SHOWN = 6
NAMES = {"matchingStrategy": "matching_strategy", "sort": "sort", "rankingScoreThreshold": "ranking_score_threshold",
         "attributesToSearchOn": "attributes_to_search_on"}


def filled(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of a case; members of objects that it leaves out have their defaults."""
    objects = {name: {**DEFAULTS[name], **value} for name, value in given.items() if isinstance(DEFAULTS.get(name), dict)}
    return {**given, **objects}


def typo_settings(given: dict[str, Any]) -> dict[str, Any]:
    settings = filled(given)
    tolerance = settings.get("typoTolerance")
    if tolerance:
        tolerance["disableOnWords"] = [word.lower() for word in tolerance["disableOnWords"]]
    return settings


@pytest.mark.parametrize("case", table("score-cases")["cases"])
def test_hits_scores_and_totals_are_as_recorded(case: dict[str, Any]) -> None:
    reader = DictReader(case["documents"], typo_settings(case["settings"]))
    for row in case["searches"]:
        asked = {NAMES[name]: value for name, value in row["search"].items() if name != "q"}
        found = answer(reader, row["search"]["q"], Federation(limit=50), show_ranking_score=True,
                       show_ranking_score_details=True, **asked)
        shown = [json.loads(hit) for hit in found.hits[:SHOWN]]
        assert [[hit["id"], hit["_rankingScore"], hit["_rankingScoreDetails"]] for hit in shown] == row["hits"], row["search"]
        assert found.pagination["estimatedTotalHits"] == row["estimatedTotalHits"], row["search"]


@pytest.mark.parametrize("case", table("typo-cases")["cases"])
def test_words_are_found_with_the_typos_that_they_have(case: dict[str, Any]) -> None:
    documents = [{"id": number, "w": word} for number, word in enumerate(table("typo-cases")["documents"])]
    reader = DictReader(documents, typo_settings(case["settings"]))
    for q, most, by_count in case["queries"]:
        found: dict[str, list[int]] = {}
        highest: list[int] = []
        for hit in hits(reader, q, show_ranking_score_details=True):
            typo = hit["_rankingScoreDetails"]["typo"]
            highest.append(typo["maxTypoCount"])  # of the words that this hit was found by
            found.setdefault(str(typo["typoCount"]), []).append(hit["id"])
        assert {count: sorted(ids) for count, ids in found.items()} == by_count, q
        assert max(highest, default=None) == most, q


@pytest.mark.parametrize("case", table("crop-cases")["cases"])
def test_cropped_texts_and_match_positions_are_as_recorded(case: dict[str, Any]) -> None:
    reader = DictReader([case["document"]], typo_settings(case["settings"]))
    for q, crop_length, expected, positions in case["searches"]:
        found = hits(reader, q, attributes_to_highlight=["*"], attributes_to_crop=["*"], crop_length=crop_length,
                     show_matches_position=True)
        if not found:  # its positions are those of a document that is not found: formatting alone shows them
            continue
        (hit,) = found
        shown = {name: value for name, value in hit["_formatted"].items() if name != "id"}
        assert (q, shown, hit["_matchesPosition"]) == (q, expected, positions)
