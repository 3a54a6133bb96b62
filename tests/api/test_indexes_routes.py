"""1. Index uids are checked wherever they are given, each place with its own words.
2. Writes are enqueued with the details and content of their kind, and answer 202 with the summary.
3. A swap names pairs, each index once.
4. With --experimental-rename-by-patch a change of the uid renames, as the official clients test it; without, it is refused.
5. Reads of an unknown index are 404 index_not_found.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from svcd.api.indexes import field_view
from svcd.base import quantities
from svcd.instance.instance import Instance
from svcd.schema.index_settings import IndexSettings
from tests.api.conftest import Client, client_of
from tests.support.bearers import MASTER_KEY

BAD_UID = ("`a b` is not a valid index uid. Index uid can be an integer or a string containing only alphanumeric "
           "characters, hyphens (-) and underscores (_), and can not be more than 512 bytes.")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", ""), ("DELETE", ""), ("GET", "/stats"), ("POST", "/compact"), ("GET", "/settings"),
])
@pytest.mark.parametrize("segment", ["a%20b", "é", "a" * 401, "a.b"])
def test_an_index_uid_in_a_path_is_checked(client, method, path, segment) -> None:
    status, code, message = client.send(method, f"/indexes/{segment}{path}").fault
    assert (status, code) == (400, "invalid_index_uid")
    assert message == BAD_UID or segment != "a%20b"


@pytest.mark.parametrize(("body", "refusal"), [
    ({"uid": "a b"}, ("invalid_index_uid", f"Invalid value at `.uid`: {BAD_UID}")),
    ({"uid": 3}, ("invalid_index_uid", "Invalid value type at `.uid`: expected a string, but found a positive integer: `3`")),
    ({}, ("missing_index_uid", "Missing field `uid`")),
    ({"uid": "a", "primaryKey": ["b"]},
     ("invalid_index_primary_key", 'Invalid value type at `.primaryKey`: expected a string, but found an array: `["b"]`')),
    ({"uid": "a", "primarykey": "b"},
     ("bad_request", "Unknown field `primarykey`: did you mean `primaryKey`? expected one of `uid`, `primaryKey`")),
    ([], ("bad_request", "Invalid value type: expected an object, but found an array: `[]`")),
])
def test_the_body_of_a_creation_is_checked(client, body, refusal) -> None:
    assert client.json("POST", "/indexes", body).fault == (400, *refusal)


@pytest.mark.parametrize(("content", "headers", "refusal"), [
    (b"{}", {}, (415, "missing_content_type",
                 "A Content-Type header is missing. Accepted values for the Content-Type header are: `application/json`")),
    (b"{}", {"content-type": "text/plain; charset=utf-8"}, (415, "invalid_content_type",
     "The Content-Type `text/plain; charset=utf-8` is invalid. Accepted values for the Content-Type header are: "
     "`application/json`")),
    (b"{}", {"content-type": ""}, (415, "invalid_content_type",
     "The Content-Type `` is invalid. Accepted values for the Content-Type header are: `application/json`")),
    (b"", {"content-type": "application/json"}, (400, "missing_payload", "A json payload is missing.")),
    (b"{", {"content-type": "application/json"}, (400, "malformed_payload",
     "The json payload provided is malformed. `EOF while parsing an object at line 1 column 1`.")),
    (b'{"uid": NaN}', {"content-type": "application/json"}, (400, "malformed_payload",
     "The json payload provided is malformed. `expected value at line 1 column 9`.")),
])
def test_a_payload_is_checked_before_its_members(client, content, headers, refusal) -> None:
    assert client.send("POST", "/indexes", content, headers).fault == refusal


def test_a_charset_does_not_change_the_content_type(client) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client.send("POST", "/indexes", b'{"uid": "a"}', headers).status == 202


@pytest.mark.parametrize("primary_key", [{}, {"primaryKey": None}, {"primaryKey": "id"}])
def test_a_creation_is_enqueued(client, check_shape, primary_key) -> None:
    got = client.json("POST", "/indexes", {"uid": "films", **primary_key})
    check_shape(got.value, "TaskSummary")
    assert got.status == 202
    assert list(got.value) == ["taskUid", "indexUid", "status", "type", "enqueuedAt"]
    task = client.instance.queue.task(0, with_content=True)
    assert task.details == task.content == {"primaryKey": primary_key.get("primaryKey")}
    assert (task.kind, task.index_uid) == ("indexCreation", "films")


@pytest.mark.parametrize(("body", "refusal"), [
    ({"uid": "b"}, ("bad_request", "Immutable field `uid`: expected one of `primaryKey`")),
    ({"createdAt": "x"}, ("immutable_index_created_at", "Immutable field `createdAt`: expected one of `primaryKey`")),
    ({"updatedAt": "x"}, ("immutable_index_updated_at", "Immutable field `updatedAt`: expected one of `primaryKey`")),
    ({"primaryKey": 1}, ("invalid_index_primary_key",
                         "Invalid value type at `.primaryKey`: expected a string, but found a positive integer: `1`")),
])
def test_the_body_of_a_change_is_checked(client, body, refusal) -> None:
    assert client.json("PATCH", "/indexes/a", body).fault == (400, *refusal)


@pytest.mark.parametrize(("method", "path", "kind", "details"), [
    ("DELETE", "/indexes/a", "indexDeletion", {"deletedDocuments": None}),
    ("POST", "/indexes/a/compact", "indexCompaction", {}),
])
def test_a_write_without_body_is_enqueued(client, method, path, kind, details) -> None:
    got = client.send(method, path)
    assert (got.status, got.value["type"], got.value["indexUid"]) == (202, kind, "a")
    assert client.get("/tasks/0").value["details"] == details


@pytest.mark.parametrize(("body", "refusal"), [
    ("doggo", ("bad_request", 'Invalid value type: expected an array, but found a string: `"doggo"`')),
    (["doggo"], ("bad_request", 'Invalid value type at `[0]`: expected an object, but found a string: `"doggo"`')),
    ([{}], ("missing_swap_indexes", "Missing field `indexes` inside `[0]`")),
    ([{"indexes": "doggo"}],
     ("invalid_swap_indexes", 'Invalid value type at `[0].indexes`: expected an array, but found a string: `"doggo"`')),
    ([{"indexes": ["a b", "c"]}], ("invalid_swap_indexes", f"Invalid value at `[0].indexes[0]`: {BAD_UID}")),
    ([{"indexes": ["a"]}], ("invalid_swap_indexes",
                            'Two indexes must be given for each swap. The list `["a"]` contains 1 indexes.')),
    ([{"indexes": ["a", "b", "c"]}],
     ("invalid_swap_indexes", 'Two indexes must be given for each swap. The list `["a", "b", "c"]` contains 3 indexes.')),
    ([{"indexes": ["a", "b"], "rename": 1}],
     ("invalid_swap_rename", "Invalid value type at `[0].rename`: expected a boolean, but found a positive integer: `1`")),
    ([{"indexes": ["a", "b"], "uid": 1}],
     ("bad_request", "Unknown field `uid` inside `[0]`: expected one of `indexes`, `rename`")),
    ([{"indexes": ["a", "a"]}], ("invalid_swap_duplicate_index_found",
     "Indexes must be declared only once during a swap. `a` was specified several times.")),
    ([{"indexes": ["d", "a"]}, {"indexes": ["a", "d"]}], ("invalid_swap_duplicate_index_found",
     "Indexes must be declared only once during a swap. `a`, `d` were specified several times.")),
])
def test_the_body_of_a_swap_is_checked(client, body, refusal) -> None:
    assert client.json("POST", "/swap-indexes", body).fault == (400, *refusal)


def test_a_swap_is_enqueued(client) -> None:
    got = client.json("POST", "/swap-indexes", [{"indexes": ["a", "b"]}, {"indexes": ["c", "d"], "rename": True}])
    assert (got.status, got.value["indexUid"], got.value["type"]) == (202, None, "indexSwap")
    swaps = [{"indexes": ["a", "b"], "rename": False}, {"indexes": ["c", "d"], "rename": True}]
    task = client.instance.queue.task(0, with_content=True)
    assert task.details == task.content == {"swaps": swaps}


def test_an_empty_swap_is_a_task_too(client) -> None:
    assert client.json("POST", "/swap-indexes", []).status == 202


# New names by PATCH: what the tests of the clients for Ruby, JavaScript, Python, Go and Rust ask for.


@pytest.fixture
def renaming(instance: Instance) -> Client:
    return client_of(instance, None, quantities.now, instance.keys, renames_by_patch=True)


def renamed(client: Client, work: Callable[[], None], body: dict[str, Any], index_uid: str = "films") -> Any:
    """The finished task of a PATCH."""
    got = client.json("PATCH", f"/indexes/{index_uid}", body)
    assert (got.status, got.value["type"], got.value["indexUid"]) == (202, "indexUpdate", index_uid), got.value
    work()
    return client.get(f"/tasks/{got.value['taskUid']}").value


def test_a_patch_with_a_uid_is_refused_without_the_option(client) -> None:
    assert client.json("PATCH", "/indexes/films", {"uid": "movies"}).fault == (
        400, "bad_request", "Immutable field `uid`: expected one of `primaryKey`")


def test_a_patch_renames_with_documents_settings_and_history(renaming, work, check_shape) -> None:
    added = renaming.json("POST", "/indexes/films/documents", [{"id": 1, "title": "Alien"}]).value["taskUid"]
    renaming.json("PATCH", "/indexes/films/settings", {"stopWords": ["the"], "distinctAttribute": "title"})
    work()
    before = renaming.get("/indexes/films").value
    task = renamed(renaming, work, {"uid": "movies"})
    check_shape(task, "Task")
    assert (task["status"], task["error"]) == ("succeeded", None)
    assert task["details"] == {"primaryKey": None, "oldIndexUid": "films", "newIndexUid": "movies"}
    after = renaming.get("/indexes/movies").value
    assert after == {**before, "uid": "movies", "updatedAt": after["updatedAt"]} and after["updatedAt"] > before["updatedAt"]
    assert renaming.get("/indexes/films").fault[1] == "index_not_found"
    assert renaming.get("/indexes/movies/documents").value["total"] == 1
    assert renaming.get("/indexes/movies/stats").value["numberOfDocuments"] == 1
    settings = renaming.get("/indexes/movies/settings").value
    assert (settings["stopWords"], settings["distinctAttribute"]) == (["the"], "title")
    assert renaming.get(f"/tasks/{added}").value["indexUid"] == "movies"


def test_a_patch_renames_and_sets_the_primary_key(renaming, work) -> None:
    renaming.json("POST", "/indexes", {"uid": "films", "primaryKey": "id"})
    task = renamed(renaming, work, {"uid": "movies", "primaryKey": "objectID"})
    assert task["status"] == "succeeded" and task["details"]["primaryKey"] == "objectID"
    assert renaming.get("/indexes/movies").value["primaryKey"] == "objectID"


def test_an_index_whose_primary_key_cannot_change_keeps_its_name(renaming, work) -> None:
    renaming.json("POST", "/indexes/films/documents", [{"id": 1}])
    task = renamed(renaming, work, {"uid": "movies", "primaryKey": "sku"})
    assert (task["status"], task["error"]["code"]) == ("failed", "index_primary_key_already_exists")
    assert renaming.get("/indexes/films").status == 200 and renaming.get("/indexes/movies").status == 404


@pytest.mark.parametrize(("existing", "code", "message"), [
    ([], "index_not_found", "Index `films` not found."),
    (["films", "books"], "index_already_exists", "Cannot rename `films` to `books` as the index already exists. "
                                                 "Hint: You can remove `books` first and then do your remove."),
])
def test_a_patch_fails_as_a_rename_by_swap_does(renaming, work, existing, code, message) -> None:
    for uid in existing:
        renaming.json("POST", "/indexes", {"uid": uid})
    swap = renaming.json("POST", "/swap-indexes", [{"indexes": ["films", "books"], "rename": True}]).value["taskUid"]
    task = renamed(renaming, work, {"uid": "books"})
    assert (task["status"], task["error"]["code"], task["error"]["message"]) == ("failed", code, message)
    assert renaming.get(f"/tasks/{swap}").value["error"] == task["error"]


def test_nothing_overtakes_a_new_name(renaming, work) -> None:
    renaming.json("POST", "/indexes", {"uid": "films"})
    renaming.json("PATCH", "/indexes/films", {"uid": "movies"})
    later = [renaming.json("POST", f"/indexes/{uid}/documents", [{"id": 1}]).value["taskUid"] for uid in ("movies", "films")]
    back = renamed(renaming, work, {"uid": "books"}, "movies")
    assert back["status"] == "succeeded"
    assert [renaming.get(f"/tasks/{uid}").value["indexUid"] for uid in later] == ["books", "films"]
    assert renaming.get("/indexes/books/documents").value["total"] == 1


@pytest.mark.parametrize(("body", "code"), [
    ({"uid": "Invalid UID!"}, "invalid_index_uid"), ({"uid": 3}, "invalid_index_uid"),
    ({"uid": "a", "createdAt": "x"}, "immutable_index_created_at"), ({"uid": "a", "primaryKey": 3}, "invalid_index_primary_key"),
])
def test_the_body_of_a_renaming_is_checked(renaming, body, code) -> None:
    assert renaming.json("PATCH", "/indexes/films", body).fault[:2] == (400, code)


@pytest.mark.parametrize("body", [{"uid": None}, {"uid": "films"}, {}, {"uid": "films", "primaryKey": "id"}])
def test_a_patch_that_keeps_the_uid_renames_nothing(renaming, work, body) -> None:
    renaming.json("POST", "/indexes", {"uid": "films"})
    task = renamed(renaming, work, body)
    assert task["status"] == "succeeded" and task["details"] == {"primaryKey": body.get("primaryKey")}
    assert renaming.get("/indexes/films").value["primaryKey"] == body.get("primaryKey")


def test_a_key_of_one_index_gives_no_name_of_another(instance, work) -> None:
    protected = client_of(instance, MASTER_KEY, quantities.now, instance.keys, renames_by_patch=True)
    key = protected.ask(MASTER_KEY, "POST", "/keys", {"actions": ["*"], "indexes": ["films"], "expiresAt": None}).value["key"]
    assert protected.ask(key, "PATCH", "/indexes/films", {"uid": "movies"}).fault[:2] == (403, "invalid_api_key")


@pytest.mark.parametrize(("query", "refusal"), [
    ("limit=doggo", ("invalid_index_limit", "Invalid value in parameter `limit`: could not parse `doggo` as a positive integer")),
    ("offset=-1", ("invalid_index_offset", "Invalid value in parameter `offset`: could not parse `-1` as a positive integer")),
    ("doggo=1", ("bad_request", "Unknown parameter `doggo`: expected one of `offset`, `limit`")),
])
def test_the_page_of_a_list_is_checked(client, query, refusal) -> None:
    assert client.get(f"/indexes?{query}").fault == (400, *refusal)


def test_the_list_of_no_index_is_a_page(client, check_shape) -> None:
    got = client.get("/indexes?offset=3&limit=4")
    check_shape(got.value, "IndexPage")
    assert got.value == {"results": [], "offset": 3, "limit": 4, "total": 0}


@pytest.mark.parametrize(("method", "path", "body"), [
    ("GET", "/indexes/a", None), ("GET", "/indexes/a/stats", None), ("POST", "/indexes/a/fields", {}),
    ("POST", "/indexes/a/search", {}),
])
def test_reads_of_an_unknown_index_say_so(client, method, path, body) -> None:
    got = client.send(method, path) if body is None else client.json(method, path, body)
    assert got.fault == (404, "index_not_found", "Index `a` not found.")


FLAGS = {"displayed": "displayed", "searchable": "searchable", "sortable": "sortable", "distinct": "distinct",
         "rankingRule": "ranking_rule", "filterable": "filterable"}


@pytest.mark.parametrize(("member", "code"), FLAGS.items())
def test_the_flags_of_a_field_list_are_booleans(client, member, code) -> None:
    fault = client.json("POST", "/indexes/a/fields", {"filter": {member: "x"}}).fault
    assert fault == (400, f"invalid_index_fields_filter_{code}",
                     f'Invalid value type at `.filter.{member}`: expected a boolean, but found a string: `"x"`')


@pytest.mark.parametrize(("body", "code", "message"), [
    ({"offset": -1}, "invalid_index_offset",
     "Invalid value type at `.offset`: expected a positive integer, but found a negative integer: `-1`"),
    ({"limit": "x"}, "invalid_index_limit",
     'Invalid value type at `.limit`: expected a positive integer, but found a string: `"x"`'),
    ({"filter": []}, "invalid_index_fields_filter",
     "Invalid value type at `.filter`: expected an object, but found an array: `[]`"),
    ({"filter": {"attributePatterns": "x"}}, "invalid_index_fields_filter_attribute_patterns",
     'Invalid value type at `.filter.attributePatterns`: expected an array, but found a string: `"x"`'),
    ({"filter": {"doggo": 1}}, "invalid_index_fields_filter",
     "Unknown field `doggo` inside `.filter`: expected one of `attributePatterns`, `displayed`, `searchable`, "
     "`sortable`, `distinct`, `rankingRule`, `filterable`"),
    ({"doggo": 1}, "bad_request", "Unknown field `doggo`: expected one of `offset`, `limit`, `filter`"),
])
def test_the_body_of_a_field_list_is_checked(client, body, code, message) -> None:
    assert client.json("POST", "/indexes/a/fields", body).fault == (400, code, message)


SETTINGS = {
    "displayedAttributes": ["a", "price"], "searchableAttributes": ["a.b"], "sortableAttributes": ["a"],
    "distinctAttribute": "a", "rankingRules": ["words", "price:asc", "price:desc"],
    "filterableAttributes": [
        {"attributePatterns": ["pri*"], "features": {"facetSearch": False, "filter": {"equality": False, "comparison": True}}},
        "a",
    ],
    "faceting": {"sortFacetValuesBy": {"*": "alpha", "price": "count"}},
    "localizedAttributes": [{"attributePatterns": ["*.b"], "locales": ["fra"]}],
}


@pytest.mark.parametrize(("attribute", "expected"), [
    ("a", {"displayed": True, "searchable": False, "sortable": True, "distinct": True, "rankingRule": False}),
    ("a.b", {"displayed": True, "searchable": True, "sortable": True, "distinct": False, "rankingRule": False}),
    ("ab", {"displayed": False, "searchable": False, "sortable": False, "distinct": False, "rankingRule": False}),
    ("price", {"displayed": True, "searchable": False, "sortable": False, "distinct": False, "rankingRule": True}),
])
def test_settings_cover_an_attribute_and_what_lies_beneath(check_shape, attribute, expected) -> None:
    view = field_view(IndexSettings.of(SETTINGS), attribute)
    check_shape(view, "Field")
    assert {member: view[member]["enabled"] for member in expected} == expected


def test_the_first_filter_rule_decides() -> None:
    assert field_view(IndexSettings.of(SETTINGS), "price")["filterable"] == {
        "enabled": True, "sortBy": "count", "facetSearch": False, "equality": False, "comparison": True}
    assert field_view(IndexSettings.of(SETTINGS), "a.b")["filterable"] == {
        "enabled": True, "sortBy": "alpha", "facetSearch": True, "equality": True, "comparison": True}


def test_orders_and_locales_are_listed() -> None:
    assert field_view(IndexSettings.of(SETTINGS), "price")["rankingRule"] == {"enabled": True, "order": ["asc", "desc"]}
    assert field_view(IndexSettings.of(SETTINGS), "a.b")["localized"] == {"locales": ["fra"]}


def test_what_null_does_to_a_primary_key_is_described(client) -> None:
    operations = client.get("/openapi.json").value["paths"]
    bodies = [operations["/indexes"]["post"], operations["/indexes/{index_uid}"]["patch"]]
    told = [body["requestBody"]["content"]["application/json"]["schema"]["properties"]["primaryKey"]["description"]
            for body in bodies]
    assert "null to have it guessed" in told[0] and "null leaves the key as it is" in told[1]
