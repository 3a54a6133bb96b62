"""Fusion of the list by words with the list by vectors (docs/search.md#fusion)."""
from __future__ import annotations

import pytest

from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import Ranked, VectorSorted, score
from svcd.search import semantic
from svcd.search.fusion import RRF, SCORE, fused
from svcd.search.request import Federation, Hybrid
from tests.support.dict_reader import DictReader
from tests.support.searching import answer, found_ids, hits

WORDS = [Hit(docid, (Ranked("bm25", rank, 100),)) for docid, rank in ((1, 80), (2, 40), (3, 20))]
VECTORS = [Hit(docid, (VectorSorted(similarity),)) for docid, similarity in ((3, 0.9), (4, 0.7), (1, 0.6))] + [
    Hit(2, (VectorSorted(None),))]


def _scores(kind: str, ratio: float, k: int = 60, are_cosines: bool = True) -> dict[int, float]:
    return {hit.docid: score(hit.details) for hit in fused(kind, k, WORDS, VECTORS, ratio, are_cosines)}


def test_reciprocal_ranks_are_weighted_and_reach_one() -> None:
    expected = {1: 0.4 * 1 + 0.6 * 11 / 13, 2: 0.4 * 11 / 12, 3: 0.4 * 11 / 13 + 0.6, 4: 0.6 * 11 / 12}
    assert _scores(RRF, 0.6, k=10) == pytest.approx(expected)
    assert list(_scores(RRF, 0.6, k=10)) == [3, 1, 4, 2]


def test_scores_are_divided_by_the_best_of_their_list() -> None:
    expected = {1: 0.5 + 0.5 * 0.2 / 0.8, 2: 0.5 * 0.5, 3: 0.5 * 0.25 + 0.5, 4: 0.5 * 0.4 / 0.8}
    assert _scores(SCORE, 0.5) == pytest.approx(expected)
    shifted = {1: 0.5 + 0.5 * 0.6 / 0.9, 2: 0.5 * 0.5, 3: 0.5 * 0.25 + 0.5, 4: 0.5 * 0.7 / 0.9}
    assert _scores(SCORE, 0.5, are_cosines=False) == pytest.approx(shifted)


def _index() -> DictReader:
    documents = [{"id": number, "title": title, "_vectors": {"e": vector}} for number, title, vector in (
        (1, "wing flow", [1.0, 0.0]), (2, "wing", [0.0, 1.0]), (3, "heat", [0.1, 1.0]), (4, "layer", [-1.0, 0.0]))]
    return DictReader(documents, {"searchableAttributes": ["title"],
                                  "embedders": {"e": {"source": "userProvided", "dimensions": 2}}})


@pytest.mark.parametrize("strategy", ("last", "bm25"))
@pytest.mark.parametrize("kind", (RRF, SCORE))
def test_a_hybrid_search_is_fused(kind: str, strategy: str) -> None:
    asked = {"hybrid": Hybrid("e", 0.5, kind), "vector": [0.0, 1.0], "matching_strategy": strategy}
    assert found_ids(_index(), "wing ", **asked)[0] == 2
    found = hits(_index(), "wing ", show_ranking_score=True, show_ranking_score_details=True, **asked)
    scores = [hit["_rankingScore"] for hit in found]
    assert scores == sorted(scores, reverse=True) and all(0 <= each <= 1 for each in scores)
    details = found[0]["_rankingScoreDetails"]["fusion"]
    assert details["kind"] == kind and details["score"] == pytest.approx(details["words"] + details["vectors"])
    assert answer(_index(), "wing ", **asked).semantic_hits == 4


def test_a_threshold_is_one_for_fused_scores() -> None:
    asked = {"hybrid": Hybrid("e", 0.5, SCORE), "vector": [0.0, 1.0]}
    result = answer(_index(), "wing ", ranking_score_threshold=0.5, **asked)
    assert result.pagination["estimatedTotalHits"] == len(result.hits) < 4


def test_without_fusion_the_lists_are_merged_as_before() -> None:
    asked = {"hybrid": Hybrid("e", 0.5), "vector": [0.0, 1.0]}
    assert "fusion" not in hits(_index(), "wing ", show_ranking_score_details=True, **asked)[0]["_rankingScoreDetails"]


@pytest.mark.parametrize("strategy", ("last", "bm25"))
def test_scores_further_down_in_the_other_list_count(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"hybrid": Hybrid("e", 0.6, SCORE), "vector": [0.1, 1.0], "matching_strategy": strategy, "show_ranking_score": True}
    deep = hits(_index(), "wing ", **asked)
    monkeypatch.setattr(semantic, "DEPTH", 1)
    shallow = hits(_index(), "wing ", Federation(limit=1), **asked)
    assert [(hit["id"], hit["_rankingScore"]) for hit in shallow] == [(2, deep[0]["_rankingScore"])]
    assert shallow[0]["_rankingScore"] == pytest.approx(0.4 + 0.6 / 1.01 ** 0.5)
