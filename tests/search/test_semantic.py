"""Searches by vectors, and by words and vectors (docs/search.md#kinds-of-search). What must hold:

1. The kind of a search follows from its members; wrong ones are rejected before anything is searched.
2. By vectors, documents come by the nearest of their vectors, those without last; sort rules stand where the settings have them;
   equal ones come by docid. All documents of the filter count, and words play no part.
3. A threshold ends the list; `distinct` keeps the best of each value, also where it takes more than one portion of neighbours.
4. After the cutoff neighbours that are known are still handed out.
5. A hybrid list is the merge of both lists by weighted scores; good hits by words need no vector, and when there is none they must do.
6. Excluded words count for both parts of a hybrid search, but not for one by vectors alone.
7. The vector of the query is asked for once, only when it is needed, and its error does not name the index.
8. Hits by vectors are counted; hits show vectors if these are retrieved and displayed.
9. Facet search counts the documents of the filter when a search is by vectors.
10. In a federation, similarities compare with scores by their weights.
"""
from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.filters.evaluation import read_filter
from svcd.search.federation import federated
from svcd.search.hits import LongPage
from svcd.search.request import Federation, Hybrid, IndexedQuery, QueryInput, SearchQuery, SearchResult
from svcd.search.search import FacetQuery, Kind, facet_search, kind_of, search
from svcd.vectors.vector import cosine_distance, similarity, vector_of
from tests.support.dict_reader import DictReader
from tests.support.searching import UID, never

EMBEDDERS = {"e": {"source": "userProvided", "dimensions": 2}}
BY_VECTORS = Hybrid("e", 1)

NUMBER = st.integers(-2, 2).map(float)
VECTOR = st.tuples(NUMBER, NUMBER).map(list)
VECTORS = st.one_of(st.none(), VECTOR, st.lists(VECTOR, min_size=1, max_size=3))
TITLE = st.lists(st.sampled_from(["sun", "sunny", "flower", "dark", "night"]), min_size=1, max_size=3).map(" ".join)
FILM = st.fixed_dictionaries({"title": TITLE, "year": st.integers(0, 3), "color": st.sampled_from(["red", "blue", None]),
                              "_vectors": st.fixed_dictionaries({"e": VECTORS})})
FILMS = st.lists(FILM, min_size=1, max_size=9)
RULES = st.sampled_from([
    ["words", "typo", "sort"], ["sort", "words"], ["year:desc", "typo", "proximity", "sort"], ["sort", "year:asc"], ["exactness"],
])


def index_of(films: Sequence[dict[str, Any]], **more: Any) -> DictReader:
    return DictReader([{"id": number, **film} for number, film in enumerate(films)], {
        "searchableAttributes": ["title"], "filterableAttributes": ["year", "color"], "sortableAttributes": ["year"],
        "embedders": EMBEDDERS, **more})


def answer(reader: DictReader, federation: Federation | None = None, *, timer: Any = never, embed: Any = None,
           **asked: Any) -> SearchResult:
    query = SearchQuery(**asked)
    return search({UID: reader}, [IndexedQuery(UID, query)], federation or Federation(limit=100), timer,
                  *([] if embed is None else [embed]))


def hits_of(found: SearchResult) -> list[dict[str, Any]]:
    return [json.loads(hit) for hit in found.hits]


def ids(found: SearchResult) -> list[int]:
    return [hit["id"] for hit in hits_of(found)]


# The model: searches by vectors as a plain sort


def distance_of(film: dict[str, Any], vector: list[float]) -> float | None:
    given = film["_vectors"]["e"]
    own = [] if given is None else [given] if not isinstance(given[0], list) else given
    return min((cosine_distance(vector_of(vector), vector_of(each)) for each in own), default=None)


def sort_keys(film: dict[str, Any], rules: list[str], sort: Sequence[str], vector: list[float]) -> list[Any]:
    keys: list[Any] = []
    for rule in rules:
        for entry in sort if rule == "sort" else [rule]:
            if ":" in entry:
                keys.append(film["year"] if entry.endswith("asc") else -film["year"])
            elif "vector" not in keys:
                distance = distance_of(film, vector)
                keys += ["vector", (distance is None, distance or 0.0)]
    return [key for key in keys if key != "vector"]


@settings(max_examples=60, deadline=None)
@given(FILMS, VECTOR, RULES, st.sampled_from([[], ["year:asc"], ["year:desc"]]), st.booleans())
def test_documents_come_as_in_a_plain_sort(films, vector, rules, sort, is_filtered) -> None:
    if "sort" not in rules:
        sort = []
    reader = index_of(films, rankingRules=rules)
    condition = read_filter("year > 1", "invalid_search_filter") if is_filtered else None
    found = answer(reader, q="-dark night", vector=vector, hybrid=BY_VECTORS, sort=sort, filter=condition, show_ranking_score=True)
    among = [(number, film) for number, film in enumerate(films) if not is_filtered or film["year"] > 1]
    expected = sorted(among, key=lambda each: (sort_keys(each[1], rules, sort, vector), each[0]))
    assert ids(found) == [number for number, _ in expected]
    assert found.pagination["estimatedTotalHits"] == len(among)
    if rules == ["sort", "year:asc"]:  # no rule about words that vectors could replace
        assert found.semantic_hits == 0
        return
    assert found.semantic_hits == len(among)
    for hit, (_, film) in zip(hits_of(found), expected):
        distance = distance_of(film, vector)
        assert hit["_rankingScore"] == (0.0 if distance is None else similarity(distance))


@settings(max_examples=30, deadline=None)
@given(FILMS, VECTOR, st.integers(1, 4))
def test_pages_joined_are_the_whole_list(films, vector, size) -> None:
    reader = index_of(films)

    def page(**window: int) -> list[int]:
        return ids(answer(reader, Federation(**window), vector=vector, hybrid=BY_VECTORS))

    whole = page(limit=100)
    assert [hit for first in range(0, 10, size) for hit in page(offset=first, limit=size)] == whole
    assert [hit for number in range(1, 10) for hit in page(page=number, hits_per_page=size)] == whole


@settings(max_examples=30, deadline=None)
@given(FILMS, VECTOR, st.floats(0, 1))
def test_a_threshold_ends_the_list(films, vector, threshold) -> None:
    reader = index_of(films)
    asked: dict[str, Any] = {"vector": vector, "hybrid": BY_VECTORS, "show_ranking_score": True}
    whole = hits_of(answer(reader, **asked))
    found = answer(reader, ranking_score_threshold=threshold, **asked)
    kept = [hit for hit in whole if hit["_rankingScore"] >= threshold]
    assert hits_of(found) == kept and found.pagination["estimatedTotalHits"] == len(kept)


@settings(max_examples=30, deadline=None)
@given(FILMS, VECTOR, st.integers(1, 3))
def test_distinct_keeps_the_best_of_each_value(films, vector, limit) -> None:
    whole = ids(answer(index_of(films), vector=vector, hybrid=BY_VECTORS))
    kept: list[int] = []
    for number in whole:
        color = films[number]["color"]
        if color is None or color not in {films[other]["color"] for other in kept}:
            kept.append(number)
    reader = index_of(films, distinctAttribute="color")
    assert ids(answer(reader, Federation(limit=limit), vector=vector, hybrid=BY_VECTORS)) == kept[:limit]
    assert answer(reader, Federation(page=1), vector=vector, hybrid=BY_VECTORS).pagination["totalHits"] == len(kept)


# Hybrid search


@settings(max_examples=60, deadline=None)
@given(FILMS, VECTOR, st.sampled_from(["sun", "dark night", "flower sunny", "nothing", ""]), st.sampled_from([0.2, 0.5, 0.8]),
       st.integers(1, 9), st.integers(0, 2))
def test_a_hybrid_list_is_the_merge_of_both(films, vector, q, ratio, limit, offset) -> None:
    reader = index_of(films)
    window = Federation(offset=offset, limit=limit)
    most = Federation(limit=offset + limit)
    by_words = answer(reader, most, q=q, show_ranking_score=True)
    by_vectors = answer(reader, most, vector=vector, hybrid=BY_VECTORS, show_ranking_score=True)
    found = answer(reader, window, q=q, vector=vector, hybrid=Hybrid("e", ratio), show_ranking_score=True)
    of_vectors = vector_of([ratio])[0]
    of_words = vector_of([1 - of_vectors])[0]
    words = [(hit["_rankingScore"] * of_words, 1, hit) for hit in hits_of(by_words)]
    vectors = [(hit["_rankingScore"] * of_vectors, 0, hit) for hit in hits_of(by_vectors)]
    if len(words) == offset + limit and all(score >= 0.45 for score, _, _ in words):
        assert hits_of(found) == [hit for _, _, hit in words[offset:]] and found.semantic_hits == 0
        assert found.pagination["estimatedTotalHits"] == by_words.pagination["estimatedTotalHits"]
        return
    # A placeholder search has no score to merge by: of its lists the one by vectors is longer.
    both = vectors + words if q == "" else sorted(vectors + words, key=lambda each: (-each[0], each[1]))
    merged: dict[int, tuple[float, int, dict[str, Any]]] = {}
    for each in both:
        merged.setdefault(each[2]["id"], each)
    page = list(merged.values())[offset:offset + limit]
    assert hits_of(found) == [hit for _, _, hit in page]
    assert found.semantic_hits == sum(is_word == 0 for _, is_word, _ in page)
    assert found.pagination["estimatedTotalHits"] == len(films)


PLANETS = index_of([
    {"title": "dark sun", "color": "red", "year": 1, "_vectors": {"e": [1.0, 0.0]}},
    {"title": "sunny night", "color": "red", "year": 2, "_vectors": {"e": [0.0, 1.0]}},
    {"title": "dark night", "color": "blue", "year": 3, "_vectors": {"e": [[0.0, -1.0], [1.0, 1.0]]}},
    {"title": "flower", "color": "blue", "year": 4, "_vectors": {"e": None}},
], distinctAttribute=None)


def test_excluded_words_count_in_a_hybrid_search_alone() -> None:
    asked: dict[str, Any] = {"q": "sun -night", "vector": [1.0, 0.0]}
    hybrid = answer(PLANETS, hybrid=Hybrid("e", 0.9), **asked)
    assert ids(hybrid) == [0, 3] and hybrid.pagination["estimatedTotalHits"] == 2
    assert ids(answer(PLANETS, hybrid=BY_VECTORS, **asked)) == [0, 2, 1, 3]


def test_distinct_holds_over_both_lists() -> None:
    found = answer(PLANETS, q="night", vector=[1.0, 0.0], hybrid=Hybrid("e", 0.5), distinct="color")
    assert [(hit["color"], hit["id"]) for hit in hits_of(found)] == [("red", 0), ("blue", 2)]
    assert found.pagination["estimatedTotalHits"] == 2


def test_sort_values_compare_before_scores_below_them() -> None:
    """Both lists are sorted by year first; words and vectors decide among equal years only."""
    reader = index_of([{"title": "sun", "year": 1, "_vectors": {"e": [0.0, 1.0]}},
                       {"title": "sun", "year": 0, "_vectors": {"e": [-1.0, 0.0]}},
                       {"title": "dark", "year": 0, "_vectors": {"e": [1.0, 0.0]}}], rankingRules=["sort", "words"])
    for ratio in (0.1, 0.9):
        found = answer(reader, q="sun", vector=[1.0, 0.0], hybrid=Hybrid("e", ratio), sort=["year:asc"])
        assert ids(found)[-1] == 0


# The vector of the query


class Service:
    """Embeds every query as [1, 0], or fails. asked: the queries."""

    def __init__(self, failure: ApiError | None = None, vector: Sequence[float] = (1.0, 0.0)) -> None:
        self.asked: list[QueryInput] = []
        self.failure = failure
        self.vector = vector

    def __call__(self, wanted: QueryInput) -> array[float]:
        self.asked.append(wanted)
        if self.failure:
            raise self.failure
        return vector_of(self.vector)


FAILURE = ApiError("vector_embedding_error", "Error while generating embeddings: no")


def test_the_query_is_embedded_when_it_is_needed() -> None:
    service = Service()
    found = answer(PLANETS, q="dark", hybrid=BY_VECTORS, embed=service, retrieve_vectors=True)
    assert ids(found)[0] == 0 and found.query_vectors == {0: vector_of([1.0, 0.0])}
    media = {"picture": 1}
    answer(PLANETS, hybrid=Hybrid("e", 0.3), media=media, embed=service)
    answer(PLANETS, q="dark", media=media, hybrid=Hybrid("e", 0.3), embed=service)
    assert [(each.q, each.media, each.is_needed) for each in service.asked] == [
        ("dark", None, True), (None, media, True), ("dark", media, False)]
    assert {(each.embedder, each.dimensions, each.settings["source"]) for each in service.asked} == {("e", 2, "userProvided")}


def test_good_words_and_given_vectors_need_no_service() -> None:
    service = Service()
    good = answer(PLANETS, Federation(limit=1), q="flower", hybrid=Hybrid("e", 0.1), embed=service, retrieve_vectors=True)
    assert ids(good) == [3] and good.semantic_hits == 0 and good.query_vectors == {}
    answer(PLANETS, vector=[1.0, 0.0], hybrid=BY_VECTORS, embed=service)
    answer(PLANETS, q="flower", hybrid=Hybrid("e", 0), embed=service)
    assert service.asked == []


def test_words_must_do_when_the_query_is_not_embedded() -> None:
    found = answer(PLANETS, q="flower", hybrid=Hybrid("e", 0.9), embed=Service(FAILURE))
    assert ids(found) == [3] and found.semantic_hits == 0
    with pytest.raises(ApiError) as refused:
        answer(PLANETS, q="flower", hybrid=BY_VECTORS, embed=Service(FAILURE))
    assert refused.value.message == FAILURE.message


def test_a_service_may_not_change_the_length_of_its_vectors() -> None:
    with pytest.raises(ApiError) as refused:
        answer(PLANETS, q="flower", hybrid=BY_VECTORS, embed=Service(vector=(1.0, 2.0, 3.0)))
    assert refused.value.code == "invalid_vector_dimensions"


# Kinds and errors


@pytest.mark.parametrize(("members", "kind"), [
    ({}, Kind.KEYWORD),
    ({"q": "a", "hybrid": Hybrid("e", 0)}, Kind.KEYWORD),
    ({"vector": [1.0], "hybrid": Hybrid("e", 0)}, Kind.KEYWORD),
    ({"hybrid": BY_VECTORS}, Kind.KEYWORD),
    ({"q": "a", "hybrid": BY_VECTORS}, Kind.SEMANTIC),
    ({"q": "", "hybrid": BY_VECTORS}, Kind.SEMANTIC),
    ({"q": "", "hybrid": Hybrid("e")}, Kind.HYBRID),
    ({"q": "a", "vector": [1.0], "hybrid": Hybrid("e")}, Kind.HYBRID),
    ({"vector": [1.0], "hybrid": Hybrid("e")}, Kind.SEMANTIC),
    ({"media": {}, "hybrid": Hybrid("e")}, Kind.SEMANTIC),
])
def test_the_kind_follows_from_the_members(members: dict[str, Any], kind: Kind) -> None:
    assert kind_of(SearchQuery(**members)) is kind


@pytest.mark.parametrize(("members", "code", "message"), [
    ({"vector": [1.0, 2.0]}, "missing_search_hybrid",
     "Invalid request: missing `hybrid` parameter when `vector` or `media` are present."),
    ({"media": {}}, "missing_search_hybrid",
     "Invalid request: missing `hybrid` parameter when `vector` or `media` are present."),
    ({"media": {}, "vector": [1.0]}, "invalid_search_media_and_vector",
     "Invalid request: both `media` and `vector` parameters are present."),
    ({"vector": [1.0, 2.0], "hybrid": Hybrid("x")}, "invalid_search_embedder", "Cannot find embedder with name `x`."),
    ({"q": "a", "vector": [1.0], "hybrid": Hybrid("e")}, "invalid_vector_dimensions",
     "Invalid vector dimensions: expected: `2`, found: `1`."),
    ({"vector": [1.0, 2.0], "hybrid": BY_VECTORS, "sort": ["title:asc"]}, "invalid_search_sort",
     f"Index `{UID}`: Attribute `title` is not sortable. Available sortable attributes are: `year`."),
])
def test_wrong_members_are_rejected(members: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        answer(PLANETS, **members)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_neighbours_are_handed_out_after_the_cutoff() -> None:
    def over(_milliseconds: int) -> Any:
        return lambda: True

    assert ids(answer(PLANETS, Federation(limit=2), timer=over, vector=[0.0, 1.0], hybrid=BY_VECTORS)) == [1, 2]


# What hits show


def test_scores_are_shifted_by_the_distribution() -> None:
    shifted = DictReader([{"id": 1, "_vectors": {"e": [1.0, 3.0]}}, {"id": 2, "_vectors": {"e": [2.0, 3.0]}}],
                         {"embedders": {"e": {**EMBEDDERS["e"], "distribution": {"mean": 0.998, "sigma": 0.01}}}})
    found = hits_of(answer(shifted, vector=[1.0, 1.0], hybrid=BY_VECTORS, show_ranking_score=True,
                           show_ranking_score_details=True))
    assert [hit["_rankingScore"] for hit in found] == pytest.approx([0.19161224365234375, 1.1920928955078125e-07])
    assert found[0]["_rankingScoreDetails"] == {"vectorSort": {"order": 0, "similarity": found[0]["_rankingScore"]}}


@pytest.mark.parametrize(("displayed", "known", "is_shown"), [
    (["*"], True, True), (["id"], True, True), (["id", "_vectors"], True, False), (["id"], False, False),
    (["id", "_vectors"], False, True),
])
def test_vectors_are_shown_where_they_are_displayed(displayed: list[str], known: bool, is_shown: bool) -> None:
    vectors = {"_vectors": {"e": [1.0, 2.0], "free": "as given"}} if known else {}
    reader = DictReader([{"id": 1, **vectors}], {"embedders": EMBEDDERS, "displayedAttributes": displayed})
    (hit,) = hits_of(answer(reader, retrieve_vectors=True))
    assert ("_vectors" in hit) == is_shown
    (hit,) = hits_of(answer(reader))
    assert "_vectors" not in hit


def test_vectors_stand_before_distance_and_federation() -> None:
    reader = DictReader([{"id": 1, "_geo": {"lat": 1, "lng": 1}, "_vectors": {"free": 1, "e": [1.0, 2.0]}}],
                        {"embedders": EMBEDDERS, "sortableAttributes": ["_geo"]})
    query = SearchQuery(retrieve_vectors=True, sort=["_geoPoint(1, 1):asc"], attributes_to_highlight=["id"])
    (hit,) = hits_of(federated({UID: reader}.__getitem__, [IndexedQuery(UID, query)], Federation(), never))
    assert list(hit) == ["id", "_geo", "_vectors", "_geoDistance", "_federation", "_formatted"]


def test_a_page_of_long_vectors_is_rendered_in_portions() -> None:
    dimensions = 3000
    reader = DictReader([{"id": number, "_vectors": {"e": [float(number), *[0.5] * (dimensions - 1)]}} for number in range(8)],
                        {"embedders": {"e": {"source": "userProvided", "dimensions": dimensions}}})
    asked: dict[str, Any] = {"vector": [1.0] * dimensions, "hybrid": BY_VECTORS, "retrieve_vectors": True, "show_ranking_score": True}
    whole = answer(reader, **asked)
    assert isinstance(whole.hits, LongPage)
    assert hits_of(whole) == [hit for place in range(8) for hit in hits_of(answer(reader, Federation(offset=place, limit=1), **asked))]
    merged = federated({UID: reader}.__getitem__, [IndexedQuery(UID, SearchQuery(**asked))], Federation(), never)
    assert isinstance(merged.hits, LongPage) and ids(merged) == ids(whole)


def test_facet_search_counts_the_documents_of_the_filter() -> None:
    def counts(**members: Any) -> dict[str, int]:
        query = SearchQuery(q="dark", filter=read_filter("year < 4", ""), **members)
        return {hit.value: hit.count for hit in facet_search(PLANETS, FacetQuery("color", None, None), query, False, never)}

    assert counts() == {"blue": 1, "red": 1}
    assert counts(hybrid=BY_VECTORS) == counts(hybrid=Hybrid("e"), vector=[1.0, 0.0]) == {"blue": 1, "red": 2}
    assert counts(hybrid=Hybrid("e", 0)) == counts()


# Federations


def federation_of(*queries: tuple[float, dict[str, Any]], **federation: Any) -> SearchResult:
    asked = [IndexedQuery(UID, SearchQuery(**members), weight) for weight, members in queries]
    return federated({UID: PLANETS}.__getitem__, asked, Federation(**federation), never)


@pytest.mark.parametrize(("weight", "expected"), [(1.0, [(0, 0), (3, 1), (2, 0), (1, 0)]), (0.5, [(0, 0), (2, 0), (1, 0), (3, 1)])])
def test_similarities_compare_with_scores_by_their_weights(weight: float, expected: list[tuple[int, int]]) -> None:
    found = federation_of((1.0, {"vector": [1.0, 0.0], "hybrid": BY_VECTORS, "retrieve_vectors": True}), (weight, {"q": "flower"}))
    hits = hits_of(found)
    if weight == 0.5:  # 0.5 is that of document 1 as well: the earlier query comes first
        assert hits[2]["_federation"]["weightedRankingScore"] == 0.5
    assert [(hit["id"], hit["_federation"]["queriesPosition"]) for hit in hits] == expected
    assert found.semantic_hits == 3 and found.query_vectors == {0: vector_of([1.0, 0.0])}
    assert found.pagination["estimatedTotalHits"] == 4


def test_hits_by_vectors_are_counted_when_there_may_be_some() -> None:
    assert federation_of((1.0, {"q": "flower"})).semantic_hits is None
    assert federation_of((1.0, {"q": "dark", "vector": [1.0, 0.0], "hybrid": BY_VECTORS}), limit=0).semantic_hits == 0
