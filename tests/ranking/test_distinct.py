"""What must hold of `distinct`:

1. The best document of each value stays; of equal ones, the one of the smallest docid.
2. A document shares a value if any of several is the same: text in its normal form, or number.
3. Documents without a value all stay.
4. A finished bucket is walked whole, though its first documents fill the page; without rules no further than the page.
5. The total leaves out what shares a value with documents of walked buckets; with pages it counts groups.
6. The field of the request comes before that of the setting and must be filterable; an unknown one does nothing.
7. However the values are spread over the documents, the walk is that of one document after the other.
8. Lists are merged by what stands in the documents, where 1 and 1.0 are two.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.ranking import distinct
from svcd.ranking.bucket_sort import Ranking, RankingLimits
from svcd.ranking.distinct import Distinct
from svcd.search import keyword
from svcd.search.keyword import document_values
from svcd.search.search import Federation, SearchQuery
from tests.support.dict_reader import DictReader
from tests.support.searching import answer, found_ids

VALUE = st.sampled_from(["red", "Red ", "blue", "", 1, 1.0, True, "true", 2, -0.0, 0])
COLORS = st.one_of(st.none(), VALUE, st.lists(VALUE, max_size=3))
TITLE = st.lists(st.sampled_from(["sun", "sunny", "flower", "dark", "night"]), min_size=1, max_size=3).map(" ".join)
FILMS = st.lists(st.tuples(TITLE, COLORS), min_size=1, max_size=14)
NUMBER = "price"


def films(*listed: tuple[str, Any], **settings: Any) -> DictReader:
    documents = [{"id": number, "title": title, "color": color} for number, (title, color) in enumerate(listed, 1)]
    return DictReader(documents, {"searchableAttributes": ["title"], "filterableAttributes": ["color"], **settings})


def colored(*colors: Any, **settings: Any) -> DictReader:
    return films(*(("sun", color) for color in colors), **settings)


def walked(reader: DictReader, docids: Sequence[int]) -> tuple[list[int], set[int]]:
    """The kept documents and all that share a value with one, by the definition."""
    values = dict(reader.values.field_values("color", list(reader.all_docids())))
    shown = {docid: {repr(value) for value in own} for docid, own in values.items()}
    kept: list[int] = []
    excluded: set[int] = set()
    for docid in docids:
        if docid not in excluded:
            kept.append(docid)
            excluded |= {other for other in shown if shown[other] & shown[docid]}
    return kept, excluded


def plainly_ranked(reader: DictReader, q: str, wanted: RankingLimits) -> tuple[list[int], set[int]]:
    """Hits and counted documents: the buckets of a search without distinct, walked one by one."""
    everything = keyword.keyword_search(reader, SearchQuery(q=q), RankingLimits(1000), lambda: False).ranking
    hits: list[int] = []
    gone: set[int] = set()
    counted = set(everything.counted)
    for details, bucket in groupby(everything.hits, lambda hit: hit.details):
        if len(hits) >= wanted.hits:
            break
        kept, excluded = walked(reader, [hit.docid for hit in bucket if hit.docid not in gone])
        if not details:  # without rules no further than the page
            kept, excluded = walked(reader, kept[:wanted.hits])
        hits += kept[:wanted.hits - len(hits)]
        gone |= excluded
        counted = counted - excluded | set(kept)
    return hits, set(walked(reader, sorted(counted))[0]) if wanted.exact_total else counted


def ranked(reader: DictReader, q: str | None, wanted: RankingLimits) -> Ranking:
    return keyword.keyword_search(reader, SearchQuery(q=q, distinct="color"), wanted, lambda: False).ranking


@settings(max_examples=60, deadline=None)
@given(FILMS, st.one_of(st.just(""), TITLE), st.integers(1, 6), st.booleans())
def test_buckets_are_walked_by_the_definition(listed: list, q: str, count: int, exact: bool) -> None:
    reader, wanted = films(*listed), RankingLimits(count, exact_total=exact)
    found = ranked(reader, q, wanted)
    hits, counted = plainly_ranked(reader, q, wanted)
    assert [hit.docid for hit in found.hits] == hits
    assert set(found.counted) == counted


@settings(max_examples=60, deadline=None)
@given(FILMS, st.integers(1, 2), st.sampled_from([0, 1, 100]), st.one_of(st.none(), st.integers(1, 5)),
       st.sampled_from([0, 5, 1000]))
def test_a_walk_in_batches_is_a_walk_one_by_one(
    listed: list, batch: int, cost: int, limit: int | None, least_for_columns: int
) -> None:
    reader = films(*listed)
    reader.values.least_for_doc_values = least_for_columns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct, "SMALLEST_BATCH", batch)
        patch.setattr(distinct, "FIRST_BATCH", batch)
        patch.setattr(distinct, "LARGEST_BATCH", batch * 2)
        patch.setattr(distinct, "VALUE_COST", cost)
        patch.setattr(distinct, "FEW_VALUES", 0)
        result = Distinct(reader, "color").first(reader.all_docids(), limit)
        kept = result.docids
        others = Distinct(reader, "color").sharing(result, reader.all_docids() - kept)
    expected = walked(reader, range(len(listed)))[0][:limit]
    assert list(kept) == expected
    if limit is None:
        assert Distinct(reader, "color").groups(reader.all_docids()) == Distinct(reader, "color").groups(reader.all_docids()) == kept
    assert set(others) == walked(reader, expected)[1] - set(expected)


def test_the_best_of_each_value_stays() -> None:
    reader = films(("dark sun", "red"), ("sun", "blue"), ("sun", ["red", "blue"]), ("sun", "Red"))
    assert found_ids(reader, "sun", distinct="color") == [2, 4]
    assert found_ids(reader, "sun") == [2, 3, 4, 1]


def test_documents_without_a_value_stay() -> None:
    assert found_ids(colored("red", None, [], "red", ""), "", distinct="color") == [1, 2, 3, 5]


def test_a_bucket_is_walked_whole_but_not_without_rules() -> None:
    reader = colored(None, "red", "red", "red")
    total = {q: answer(reader, q, Federation(limit=1), distinct="color").pagination["estimatedTotalHits"]
             for q in ("sun", "")}
    assert total == {"sun": 2, "": 4}


def test_the_total_of_pages_counts_groups() -> None:
    reader = films(("sun", "red"), ("dark sun", "blue"), ("sun dark", "blue"), ("sun", "red"))
    assert answer(reader, "sun", Federation(limit=1), distinct="color").pagination["estimatedTotalHits"] == 3
    assert answer(reader, "sun", Federation(page=0, hits_per_page=1), distinct="color").pagination == {
        "hitsPerPage": 1, "page": 0, "totalPages": 2, "totalHits": 2}


def test_hits_of_any_page_share_no_value() -> None:
    reader = colored("red", "blue", "red", "green", "blue", None)
    pages = [found_ids(reader, "sun", Federation(offset=first, limit=2), distinct="color") for first in (0, 2, 4)]
    assert pages == [[1, 2], [4, 6], []]


def test_few_documents_that_were_read_are_walked_too() -> None:
    """Rules that read documents number them in batches of their own."""
    reader = films(*[("sun flower", "red"), ("flower dark sun", "blue"), ("sun dark flower", "red")] * 2)
    assert found_ids(reader, "sun flower", distinct="color") == [1, 2]


def test_what_the_threshold_rejects_is_neither_shown_nor_counted() -> None:
    reader = films(("sun", "red"), ("dark", "red"), ("sun dark", "blue"))
    found = answer(reader, "sun dark", distinct="color", ranking_score_threshold=0.9)
    assert len(found.hits) == found.pagination["estimatedTotalHits"] == 1


def test_the_field_of_the_request_comes_before_that_of_the_setting() -> None:
    reader = films(("sun", 1), ("sun", 2), ("sun", 1), distinctAttribute="color", filterableAttributes=["title", "zzz"])
    assert found_ids(reader, "sun") == [1, 2]
    assert found_ids(reader, "sun", distinct="title") == [1]
    assert found_ids(reader, "sun", distinct="zzz") == [1, 2, 3]
    assert found_ids(films(("sun", 1), ("sun", 1), distinctAttribute="zzz"), "sun") == [1, 2]


FACETS_ONLY = {"attributePatterns": ["t*"], "features": {
    "facetSearch": True, "filter": {"equality": False, "comparison": False}}}


@pytest.mark.parametrize(
    ("filterable", "displayed", "reason"),
    [
        ([], ["*"], "This index does not have configured filterable attributes."),
        (["color", {"attributePatterns": ["a*"]}], ["*"], "Available filterable attributes patterns are: `a*, color`."),
        (["color", "hidden"], ["color"], "Available filterable attributes patterns are: `color, <..hidden-attributes>`."),
        (["color", FACETS_ONLY, "title"], ["*"],
         "Note: this attribute matches rule #1 in filterableAttributes, but this rule does not enable filtering.\n"
         "Hint: enable filtering in rule #1 by adding appropriate filter features.\n"
         "Hint: prepend another rule matching title with filter features before rule #1"),
    ],
)
def test_the_field_of_the_request_must_be_filterable(filterable: list, displayed: list[str], reason: str) -> None:
    reader = films(("sun", 1), filterableAttributes=filterable, displayedAttributes=displayed)
    with pytest.raises(ApiError) as refused:
        found_ids(reader, "sun", distinct="title")
    assert refused.value.code == "invalid_search_distinct"
    assert refused.value.message == ("Index `films`: Attribute `title` is not filterable and thus, cannot be used as "
                                     f"distinct attribute. {reason}")


@pytest.mark.parametrize(
    ("document", "left", "right"),
    [
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": [2, 1]}, True),
        ({"a": " Été"}, {"a": "ÉTÉ"}, True),
        ({"a": True}, {"a": "TRUE"}, True),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": [[1]]}, {"a": [[1]]}, False),
        ({"a": None}, {"a": None}, False),
    ],
)
def test_which_values_documents_share(document: dict, left: dict, right: bool) -> None:
    assert bool(document_values(document, "a") & document_values(left, "a")) is right


def test_values_are_found_beneath_objects_and_arrays() -> None:
    document = {"a": {"b": [{"c": 1}, {"c": [2, [3]]}], "b.c": 4}, "a.b": {"c": 5}, "a.b.c": 6, "ab": {"c": 7}}
    assert document_values(document, "a.b.c") == {(str(number), int) for number in (1, 2, 4, 5, 6)}
