"""Foreign documents in answers. What must hold:

1. Searches of every form show them: with a body, with a query string, several at once, merged.
2. Without the feature the identifiers stay, and so they do where the bearer may not search all of the other index.
3. No answer of an index with foreign keys is kept, for other indexes and the feature may change.
4. An index that does not exist is told of.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.auth.keys import Permission
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

KEYS = [{"fieldName": "by", "foreignIndexUid": "people"}, {"fieldName": "at", "foreignIndexUid": "places"}]
ANN = {"id": "a", "name": "Ann"}
INDEXES: dict[str, DictReader] = {
    "people": DictReader([ANN]),
    "places": DictReader([{"id": 1}]),
    "books": DictReader([{"id": 1, "by": ["a", "z"], "at": 1, "_vectors": {"e": [1]}}], {"foreignKeys": KEYS}),
    "films": DictReader([{"id": 2, "by": "a"}]),
    "lost": DictReader([{"id": 3, "by": "a"}], {"foreignKeys": [{"fieldName": "by", "foreignIndexUid": "nowhere"}]}),
}
SHOWN = {"id": 1, "by": [ANN, {}], "at": {"id": 1}}
STORED = {"id": 1, "by": ["a", "z"], "at": 1}


@pytest.fixture(autouse=True)
def indexes(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    read_indexes(monkeypatch, INDEXES)
    client.instance.force_feature("foreignKeys")


def hits(client: Any) -> list[Any]:
    """The hit of `books` in each form of a search."""
    several = {"queries": [{"indexUid": "films"}, {"indexUid": "books"}]}
    found = [
        client.json("POST", "/indexes/books/search", {}).value["hits"][0],
        client.get("/indexes/books/search").value["hits"][0],
        client.json("POST", "/multi-search", several).value["results"][1]["hits"][0],
    ]
    merged = client.json("POST", "/multi-search", {**several, "federation": {}}).value["hits"]
    assert [hit["by"] for hit in merged if hit["id"] == 2] == ["a"]
    last = next(hit for hit in merged if hit["id"] == 1)
    assert last.pop("_federation")["indexUid"] == "books"
    return [*found, last]


def test_searches_of_every_form_show_foreign_documents(client) -> None:
    assert hits(client) == [SHOWN] * 4


def test_formatted_members_show_them_too(client) -> None:
    asked = {"attributesToHighlight": ["id"], "q": "1", "attributesToRetrieve": ["id", "by"]}
    (hit,) = client.json("POST", "/indexes/books/search", asked).value["hits"]
    assert hit == {"id": 1, "by": [ANN, {}], "_formatted": {"id": "<em>1</em>", "by": [ANN, {}]}}


def test_nothing_is_kept_for_the_feature_may_be_switched(client) -> None:
    for is_on, shown in ((False, STORED), (True, SHOWN), (False, STORED)):
        client.instance.use_features({"foreignKeys": is_on})
        assert hits(client) == [shown] * 4


def test_nothing_is_kept_for_the_other_index_may_change(client, monkeypatch) -> None:
    assert hits(client)[0]["by"][0]["name"] == "Ann"
    monkeypatch.setitem(INDEXES, "people", DictReader([{**ANN, "name": "Bea"}]))
    assert hits(client)[0]["by"][0]["name"] == "Bea"


@pytest.mark.parametrize("permission", [
    Permission(indexes=("books", "films", "places")), Permission(rules={"books": None, "films": None, "places": None}),
    Permission(rules={"*": None, "people": {"filter": "id = a"}})])
def test_identifiers_stay_where_the_bearer_may_not_search(client, monkeypatch, permission) -> None:
    monkeypatch.setattr("svcd.auth.keys.ALL_PERMITTED", permission)
    assert hits(client) == [{**STORED, "at": {"id": 1}}] * 4


def test_an_index_that_does_not_exist_is_reported(client) -> None:
    refused = client.json("POST", "/indexes/lost/search", {}).fault
    assert refused == (404, "index_not_found", "Index `nowhere` not found.")
    assert client.json("POST", "/indexes/lost/search", {"q": "nothing"}).value["hits"] == []
