"""1. Every write takes `dryRun`, and enqueues nothing then: it tells what it would do, or that it has no dry run.
2. A dry run needs the permission of the write, and refuses the same requests.
3. An upload leaves no file.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.api.all_routes import ROUTES
from svcd.api.openapi import operation_id
from svcd.api.routes import Route
from svcd.api.tasks import is_write
from svcd.instance.rows import KeyRow
from svcd.tasks.dry_runs import KINDS
from tests.api.conftest import JSON_TYPE
from tests.support.bearers import MASTER_KEY, uid, value_of

WRITES = [row for row in ROUTES if is_write(row)]
FILMS = [{"id": n, "title": f"film {n}"} for n in range(3)]
BODIES = {"/swap-indexes": [{"indexes": ["films", "books"]}], "/indexes": {"uid": "films"},
          "/indexes/{index_uid}/documents/delete-batch": [1], "/indexes/{index_uid}/documents/delete": {"filter": "a = 1"},
          "/indexes/{index_uid}/documents": FILMS, "/indexes/{index_uid}/documents/edit": {"function": "doc.a = 1"}}


@pytest.mark.parametrize("row", WRITES, ids=operation_id)
def test_no_dry_run_enqueues_anything(client: Any, check_shape: Any, row: Route) -> None:
    client.instance.update_features({"editDocumentsByFunction": True})
    path = row.path.replace("{index_uid}", "films").replace("{document_id}", "1").replace("{uid}", "1")
    body = json.dumps(BODIES.get(row.path, {})).encode() if row.body else b""
    got = client.send(row.method, f"{path}?dryRun=true&wait=1s", body, JSON_TYPE)
    assert client.get("/tasks").value["total"] == 0 and list(client.instance.queue.payload_folder.iterdir()) == []
    if got.status == 200:
        check_shape(got.value, "DryRun")
        assert got.value["type"] in KINDS
    fault = client.send(row.method, f"{path}?dryRun=perhaps", body, JSON_TYPE).fault
    assert fault[:2] == (400, "bad_request") and "`dryRun`" in fault[2]


def test_without_it_or_with_false_a_write_is_a_write(client: Any) -> None:
    assert client.json("PATCH", "/indexes/films/settings?dryRun=false", {}).status == 202
    assert client.json("POST", "/indexes/films/documents?dryRun=true", FILMS).value["documents"]["added"] == 3
    assert client.get("/tasks").value["total"] == 1


def test_what_has_no_dry_run_says_what_has(client: Any) -> None:
    status, code, message = client.send("POST", "/dumps?dryRun=true").fault
    assert (status, code) == (400, "bad_request") and "`dumpCreation`" in message and "`settingsUpdate`" in message


def test_the_tasks_that_wait_are_counted_and_not_considered(client: Any, work: Any) -> None:
    client.json("POST", "/indexes/films/documents", FILMS)
    got = client.json("POST", "/indexes/films/documents?dryRun=true", FILMS).value
    assert (got["waitingTasks"], got["documents"]["added"]) == (1, 3)
    work()
    got = client.json("POST", "/indexes/films/documents?dryRun=true", FILMS).value
    assert (got["waitingTasks"], got["documents"]["unchanged"]) == (0, 3)


def test_a_request_that_is_refused_is_refused(client: Any) -> None:
    assert client.send("POST", "/indexes/films/documents?dryRun=true", b"[{]", JSON_TYPE).fault[:2] == (400, "malformed_payload")
    assert client.json("PATCH", "/indexes/films/settings?dryRun=true", {"stopWords": 1}).fault[1] == "invalid_settings_stop_words"
    got = client.json("POST", "/indexes/films/documents?dryRun=true", [{"id": "a b"}]).value
    assert (got["status"], got["error"]["code"]) == ("failed", "invalid_document_id")


def test_it_needs_the_permission_of_the_write(connect: Any, instance: Any) -> None:
    client = connect(MASTER_KEY)
    instance.keys.add(KeyRow(uid(1), ["search", "settings.get"], ["films"], 1, 1))
    instance.keys.add(KeyRow(uid(2), ["settings.update"], ["films"], 1, 1))
    reader, writer = value_of(uid(1)), value_of(uid(2))
    for index, bearer, status in (("films", reader, 403), ("films", writer, 200), ("books", writer, 403)):
        assert client.ask(bearer, "PATCH", f"/indexes/{index}/settings?dryRun=true", {"stopWords": ["a"]}).status == status
    assert client.ask(writer, "POST", "/swap-indexes?dryRun=true", [{"indexes": ["films", "books"]}]).status == 403
