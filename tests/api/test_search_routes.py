"""1. Every parameter, in a body or a query string, refuses what it can't read with its own code and words.
2. Null and empty ask for nothing.
3. A query string means the same as the body it stands for.
4. The answer has the members of its kind of paging, in the order of the interface.
"""
from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from svcd.api import search_parameters as search
from svcd.api.answers import uuid7
from svcd.schema.index_settings import IndexSettings
from svcd.search.request import Federation, SearchResult
from svcd.validation import decode_query
from svcd.validation.names import LOCALES
from tests.support.patched_reading import read_from

CODES = {
    "q": "q", "offset": "offset", "limit": "limit", "page": "page", "hitsPerPage": "hits_per_page",
    "attributesToRetrieve": "attributes_to_retrieve", "attributesToCrop": "attributes_to_crop",
    "cropLength": "crop_length", "cropMarker": "crop_marker",
    "attributesToHighlight": "attributes_to_highlight", "highlightPreTag": "highlight_pre_tag",
    "highlightPostTag": "highlight_post_tag", "showMatchesPosition": "show_matches_position", "sort": "sort",
    "distinct": "distinct", "facets": "facets", "matchingStrategy": "matching_strategy",
    "attributesToSearchOn": "attributes_to_search_on", "rankingScoreThreshold": "ranking_score_threshold",
    "locales": "locales", "hybrid": "hybrid_query", "vector": "vector", "retrieveVectors": "retrieve_vectors",
    "media": "media", "personalize": "personalize", "useNetwork": "use_network",
    "showRankingScore": "show_ranking_score", "showRankingScoreDetails": "show_ranking_score_details",
    "showPerformanceDetails": "show_performance_details",
}
TEXTS = ("q", "cropMarker", "highlightPreTag", "highlightPostTag", "distinct", "matchingStrategy")
COUNTS = ("offset", "limit", "page", "hitsPerPage", "cropLength")
LISTS = ("attributesToRetrieve", "attributesToCrop", "attributesToHighlight", "sort", "facets",
         "attributesToSearchOn", "locales", "vector")
FLAGS = ("showMatchesPosition", "retrieveVectors", "useNetwork", "showRankingScore", "showRankingScoreDetails",
         "showPerformanceDetails")
OBJECTS = ("hybrid", "media", "personalize")
NULLABLE = {"q", "page", "hitsPerPage", "attributesToRetrieve", "attributesToCrop", "attributesToHighlight", "sort",
            "distinct", "facets", "attributesToSearchOn", "rankingScoreThreshold", "locales", "hybrid", "vector",
            "media", "personalize", "useNetwork"}
EXPECTED = {name: kind for names, kind in (
    (TEXTS, "a string"), (COUNTS, "a positive integer"), (LISTS, "an array"), (FLAGS, "a boolean"),
    (OBJECTS, "an object"), (("rankingScoreThreshold",), "a number")) for name in names}


def post(client: Any, **body: Any) -> Any:
    return client.json("POST", "/indexes/films/search", body)


@pytest.mark.parametrize("name", CODES)
def test_a_value_of_another_kind_is_refused(client, name) -> None:
    wrong, found = ({"a": 1}, 'an object: `{"a":1}`') if name not in OBJECTS else ("x", 'a string: `"x"`')
    message = f"Invalid value type at `.{name}`: expected {EXPECTED[name]}, but found {found}"
    assert post(client, **{name: wrong}).fault == (400, f"invalid_search_{CODES[name]}", message)


@pytest.mark.parametrize("name", CODES)
def test_null_is_refused_where_a_default_stands(client, name) -> None:
    got = post(client, **{name: None})
    if name in NULLABLE:
        assert got.value["code"] == "index_not_found"
    else:
        message = f"Invalid value type at `.{name}`: expected {EXPECTED[name]}, but found null"
        assert got.fault == (400, f"invalid_search_{CODES[name]}", message)


@pytest.mark.parametrize("name", LISTS)
def test_a_bad_element_is_named_by_its_place(client, name) -> None:
    kind = "a number" if name == "vector" else "a string"
    good = {"vector": 1, "locales": "fra"}.get(name, "a")
    message = f"Invalid value type at `.{name}[1]`: expected {kind}, but found a boolean: `true`"
    assert post(client, **{name: [good, True]}).fault == (400, f"invalid_search_{CODES[name]}", message)


@pytest.mark.parametrize(("body", "code", "message"), [
    ({"matchingStrategy": "doggo"}, "invalid_search_matching_strategy",
     "Unknown value `doggo` at `.matchingStrategy`: expected one of `last`, `all`, `frequency`"),
    ({"locales": ["xx"]}, "invalid_search_locales",
     "Unknown value `xx` at `.locales[0]`: expected one of " + ", ".join(f"`{code}`" for code in LOCALES)),
    ({"rankingScoreThreshold": 42}, "invalid_search_ranking_score_threshold",
     "Invalid value at `.rankingScoreThreshold`: the value of `rankingScoreThreshold` is invalid, "
     "expected a float between `0.0` and `1.0`."),
    ({"hybrid": {}}, "invalid_search_hybrid_query", "Missing field `embedder` inside `.hybrid`"),
    ({"hybrid": {"embedder": 1}}, "invalid_search_embedder",
     "Invalid value type at `.hybrid.embedder`: expected a string, but found a positive integer: `1`"),
    ({"hybrid": {"embedder": "a", "semanticRatio": 2}}, "invalid_search_semantic_ratio",
     "Invalid value at `.hybrid.semanticRatio`: the value of `semanticRatio` is invalid, "
     "expected a float between `0.0` and `1.0`."),
    ({"hybrid": {"embeder": "a"}}, "invalid_search_hybrid_query",
     "Unknown field `embeder` inside `.hybrid`: did you mean `embedder`? expected one of `semanticRatio`, `embedder`"),
    ({"personalize": {}}, "invalid_search_personalize", "Missing field `userContext` inside `.personalize`"),
    ({"personalize": {"userContext": 1}}, "invalid_search_personalize_user_context",
     "Invalid value type at `.personalize.userContext`: expected a string, but found a positive integer: `1`"),
    ({"filter": True}, "invalid_search_filter",
     "Invalid syntax for the filter parameter: `expected String, Array, found: true`."),
    ({"filter": ["a = 1", 1]}, "invalid_search_filter",
     "Invalid syntax for the filter parameter: `expected String, [String], found: 1`."),
    ({"filter": [["a = 1", ["b = 1"]]]}, "invalid_search_filter",
     'Invalid syntax for the filter parameter: `expected String, found: ["b = 1"]`.'),
    ({"marin": 1}, "bad_request",
     "Unknown field `marin`: expected one of " + ", ".join(f"`{name}`" for name in search.FIELDS)),
])
def test_values_are_checked(client, body, code, message) -> None:
    assert post(client, **body).fault == (400, code, message)


@pytest.mark.parametrize(("query", "code", "reason"), [
    *((f"{name}=doggo", CODES[name], f"`{name}`: could not parse `doggo` as a positive integer") for name in COUNTS),
    *((f"{name}=doggo", CODES[name], f"`{name}`: could not parse `doggo` as a boolean, "
       "expected either `true` or `false`") for name in FLAGS),
    ("retrieveVectors=", "retrieve_vectors",
     "`retrieveVectors`: could not parse `` as a boolean, expected either `true` or `false`"),
    ("rankingScoreThreshold=doggo", "ranking_score_threshold",
     "`rankingScoreThreshold`: could not parse `doggo` as a number"),
    ("rankingScoreThreshold=42", "ranking_score_threshold",
     "`rankingScoreThreshold`: the value of `rankingScoreThreshold` is invalid, "
     "expected a float between `0.0` and `1.0`."),
    ("hybridSemanticRatio=42", "semantic_ratio",
     "`hybridSemanticRatio`: the value of `semanticRatio` is invalid, expected a float between `0.0` and `1.0`."),
    ("vector=doggo", "vector", "`vector`: could not parse `doggo` as a number"),
    ("vector=1,doggo", "vector", "`vector[1]`: could not parse `doggo` as a number"),
])
def test_parameters_are_checked(client, query, code, reason) -> None:
    got = client.get(f"/indexes/films/search?{query}")
    assert got.fault == (400, f"invalid_search_{code}", f"Invalid value in parameter {reason}")


@pytest.mark.parametrize(("query", "code", "beginning"), [
    ("matchingStrategy=doggo", "invalid_search_matching_strategy",
     "Unknown value `doggo` for parameter `matchingStrategy`: expected one of `last`, `all`, `frequency`"),
    ("locales=xx", "invalid_search_locales",
     "Invalid value in parameter `locales`: Unsupported locale `xx`, expected one of af, ak, am, ar, az, be, bg, bn"),
    ("hybridSemanticRatio=0.5", "invalid_search_hybrid_query",
     "`hybridEmbedder` is mandatory when `hybridSemanticRatio` is present"),
    ("vector=1", "missing_search_hybrid", "`hybridEmbedder` is mandatory when `vector` is present"),
    ("marin=hello", "bad_request",
     "Unknown parameter `marin`: expected one of " + ", ".join(f"`{name}`" for name in search.PARAMS)),
])
def test_parameters_are_checked_together(client, query, code, beginning) -> None:
    status, found, message = client.get(f"/indexes/films/search?{query}").fault
    assert (status, found) == (400, code) and message.startswith(beginning)


@pytest.mark.parametrize("body", [
    {"filter": None}, {"filter": ""}, {"filter": []}, {"filter": [[], " "]}, {"sort": []}, {"facets": []}, {"retrieveVectors": False},
    {"showPerformanceDetails": False},
])
def test_asking_for_nothing_is_allowed(client, body) -> None:
    assert post(client, **body).value["code"] == "index_not_found"


@pytest.mark.parametrize(("body", "words"), [
    ({"useNetwork": True}, "passing `useNetwork` in a search query requires enabling the `network` experimental feature."),
    ({"useNetwork": False}, "passing `useNetwork` in a search query requires enabling the `network` experimental feature."),
    ({"media": {"a": 1}, "hybrid": {"embedder": "a"}}, None),
])
def test_experimental_parameters_name_their_feature(client, body, words) -> None:
    status, code, message = post(client, **body).fault
    assert status == 400
    assert words is None or (code == "feature_not_enabled" and message.startswith(words))


def test_a_query_string_means_what_its_body_means() -> None:
    query = ("q=star&attributesToRetrieve=a,b&showMatchesPosition=true&hybridEmbedder=e&vector=1,2"
             "&personalizeUserContext=me&sort=a:asc")
    body = search.from_query_string(decode_query(query, search.PARAMS))
    expected = {
        "q": "star", "attributesToRetrieve": ["a", "b"], "showMatchesPosition": True, "vector": [1.0, 2.0],
        "hybrid": {"embedder": "e", "semanticRatio": 0.5}, "personalize": {"userContext": "me"}, "sort": ["a:asc"],
    }
    assert {name: body[name] for name in expected} == expected
    assert set(body) <= set(search.FIELDS)


def test_request_uids_are_of_version_7_and_ascend() -> None:
    uids = [uuid.UUID(uuid7()) for _ in range(3)]
    assert {(uid.version, uid.variant) for uid in uids} == {(7, uuid.RFC_4122)}
    assert len(set(uids)) == 3


class Engine:
    """Stands for the engine and the index: keeps what it was asked, answers two hits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, client: Any, primary_key: str | None = "id") -> None:
        self.primary_key = primary_key
        self.asked: list[Any] = []
        monkeypatch.setattr("svcd.search.search.search", self.search)
        read_from(monkeypatch, lambda _instance, index_uid: self.read(index_uid))

    @contextmanager
    def read(self, _index_uid: str) -> Iterator[Any]:
        yield SimpleNamespace(primary_key=self.primary_key, state=None, settings=IndexSettings.of({}))

    def search(self, _readers: Any, queries: Any, federation: Federation, timer: Any, _embed: Any,
               _reranking: Any) -> SearchResult:
        self.asked.append((queries[0].query, federation))
        assert timer(0)() and not timer(60_000)()
        hits = ['{"id":1}', '{"id":2,"_formatted":{"id":"2","_vectors":{"e":["1"]}}}']
        return SearchResult(hits, federation.pagination(2))


@pytest.mark.parametrize(("body", "paging"), [
    ({}, {"limit": 20, "offset": 0, "estimatedTotalHits": 2}),
    ({"limit": 5, "offset": 1}, {"limit": 5, "offset": 1, "estimatedTotalHits": 2}),
    ({"page": 1}, {"hitsPerPage": 20, "page": 1, "totalPages": 1, "totalHits": 2}),
    ({"hitsPerPage": 1}, {"hitsPerPage": 1, "page": 1, "totalPages": 2, "totalHits": 2}),
    ({"hitsPerPage": 0, "page": 0}, {"hitsPerPage": 0, "page": 0, "totalPages": 0, "totalHits": 2}),
])
def test_an_answer_has_the_members_of_its_paging(client, monkeypatch, check_shape, body, paging) -> None:
    Engine(monkeypatch, client)
    got = post(client, q="star", **body).value
    check_shape(got, "SearchAnswer")
    assert list(got) == ["hits", "query", "processingTimeMs", *paging, "requestUid"]
    assert {name: got[name] for name in paging} == paging
    assert got["hits"] == [{"id": 1}, {"id": 2, "_formatted": {"id": "2", "_vectors": {"e": ["1"]}}}]


@pytest.mark.parametrize("q", [None, ""])
def test_a_search_of_nothing_shows_an_empty_query(client, monkeypatch, q) -> None:
    Engine(monkeypatch, client)
    assert post(client, q=q).value["query"] == ""


@pytest.mark.parametrize(("primary_key", "members"), [
    ("id", ["query", "queryUid", "indexUid", "primaryKey"]), (None, ["query", "queryUid", "indexUid"]),
])
def test_metadata_is_shown_when_its_header_is_sent(client, monkeypatch, check_shape, primary_key, members) -> None:
    Engine(monkeypatch, client, primary_key)
    got = client.get("/indexes/films/search?q=star", **{"svc-include-metadata": "true"}).value
    check_shape(got, "SearchAnswer")
    assert list(got)[-1] == "metadata" and list(got["metadata"]) == members


def test_a_query_string_reaches_the_engine_as_its_body_does(client, monkeypatch) -> None:
    engine = Engine(monkeypatch, client)
    client.get("/indexes/films/search?q=star&limit=3&attributesToRetrieve=id,title&locales=fra&cropLength=4"
               "&rankingScoreThreshold=0.5&showRankingScore=true&matchingStrategy=all")
    post(client, q="star", limit=3, attributesToRetrieve=["id", "title"], locales=["fra"], cropLength=4,
         rankingScoreThreshold=0.5, showRankingScore=True, matchingStrategy="all")
    assert engine.asked[0] == engine.asked[1]
