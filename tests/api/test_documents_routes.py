"""What must hold of the document routes:

1. Pages are stored texts in docid order; offset, limit, ids and sort choose, total counts what is paged.
2. `fields` picks parts, nested ones too; `_vectors` is shown only when asked for, and then whatever the fields are.
3. Each write enqueues one task with its details and content; an upload that is refused enqueues none.
4. Wrong parameters and bodies are refused with the code of the parameter; of several faults the first one is told.
5. What this version does not have is refused in words.
"""
from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest

from svcd.api import document_selection
from svcd.api.documents import ROUTES

DOCUMENTS = [
    {"id": 3, "name": "Éric", "at": {"x": 1, "y": [2]}, "n": 2},
    {"id": 1, "name": "anna", "n": [10, "b"], "_vectors": {"e": [1]}},
    {"id": 2, "name": "Bert", "at": {"x": None}},
    {"id": "z-9", "n": "text"},
]
RULE = (
    "A document identifier can be of type integer or string, only composed of alphanumeric characters (a-z A-Z 0-9), "
    "hyphens (-) and underscores (_), and can not be more than 511 bytes."
)


@pytest.fixture
def films(client, work) -> Any:
    """A client of an index `films` with DOCUMENTS, sortable by name, n and at."""
    client.json("PATCH", "/indexes/films/settings", {"sortableAttributes": ["name", "n", "at"]})
    client.json("POST", "/indexes/films/documents?primaryKey=id", DOCUMENTS)
    work()
    return client


def ids(got: Any) -> list[Any]:
    return [document["id"] for document in got.value["results"]]


def test_a_page_is_in_the_order_of_addition(films) -> None:
    got = films.get("/indexes/films/documents")
    assert got.value == {
        "results": [{name: value for name, value in document.items() if name != "_vectors"} for document in DOCUMENTS],
        "offset": 0, "limit": 20, "total": 4,
    }


@pytest.mark.parametrize(
    ("query", "body", "expected", "total"),
    [
        ("offset=1&limit=2", {"offset": 1, "limit": 2}, [1, 2], 4),
        ("limit=0", {"limit": 0}, [], 4),
        ("offset=9", {"offset": 9}, [], 4),
        ("offset=18446744073709551615&limit=18446744073709551615", {"offset": 2**64 - 1, "limit": 2**64 - 1}, [], 4),
        ("ids=z-9,3,404", {"ids": ["z-9", 3, "404"]}, [3, "z-9"], 2),
        ("ids=3,3,2&offset=1", {"ids": [3, "3", 2], "offset": 1}, [2], 2),
        ("filter=", {"filter": None}, [3, 1, 2, "z-9"], 4),
        ("sort=name:asc", {"sort": ["name:asc"]}, [1, 2, 3, "z-9"], 4),
        ("sort=name:desc", {"sort": ["name:desc"]}, [3, 2, 1, "z-9"], 4),
        ("sort=n:asc", {"sort": ["n:asc"]}, [3, 1, "z-9", 2], 4),
        ("sort=n:desc", {"sort": ["n:desc"]}, [1, 3, "z-9", 2], 4),
        ("sort=at.x:asc,name:desc", {"sort": ["at.x:asc", "name:desc"]}, [3, 2, 1, "z-9"], 4),
        ("sort=name:desc&ids=1,2,3&limit=1&offset=1", {"sort": ["name:desc"], "ids": [1, 2, 3], "limit": 1, "offset": 1}, [2], 3),
    ],
)
def test_pages(films, query, body, expected, total) -> None:
    for got in (films.get(f"/indexes/films/documents?{query}"), films.json("POST", "/indexes/films/documents/fetch", body)):
        assert ids(got) == expected
        assert got.value["total"] == total


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ("id", {"id": 3}),
        ("at", {"at": {"x": 1, "y": [2]}}),
        ("at.x,name", {"name": "Éric", "at": {"x": 1}}),
        ("none", {}),
        ("", {}),
        ("*,none", DOCUMENTS[0]),
        ("*", DOCUMENTS[0]),
    ],
)
def test_fields_pick_parts(films, fields, shown) -> None:
    assert films.get(f"/indexes/films/documents/3?fields={fields}").value == shown
    assert films.get(f"/indexes/films/documents?ids=3&fields={fields}").value["results"] == [shown]
    body = {"ids": [3], "fields": fields.split(",")}
    assert films.json("POST", "/indexes/films/documents/fetch", body).value["results"] == [shown]


@pytest.mark.parametrize(
    ("query", "members"),
    [
        ("", {"id", "name", "n"}),
        ("?fields=_vectors,id", {"id"}),
        ("?retrieveVectors=true", {"id", "name", "n", "_vectors"}),
        ("?retrieveVectors=true&fields=name", {"name", "_vectors"}),
    ],
)
def test_vectors_are_shown_when_asked_for(films, query, members) -> None:
    assert set(films.get(f"/indexes/films/documents/1{query}").value) == members


def test_a_document_without_vectors_shows_none(films) -> None:
    assert films.get("/indexes/films/documents/2?retrieveVectors=true").value["_vectors"] == {}


def test_vectors_are_of_all_embedders_after_what_has_none(films, work, monkeypatch) -> None:
    monkeypatch.setattr(document_selection, "_VECTOR_BYTES", 100)  # read one by one
    films.json("POST", "/indexes/films/documents", [
        {"id": document["id"], "name": "x", "_vectors": {"m": [0.1, 2], "f": {"regenerate": True, "embeddings": [[1], [2]]}}}
        for document in DOCUMENTS])
    films.json("POST", "/indexes/films/documents", [{"id": 2, "name": "x", "_vectors": {"f": None, "m": [3, 4]}}])
    films.json("PATCH", "/indexes/films/settings", {"embedders": {
        name: {"source": "userProvided", "dimensions": length} for name, length in (("f", 1), ("e", 1))}, "displayedAttributes": ["n"]})
    work()
    assert films.get("/tasks?statuses=failed").value["total"] == 1  # no document has a vector for `e`
    films.json("PATCH", "/indexes/films/settings", {"embedders": {"f": {"source": "userProvided", "dimensions": 1}}})
    work()
    one = '{"m":[0.1,2],"f":{"embeddings":[[1.0],[2.0]],"regenerate":true}}'
    other = '{"m":[3,4],"f":{"embeddings":[],"regenerate":false}}'
    expected = [f'{{"id":{json.dumps(document["id"])},"name":"x","_vectors":{other if document["id"] == 2 else one}}}'
                for document in DOCUMENTS]
    got = films.get("/indexes/films/documents?retrieveVectors=true")
    assert json.dumps(got.value["results"], separators=(",", ":")) == f"[{','.join(expected)}]"
    got = films.json("POST", "/indexes/films/documents/fetch", {"retrieveVectors": True, "fields": ["nothing"], "ids": [1]})
    assert got.value["results"] == [{"_vectors": json.loads(one)}]
    stats = films.get("/indexes/films/stats").value
    assert (stats["numberOfEmbeddings"], stats["numberOfEmbeddedDocuments"]) == (6, 3)


@pytest.mark.parametrize("document_id", ["404", "no%20such", "%C3%A9", "a/b"])
def test_an_unknown_document_is_not_found(films, document_id) -> None:
    got = films.get(f"/indexes/films/documents/{document_id.replace('/', '%2F')}")
    assert got.fault[:2] == (404, "document_not_found")


def test_an_unknown_index_is_not_found(client) -> None:
    for url in ("/indexes/none/documents", "/indexes/none/documents/1", "/indexes/none/documents?filter=doggo"):
        assert client.get(url).fault == (404, "index_not_found", "Index `none` not found.")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (None, "bad_request", "Invalid value type: expected an object, but found null"),
        ({"offset": "doggo"}, "invalid_document_offset",
         'Invalid value type at `.offset`: expected a positive integer, but found a string: `"doggo"`'),
        ({"fields": "doggo"}, "invalid_document_fields",
         'Invalid value type at `.fields`: expected an array, but found a string: `"doggo"`'),
        ({"retrieveVectors": "tamo"}, "invalid_document_retrieve_vectors",
         'Invalid value type at `.retrieveVectors`: expected a boolean, but found a string: `"tamo"`'),
        ({"ids": ["0", "illegal/docid"]}, "invalid_document_ids",
         f'In `.ids[1]`: Document identifier `"illegal/docid"` is invalid. {RULE}'),
        ({"ids": [1.5]}, "invalid_document_ids", f"In `.ids[0]`: Document identifier `1.5` is invalid. {RULE}"),
        ({"filter": True}, "invalid_document_filter",
         "Invalid syntax for the filter parameter: `expected String, Array, found: true`."),
        ({"filter": ["a", 1]}, "invalid_document_filter",
         "Invalid syntax for the filter parameter: `expected String, [String], found: 1`."),
        ({"filter": [["a", []]]}, "invalid_document_filter",
         "Invalid syntax for the filter parameter: `expected String, found: []`."),
        ({"filter": "a = 1"}, "invalid_document_filter",
         "Attribute `a` is not filterable. This index does not have configured filterable attributes.\n1:2 a = 1"),
        ({"sort": ["id:asc"]}, "invalid_document_sort",
         "Attribute `id` is not sortable. Available sortable attributes are: `at, n, name`."),
        ({"sort": ["name"]}, "invalid_document_sort",
         "Invalid syntax for the sort parameter: expected expression ending by `:asc` or `:desc`, found `name`."),
        ({"useNetwork": True}, "feature_not_enabled", None),
        ({"limits": 1}, "bad_request",
         "Unknown field `limits`: did you mean `limit`? expected one of `offset`, `limit`, `fields`, `retrieveVectors`, `ids`, "
         "`filter`, `sort`, `useNetwork`"),
    ],
)
def test_a_wrong_fetch_is_refused(films, body, code, message) -> None:
    got = films.json("POST", "/indexes/films/documents/fetch", body)
    assert got.fault[:2] == (400, code)
    assert message is None or got.fault[2] == message


def test_documents_sort_by_distance(client, work) -> None:
    places = {1: (0, 2), 2: None, 3: (0, 1), 4: (0, 1)}
    client.json("PATCH", "/indexes/films/settings", {"sortableAttributes": ["_geo", "id"]})
    client.json("POST", "/indexes/films/documents?primaryKey=id", [
        {"id": number, "_geo": place and dict(zip(("lat", "lng"), place))} for number, place in places.items()])
    work()
    got = client.get("/indexes/films/documents?sort=_geoPoint(0,%200):asc,id:desc")
    assert ids(got) == [4, 3, 1, 2]
    assert got.value["results"][0] == {"id": 4, "_geo": {"lat": 0, "lng": 1}}
    got = client.json("POST", "/indexes/films/documents/fetch", {"sort": ["_geoPoint(0,0):desc"], "limit": 2})
    assert ids(got) == [1, 3]


def test_without_sortable_attributes_nothing_sorts(client, work) -> None:
    client.json("POST", "/indexes/films/documents", [{"id": 1}])
    work()
    message = "Attribute `name` is not sortable. This index does not have configured sortable attributes."
    got = client.get("/indexes/films/documents?sort=name:asc")
    assert got.fault == (400, "invalid_document_sort", message)


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("offset", "invalid_document_offset", "Invalid value in parameter `offset`: could not parse `` as a positive integer"),
        ("limit=-1", "invalid_document_limit", "Invalid value in parameter `limit`: could not parse `-1` as a positive integer"),
        ("retrieveVectors=tamo", "invalid_document_retrieve_vectors",
         "Invalid value in parameter `retrieveVectors`: could not parse `tamo` as a boolean, expected either `true` or `false`"),
        ("ids=0,a/b", "invalid_document_ids", f'In `.ids[1]`: Document identifier `"a/b"` is invalid. {RULE}'),
        ("sort=_geoPoint(1,2):asc", "invalid_document_sort",
         "Attribute `_geo` is not sortable. Available sortable attributes are: `at, n, name`."),
    ],
)
def test_wrong_parameters_are_refused(films, query, code, message) -> None:
    assert films.get(f"/indexes/films/documents?{query}").fault == (400, code, message)


# Writes


@pytest.mark.parametrize(("method", "meaning"), [("POST", "replace"), ("PUT", "update")])
def test_an_upload_becomes_a_task_with_its_payload(client, instance, method, meaning) -> None:
    got = client.send(method, "/indexes/films/documents?primaryKey=id&skipCreation=true&customMetadata=mine",
                      b"id,b\n1,2\n", {"content-type": "text/csv"})
    assert got.status == 202 and got.value["customMetadata"] == "mine"
    task = instance.queue.task(got.value["taskUid"], with_content=True)
    assert (task.kind, task.index_uid) == ("documentAdditionOrUpdate", "films")
    assert task.details == {"receivedDocuments": 1, "indexedDocuments": None}
    stored = '{"id":"1","b":"2"}\n'
    assert task.content == {"method": meaning, "primaryKey": "id", "mayCreate": False, "mayCreateIndex": True,
                            "checksum": crc32(stored.encode())}
    assert (instance.queue.payload_folder / task.payload).read_text() == stored


@pytest.mark.parametrize(
    ("query", "headers", "content", "code"),
    [
        ("", {}, b"[]", "missing_content_type"),
        ("?csvDelimiter=;", {}, b"[]", "missing_content_type"),
        ("", {"content-type": "text/plain"}, b"[]", "invalid_content_type"),
        ("", {"content-type": "application/json\xa0"}, b"[]", "invalid_content_type"),
        ("", {"content-type": "\x85application/json"}, b"[]", "invalid_content_type"),
        ("?csvDelimiter=a", {"content-type": "application/json"}, b"[]", "invalid_content_type"),
        ("?csvDelimiter", {"content-type": "application/json"}, b"[]", "invalid_document_csv_delimiter"),
        ("?csvDelimiter=doggo", {"content-type": "text/csv"}, b"[]", "invalid_document_csv_delimiter"),
        ("?csvDelimiter=%F0%9F%8D%B0", {"content-type": "application/json"}, b"", "invalid_document_csv_delimiter"),
        ("?skipCreation=x", {"content-type": "application/json"}, b"[]", "invalid_skip_creation"),
        ("", {"content-type": "application/json"}, b"", "missing_payload"),
        ("", {"content-type": "application/json"}, b"[", "malformed_payload"),
    ],
)
def test_a_refused_upload_leaves_nothing(client, instance, query, headers, content, code) -> None:
    for method in ("POST", "PUT"):
        assert client.send(method, f"/indexes/films/documents{query}", content, headers).value["code"] == code
    assert instance.queue.task(0) is None
    assert list(instance.queue.payload_folder.iterdir()) == []


def test_a_bad_index_uid_is_refused_before_the_body_is_read(client) -> None:
    got = client.json("POST", "/indexes/883%20%20fj%21/documents", [{"id": 1}])
    assert got.value["code"] == "invalid_index_uid"


def by_ids(count: int) -> dict[str, Any]:
    return {"providedIds": count, "deletedDocuments": None, "originalFilter": None}


@pytest.mark.parametrize(
    ("method", "url", "body", "content", "details"),
    [
        ("DELETE", "/documents/a%20b", None, {"ids": '["a b"]'}, by_ids(1)),
        ("POST", "/documents/delete-batch", [1, "b", 1.5, None], {"ids": '["1","b","1.5","null"]'}, by_ids(4)),
        ("POST", "/documents/delete-batch", [], {"ids": "[]"}, by_ids(0)),
        ("DELETE", "/documents", None, {"all": True}, {"deletedDocuments": None}),
    ],
)
def test_deletions_become_tasks(client, instance, method, url, body, content, details) -> None:
    got = client.send(method, f"/indexes/films{url}") if body is None else client.json(method, f"/indexes/films{url}", body)
    assert (got.status, got.value["type"]) == (202, "documentDeletion")
    task = instance.queue.task(0, with_content=True)
    assert (task.content, task.details) == (content, details)


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b'"doggo"', "bad_request",
         'Json deserialize error: invalid type: string "doggo", expected a sequence at line 1 column 7'),
        (b"{}", "bad_request", "Json deserialize error: invalid type: map, expected a sequence at line 1 column 0"),
        (b" \n 5", "bad_request", "Json deserialize error: invalid type: integer `5`, expected a sequence at line 2 column 2"),
        (b"1.0", "bad_request",
         "Json deserialize error: invalid type: floating point `1.0`, expected a sequence at line 1 column 3"),
        (b"true", "bad_request",
         "Json deserialize error: invalid type: boolean `true`, expected a sequence at line 1 column 4"),
        (b"null", "bad_request", "Json deserialize error: invalid type: null, expected a sequence at line 1 column 4"),
        (b"[1", "malformed_payload", "The json payload provided is malformed. `EOF while parsing a list at line 1 column 2`."),
        (b"", "missing_payload", "A json payload is missing."),
    ],
)
def test_delete_batch_takes_a_list(client, content, code, message) -> None:
    got = client.send("POST", "/indexes/films/documents/delete-batch", content, {"content-type": "application/json"})
    assert got.fault == (400, code, message)


@pytest.mark.parametrize(("method", "url"), [
    ("DELETE", "/indexes/films/documents"), ("DELETE", "/indexes/films/documents/1"), ("DELETE", "/indexes/films"),
    ("DELETE", "/indexes/films/settings"), ("DELETE", "/tasks?uids=*"), ("POST", "/dumps"), ("GET", "/indexes"),
])
@pytest.mark.parametrize("framing", [{"content-length": "21"}, {"transfer-encoding": "chunked"}])
def test_a_body_without_a_type_is_refused_where_none_is_read(films, method, url, framing) -> None:
    """A filter sent to `DELETE .../documents` would delete all of them."""
    tasks = films.get("/tasks").value["total"]
    content = b'{"filter": "year < 3"}'
    assert films.send(method, url, content, framing).fault == (
        415, "missing_content_type",
        "A Content-Type header is missing. Accepted values for the Content-Type header are: `application/json`")
    assert films.get("/tasks").value["total"] == tasks


@pytest.mark.parametrize("headers", [
    {}, {"content-length": "0"}, {"transfer-encoding": "chunked"}, {"content-type": "application/json", "content-length": "0"}])
def test_a_deletion_without_a_body_needs_no_type(films, headers) -> None:
    assert films.send("DELETE", "/indexes/films/documents", b"", headers).status == 202


@pytest.mark.parametrize("content", [b"null", b'""', b" null\n"])
def test_an_empty_value_needs_no_type(films, content) -> None:
    """The Python client sends `null` with each deletion."""
    assert films.send("DELETE", "/indexes/films/documents/1", content, {"content-length": str(len(content))}).status == 202


def test_a_body_with_a_type_is_ignored_where_none_is_read(films) -> None:
    headers = {"content-type": "text/plain", "content-length": "2"}
    assert films.send("DELETE", "/indexes/films/documents/1", b"{}", headers).status == 202


def test_delete_batch_takes_json_alone(client) -> None:
    got = client.send("POST", "/indexes/films/documents/delete-batch", b"[]", {"content-type": "text/csv"})
    assert got.fault == (415, "unsupported_media_type", "Content type error")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("hello", "bad_request", 'Invalid value type: expected an object, but found a string: `"hello"`'),
        ({}, "missing_document_filter", "Missing field `filter`"),
        ({"filter": True}, "invalid_document_filter",
         "Invalid syntax for the filter parameter: `expected String, Array, found: true`."),
        ({"filter": ""}, "invalid_document_filter", "Sending an empty filter is forbidden."),
        ({"filter": []}, "invalid_document_filter", "Sending an empty filter is forbidden."),
        ({"filter": None}, "invalid_document_filter",
         "Invalid syntax for the filter parameter: `expected String, Array, found: null`."),
        ({"filter": ["a = 1", "b ="]}, "invalid_document_filter", "Was expecting a value but instead got nothing.\n4:4 b ="),
    ],
)
def test_deleting_by_filter_is_checked_and_refused(client, body, code, message) -> None:
    assert client.json("POST", "/indexes/films/documents/delete", body).fault == (400, code, message)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({}, "missing_document_edition_function", "Missing field `function`"),
        ({"function": 1}, "invalid_document_edition_function_filter", "Invalid value type at `.function`: expected a string"),
        ({"function": "doc.a = "}, "bad_request", "Script is incomplete (line 1, position 9)"),
        ({"function": "const A = 1;\nA = 2"}, "bad_request", "Cannot assign to constant A (line 2, position 1)"),
        ({"function": "", "context": [1]}, "invalid_document_edition_context", "The context must be an object"),
        ({"function": "", "filter": []}, "invalid_document_filter", "Sending an empty filter is forbidden."),
        ({"function": "", "filter": {}}, "invalid_document_filter", "Index `films`: Invalid syntax for the filter parameter"),
        ({"function": "", "filter": "a ="}, "invalid_document_filter", "Index `films`: Was expecting a value"),
        ({"function": "", "filter": ["a ="]}, "invalid_document_filter", "Was expecting a value"),
        ({"function": "", "filter": "_foreign(a, b = 1)"}, "feature_not_enabled", "Index `films`: using a foreign filter"),
        ({"function": "", "filter": ["_shard = a"]}, "feature_not_enabled", "Index `films`: using a shard filter"),
    ],
)
def test_editions_are_checked(client, instance, body, code, message) -> None:
    instance.update_features({"editDocumentsByFunction": True})
    got = client.json("POST", "/indexes/films/documents/edit", body)
    assert got.fault[:2] == (400, code) and got.fault[2].startswith(message)
    assert not instance.queue.count_enqueued()


def test_editions_need_their_feature(client) -> None:
    got = client.json("POST", "/indexes/films/documents/edit", {"function": "doc.a = 1"})
    assert got.fault[:2] == (400, "feature_not_enabled")


def test_documents_are_edited(films, instance, work) -> None:
    instance.update_features({"editDocumentsByFunction": True})
    body = {"function": "if doc.id == 3 { doc = () } else { doc.n = context.n }", "context": {"n": [1]}, "filter": None}
    got = films.json("POST", "/indexes/films/documents/edit?customMetadata=mine", body)
    assert (got.status, got.value["type"], got.value["customMetadata"]) == (202, "documentEdition", "mine")
    task = instance.queue.task(got.value["taskUid"])
    assert task.details == {"deletedDocuments": None, "editedDocuments": None, "context": {"n": [1]},
                            "function": body["function"], "originalFilter": None}
    work()
    documents = films.get("/indexes/films/documents").value["results"]
    assert [(each["id"], each["n"]) for each in documents] == [(1, [1]), (2, [1]), ("z-9", [1])]


def test_answers_have_their_declared_shapes(films, check_shape) -> None:
    shapes = {(route.method, route.path.split("{index_uid}")[1]): route.answers for route in ROUTES}
    check_shape(films.get("/indexes/films/documents").value, shapes["GET", "/documents"][200])
    check_shape(json.loads(films.json("POST", "/indexes/films/documents/fetch", {}).text),
                shapes["POST", "/documents/fetch"][200])
    check_shape(films.send("DELETE", "/indexes/films/documents").value, shapes["DELETE", "/documents"][202])


@pytest.mark.parametrize(
    ("index_uid", "body", "code"),
    [
        ("none", {"ids": ["a b"], "sort": ["a"], "filter": "a ="}, "invalid_document_ids"),
        ("none", {"sort": ["a"], "filter": "a ="}, "invalid_document_sort"),
        ("none", {"sort": ["a:asc"], "filter": "a ="}, "index_not_found"),
        ("films", {"sort": ["a:asc"], "filter": "a ="}, "invalid_document_filter"),
        ("films", {"sort": ["a:asc"], "filter": "a = 1"}, "invalid_document_filter"),
        ("films", {"sort": ["a:asc"]}, "invalid_document_sort"),
    ],
)
def test_the_first_of_several_errors_in_a_list_is_reported(films, index_uid, body, code) -> None:
    """Identifiers, then what is no order, the index, the filter, at last what the index can't be sorted by."""
    assert films.json("POST", f"/indexes/{index_uid}/documents/fetch", body).fault[1] == code
