"""The route that explains a document. What must hold:

1. A document is explained with all parameters of a search; each has the errors of a search.
2. Errors come in their order: parameters, index, document, the filter on the index.
3. A tenant gets the same answer for a document that its token hides and for one that does not exist; its filter is not told.
4. A key that adds the filter of a tenant is told that this filter hides the document.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.auth.keys import Permission
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

PATH = "/indexes/films/explain"
FILMS = DictReader([
    {"id": "1", "title": "Star Wars", "year": 1977, "owner": "me"},
    {"id": "2", "title": "Dark Star", "year": 1974, "owner": "you"},
    {"id": "3", "title": "Alien", "year": 1979, "owner": "me"},
], {"filterableAttributes": ["year", "owner"], "sortableAttributes": ["year"], "searchableAttributes": ["title"]})


@pytest.fixture(autouse=True)
def films(monkeypatch: pytest.MonkeyPatch) -> None:
    read_indexes(monkeypatch, {"films": FILMS})


def explained(client: Any, document_id: Any, **search: Any) -> Any:
    return client.json("POST", PATH, {"documentId": document_id, **search})


def test_a_hit_has_its_place_rules_and_words(client, check_shape) -> None:
    got = explained(client, "2", q="star").value
    check_shape(got, "Explanation")
    assert list(got) == ["indexUid", "documentId", "query", "isHit", "place", "score", "rules", "words", "next", "cause",
                         "processingTimeMs"]
    assert (got["isHit"], got["place"], got["cause"]) == (True, 2, None)
    assert got["next"]["rule"] == "attribute" or got["next"]["there"] != got["next"]["here"]
    assert got["words"] == [{"word": "star", "matches": [{"text": "star", "kind": "exact", "typos": 0, "fields": ["title"]}]}]


CAUSES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"filter": "year > 1980"}, "filter", "The document does not meet the filter `\"year\" > \"1980\"`; its `year` is 1977."),
    ({"filter": ["owner = me", ["year = 1", "year = 2"]]}, "filter",
     'The document does not meet the filter `("year" = "1") OR ("year" = "2")`; its `year` is 1977.'),
    ({"q": "xyzzy"}, "wordNotFound", "No document has `xyzzy` or a word that counts as it."),
    ({"q": "star", "limit": 0}, "pagination", "The document is at place 1; the page shows no hits."),
    ({"sort": ["year:desc"], "hitsPerPage": 1}, "pagination", "The document is at place 2; the page shows places 1 to 1."),
    ({"q": "star", "offset": 1}, "pagination", "The document is at place 1; the page shows places 2 to 21."),
    ({"q": "1977"}, "searchableAttributes",
     "The document has `1977` only in attributes that are not in `searchableAttributes`: `year`."),
    ({"q": "wers"}, "typoLimit", "The document has `wars`, at 1 typo from `wers`: it may have no typos."),
    ({"q": "dark star", "matchingStrategy": "all"}, "wordMissing",
     "The document lacks `dark`, which the strategy `all` requires; the other strategies that drop words require it, too."),
    ({"q": "star dark", "matchingStrategy": "all"}, "matchingStrategy",
     "The document lacks `dark`, which the strategy `all` requires; with `last` it matches."),
    ({"q": "star alien", "distinct": "owner", "rankingScoreThreshold": 0.99}, "threshold", None),
]


def test_a_document_that_is_not_a_hit_has_a_cause(client, check_shape) -> None:
    for search, kind, text in CAUSES:
        got = explained(client, 1, **search).value
        check_shape(got, "Explanation")
        assert (got["isHit"], got["cause"]["kind"]) == (False, kind)
        assert text in (None, got["cause"]["text"])


FAULTS: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({"q": 1, "documentId": "9"}, (400, "invalid_search_q")),
    ({"documentId": "a b"}, (400, "invalid_document_id")),
    ({"q": "star"}, (400, "bad_request")),
    ({"documentId": "9", "filter": "year >"}, (400, "invalid_search_filter")),
    ({"documentId": "9", "filter": "title = a"}, (404, "document_not_found")),
    ({"documentId": "1", "filter": "title = a"}, (400, "invalid_search_filter")),
    ({"documentId": "1", "sort": ["title:asc"]}, (400, "invalid_search_sort")),
    ({"documentId": "1", "tenantFilter": 1}, (400, "invalid_search_filter")),
    ({"documentId": "1", "unknown": 1}, (400, "bad_request")),
]


def test_errors_are_those_of_a_search(client) -> None:
    for members, fault in FAULTS:
        assert client.json("POST", PATH, members).fault[:2] == fault, members
    assert client.json("POST", "/indexes/songs/explain", {"documentId": "1"}).fault[:2] == (404, "index_not_found")


def test_a_tenant_learns_nothing_about_hidden_documents(client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Permission, "search_filter", lambda permission, index_uid: "owner = me")
    hidden, absent = (explained(client, each, q="star", filter="year > 1900") for each in ("2", "9"))
    assert hidden.fault == (404, "document_not_found", "Document `2` not found.")
    assert hidden.text.replace("`2`", "`9`") == absent.text
    seen = explained(client, "3", q="darq").value
    assert (seen["cause"]["kind"], seen["cause"]["nearest"]) == ("wordNotFound", [])
    assert "owner" not in explained(client, "3", q="star", filter="year = 1").text
    assert explained(client, "1", q="star").value["place"] == 1


def test_a_key_is_told_which_filter_of_a_tenant_hides_a_document(client) -> None:
    got = explained(client, "2", q="star", filter="year > 1900", tenantFilter="owner = me").value
    assert got["cause"] == {
        "kind": "tenantFilter", "clause": '"owner" = "me"', "clauses": ['"owner" = "me"'], "values": {"owner": ["you"]},
        "text": 'The document does not meet the filter of the tenant `"owner" = "me"`; its `owner` is you.'}
    assert explained(client, "2", q="star", filter="year < 1900", tenantFilter="owner = me").value["cause"]["kind"] == "filter"
