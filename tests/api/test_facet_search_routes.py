"""1. Every parameter is checked under its own code; members of other searches are let through.
2. The order of refusals: shape, index, form of the filter, feature of the index, what the search refuses, name of the
   attribute.
3. The answer names the query as it was sent.
4. A search shows facets between the paging and its uid, and only if it asks for some; no index opens the refusal.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.instance.instance import Instance
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_from

FILMS = [{"id": 1, "title": "sun", "genre": ["Drama", "Noir"], "year": 1950},
         {"id": 2, "title": "sun", "genre": "drama"}]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The index `films`; gives its settings, to be changed before it is read."""
    chosen: dict[str, Any] = {"filterableAttributes": ["genre", "year"], "searchableAttributes": ["title"]}

    @contextmanager
    def reading(_self: Instance, index_uid: str) -> Iterator[DictReader]:
        if index_uid != "films":
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        yield DictReader(FILMS, chosen)

    read_from(monkeypatch, reading)
    return chosen


def post(client: Any, index_uid: str = "films", **members: Any) -> Any:
    return client.json("POST", f"/indexes/{index_uid}/facet-search", members)


@pytest.mark.parametrize(("members", "code", "message"), [
    ({}, "missing_facet_search_facet_name", "Missing field `facetName`"),
    ({"facetName": 1}, "invalid_facet_search_facet_name",
     "Invalid value type at `.facetName`: expected a string, but found a positive integer: `1`"),
    ({"facetName": None}, "invalid_facet_search_facet_name",
     "Invalid value type at `.facetName`: expected a string, but found null"),
    ({"facetName": "genre", "facetQuery": []}, "invalid_facet_search_query",
     "Invalid value type at `.facetQuery`: expected a string, but found an array: `[]`"),
    ({"facetName": "genre", "exhaustiveFacetCount": 1}, "invalid_facet_search_exhaustive_facet_count",
     "Invalid value type at `.exhaustiveFacetCount`: expected a boolean, but found a positive integer: `1`"),
    ({"facetName": "genre", "q": 1}, "invalid_search_q",
     "Invalid value type at `.q`: expected a string, but found a positive integer: `1`"),
])
def test_parameters_have_their_codes(client, members: dict[str, Any], code: str, message: str) -> None:
    assert post(client, **members).fault == (400, code, message)


@pytest.mark.parametrize("member", [
    "filter", "matchingStrategy", "attributesToSearchOn", "rankingScoreThreshold", "locales", "hybrid", "vector",
    "media", "useNetwork"])
def test_parameters_of_searches_have_the_codes_of_searches(client, member: str) -> None:
    status, code, _ = post(client, facetName="genre", **{member: 2}).fault
    assert (status, code.startswith("invalid_search_")) == (400, True)


def test_members_of_other_searches_are_let_through(client, check_shape) -> None:
    got = post(client, facetName="genre", limit="no number", facets=["x"], unknown=1).value
    check_shape(got, "FacetSearchAnswer")
    assert got["facetHits"] == [{"value": "Drama", "count": 2}, {"value": "Noir", "count": 1}]


def test_refusals_come_in_their_order(client, settings) -> None:
    settings["facetSearch"] = False
    members: dict[str, Any] = {"facetName": "title", "attributesToSearchOn": ["genre"], "filter": "year = "}
    assert post(client, "songs", **members, facetQuery=1).fault[1] == "invalid_facet_search_query"
    assert post(client, "songs", **members).fault[:2] == (404, "index_not_found")
    assert post(client, **members).fault[1] == "invalid_search_filter"
    del members["filter"]
    assert post(client, **members).fault[1] == "facet_search_disabled"
    settings["facetSearch"] = True
    assert post(client, **members).fault[1:] == (
        "invalid_search_attributes_to_search_on",
        "Attribute `genre` is not searchable. Available searchable attributes are: `title`.")
    del members["attributesToSearchOn"]
    assert post(client, **members).fault[1] == "invalid_facet_search_facet_name"


@pytest.mark.parametrize("text", [None, "", "DRAMO"])
def test_the_query_is_named_as_it_was_sent(client, text: str | None) -> None:
    got = post(client, facetName="genre", facetQuery=text).value
    assert list(got) == ["facetHits", "facetQuery", "processingTimeMs"]
    assert got["facetQuery"] == text and got["facetHits"][0] == {"value": "Drama", "count": 2}


def search(client: Any, **members: Any) -> Any:
    return client.json("POST", "/indexes/films/search", members)


def test_a_search_shows_facets_after_its_paging(client, check_shape) -> None:
    got = search(client, q="sun", facets=["*"], limit=0).value
    check_shape(got, "SearchAnswer")
    assert list(got)[5:] == ["estimatedTotalHits", "facetDistribution", "facetStats", "requestUid"]
    assert got["facetDistribution"] == {"genre": {"Drama": 2, "Noir": 1}, "year": {"1950": 1}}
    assert str(got["facetStats"]) == "{'year': {'min': 1950.0, 'max': 1950.0}}"


def test_without_patterns_there_are_no_facets(client) -> None:
    assert "facetDistribution" not in search(client, facets=[]).value


def test_no_index_opens_the_refusal_of_a_facet(client) -> None:
    assert search(client, facets=["title"]).fault == (
        400, "invalid_search_facets", "Invalid facet distribution: Pattern `title` is not filterable. Available"
                                      " filterable attributes patterns are: `genre, year`.")


def test_facets_are_asked_for_in_a_query_string_too(client) -> None:
    got = client.get("/indexes/films/search?facets=genre,year&q=sun").value
    assert list(got["facetDistribution"]) == ["genre", "year"]
