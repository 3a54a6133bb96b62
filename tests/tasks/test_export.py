"""What must hold of exports. 30 to 37 are cases that other instances were seen to behave by.

30. An index that the target does not have is created, with settings, then gets its documents; the key is sent as bearer and shown
    masked; the task shows in the end how many documents of each index matched.
31. An index that it has keeps its key and settings, unless they are overridden.
32. Of several patterns the first in byte order counts.
33. A wrong filter fails the task before anything is sent.
34. Passing failures are tried again with growing pauses, others fail at once, with the words of the target.
35. A task that is canceled while it waits for the target ends at once, with its details as they were
    (tests/system/test_export.py).
36. A body has documents of one of 40 streams, and at most payloadSize bytes; a longer document goes alone.
37. Documents without anything between them are accepted as NDJSON (tests/api/test_export_routes.py).

And of svcd alone:

1. What was acknowledged is not sent again after an interruption, also when the index has changed; what changed is sent.
2. Of an index that was done nothing is asked again. Calls before the documents are not repeated, nor made up for.
3. Vectors are sent as stored, settings with their secrets.
4. One task fails as a whole, and leaves no record; so do canceled ones.
5. Other tasks run meanwhile, a dump too.
6. Memory holds at most a few bodies, whatever the size of the index.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.instance.task_records import CANCELED, FAILED, SUCCEEDED, Task
from svcd.remote import client
from svcd.tasks import export, exports, planning
from svcd.tasks.indexing_client import IndexingProcessDied
from tests.support.scripted_server import Received, Reply, ScriptedServer, in_turn, scripted
from tests.tasks.conftest import LocalWriter, TaskHarness

KEY = "0123456789abcdef0123456789abcdef"
NOT_FOUND = Reply(status=404, body={"message": "Index not found.", "code": "index_not_found", "type": "invalid_request", "link": "l"})
PAGE = Reply(status=500, body=b"<html>")


def new(received: Received) -> Reply:
    """A target without any index."""
    return NOT_FOUND if received.method == "GET" else Reply({}, 202)


def present(received: Received) -> Reply:
    """A target that has every index."""
    return Reply({}, 200) if received.method == "GET" else Reply({}, 202)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TaskHarness]:
    harness = TaskHarness(tmp_path / "data", networks=["127.0.0.0/8"])
    yield harness
    harness.instance.close()
    assert not harness.bugs


@pytest.fixture
def target() -> Iterator[ScriptedServer]:
    with scripted(new) as host:
        yield host


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    taken: list[float] = []

    class NoWait(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            taken.append(timeout or 0.0)
            return self.is_set()

    monkeypatch.setattr("svcd.tasks.export_target.Event", NoWait)
    monkeypatch.setattr(client.random, "uniform", lambda low, high: 1.0)
    return taken


def enqueue(harness: TaskHarness, url: str, api_key: str | None = None, payload: int | None = None,
            indexes: dict[str, Any] | None = None) -> Task:
    content = exports.task_content(url, api_key, payload, indexes)
    return harness.queue.enqueue("export", None, details=exports.task_details(content), content=content)


def run(harness: TaskHarness, *given: Any, **others: Any) -> Task:
    task = enqueue(harness, *given, **others)
    harness.run()
    return harness.task(task)


def fill(harness: TaskHarness, count: int = 3, index_uid: str = "mov") -> None:
    harness.add([{"id": n, "title": f"t{n}"} for n in range(count)], index_uid, key="id")
    harness.run()


def sent(host: ScriptedServer) -> list[int]:
    return sorted(document["id"] for each in host.of("POST", "/documents") for document in each.documents)


def records(harness: TaskHarness) -> list[Path]:
    folder = harness.path / exports.FOLDER
    return list(folder.iterdir()) if folder.exists() else []


# 30 to 37


def test_30_an_index_that_is_new_to_the_target(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness)
    harness.change({"stopWords": ["the"], "displayedAttributes": ["id"]}, "mov")
    harness.run()
    task = enqueue(harness, target.url, KEY)
    shown = {"url": target.url, "apiKey": "01234XXXXXX...", "indexes": {"*": {"filter": None, "overrideSettings": False}}}
    assert task.details == shown
    harness.run()
    done = harness.task(task)
    assert (done.status, done.details) == (SUCCEEDED, {**shown, "indexes": {
        "mov": {"filter": None, "overrideSettings": False, "matched_documents": 3}}})
    assert target.calls[:3] == ["GET /indexes/mov", "POST /indexes", "PATCH /indexes/mov/settings"]
    assert set(target.calls[3:]) == {"POST /indexes/mov/documents"}
    assert {each.headers["authorization"] for each in target.requests} == {f"Bearer {KEY}"}
    assert target.requests[1].body == {"uid": "mov", "primaryKey": "id"}
    settings = target.requests[2].body
    assert settings["stopWords"] == ["the"] and "foreignKeys" not in settings and "chat" not in settings
    for body in target.requests[3:]:
        assert (body.headers["content-type"], body.headers["content-encoding"]) == ("application/x-ndjson", "gzip")
    assert sorted((each for body in target.requests[3:] for each in body.documents), key=lambda each: each["id"]) == [
        {"id": n, "title": f"t{n}"} for n in range(3)]


def test_30_nobody_without_a_key_is_a_bearer(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    task = run(harness, f"{target.url}/base/")
    assert "apiKey" not in task.details
    assert not any("authorization" in each.headers for each in target.requests)
    assert {each.path.split("/indexes")[0] for each in target.requests} == {"/base"}


@pytest.mark.parametrize("overrides", [False, True])
def test_31_an_index_that_the_target_has(harness: TaskHarness, target: ScriptedServer, overrides: bool) -> None:
    fill(harness, 1)
    target.replies = [present]
    run(harness, target.url, indexes={"mov": {"overrideSettings": overrides}})
    assert target.calls == ["GET /indexes/mov", *(["PATCH /indexes/mov", "PATCH /indexes/mov/settings"] * overrides),
                            "POST /indexes/mov/documents"]
    if overrides:
        assert target.requests[1].body == {"primaryKey": "id"}


def test_31_an_index_without_documents_is_only_created(harness: TaskHarness, target: ScriptedServer) -> None:
    harness.do("indexCreation", "empty", {"primaryKey": None}, primaryKey=None)
    harness.run()
    task = run(harness, target.url)
    assert target.calls == ["GET /indexes/empty", "POST /indexes", "PATCH /indexes/empty/settings"]
    assert target.requests[1].body == {"uid": "empty", "primaryKey": None}
    assert task.details["indexes"]["empty"]["matched_documents"] == 0


def test_32_the_first_pattern_in_byte_order_counts(harness: TaskHarness, target: ScriptedServer) -> None:
    for name in ("alpha", "gamma"):
        fill(harness, 1, name)
    target.replies = [present]
    task = run(harness, target.url, indexes={"gamma": {"overrideSettings": True}, "*": {}})
    assert not any(each.method == "PATCH" for each in target.requests)
    assert list(task.details["indexes"]) == ["alpha", "gamma"]
    task = run(harness, target.url, indexes={"gamma": {"overrideSettings": True}, "ga*": {}, "b*": {}})
    assert list(task.details["indexes"]) == ["gamma"] and not any(each.method == "PATCH" for each in target.requests)
    assert export.chosen_pattern("gamma", {"gamma": 0, "g*": 0}) == "g*"
    assert run(harness, target.url, indexes={}).details["indexes"] == {}


@pytest.mark.parametrize("wanted, message", [
    ("rank = 1", "Index `mov`: Attribute `rank` is not filterable. This index does not have configured filterable attributes.\n"
                 "1:5 rank = 1"),
    ({"a": 1}, 'Index `mov`: Invalid syntax for the filter parameter: `expected String, Array, found: {"a":1}`.'),
])
def test_33_a_wrong_filter_fails_before_anything_is_sent(harness: TaskHarness, target: ScriptedServer, wanted: Any,
                                                         message: str) -> None:
    fill(harness, 1)
    task = run(harness, target.url, indexes={"*": {"filter": wanted}})
    assert (task.status, task.error["code"], task.error["message"]) == (FAILED, "invalid_document_filter", message)
    assert target.requests == [] and task.details["indexes"] == {"*": {"filter": wanted, "overrideSettings": False}}


@pytest.mark.parametrize("wanted, count", [("id > 1", 2), (["id > 0", "id < 3"], 2), ("", 4), ([], 4), (None, 4)])
def test_33_a_filter_chooses_documents(harness: TaskHarness, target: ScriptedServer, wanted: Any, count: int) -> None:
    harness.change({"filterableAttributes": ["id"]}, "mov")
    fill(harness, 4)
    task = run(harness, target.url, indexes={"*": {"filter": wanted}})
    assert task.details["indexes"]["mov"]["matched_documents"] == count == len(sent(target))


def test_34_passing_failures_are_tried_again(harness: TaskHarness, target: ScriptedServer, pauses: list[float]) -> None:
    fill(harness, 1)
    target.replies = [in_turn([Reply({}, 503), Reply({}, 429)], new)]
    assert run(harness, target.url).status == SUCCEEDED
    assert target.calls[:3] == ["GET /indexes/mov"] * 3 and pauses == [0.5, 0.75]


@pytest.mark.parametrize("reply, message", [
    (Reply(status=501, body={"message": "No.", "code": "c", "type": "t", "link": "l"}),
     "Failed to export documents to remote server c (t): No. <l>"),
    (Reply(status=400, body=b"<html>"), "json: expected value at line 1 column 1"),
    (Reply(status=403, body=b""), "json: EOF while parsing a value at line 1 column 0"),
    (Reply(status=400, body={"error": 1}), "json: missing field `message` at line 1 column 12"),
])
def test_34_others_fail_at_once(harness: TaskHarness, target: ScriptedServer, reply: Reply, message: str) -> None:
    fill(harness, 1)
    target.replies = [lambda received: reply]
    task = run(harness, target.url)
    assert (task.status, task.error["code"], task.error["message"]) == (FAILED, "internal", message)
    assert len(target.requests) == 1


def test_34_a_refused_body_fails_the_task(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    refusal = Reply(status=413, body={"message": "Too large.", "code": "payload_too_large", "type": "invalid_request", "link": "l"})
    target.replies = [lambda received: refusal if received.path.endswith("/documents") else new(received)]
    task = run(harness, target.url)
    assert task.error["message"] == "Failed to export documents to remote server payload_too_large (invalid_request): Too large. <l>"
    assert records(harness) == []


def test_34_the_last_failure_counts_when_time_is_up(harness: TaskHarness, target: ScriptedServer, pauses: list[float],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    fill(harness, 1)
    monkeypatch.setattr(client, "RETRIED_S", 2.0)
    moments = iter(range(100))
    monkeypatch.setattr(client.repeated, "__defaults__", (time.sleep, lambda: next(moments)))
    target.replies = [lambda received: PAGE]
    task = run(harness, target.url)
    assert task.error["message"] == "json: expected value at line 1 column 1" and len(target.requests) == 2


@pytest.mark.parametrize("url, message", [
    ("http://10.0.0.1", "bad uri: Rejected URI"),
    ("", "bad uri: /indexes/mov is missing scheme"),
    ("http://[a", "http: invalid format"),
])
def test_34_an_address_that_cannot_be_called_fails_at_once(harness: TaskHarness, url: str, message: str) -> None:
    fill(harness, 1)
    task = run(harness, url)
    assert (task.error["code"], task.error["message"]) == ("internal", message)


def test_34_nobody_listens(harness: TaskHarness, pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    fill(harness, 1)
    monkeypatch.setattr(client, "RETRIED_S", 0.0)
    assert run(harness, "http://127.0.0.1:1").error["message"] == "Connection refused"


def test_34_what_a_shard_does_not_take_is_no_failure(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 5)

    def script(received: Received) -> Reply:
        if not received.path.endswith("/documents"):
            return new(received)
        codes = {0: "import_task_already_received", 1: "import_task_unknown_remote", 2: "import_task_without_network_task"}
        code = codes.get(received.documents[0]["id"])
        return Reply(status=412, body={"code": code}) if code else Reply({}, 202)

    target.replies = [script]
    task = run(harness, target.url)
    assert (task.status, task.details["indexes"]["mov"]["matched_documents"]) == (SUCCEEDED, 5)


def streams(host: ScriptedServer) -> list[list[int]]:
    return [[document["id"] for document in each.documents] for each in host.of("POST", "/documents")]


def test_36_documents_of_a_body(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 100)
    run(harness, target.url)
    assert sorted(streams(target)) == sorted([*range(n, 100, 40)] for n in range(40))
    assert target.most_at_once <= export.SENDERS


def test_36_bodies_of_a_size(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 100)
    task = run(harness, target.url, payload=22)
    assert sorted(streams(target)) == [[n] for n in range(100)] and task.details["payloadSize"] == "22 B"
    target.requests.clear()
    run(harness, target.url, payload=46)  # twice {"id":10,"title":"t10"}
    assert max(len(each.content) for each in target.of("POST", "/documents")) == 46 and sent(target) == [*range(100)]
    assert run(harness, target.url, payload=0).details["payloadSize"] == "0 B"


def test_36_streams_are_sent_when_memory_is_full(harness: TaskHarness, target: ScriptedServer,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BUFFERED_BYTES", 399)  # the headers of less than 40 bodies
    fill(harness, 400)
    run(harness, target.url)
    assert sent(target) == [*range(400)] and len(streams(target)) > 40
    assert all(len({each % 40 for each in ids}) == 1 for ids in streams(target))


# Interruptions


def stop_in_between(harness: TaskHarness, target: ScriptedServer, after: int) -> None:
    """Run the enqueued export until so many documents were acknowledged; then svcd stops as at a kill."""
    class Killed(BaseException):
        pass

    def report(step: str, finished: int, total: int, above: Any = None, /) -> None:
        if step == "document" and finished >= after:
            raise Killed

    (task,) = harness.queue.enqueued(["export"])
    request = exports.export_request(task, harness.instance, 100_000_000, ["127.0.0.0/8"])
    with pytest.raises(Killed):
        export.run_export(request, report)
    assert records(harness)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SENDERS", 1)


def write(harness: TaskHarness) -> None:
    """Run the tasks of indexes, which an export would not hold up, before it goes on."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "_BY_RANK", [])
        harness.run()


def test_what_arrived_is_not_sent_again(harness: TaskHarness, target: ScriptedServer, one_by_one: None) -> None:
    fill(harness, 100)
    task = enqueue(harness, target.url)
    stop_in_between(harness, target, 30)
    first = sent(target)
    assert 30 <= len(first) < 40
    harness.restart()
    target.requests.clear()
    harness.run()
    assert sorted(first + sent(target)) == [*range(100)]
    assert set(target.calls) == {"POST /indexes/mov/documents"}  # the index and its settings had arrived
    assert harness.task(task).details["indexes"]["mov"]["matched_documents"] == 100 and records(harness) == []


def test_what_changed_meanwhile_is_sent_again_and_nothing_else(harness: TaskHarness, target: ScriptedServer,
                                                               one_by_one: None) -> None:
    fill(harness, 100)
    enqueue(harness, target.url)
    stop_in_between(harness, target, 90)
    first = sent(target)
    harness.restart()
    harness.add([{"id": first[0], "title": "other"}, {"id": 200, "title": "late"}], "mov")
    harness.delete([first[1]], "mov")
    write(harness)
    target.requests.clear()
    harness.run()
    missing = sorted({*range(100), 200} - {*first})
    assert sent(target) == sorted([*missing, first[0]])


def test_an_index_that_was_done_is_not_asked_for_again(harness: TaskHarness, target: ScriptedServer, one_by_one: None) -> None:
    fill(harness, 3, "a")
    fill(harness, 30, "b")
    task = enqueue(harness, target.url)
    stop_in_between(harness, target, 20)
    harness.restart()
    harness.add([{"id": 9}], "a")
    write(harness)
    target.requests.clear()
    harness.run()
    assert {each.path.split("/")[2] for each in target.requests} == {"b"}
    assert harness.task(task).details["indexes"]["a"]["matched_documents"] == 3


def test_settings_that_had_not_arrived_are_sent(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    refused = Reply(status=400, body=b"")
    target.replies = [lambda received: refused if received.path.endswith("/settings") else new(received)]
    task = enqueue(harness, target.url)
    request = exports.export_request(task, harness.instance, 100_000_000, ["127.0.0.0/8"])
    assert export.run_export(request, lambda *_: None)["error"]["code"] == "internal"
    target.replies = [present]  # by now
    target.requests.clear()
    harness.run()
    assert target.calls == ["PATCH /indexes/mov/settings", "POST /indexes/mov/documents"]


def test_records_of_other_exports_are_deleted(harness: TaskHarness, target: ScriptedServer) -> None:
    (harness.path / exports.FOLDER).mkdir()
    (harness.path / exports.FOLDER / "7-1.sqlite").touch()
    fill(harness, 1)
    assert run(harness, target.url).status == SUCCEEDED and records(harness) == []


# Content


def test_vectors_and_secrets_are_sent(harness: TaskHarness, target: ScriptedServer) -> None:
    harness.change({"embedders": {"own": {"source": "userProvided", "dimensions": 2},
                                  "far": {"source": "rest", "url": "http://127.0.0.1:1", "apiKey": "secret", "dimensions": 1,
                                          "request": "{{text}}", "response": "{{embedding}}"}}}, "mov")
    vectors = {"own": [0.5, 1.0], "far": {"embeddings": [[1.0]], "regenerate": True}}
    harness.add([{"id": 1, "_vectors": vectors}, {"id": 2, "_vectors": {"own": None, "far": [2.0]}}], "mov", key="id")
    harness.run()
    run(harness, target.url)
    assert target.requests[2].body["embedders"]["far"]["apiKey"] == "secret"
    documents = sorted((each for body in target.of("POST", "/documents") for each in body.documents), key=lambda each: each["id"])
    assert documents[0] == {"id": 1, "_vectors": {"own": {"embeddings": [[0.5, 1]], "regenerate": False},
                                                  "far": {"embeddings": [[1]], "regenerate": True}}}
    assert documents[1]["_vectors"]["far"] == {"embeddings": [[2]], "regenerate": False}


def test_vectors_that_the_target_would_refuse_are_left_out(harness: TaskHarness, target: ScriptedServer) -> None:
    for dimensions in (2, 3):
        harness.change({"embedders": {"own": {"source": "userProvided", "dimensions": dimensions}}}, "mov")
        harness.add([{"id": dimensions, "_vectors": {"own": [1.0] * dimensions}}], "mov", key="id")
        harness.run()
    run(harness, target.url)
    documents = sorted((each for body in target.of("POST", "/documents") for each in body.documents), key=lambda each: each["id"])
    assert documents == [{"id": 2, "_vectors": {"own": {"embeddings": [], "regenerate": False}}},
                         {"id": 3, "_vectors": {"own": {"embeddings": [[1, 1, 1]], "regenerate": False}}}]


def test_settings_that_need_a_feature_are_sent_while_it_is_on(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    harness.instance.update_features({"foreignKeys": True})
    run(harness, target.url)
    assert "foreignKeys" in target.requests[2].body


REFUSED_FEATURE = Reply({"message": "Setting `foreignKeys` requires ...", "code": "feature_not_enabled", "type": "invalid_request",
                         "link": "l"}, 400)


def without_foreign_keys(received: Received) -> Reply:
    """A target without any index, where `foreignKeys` is off."""
    return REFUSED_FEATURE if received.path.endswith("/settings") and "foreignKeys" in received.body else new(received)


def test_a_target_needs_no_features_for_settings_that_are_not_set(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    harness.change({"stopWords": ["the"]}, "mov")
    harness.run()
    harness.instance.update_features({"foreignKeys": True})
    target.replies = [without_foreign_keys]
    assert run(harness, target.url).status == SUCCEEDED
    assert target.requests[3].body["stopWords"] == ["the"] and sent(target) == [0]


def test_an_index_whose_settings_the_target_refuses_does_not_stay_there(harness: TaskHarness, target: ScriptedServer) -> None:
    """Else the next export would find it, and keep its settings."""
    fill(harness, 1)
    harness.instance.update_features({"foreignKeys": True})
    harness.change({"foreignKeys": [{"foreignIndexUid": "other", "fieldName": "title"}]}, "mov")
    harness.run()
    target.replies = [without_foreign_keys]
    failed = run(harness, target.url)
    assert failed.error and failed.error["message"].startswith("Failed to export documents to remote server feature_not_enabled")
    assert target.calls == ["GET /indexes/mov", "POST /indexes", "PATCH /indexes/mov/settings", "DELETE /indexes/mov"]
    target.replies = [new]
    assert run(harness, target.url).status == SUCCEEDED
    assert target.calls[4:7] == ["GET /indexes/mov", "POST /indexes", "PATCH /indexes/mov/settings"]


def test_an_index_that_the_target_had_is_never_deleted(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    target.replies = [lambda received: REFUSED_FEATURE if received.path.endswith("/settings") else present(received)]
    assert run(harness, target.url, indexes={"*": {"overrideSettings": True}}).status == FAILED
    assert target.calls == ["GET /indexes/mov", "PATCH /indexes/mov", "PATCH /indexes/mov/settings"]


def test_progress_has_two_levels(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 3)
    task = enqueue(harness, target.url)
    seen: list[Any] = []
    target.replies = [lambda received: seen.append(harness.queue.running()[0].batch.progress) or new(received)]
    harness.run()
    assert seen[0]["steps"][1] == {"currentStep": "Exporting index `mov`", "finished": 0, "total": 1}
    assert seen[-1]["steps"][2]["currentStep"] == "document" and seen[-1]["steps"][2]["total"] == 3
    batch = harness.queue.batch(harness.task(task).batch_uid)
    assert {"processing tasks > Exporting index `mov`", "processing tasks > Exporting index `mov` > document"} <= set(
        batch.stats["progressTrace"])


def test_a_crash_fails_the_task(tmp_path: Path, target: ScriptedServer) -> None:
    class Mortal(LocalWriter):
        def run(self, request: dict[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
            if request["do"] == "export":
                raise IndexingProcessDied("it ended")
            return super().run(request, progress)

    harness = TaskHarness(tmp_path / "data", Mortal)
    task = run(harness, target.url)
    assert task.error["message"] == "An unexpected crash occurred when processing the task: it ended"
    harness.instance.close()


def test_a_canceled_export_ends_as_enqueued(harness: TaskHarness, target: ScriptedServer) -> None:
    fill(harness, 1)
    task = enqueue(harness, target.url)
    harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=1"}, uids=[task.uid])
    harness.run()
    assert (harness.task(task).status, harness.task(task).details, target.requests) == (CANCELED, task.details, [])
