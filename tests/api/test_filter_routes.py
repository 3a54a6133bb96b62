"""What must hold of filters on routes:

1. Search, list and fetch give what meets the filter, and count it; with `ids` and `sort` too.
2. A query string may hold a text or the JSON of lists.
3. Errors of a search's evaluation open with the index and show the canonical text; those of documents do neither.
4. What needs a feature is refused without it, in the order of the features.
5. A deletion by filter removes what meets it when its turn comes, and what earlier tasks of its batch wrote.
6. A deletion that its index refuses fails alone.
7. Joins look into other indexes in searches and in lists of documents; deletions and editions refuse them.
8. A query string can't ask for `null`.
"""
from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

DOCUMENTS = [{"id": 1, "color": "red", "n": 1}, {"id": 2, "color": "blue", "n": 2}, {"id": 3, "color": ["blue", "green"]}, {"id": 4}]
SEE = "experimental feature. See https://github.com/orgs/svc/discussions"


@pytest.fixture
def cars(client, work) -> Any:
    """A client of an index `cars` with DOCUMENTS, filterable by color and n, sortable by n."""
    client.json("PATCH", "/indexes/cars/settings", {"filterableAttributes": ["color", "n"], "sortableAttributes": ["n"]})
    client.json("POST", "/indexes/cars/documents?primaryKey=id", DOCUMENTS)
    work()
    return client


FILTERS = [("color = blue", [2, 3]), ("color != blue", [1, 4]), (["color = blue", "n EXISTS"], [2]),
           ([["color = red", "color = green"]], [1, 3]), ("", [1, 2, 3, 4]), ([], [1, 2, 3, 4]), ("n > 5", [])]


def as_text(asked: Any) -> str:
    from svcd.base.json_text import dumps

    return quote(asked if isinstance(asked, str) else dumps(asked))


@pytest.mark.parametrize(("asked", "ids"), FILTERS)
def test_a_search_gives_what_meets_the_filter(cars, asked, ids) -> None:
    for got in (cars.json("POST", "/indexes/cars/search", {"filter": asked}),
                cars.get(f"/indexes/cars/search?filter={as_text(asked)}")):
        assert [hit["id"] for hit in got.value["hits"]] == ids and got.value["estimatedTotalHits"] == len(ids)


@pytest.mark.parametrize(("asked", "ids"), FILTERS)
def test_documents_are_those_that_meet_the_filter(cars, asked, ids) -> None:
    for got in (cars.json("POST", "/indexes/cars/documents/fetch", {"filter": asked}),
                cars.get(f"/indexes/cars/documents?filter={as_text(asked)}")):
        assert [document["id"] for document in got.value["results"]] == ids and got.value["total"] == len(ids)


def test_a_page_of_documents_by_filter_identifiers_and_order(cars) -> None:
    body = {"filter": "n EXISTS OR color = green", "ids": [3, 2, 1, 4], "sort": ["n:desc"], "limit": 1, "offset": 1}
    got = cars.json("POST", "/indexes/cars/documents/fetch", body).value
    assert ([document["id"] for document in got["results"]], got["total"]) == ([1], 3)


NOT_FILTERABLE = "Attribute `x` is not filterable. Available filterable attribute patterns are: `color`, `n`."


def test_errors_of_evaluation_by_route(cars) -> None:
    searched = cars.json("POST", "/indexes/cars/search", {"filter": ["x=1"]}).fault
    assert searched == (400, "invalid_search_filter", f'Index `cars`: {NOT_FILTERABLE}\n2:3 "x" = "1"')
    for got in (cars.json("POST", "/indexes/cars/documents/fetch", {"filter": ["x=1"]}), cars.get("/indexes/cars/documents?filter=x%3D1")):
        assert got.fault == (400, "invalid_document_filter", f"{NOT_FILTERABLE}\n1:2 x=1")


def test_an_operator_that_is_not_allowed_has_the_code_of_searches(cars, work) -> None:
    rule = {"attributePatterns": ["color"], "features": {"filter": {"equality": False, "comparison": True}}}
    cars.json("PUT", "/indexes/cars/settings/filterable-attributes", [rule])
    work()
    opening = "Filter operator `=` is not allowed for the attribute `color`.\n"
    code, message = cars.json("POST", "/indexes/cars/documents/fetch", {"filter": "color = red"}).fault[1:]
    assert code == "invalid_search_filter" and message.startswith(opening)
    uid = cars.json("POST", "/indexes/cars/documents/delete", {"filter": "color = red"}).value["taskUid"]
    work()
    error = cars.get(f"/tasks/{uid}").value["error"]
    assert error["code"] == "invalid_search_filter" and error["message"].startswith(f"Index `cars`: {opening}")


def test_errors_of_reading_are_those_of_the_text(cars) -> None:
    for url, code in (("search", "invalid_search_filter"), ("documents/fetch", "invalid_document_filter"),
                      ("documents/delete", "invalid_document_filter")):
        got = cars.json("POST", f"/indexes/cars/{url}", {"filter": [["a = 1", "b ="]]})
        assert got.fault == (400, code, "Was expecting a value but instead got nothing.\n4:4 b =")


@pytest.mark.parametrize("url", ["search", "documents/fetch", "documents/delete"])
@pytest.mark.parametrize(
    ("asked", "message"),
    [("color NOT CONTAINS x", f"Using `CONTAINS` in a filter requires enabling the `contains filter` {SEE}/763\n11:19 color NOT CONTAINS x"),
     ("_foreign(color, n = 1)", f"using a foreign filter requires enabling the `foreign_keys` {SEE}/873\n10:15 _foreign(color, n = 1)"),
     ("_shard = a", f"using a shard filter requires enabling the `network` {SEE}/805\n1:7 _shard = a"),
     ("_vectors EXISTS AND _shard = a", f"using a shard filter requires enabling the `network` {SEE}/805\n"
                                        "21:27 _vectors EXISTS AND _shard = a"),
     ("_vectors EXISTS", f"using a vector filter requires enabling the `multimodal` {SEE}/846\n1:9 _vectors EXISTS")],
)
def test_what_needs_a_feature_is_refused_without_it(cars, url, asked, message) -> None:
    assert cars.json("POST", f"/indexes/cars/{url}", {"filter": asked}).fault == (400, "feature_not_enabled", message)


def test_with_its_feature_it_works(cars) -> None:
    cars.json("PATCH", "/experimental-features", {"containsFilter": True, "multimodal": True})
    assert [hit["id"] for hit in cars.json("POST", "/indexes/cars/search", {"filter": "color CONTAINS RE"}).value["hits"]] == [1, 3]
    assert not cars.json("POST", "/indexes/cars/search", {"filter": "_vectors EXISTS"}).value["hits"]


# Deletion


def left(client: Any) -> list[Any]:
    return [document["id"] for document in client.get("/indexes/cars/documents").value["results"]]


def test_a_deletion_shows_its_filter_and_counts(cars, work) -> None:
    got = cars.json("POST", "/indexes/cars/documents/delete?customMetadata=m", {"filter": ["color = blue", ["n = 2", "n NOT EXISTS"]]})
    assert got.status == 202 and got.value["type"] == "documentDeletion"
    details = {"providedIds": 0, "deletedDocuments": None, "originalFilter": '["color = blue",["n = 2","n NOT EXISTS"]]'}
    assert cars.get(f"/tasks/{got.value['taskUid']}").value["details"] == details
    work()
    ended = cars.get(f"/tasks/{got.value['taskUid']}").value
    assert (ended["status"], ended["details"], ended["customMetadata"]) == ("succeeded", {**details, "deletedDocuments": 2}, "m")
    assert left(cars) == [1, 4]


def test_a_deletion_sees_what_its_batch_wrote_before_it(cars, work) -> None:
    uids = [cars.json(method, f"/indexes/cars/{url}", body).value["taskUid"] for method, url, body in [
        ("POST", "documents/delete-batch", [1]),
        ("POST", "documents/delete", {"filter": "color IN [red, blue]"}),
        ("POST", "documents", [{"id": 2, "color": "blue"}, {"id": 5, "color": "blue"}, {"id": 6, "color": "red"}]),
    ]]
    last = cars.json("POST", "/indexes/cars/documents/delete", {"filter": "color = blue"}).value["taskUid"]
    work()
    tasks = [cars.get(f"/tasks/{uid}").value for uid in (*uids, last)]
    assert [task["status"] for task in tasks] == ["succeeded"] * 4
    assert len({task["batchUid"] for task in tasks[:3]}) == 1
    assert [task["details"].get("deletedDocuments") for task in tasks] == [1, 2, None, 2]
    assert left(cars) == [4, 6]


def test_a_refused_deletion_fails_alone(cars, work) -> None:
    uids = [cars.json("POST", "/indexes/cars/documents/delete", {"filter": asked}).value["taskUid"]
            for asked in ("n = 1", "x = 1", "n = 2")]
    work()
    first, refused, last = (cars.get(f"/tasks/{uid}").value for uid in uids)
    assert first["batchUid"] == refused["batchUid"] == last["batchUid"]
    assert (first["status"], last["status"], left(cars)) == ("succeeded", "succeeded", [3, 4])
    assert refused["details"] == {"providedIds": 0, "deletedDocuments": 0, "originalFilter": '"x = 1"'}
    assert (refused["error"]["code"], refused["error"]["message"]) == (
        "invalid_document_filter", f"Index `cars`: {NOT_FILTERABLE}\n1:2 x = 1")


def test_a_deletion_needs_its_index_when_it_runs(client, work) -> None:
    uid = client.json("POST", "/indexes/none/documents/delete", {"filter": "a = 1"}).value["taskUid"]
    work()
    assert client.get(f"/tasks/{uid}").value["error"]["code"] == "index_not_found"


# Joins


@pytest.fixture
def owners(cars, work) -> Any:
    """`owners` with `car` as a key into `cars`."""
    cars.json("PATCH", "/experimental-features", {"foreignKeys": True})
    cars.json("PATCH", "/indexes/owners/settings", {
        "filterableAttributes": ["car"], "foreignKeys": [{"foreignIndexUid": "cars", "fieldName": "car"}]})
    cars.json("POST", "/indexes/owners/documents", [{"id": 1, "car": 2}, {"id": 2, "car": [1, 3]}, {"id": 3}])
    work()
    return cars


def test_a_search_looks_into_the_index_that_is_joined(owners) -> None:
    for asked, ids in (("_foreign(car, color = blue)", [1, 2]), ("NOT _foreign(car, n = 1)", [1, 3])):
        assert [hit["id"] for hit in owners.json("POST", "/indexes/owners/search", {"filter": asked}).value["hits"]] == ids


def test_a_list_of_documents_looks_into_the_index_that_is_joined(owners) -> None:
    asked = "car = 1 OR _foreign(car, color = blue)"
    for got in (owners.json("POST", "/indexes/owners/documents/fetch", {"filter": asked}),
                owners.get(f"/indexes/owners/documents?filter={quote(asked)}")):
        assert [document["id"] for document in got.value["results"]] == [1, 2]


def test_a_join_of_a_list_is_refused_as_in_a_search(owners) -> None:
    for asked, code, message in (
            ("_foreign(id, n = 1)", "invalid_search_filter", "Index `owners`: Field `id` is not a foreign key"),
            ("_foreign(car, x = 1)", "invalid_document_filter", f"Index `cars`: {NOT_FILTERABLE}\n15:16 _foreign(car, x = 1)")):
        for url in ("search", "documents/fetch"):
            assert owners.json("POST", f"/indexes/owners/{url}", {"filter": asked}).fault == (400, code, message)


@pytest.mark.parametrize(("url", "opening"), [("delete", ""), ("edit", "Index `owners`: ")])
def test_deletions_and_editions_have_no_joins(owners, url, opening) -> None:
    owners.json("PATCH", "/experimental-features", {"editDocumentsByFunction": True})
    body = {"filter": "car = 1 OR _foreign(car, color = blue)", **({"function": "1"} if url == "edit" else {})}
    got = owners.json("POST", f"/indexes/owners/documents/{url}", body)
    message = f"{opening}Filter condition `_foreign` is not supported for this endpoint.\n21:24 _foreign(car, color = blue)"
    assert got.fault == (400, "invalid_document_filter", message)


# Query strings


@pytest.mark.parametrize(("url", "code"), [("search", "invalid_search_filter"), ("documents", "invalid_document_filter")])
def test_a_query_string_can_not_ask_for_null(cars, url, code) -> None:
    message = "Invalid syntax for the filter parameter: `expected String, Array, found: null`."
    assert cars.get(f"/indexes/cars/{url}?filter=null").fault == (400, code, message)
