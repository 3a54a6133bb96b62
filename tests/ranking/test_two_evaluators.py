"""The two ways to evaluate a rule (docs/ranking.md#two-ways-to-evaluate-a-rule), on random titles and queries.

What must hold:
1. The forward index of a few candidates and the inverted index give the same hits, in the same order, with the same details;
   so does the inverted index when a rule computes its conditions only for the documents that reached them.
2. The order is the same where nothing shows details, as far as hits are wanted.
"""
from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.ranking import rule
from svcd.ranking.bucket_sort import RankingLimits
from svcd.ranking.rule import ForwardIndexLoader
from svcd.search.keyword import keyword_search
from svcd.search.request import SearchQuery
from tests.support.dict_reader import DictReader

WORDS = ["sun", "sunny", "sundae", "day", "sunday", "light", "ligth", "daylight", "star", "the"]
TEXT = st.lists(st.sampled_from([*WORDS, "x.", "the of"]), min_size=1, max_size=9).map(" ".join)
FILM = st.fixed_dictionaries({"title": TEXT}, optional={"body": TEXT, "cast": st.lists(TEXT, max_size=2)})
QUERY = st.lists(st.sampled_from([*WORDS, "sunn", '"sun day"', '"light the star"', "dayligt", "su"]), min_size=1, max_size=4)
SETTINGS = st.fixed_dictionaries({}, optional={
    "searchableAttributes": st.sampled_from([["title", "body"], ["cast", "title", "body", "nowhere"]]),
    "stopWords": st.just(["the", "of"]),
    "synonyms": st.just({"sun": ["day light"], "star light": ["sunday"]}),
    "rankingRules": st.permutations(["words", "typo", "proximity", "attribute", "exactness"]),
})


ALL_HITS = RankingLimits(100)


def ranked(reader: DictReader, query: SearchQuery, limits: RankingLimits = ALL_HITS) -> list[Any]:
    return keyword_search(reader, query, limits, lambda: False).ranking.hits


@settings(max_examples=120, deadline=None)
@given(st.lists(FILM, min_size=1, max_size=12), QUERY.map(" ".join), st.sampled_from(["", " "]),
       st.sampled_from(["last", "all", "frequency"]), SETTINGS)
def test_both_give_the_same(
    films: list[dict[str, Any]], text: str, end: str, strategy: str, changed: dict[str, Any]
) -> None:
    reader = DictReader([{"id": number, **film} for number, film in enumerate(films)], changed)
    query = SearchQuery(q=text + end, matching_strategy=strategy)
    from_forward_index = ranked(reader, query)
    with patch.object(ForwardIndexLoader, "read", lambda *_: None):
        assert ranked(reader, query) == from_forward_index
        with patch.object(rule, "WORTH_NARROWING", 0):
            assert ranked(reader, query) == from_forward_index
    order = [hit.docid for hit in ranked(reader, query, RankingLimits(5, order_alone=True))]
    assert order == [hit.docid for hit in from_forward_index][:5]
