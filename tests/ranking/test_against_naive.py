"""The engine against the ranking contract in its plainest executable form, on random indexes and queries.

What must hold, for each search:
1. the same documents, in the same order;
2. the same scores;
3. the same score details;
4. the same set over which hits are counted;
5. all of it whether few documents are read from the forward index or the inverted index is asked for everything;
6. the same order where nobody asks how a document came to its place, as many hits as are wanted.

By attribute the first answer for a pair counts for later buckets (docs/ranking.md#proximity). The oracle derives all terms
at once, the engine each one when it is needed: one search in a thousand shows the difference, none of those below.

More searches than the suite takes time for: SVCD_FUZZ_SEEDS=100:200 pytest tests/ranking/test_against_naive.py
"""
from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from svcd.ranking import scores
from svcd.ranking.bucket_sort import RankingLimits
from svcd.ranking.rule import ForwardIndexLoader
from svcd.schema.ranking_rules import is_attribute_split
from svcd.search.keyword import keyword_search
from svcd.search.request import SearchQuery
from tests.support.dict_reader import DictReader
from tests.support.shared_material import needs_oracle, oracle

pytestmark = [needs_oracle, pytest.mark.usefixtures("no_word_lists")]

STRATEGIES = ("last", "last", "all", "frequency")
QUERIES = 12
FEW_HITS = 10
# Without settings, with all kinds of settings, with proximity by attribute throughout.
LEVELS = (0, 1, 2)


def _seeds() -> range:
    first, _, last = os.environ.get("SVCD_FUZZ_SEEDS", "0:8").partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", _seeds())
def test_random_searches_equal_the_naive_ranking(seed: int, level: int) -> None:
    for described, ours, theirs in compared(seed, level):
        assert ours == theirs, described


@pytest.mark.parametrize("seed", range(3))
def test_searches_for_cached_prefixes_equal_the_naive_ranking(seed: int) -> None:
    """A beginning of a hundred words or more has rules of its own, and needs an index of its own."""
    naive, generators = oracle("ranking"), oracle("generators")
    chosen = random.Random(seed)
    generators.VV = [f"s{first}{second}" for first in "aeioux" for second in "bcdfghklmnprstvwyz123"] + ["a", "the", "s"]
    settings = generators.settings(chosen, 1)
    documents = generators.docs(chosen, 100)
    reader = DictReader(documents, settings)
    index = naive.Index(settings, documents)
    assert "s" in index.cached or settings.get("prefixSearch") == "disabled"
    for strategy in ("last", "frequency"):
        for text in ("s", "the s", "s a", "sab the s", '"the sab" s'):
            query = SearchQuery(q=text, matching_strategy=strategy)
            theirs = _naive(naive, index, query)
            assert _ours(reader, query) == theirs, text
            assert _from_postings_alone(reader, query) == theirs, text


def compared(seed: int, level: int) -> Iterator[tuple[str, Any, Any]]:
    """(what was searched, our answer, the naive one) for the searches of one random index."""
    naive, generators = oracle("ranking"), oracle("generators")
    chosen = random.Random(seed * 10 + level)
    generators.VV = chosen.sample(generators.V1, chosen.randint(8, 30))
    settings = generators.settings(chosen, level)
    documents = generators.docs(chosen, chosen.choice([5, 20, 60, 120]))
    reader = DictReader(documents, {**settings, "sortableAttributes": ["num"]})
    index = naive.Index(settings, documents)
    for _ in range(QUERIES):
        query = _query(chosen, generators.query(chosen), level, reader)
        described = f"seed {seed} level {level}: {query} in {settings}"
        theirs = _naive(naive, index, query)
        yield f"{described}, forward index of few candidates", _ours(reader, query), theirs
        yield f"{described}, inverted index alone", _from_postings_alone(reader, query), theirs
        if settings.get("proximityPrecision") != "byAttribute":
            yield f"{described}, order alone", _ordered(reader, query), [docid for docid, *_ in theirs[0]][:FEW_HITS]


def _from_postings_alone(reader: DictReader, query: SearchQuery) -> Any:
    """As _ours, without the shortcut by the forward index of few candidates."""
    with patch.object(ForwardIndexLoader, "read", lambda *_: None):
        return _ours(reader, query)


def _query(chosen: random.Random, text: str, level: int, reader: DictReader) -> SearchQuery:
    fields, known = None, reader.terms.indexed_fields()
    if level and known and chosen.random() < 0.15:
        fields = chosen.sample(known, 1)
    sort = chosen.choice([None, None, None, ["num:asc"], ["num:desc"]]) if level else None
    if "sort" not in reader.settings.ranking_rules:
        sort = None  # an error
    strategy = chosen.choice(STRATEGIES)
    return SearchQuery(q=text, matching_strategy=strategy, sort=sort, attributes_to_search_on=fields)


def _ours(reader: DictReader, query: SearchQuery) -> Any:
    found = keyword_search(reader, query, RankingLimits(1000), lambda: False).ranking
    is_separated = is_attribute_split(reader.settings.ranking_rules)
    hits = [
        (hit.docid, scores.score(hit.details), scores.score_details(hit.details, is_separated, lambda field: False))
        for hit in found.hits
    ]
    return hits, list(found.counted)


def _ordered(reader: DictReader, query: SearchQuery) -> list[int]:
    found = keyword_search(reader, query, RankingLimits(FEW_HITS, order_alone=True), lambda: False).ranking
    return [hit.docid for hit in found.hits]


def _naive(naive: Any, index: Any, query: SearchQuery) -> Any:
    fields = query.attributes_to_search_on
    hits, universe, _, _ = naive.search(index, query.q, query.matching_strategy, query.sort, attrs=fields)
    return hits, sorted(universe)
