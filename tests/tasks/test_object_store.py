"""What must hold of snapshots in an object store. 38 and 39 are cases that other instances were seen to behave by.

38. Parts have the size that was asked for, the last one is shorter; at most so many are sent at once; tags are named in order.
    The folder of snapshots stays empty. What arrives is a snapshot.
39. A part that is answered 500, an end that is answered 403, and all other failures fail the task with their words.

And of svcd alone:

1. The store is asked to delete the parts of an upload that failed, was canceled, or of a daemon that was killed.
2. Dumps stay in their folder.
3. A role is assumed for the token as it is then.
"""
from __future__ import annotations

import io
import json
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from svcd.instance.task_records import CANCELED, FAILED, SUCCEEDED, Task
from svcd.remote import client, object_store
from svcd.remote.object_store import ObjectStore, StoreClient
from svcd.tasks.global_tasks import Folders
from svcd.tasks.indexing_client import IndexingProcessDied
from tests.support.scripted_server import Received, Reply, ScriptedServer, scripted
from tests.tasks.conftest import LocalWriter, TaskHarness

PART = 10_000
OBJECT = "/backups/films/data.snapshot"
UPLOAD = "a/b+c="


class Store:
    """A store that takes uploads. faults: step (begin, part, end, abort) -> what is answered instead, for a part by its number."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self.ended: bytes = b""
        self.faults: dict[Any, Reply] = {}
        self.gate: threading.Event | None = None

    def step(self, received: Received) -> tuple[str, int]:
        query = parse_qs(urlsplit(received.path).query)
        if "partNumber" in query:
            return "part", int(query["partNumber"][0])
        if received.method == "DELETE":
            return "abort", 0
        return ("begin" if "uploads" in query else "end"), 0

    def __call__(self, received: Received) -> Reply:
        step, number = self.step(received)
        fault = self.faults.get(step) or self.faults.get((step, number))
        if fault:
            return fault
        if step == "begin":
            return Reply(status=200, body=f"<?xml version='1.0'?><InitiateMultipartUploadResult><UploadId>{UPLOAD}</UploadId>"
                              "</InitiateMultipartUploadResult>".encode())
        assert parse_qs(urlsplit(received.path).query)["uploadId"] == [UPLOAD]
        if step == "part":
            if self.gate:
                self.gate.wait(5)
            self.parts[number] = received.content
            return Reply(b"", 200, {"ETag": f'"tag{number}"'})
        if step == "end":
            self.ended = received.content
            self.objects[urlsplit(received.path).path] = b"".join(self.parts[number] for number in sorted(self.parts))
            return Reply(status=200, body=b"<CompleteMultipartUploadResult/>")
        self.parts.clear()
        return Reply(status=204, body=b"")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def host(store: Store) -> Iterator[ScriptedServer]:
    with scripted(store) as host:
        yield host


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    taken: list[float] = []
    monkeypatch.setattr(object_store, "StoreClient", partial(StoreClient, pause=taken.append))
    monkeypatch.setattr(client.random, "uniform", lambda low, high: 1.0)
    monkeypatch.setattr(client, "RETRIED_S", 0.0)
    return taken


def fields(host: ScriptedServer, **others: Any) -> dict[str, Any]:
    return {"url": host.url, "region": "eu-west-1", "bucket": "backups", "prefix": "films/", "access_key": "key",
            "secret_key": "secret", "parts_at_once": 3, "part_bytes": PART, **others}


@pytest.fixture
def make(tmp_path: Path, host: ScriptedServer) -> Iterator[Callable[..., TaskHarness]]:
    made: list[TaskHarness] = []

    def make(writer: Callable[[], LocalWriter] = LocalWriter, **others: Any) -> TaskHarness:
        folders = Folders(tmp_path / "dumps", tmp_path / "snapshots", {"level": 0, **fields(host, **others)})
        harness = TaskHarness(tmp_path / "data", writer, folders=folders, networks=["127.0.0.0/8"])
        made.append(harness)
        harness.add([{"id": n, "title": f"t{n}"} for n in range(50)])
        harness.run()
        return harness

    yield make
    for each in made:
        each.instance.close()
        assert not each.bugs


def snapshot(harness: TaskHarness) -> Task:
    task = harness.do("snapshotCreation", None)
    harness.run()
    return harness.task(task)


def error(task: Task) -> tuple[str, str]:
    assert task.status == FAILED and task.error
    return task.error["code"], task.error["message"]


def test_38_an_object_is_made_of_parts(make: Callable[..., TaskHarness], store: Store, host: ScriptedServer, tmp_path: Path) -> None:
    harness = make()
    assert snapshot(harness).status == SUCCEEDED
    sizes = [len(store.parts[number]) for number in sorted(store.parts)]
    assert len(sizes) > 3 and set(sizes[:-1]) == {PART} and 0 < sizes[-1] <= PART
    assert sorted(store.parts) == [*range(1, len(sizes) + 1)] and host.most_at_once <= 3
    tags = re.findall(rb'<Part><ETag>"tag(\d+)"</ETag><PartNumber>(\d+)</PartNumber></Part>', store.ended)
    assert [(int(tag), int(number)) for tag, number in tags] == [(n, n) for n in sorted(store.parts)]
    assert not (tmp_path / "snapshots").exists() and [path.name for path in tmp_path.glob("data/*.copy")] == []
    with tarfile.open(fileobj=io.BytesIO(store.objects[OBJECT])) as tar:
        names = tar.getnames()
    assert "instance.sqlite" in names and "VERSION" in names
    assert not (harness.path / "snapshot.upload").exists()
    for each in host.requests:
        query = parse_qs(urlsplit(each.path).query)
        assert {"X-Amz-Signature", "X-Amz-Credential"} <= set(query) and query["X-Amz-Expires"] == ["28800"]
        assert "authorization" not in each.headers


def test_38_another_snapshot_replaces_it(make: Callable[..., TaskHarness], store: Store) -> None:
    harness = make(prefix="", level=6)
    snapshot(harness)
    (first,) = store.objects.values()
    store.parts.clear()
    harness.clear()
    snapshot(harness)
    assert [*store.objects] == ["/backups/data.snapshot"] and [*store.objects.values()] != [first]


def test_dumps_stay_in_their_folder(make: Callable[..., TaskHarness], host: ScriptedServer, tmp_path: Path) -> None:
    harness = make()
    harness.do("dumpCreation", None, {"dumpUid": None}, keys=[], instanceUid=harness.instance.uid)
    harness.run()
    assert len([*(tmp_path / "dumps").iterdir()]) == 1 and host.requests == []


REQUEST, SERVER = "invalid_s3_snapshot_request", "s3_snapshot_server_error"


@pytest.mark.parametrize("step, reply, tries, code, message", [
    ("begin", Reply(status=429, body=b"slow"), 2, REQUEST, "S3 error: status: 429, body: slow"),
    ("begin", Reply(status=503, body=b"away"), 2, SERVER, "S3 error: status: 503, body: away"),
    ("begin", Reply(status=403, body=b"<Error/>"), 1, SERVER, "S3 XML error: missing field `UploadId` in: <Error/>"),
    (("part", 2), Reply(status=500, body=b"oops"), 1, SERVER, "S3 error: status: 500, body: oops"),
    (("part", 2), Reply(status=429, body=b"slow"), 1, SERVER, "S3 HTTP error: status: 429, body: slow"),
    (("part", 2), Reply(status=403, body=b"no"), 1, SERVER, "S3 HTTP error: status: 403, body: no"),
    (("part", 1), Reply(status=200, body=b""), 1, SERVER, "S3 XML error: Missing ETag header"),
    ("end", Reply(status=403, body=b"no"), 1, REQUEST, "S3 error: status: 403, body: no"),
    ("end", Reply(status=429, body=b"slow"), 1, REQUEST, "S3 error: status: 429, body: slow"),
    ("end", Reply(status=500, body=b"oops"), 1, SERVER, "S3 error: status: 500, body: oops"),
    ("end", Reply(status=200, body=b"<Error><Code>x</Code></Error>"), 1, SERVER, "S3 error: status: 200, body: <Error><Code>x</Code></Error>"),
])
def test_39_failures(make: Callable[..., TaskHarness], store: Store, host: ScriptedServer, pauses: list[float],
                     monkeypatch: pytest.MonkeyPatch, step: Any, reply: Reply, tries: int, code: str, message: str) -> None:
    harness = make()
    snapshot(harness)
    before = dict(store.objects)
    host.requests.clear()
    store.faults[step] = reply
    monkeypatch.setattr(client, "RETRIED_S", 0.5 if tries > 1 else 0.0)
    monkeypatch.setattr(client.repeated, "__defaults__", (None, iter([0, 0, 1, 0, 0, 0] * 100).__next__))
    assert error(snapshot(harness)) == (code, message)
    assert store.objects == before
    number = step[1] if isinstance(step, tuple) else 0
    assert [store.step(each) for each in host.requests].count((step if isinstance(step, str) else step[0], number)) == tries
    ends = [store.step(each)[0] for each in host.requests]
    assert ends[-1] == ("begin" if step == "begin" else "abort") and not (harness.path / "snapshot.upload").exists()


@pytest.mark.parametrize("url, message", [
    ("ftp://store", "unsupported Url scheme"), ("http://", "Url is missing the `host`"), ("store", "relative URL without a base"),
    ("http://[a", "Invalid IPv6 URL"),
])
def test_39_a_wrong_url_fails_the_task(make: Callable[..., TaskHarness], url: str, message: str) -> None:
    assert error(snapshot(make(url=url))) == ("invalid_s3_snapshot_parameters", f"S3 bucket error: {message}")


@pytest.mark.parametrize("url, message", [("http://10.0.0.1", "10.0.0.1 is a private address"),
                                          ("http://127.0.0.1:1", "Connection refused")])
def test_39_a_store_that_cannot_be_called(make: Callable[..., TaskHarness], pauses: list[float], url: str, message: str) -> None:
    code, found = error(snapshot(make(url=url)))
    assert code == SERVER and found.startswith(f"S3 HTTP error: {message}")


def test_an_upload_of_a_killed_daemon_is_aborted_by_the_next(make: Callable[..., TaskHarness], store: Store,
                                                             host: ScriptedServer) -> None:
    harness = make()
    record = harness.path / "snapshot.upload"
    record.write_text(json.dumps([f"{host.url}/backups/old", UPLOAD]))
    snapshot(harness)
    first = host.requests[0]
    assert (first.method, urlsplit(first.path).path) == ("DELETE", "/backups/old") and not record.exists()
    record.write_text("half")
    assert snapshot(harness).status == SUCCEEDED


def test_a_canceled_upload_is_aborted(make: Callable[..., TaskHarness], host: ScriptedServer) -> None:
    class Killed(LocalWriter):
        """Is killed before the end of an upload."""

        def run(self, request: dict[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
            if request["do"] != "archive":
                return super().run(request, progress)
            Path(request["folder"], "snapshot.upload").write_text(json.dumps([f"{host.url}{OBJECT}", UPLOAD]))
            harness.runner.kill_batches([task.uid])
            raise IndexingProcessDied("killed")

    harness = make(Killed)
    task = harness.do("snapshotCreation", None)
    assert harness.runner.step()
    assert [each.method for each in host.requests] == ["DELETE"] and not (harness.path / "snapshot.upload").exists()
    harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?"}, uids=[task.uid])
    harness.run()
    assert harness.task(task).status == CANCELED


# Roles


def role(tmp_path: Path) -> dict[str, Any]:
    return {"access_key": None, "secret_key": None, "role_arn": "arn:r", "token_file": str(tmp_path / "token")}


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with scripted(lambda received: Reply(status=200, body={"AssumeRoleWithWebIdentityResponse": {"AssumeRoleWithWebIdentityResult": {
            "Credentials": {"AccessKeyId": "AK", "SecretAccessKey": "SK", "SessionToken": "ST/+="}}}})) as host:
        monkeypatch.setattr(object_store, "STS_URL", f"{host.url}/")
        yield host


def test_a_role_is_assumed_for_each_snapshot(make: Callable[..., TaskHarness], host: ScriptedServer, sts: ScriptedServer,
                                             tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make(**role(tmp_path))
    for token, seconds in (("one", None), ("two", "900")):
        (tmp_path / "token").write_text(f"{token}\n")
        if seconds:
            monkeypatch.setenv(object_store.SESSION_VARIABLE, seconds)
        assert snapshot(harness).status == SUCCEEDED
        assert parse_qs(sts.requests[-1].content.decode()) == {
            "Action": ["AssumeRoleWithWebIdentity"], "Version": ["2011-06-15"], "RoleArn": ["arn:r"], "WebIdentityToken": [token],
            "RoleSessionName": ["svc-snapshot-session"], "DurationSeconds": [seconds or "3600"]}
    assert len(sts.requests) == 2 and sts.requests[0].headers["accept"] == "application/json"
    assert {parse_qs(urlsplit(each.path).query)["X-Amz-Security-Token"][0] for each in host.requests} == {"ST/+="}


@pytest.mark.parametrize("reply, message", [
    (Reply(status=403, body=b"no"), "STS request failed with status 403: no"),
    (Reply(status=200, body=b"[]"), "Failed to deserialize STS response: "),
    (Reply(status=200, body=b"<xml/>"), "Failed to deserialize STS response: "),
])
def test_a_role_that_cannot_be_assumed(make: Callable[..., TaskHarness], sts: ScriptedServer, tmp_path: Path, reply: Reply,
                                       message: str) -> None:
    harness = make(**role(tmp_path))
    code, found = error(snapshot(harness))
    assert code == "internal" and found.startswith("Failed to read web identity token file: ")
    (tmp_path / "token").write_text("one")
    sts.replies = [reply]
    code, found = error(snapshot(harness))
    assert code == "internal" and found.startswith(message) and len(sts.requests) == 1


@pytest.mark.parametrize("given", ["-", "x"])
def test_a_wrong_duration_fails_the_task(make: Callable[..., TaskHarness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         given: str) -> None:
    (tmp_path / "token").write_text("one")
    monkeypatch.setenv(object_store.SESSION_VARIABLE, given)
    code, found = error(snapshot(make(**role(tmp_path))))
    assert code == "internal" and object_store.SESSION_VARIABLE in found


def test_addresses_are_in_path_style() -> None:
    store = ObjectStore("https://S3.Example.com:9000/base/", "r", "b", "a b/")
    assert store.object_url("x.snapshot") == "https://s3.example.com:9000/base/b/a%20b/x.snapshot"
    assert ObjectStore("http://[::1]:1", "r", "b", "").object_url("x") == "http://[::1]:1/b/x"
