"""Which rules run, and the loop that runs them.

What must hold:
1. `words` runs before the first other rule about words; with the strategy `all` it does not run.
2. Entries that repeat what came before are ignored; a field is sorted by once, a point each time.
3. A placeholder search keeps only the rules that sort.
4. When the cutoff has passed, the rest comes by docid with the detail `skipped`; earlier buckets stay as they are.
5. Ranking ends with enough hits, unless it has to go to the end.
6. A bucket below the threshold is left out with all after it, and not counted.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from svcd.base.docids import DocIds
from svcd.query.graph import Graph, MatchingStrategy
from svcd.query.terms import Postings, Terms
from svcd.ranking.bucket_sort import Ranking, RankingLimits, chain, rank
from svcd.ranking.rule import Bucket, RankingContext, Rule
from svcd.ranking.scores import Ranked, Skipped
from tests.support.searching import titled
from tests.support.sets import of_bits

EMPTY = Graph([None, None], [[1], []])


def chained(ranking_rules: list[str], sort: tuple[str, ...] = (), strategy: str = "last", has_terms: bool = True) -> list[str]:
    reader = titled("x")
    context = RankingContext(Terms(Postings(reader), reader.settings.typo_tolerance, {}), MatchingStrategy(strategy))
    return [type(rule).__name__ for rule in chain(context, ranking_rules, sort, has_terms)]


@pytest.mark.parametrize(("ranking_rules", "names"), [
    (["typo", "words"], ["Words", "Typo"]),
    (["n:asc", "proximity"], ["Sort", "Words", "Proximity"]),
    (["words", "words", "typo", "typo"], ["Words", "Typo"]),
    (["words", "attribute", "wordPosition", "attributeRank"], ["Words", "AttributeRank", "WordPosition"]),
    (["words", "wordPosition", "attribute"], ["Words", "WordPosition"]),
    (["words", "wordPosition", "attributeRank"], ["Words", "WordPosition", "AttributeRank"]),
    (["exactness"], ["Words", "ExactAttribute", "ExactWords"]),
    (["n:asc", "words", "n:desc"], ["Sort", "Words"]),
])
def test_rules_follow_from_the_setting(ranking_rules: list[str], names: list[str]) -> None:
    assert chained(ranking_rules) == names


def test_sort_expressions_of_the_request() -> None:
    point = "_geoPoint(1, 2):asc"
    assert chained(["sort", "n:asc", "sort"], ("n:desc", "m:asc", point, point)) == ["Sort", "Sort", "GeoSort", "GeoSort"]


def test_the_strategy_all_runs_without_words() -> None:
    assert chained(["words", "typo"], strategy="all") == ["Typo"]


def test_a_placeholder_search_keeps_what_sorts() -> None:
    assert chained(["words", "typo", "sort", "exactness", "n:asc"], ("m:asc",), has_terms=False) == ["Sort", "Sort"]


class Fixed(Rule):
    """Gives these buckets (a bit for each docid), the last of `buckets` with rank 1; counts how many were asked for."""

    def __init__(self, *buckets: int) -> None:
        self._buckets = list(map(of_bits, buckets))
        self.asked = 0

    def buckets(self, graph: Graph, candidates: DocIds) -> Any:
        for place, docids in enumerate(self._buckets):
            self.asked += 1
            if docids & candidates:
                yield Bucket(docids & candidates, self.detail(place), lambda: graph)

    def detail(self, place: int) -> Ranked:
        return Ranked("fixed", len(self._buckets) - place, len(self._buckets))


def ranked(rules: list[Fixed], limits: RankingLimits, expired: Callable[[], bool] = lambda: False) -> Ranking:
    return rank(rules, EMPTY, DocIds(range(4)), limits, expired)


def test_after_the_cutoff_the_rest_is_skipped() -> None:
    rule = Fixed(0b0100, 0b0001, 0b1010)
    times = iter([False, True])
    found = ranked([rule], RankingLimits(10), lambda: next(times, True))
    assert [(hit.docid, hit.details) for hit in found.hits] == [
        (2, (rule.detail(0),)), (0, (Skipped(),)), (1, (Skipped(),)), (3, (Skipped(),))]


def test_each_rule_is_skipped_by_itself() -> None:
    first, second = Fixed(0b0011, 0b1100), Fixed(0b0010, 0b1101)
    times = iter([False, False, True])
    found = ranked([first, second], RankingLimits(10), lambda: next(times, True))
    assert [(hit.docid, hit.details) for hit in found.hits] == [
        (1, (first.detail(0), second.detail(0))), (0, (first.detail(0), Skipped())), (2, (Skipped(),)), (3, (Skipped(),))]


@pytest.mark.parametrize(("to_the_end", "asked"), [(False, 2), (True, 3)])
def test_ranking_ends_with_enough_hits(to_the_end: bool, asked: int) -> None:
    rule = Fixed(0b0100, 0b0001, 0b1010)
    found = ranked([rule], RankingLimits(2, to_the_end=to_the_end))
    assert ([hit.docid for hit in found.hits], rule.asked) == ([2, 0], asked)


def test_what_is_below_the_threshold_is_not_counted() -> None:
    found = ranked([Fixed(0b0100, 0b0001, 0b1010)], RankingLimits(10, threshold=0.5))
    assert [hit.docid for hit in found.hits] == [2, 0]
    assert list(found.counted) == [0, 2]
