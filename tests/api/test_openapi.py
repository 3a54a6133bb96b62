"""1. The document names every route, and no other.
2. Every reference points to a component; every operation has a name of its own.
3. Path parameters are declared where the path has them.
4. Every code and action that the tables name is known.
5. Permissions with their wildcards, parameters and their order, and headers are those of tests/contract.
6. What is not there yet is marked, and nothing else.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from svcd.api.all_routes import ROUTES
from svcd.api.openapi import document, operation_id
from svcd.api.routes import Fields, Route
from svcd.api.shapes import SCHEMAS
from svcd.api.tasks import WAIT_NAME
from svcd.base.errors import ERRORS
from svcd.schema.settings import SETTINGS
from svcd.validation import object_of
from tests.support.contract import table

DOCUMENT = document(ROUTES)
# New with us.
OURS_ALONE = {("GET", "/openapi.json"), ("GET", "/"), ("GET", "/webhooks/{uuid}/failures"),
              ("POST", "/webhooks/{uuid}/replay"), ("GET", "/cluster"), ("GET", "/cluster/copy"), ("POST", "/cluster/drain"),
              ("DELETE", "/cluster/drain"), ("DELETE", "/cluster/nodes/{node}"), ("POST", "/indexes/{index_uid}/explain"),
              ("POST", "/indexes/{index_uid}/events"), ("GET", "/analytics/searches"), ("POST", "/mcp"),
              ("GET", "/indexes/{index_uid}/changes")}
OURS_ALONE |= {(method, f"/indexes/{{index_uid}}/settings/{setting.route}") for setting in SETTINGS if setting.is_extension
               for method in ("GET", setting.method, "DELETE")}
# Streams take the filters of the lists, of which the contract says nothing.
FILTERED_BY_US = {("GET", "/tasks/stream"), ("GET", "/batches/stream")}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from references(part)


def test_the_document_names_every_route_and_no_other() -> None:
    assert {(method, path) for method, path, _ in operations()} == {(row.method, row.path) for row in ROUTES}


def test_references_point_to_components() -> None:
    assert {name.removeprefix("#/components/schemas/") for name in references(DOCUMENT)} <= set(SCHEMAS)


def test_every_component_is_used() -> None:
    assert set(SCHEMAS) == {name.removeprefix("#/components/schemas/") for name in references(DOCUMENT)}


def test_operation_ids_are_unique() -> None:
    assert len({operation_id(row) for row in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("row", ROUTES, ids=operation_id)
def test_an_operation_is_complete(row: Route) -> None:
    operation = DOCUMENT["paths"][row.path][row.method.lower()]
    in_path = [entry["name"] for entry in operation.get("parameters", ()) if entry["in"] == "path"]
    assert in_path == re.findall(r"\{(\w+)\}", row.path)
    assert operation["responses"] and operation["summary"] and operation["tags"]
    assert all(response["description"] for response in operation["responses"].values())
    assert ("requestBody" in operation) == (row.body is not None)


def test_the_document_is_served(client) -> None:
    assert client.get("/openapi.json").value == json.loads(json.dumps(DOCUMENT))


@pytest.mark.parametrize("row", ROUTES, ids=operation_id)
def test_codes_of_parameters_and_members_are_in_the_catalogue(row: Route) -> None:
    codes = {param.code for param in row.query.values()} | {param.missing_code for param in row.query.values()}
    if isinstance(row.body, Fields):
        members = row.body.fields.values()
        codes |= {row.body.code, *row.body.immutable.values()}
        codes |= {member.code for member in members} | {member.missing_code for member in members}
        assert object_of(row.body.fields).describe()["type"] == "object"
    assert codes - {None} <= set(ERRORS)


def listed(action: str | tuple[str, ...] | None) -> str | list[str] | None:
    """As JSON has it."""
    return list(action) if isinstance(action, tuple) else action


def test_permissions_are_those_of_the_contract() -> None:
    rows = {(row["method"], row["path"]): row["action"] for row in table("permissions")["routes"]}
    wrong = [(row.method, row.path, row.action) for row in ROUTES
             if (row.method, row.path) not in OURS_ALONE and rows.get((row.method, row.path)) != listed(row.action)]
    assert [row for row in wrong if row[2] is not None or row[1] != "/health"] == []


def test_query_parameters_are_those_of_the_contract_in_its_order() -> None:
    paths = table("operations")
    wrong = {}
    for row in ROUTES:
        if (row.method, row.path) in OURS_ALONE | FILTERED_BY_US:
            continue
        names = paths[row.path][row.method]["query"]
        if names != list(row.query):
            wrong[operation_id(row)] = (names, list(row.query))
    assert wrong == {}


def test_headers_are_those_of_the_contract() -> None:
    paths = table("operations")
    for row in ROUTES:
        if (row.method, row.path) not in OURS_ALONE | FILTERED_BY_US:
            assert paths[row.path][row.method]["header"] == list(row.headers), row.path


@pytest.mark.parametrize(("method", "path", "header"), [
    ("get", "/indexes/{index_uid}/search", "Svc-Include-Metadata"), ("post", "/multi-search", "Svc-Include-Metadata"),
    ("post", "/indexes/{index_uid}/search", "Svc-Include-Metadata"), ("get", "/tasks/stream", "Last-Event-ID"),
])
def test_headers_are_shown(method: str, path: str, header: str) -> None:
    shown = [entry for entry in DOCUMENT["paths"][path][method]["parameters"] if entry["in"] == "header"]
    assert shown[0]["name"] == header and shown[0]["description"]


def test_conditional_requests_are_shown() -> None:
    for row in ROUTES:
        operation = DOCUMENT["paths"][row.path][row.method.lower()]
        has_condition = "If-None-Match" in [entry["name"] for entry in operation.get("parameters", ())]
        assert has_condition == ("304" in operation["responses"]) == (row.etag is not None)


@pytest.mark.parametrize(("method", "path", "names"), [
    ("get", "/webhooks", ["webhooks.get", "webhooks.*", "*.get", "*"]),
    ("post", "/multi-search", ["search", "*.get", "*"]), ("post", "/indexes/{index_uid}/documents/edit", ["*"]),
    ("post", "/render-template", ["settings.get", "documents.get", "*.get", "*"]), ("get", "/keys", []),
    ("patch", "/experimental-features", ["experimental.update", "*"]),
])
def test_permissions_are_shown_with_their_wildcards(method: str, path: str, names: list[str]) -> None:
    assert DOCUMENT["paths"][path][method]["security"] == [{"Bearer": names}]


def test_wildcards_are_those_of_the_contract() -> None:
    rows = {(row["method"], row["path"]): row for row in table("permissions")["routes"]}
    for row in ROUTES:
        if len(row.actions) == 1 and row.tag != "Keys" and (row.method, row.path) not in OURS_ALONE:
            shown = DOCUMENT["paths"][row.path][row.method.lower()]["security"][0]["Bearer"]
            assert set(shown) == set(rows[row.method, row.path]["accepted"]), row.path


def test_every_write_takes_a_wait_and_nothing_else_does() -> None:
    for method, path, operation in operations():
        names = [entry["name"] for entry in operation.get("parameters", ())]
        answers = json.dumps(operation["responses"])
        assert (WAIT_NAME in names) == ("schemas/TaskSummary" in answers), (method, path)
        assert WAIT_NAME not in names or '"#/components/schemas/Task"' in json.dumps(operation["responses"]["200"])
