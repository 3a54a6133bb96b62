"""A search from its parameters to its hits.

What must hold:
1. Pages joined are the whole list; each hit is in one place.
2. A ranking rule changes the order, never the set.
3. Equal documents come by docid; hits stand as in a plain sort of all documents by their details.
4. The total is estimated and never capped with offset and limit, exact with pages; no hit lies beyond maxTotalHits.
5. Documents below the threshold are left out and not counted; with pages the count is exact.
6. When the time is over what is left comes in docid order, marked as skipped.
7. A hit is the stored text itself if nothing else is requested; added members come after it, in their order.
8. Hidden fields are neither shown nor named in score details.
9. Scores merge as ranks do, in 32 bits.
10. The languages of a query are those asked for, else those of the searched fields.
11. A placeholder search knows only rules that sort.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.ranking import scores
from svcd.ranking.bucket_sort import RankingLimits
from svcd.search import keyword
from svcd.search.search import Federation, SearchQuery
from tests.support.dict_reader import DEFAULTS, DictReader
from tests.support.searching import answer, details_of, found_ids, hits, titled

WORD = st.sampled_from(["sun", "sunny", "sunflower", "flower", "the", "dark", "darker", "night", "knight"])
TITLE = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
TITLES = st.lists(TITLE, min_size=1, max_size=12)
RULES = st.permutations(DEFAULTS["rankingRules"])


@settings(max_examples=25, deadline=None)
@given(TITLES, TITLE, st.integers(1, 5))
def test_pages_joined_are_the_whole_list(titles: list[str], q: str, size: int) -> None:
    reader = titled(*titles)
    whole = found_ids(reader, q)
    joined = [hit for page in range(1, 14) for hit in found_ids(reader, q, Federation(page=page, hits_per_page=size))]
    slices = [hit for first in range(0, 14, size) for hit in found_ids(reader, q, Federation(offset=first, limit=size))]
    assert joined == slices == whole
    assert len(set(whole)) == len(whole) == answer(reader, q).pagination["estimatedTotalHits"]


@settings(max_examples=25, deadline=None)
@given(TITLES, TITLE, RULES, st.integers(0, 7))
def test_rules_change_the_order_never_the_set(titles: list[str], q: str, rules: list[str], count: int) -> None:
    assert sorted(found_ids(titled(*titles), q)) == sorted(found_ids(titled(*titles, rankingRules=rules[:count]), q))


@settings(max_examples=25, deadline=None)
@given(TITLES, TITLE, RULES)
def test_hits_stand_as_in_a_plain_sort(titles: list[str], q: str, rules: list[str]) -> None:
    reader = titled(*titles, rankingRules=rules)
    found = keyword.keyword_search(reader, SearchQuery(q=q), RankingLimits(100), lambda: False).ranking.hits
    ranks = {hit.docid: [-detail.rank for detail in hit.details if isinstance(detail, scores.Ranked)] for hit in found}
    assert [hit.docid for hit in found] == sorted(ranks, key=lambda docid: (ranks[docid], docid))


def test_pagination_of_offset_and_limit() -> None:
    reader = titled(*["star"] * 30, pagination={"maxTotalHits": 25})
    found = answer(reader, "star", Federation(offset=20, limit=10))
    assert found.pagination == {"limit": 10, "offset": 20, "estimatedTotalHits": 30}
    assert len(found.hits) == 5
    assert answer(reader, "star", Federation(limit=0)).pagination["estimatedTotalHits"] == 30


@pytest.mark.parametrize(
    ("page", "size", "pagination", "count"),
    [
        (None, 20, {"hitsPerPage": 20, "page": 1, "totalPages": 2, "totalHits": 30}, 20),
        (2, None, {"hitsPerPage": 20, "page": 2, "totalPages": 2, "totalHits": 30}, 10),
        (0, 7, {"hitsPerPage": 7, "page": 0, "totalPages": 5, "totalHits": 30}, 0),
        (1, 0, {"hitsPerPage": 0, "page": 1, "totalPages": 0, "totalHits": 30}, 0),
        (9, 7, {"hitsPerPage": 7, "page": 9, "totalPages": 5, "totalHits": 30}, 0),
    ],
)
def test_pagination_of_pages(page: int | None, size: int | None, pagination: dict[str, int], count: int) -> None:
    found = answer(titled(*["star"] * 30), "star", Federation(page=page, hits_per_page=size, offset=3))
    assert found.pagination == pagination
    assert list(found.pagination) == list(pagination)
    assert len(found.hits) == count


def test_threshold_leaves_out_what_scores_lower() -> None:
    reader = titled("star wars", "star", "wars star")
    assert found_ids(reader, "star wars ", ranking_score_threshold=0.9) == [1, 3]
    assert found_ids(reader, "star wars ", ranking_score_threshold=0.99) == [1]
    assert found_ids(reader, "star wars ", ranking_score_threshold=0.0) == [1, 3, 2]


def test_threshold_counts() -> None:
    reader = titled(*["star wars"] * 5, "star")
    total = answer(reader, "star wars ", Federation(limit=2), ranking_score_threshold=0.9).pagination
    assert total["estimatedTotalHits"] == 6  # documents below the threshold were not reached yet
    total = answer(reader, "star wars ", Federation(hits_per_page=2), ranking_score_threshold=0.9).pagination
    assert total["totalHits"] == 5


def expiring(asked: int) -> Callable[[int], Callable[[], bool]]:
    """A clock by which the time is over after so many questions."""
    left = iter(range(asked))
    return lambda milliseconds: lambda: next(left, None) is None


def test_time_over_skips_what_is_left() -> None:
    reader = titled("dark star", "star wars", "star", rankingRules=["words", "proximity"])
    found = hits(reader, "star wars ", timer=expiring(0), show_ranking_score_details=True, show_ranking_score=True)
    assert [hit["id"] for hit in found] == [1, 2, 3]
    assert found[0]["_rankingScoreDetails"] == {"skipped": {"order": 0}}
    assert found[0]["_rankingScore"] == 0.0
    found = hits(reader, "star wars ", timer=expiring(1), show_ranking_score_details=True)
    assert [hit["id"] for hit in found] == [2, 1, 3]
    assert list(found[0]["_rankingScoreDetails"]) == ["words", "skipped"]
    assert list(found[1]["_rankingScoreDetails"]) == ["skipped"]


def test_cutoff_of_the_settings_sets_the_clock() -> None:
    asked: list[int] = []

    def timer(milliseconds: int) -> Callable[[], bool]:
        asked.append(milliseconds)
        return lambda: False

    answer(titled("star"), "star", timer=timer)
    answer(titled("star", searchCutoffMs=0), "star", timer=timer)
    assert asked == [1500, 1125, 0, 0]  # of ranking, of formatting


def test_formatting_ends_when_its_time_is_over() -> None:
    text = "star " * 200_000
    found = hits(titled(text), "star", timer=expiring(0), attributes_to_highlight=["*"])
    marked = found[0]["_formatted"]["title"]
    assert marked.replace("<em>", "").replace("</em>", "") == text
    assert 0 < marked.count("<em>") < 100_000


def test_hits_are_the_stored_texts() -> None:
    reader = DictReader([{"id": 1, "title": "é", "n": 1.0}])
    assert answer(reader, "").hits == ['{"id":1,"title":"é","n":1.0}']
    assert answer(reader, "", show_ranking_score=True).hits == ['{"id":1,"title":"é","n":1.0,"_rankingScore":1.0}']
    hidden = DictReader([{"id": 1}], {"displayedAttributes": []})
    assert answer(hidden, "", show_ranking_score=True).hits == ['{"_rankingScore":1.0}']


def test_members_are_added_in_their_order() -> None:
    (hit,) = hits(
        titled("star"), "star", attributes_to_highlight=["title"], show_matches_position=True,
        attributes_to_retrieve=["title"], show_ranking_score=True, show_ranking_score_details=True,
    )
    assert list(hit) == ["title", "_formatted", "_matchesPosition", "_rankingScore", "_rankingScoreDetails"]
    assert hit["_formatted"] == {"title": "<em>star</em>"}


def test_typo_words_are_marked_where_they_were_looked_for() -> None:
    (hit,) = hits(titled("darkest star"), "darkets", attributes_to_highlight=["*"])
    assert hit["_formatted"]["title"] == "<em>darkest</em> star"


def test_typos_of_joined_words_are_marked_if_documents_are_left_when_all_words_are_found() -> None:
    """As in the reference engine, asked for these documents."""
    titles, marked = ["quick star wars newhope warznewhope", "quick warznewhope"], "<em>warznewhope</em>"
    alone, together = (hits(titled(*some), "quick star wars newhope", attributes_to_highlight=["*"]) for some in (titles[:1], titles))
    assert [marked in hit["_formatted"]["title"] for hit in alone] == [False]
    assert [marked in hit["_formatted"]["title"] for hit in together] == [True, True]


def test_hidden_fields_are_not_named() -> None:
    reader = DictReader(
        [{"id": 1, "secret": 3}, {"id": 2, "secret": 5}],
        {"displayedAttributes": ["id"], "rankingRules": ["secret:desc"]},
    )
    assert details_of(reader, "") == {
        2: {"<hidden-rule-0>": {"order": 0, "value": "<hidden>"}},
        1: {"<hidden-rule-0>": {"order": 0, "value": "<hidden>"}},
    }


def test_placeholder_search_sorts_by_fields_alone() -> None:
    documents = [{"id": 1, "n": "x"}, {"id": 2}, {"id": 3, "n": 2}, {"id": 4, "n": [7, 1]}]
    reader = DictReader(documents, {"rankingRules": ["words", "sort", "n:desc", "exactness"], "sortableAttributes": ["n"]})
    assert found_ids(reader, " ") == [4, 3, 1, 2]
    assert found_ids(reader, "", sort=["n:asc"]) == [4, 3, 1, 2]
    assert list(details_of(reader, "", sort=["n:asc"])[4]) == ["n:asc"]
    assert found_ids(DictReader(documents), "!") == [1, 2, 3, 4]


@pytest.mark.parametrize(("settings", "words"), [
    ({}, "Attribute `n` is not sortable. This index does not have configured sortable attributes."),
    ({"sortableAttributes": ["id", "m"], "displayedAttributes": ["id"]},
     "Attribute `n` is not sortable. Available sortable attributes are: `id, <..hidden-attributes>`."),
    ({"sortableAttributes": ["n"], "rankingRules": ["words"]},
     "You must specify where `sort` is listed in the rankingRules setting to use the sort parameter at search time."),
])
def test_a_field_that_is_not_sortable_is_refused(settings, words) -> None:
    with pytest.raises(ApiError, match=re.escape(words)):
        found_ids(DictReader([{"id": 1, "n": 2}], settings), "", sort=["n:asc"])


def test_scores_merge_as_ranks() -> None:
    badman = [(6, 6), (6, 7), (15, 16), (1, 1), (60, 61), (1, 3), (6, 7)]
    assert scores.score([scores.Ranked("", rank, most) for rank, most in badman]) == 0.9746605609456898
    assert scores.score([]) == 1.0


def test_ranks_wrap_at_32_bits() -> None:
    large = [scores.Ranked("", 3, 2**20), scores.Ranked("", 5, 2**11), scores.Ranked("", 1, 3)]
    assert scores.score(large) == (((2 * 2**11 + 5) - 1) * 3 + 1) / (3 * 2**31 % 2**32)


def test_languages_of_a_query() -> None:
    rules = [{"attributePatterns": ["title*"], "locales": ["jpn"]}, {"attributePatterns": ["*"], "locales": ["cmn"]}]
    reader = DictReader([{"id": 1, "title": "x", "body": "y"}], {"localizedAttributes": rules})
    assert keyword.locales_of(reader, SearchQuery(), None) == ["cmn", "jpn"]
    assert keyword.locales_of(reader, SearchQuery(), ["title"]) == ["jpn"]
    assert keyword.locales_of(reader, SearchQuery(locales=["fra"]), None) == ["fra"]
    assert keyword.locales_of(titled("x"), SearchQuery(), None) is None


def test_hits_are_json() -> None:
    (hit,) = answer(titled('a "star"'), "star", show_ranking_score_details=True).hits
    assert json.loads(hit)["title"] == 'a "star"'
