"""What must hold of POST /export:

1. It answers 200 with a summary; the details of the task mask the key and print the size in the best unit.
2. Absent and null are the same for all but `url` and `overrideSettings`.
3. Wrong bodies are rejected with a code and the place; an unusable URL or filter is not: the task says so.
4. A dump has the task with its key in clear, and reads it back.
37. As a target, svcd takes documents without anything between them as NDJSON.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.tasks import dump_lines

KEY = "0123456789abcdef0123456789abcdef"


def details(client: Any, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.json("POST", "/export", body)
    assert answer.status == 200 and set(answer.value) == {"taskUid", "indexUid", "status", "type", "enqueuedAt"}
    assert (answer.value["indexUid"], answer.value["type"]) == (None, "export")
    shown: dict[str, Any] = client.send("GET", f"/tasks/{answer.value['taskUid']}").value["details"]
    return shown


ALL = {"*": {"filter": None, "overrideSettings": False}}


@pytest.mark.parametrize("body, shown", [
    ({}, {"url": "", "indexes": ALL}),
    ({"url": "http://t", "apiKey": None, "payloadSize": None, "indexes": None}, {"url": "http://t", "indexes": ALL}),
    ({"url": "http://u:pass@t/", "apiKey": KEY, "payloadSize": "24MiB", "indexes": {}},
     {"url": "http://XXX...:XXX...@t/", "apiKey": "01234XXXXXX...", "payloadSize": "24 MiB", "indexes": {}}),
    ({"payloadSize": 1_000_000, "indexes": {"g*": {"filter": {"a": 1}}, "a": {"filter": None, "overrideSettings": True}}},
     {"url": "", "payloadSize": "1 MB", "indexes": {"a": {"filter": None, "overrideSettings": True},
                                                    "g*": {"filter": {"a": 1}, "overrideSettings": False}}}),
])
def test_the_details_of_the_task(client: Any, body: dict[str, Any], shown: dict[str, Any]) -> None:
    found = details(client, body)
    assert found == shown and list(found.get("indexes", ())) == list(shown["indexes"])


PATTERN = "svc_types::index_uid_pattern::IndexUidPattern"


@pytest.mark.parametrize("body, code, message", [
    ({"url": None}, "invalid_export_url", "Invalid value type at `.url`: expected a string, but found null"),
    ({"url": 1}, "invalid_export_url", "Invalid value type at `.url`: expected a string, but found a positive integer: `1`"),
    ({"apiKey": 1}, "invalid_export_api_key",
     "Invalid value type at `.apiKey`: expected a string, but found a positive integer: `1`"),
    ({"payloadSize": "much"}, "invalid_export_payload_size",
     "Invalid value at `.payloadSize`: `much` is not a size; write a number of bytes, or a number with a unit, as "
     "100 MB or 512 KiB (units: B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB)"),
    ({"payloadSize": -1}, "invalid_export_payload_size",
     "Invalid value type at `.payloadSize`: expected a positive integer or a string, but found a negative integer: `-1`"),
    ({"payloadSize": True}, "invalid_export_payload_size",
     "Invalid value type at `.payloadSize`: expected a positive integer or a string, but found a boolean: `true`"),
    ({"indexes": []}, "bad_request", "Invalid value type at `.indexes`: expected an object, but found an array: `[]`"),
    ({"indexes": {"a": 1}}, "bad_request",
     "Invalid value type at `.indexes.a`: expected an object, but found a positive integer: `1`"),
    ({"indexes": {"a": {"x": 1}}}, "bad_request",
     "Unknown field `x` inside `.indexes.a`: expected one of `filter`, `overrideSettings`"),
    ({"indexes": {"a b": {}}}, "bad_request",
     f'Invalid value at `.indexes`: the key "a b" could not be deserialized into the key type `{PATTERN}`'),
    ({"indexes": {"a": {"overrideSettings": None}}}, "invalid_export_index_override_settings",
     "Invalid value type at `.indexes.a.overrideSettings`: expected a boolean, but found null"),
    ({"uri": "x"}, "bad_request", "Unknown field `uri`: expected one of `url`, `apiKey`, `payloadSize`, `indexes`"),
])
def test_wrong_bodies_are_rejected(client: Any, body: dict[str, Any], code: str, message: str) -> None:
    assert client.json("POST", "/export", body).fault == (400, code, message)


def test_a_dump_has_the_task_whole(client: Any, instance: Any) -> None:
    details(client, {"url": "http://t", "apiKey": KEY, "payloadSize": "24 MiB", "indexes": {"a": {"filter": "x = 1"}}})
    (task,) = instance.queue.enqueued(["export"])
    line = dump_lines.task_line(task)
    assert line["type"] == {"export": {"url": "http://t", "api_key": KEY, "payload_size": "24 MiB",
                                       "indexes": {"a": {"filter": "x = 1", "overrideSettings": False}}}}
    assert line["details"]["Export"]["api_key"] == "01234XXXXXX..."
    read = dump_lines.task_of(line)
    assert (read.kind, read.status, read.content, read.details) == ("export", "enqueued", task.content, task.details)


def test_37_documents_without_anything_between_them(client: Any) -> None:
    """In gzip they arrive in tests/system/test_export.py."""
    answer = client.send("POST", "/indexes/a/documents", b'{"id":1}{"id":2}', {"content-type": "application/x-ndjson"})
    assert answer.status == 202
    assert client.send("GET", f"/tasks/{answer.value['taskUid']}").value["details"]["receivedDocuments"] == 2
