"""Exports between daemons, and what happens to them when one is killed.

1. All documents, vectors and settings of an index arrive at another svcd.
2. After kill -9 the export goes on, and nothing that was acknowledged comes again.
3. While an export waits for its target, other tasks and dumps run; canceled (35), it ends at once.
4. A target that is gone for a while gets the rest when it is back.
5. A stop ends within its grace, and the export goes on at the next start.
"""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, Reply as DaemonReply, running, start
from tests.support.scripted_server import Received, Reply, ScriptedServer, scripted

pytestmark = pytest.mark.slow

ALLOWED = "--experimental-allowed-ip-networks=127.0.0.0/8"
COUNT = 2000
PATIENCE_S = 30.0


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Daemon]:
    folder = tmp_path / "source"
    folder.mkdir()
    daemon = start([ALLOWED], folder)
    yield daemon
    daemon.kill9()
    assert daemon.bugs() == []


def fill(daemon: Daemon, count: int = COUNT) -> None:
    daemon.done(daemon.call("PATCH", "/indexes/films/settings", json.dumps({
        "filterableAttributes": ["year"], "embedders": {"own": {"source": "userProvided", "dimensions": 2}}})))
    films = [{"id": n, "title": f"film {n}", "year": 1900 + n % 100, "_vectors": {"own": [n, 1.5]}} for n in range(count)]
    daemon.done(daemon.post("/indexes/films/documents", films))


def export(daemon: Daemon, url: str, **others: Any) -> int:
    reply = daemon.post("/export", {"url": url, **others})
    assert reply.status == 200
    return int(reply.json["taskUid"])


def task(daemon: Daemon, uid: int) -> dict[str, Any]:
    found: dict[str, Any] = daemon.get(f"/tasks/{uid}")
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(daemon: Daemon, uid: int) -> dict[str, Any]:
    wait_for(lambda: task(daemon, uid)["status"] not in ("enqueued", "processing"))
    return task(daemon, uid)


class Target:
    """Takes `most` bodies of documents, then none until `is_open` is set; `refusal` is what others get."""

    def __init__(self, most: int, refusal: Reply | None = None) -> None:
        self.left = most
        self.is_open = threading.Event()
        self.is_full = threading.Event()
        self.refusal = refusal
        self.taken: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, received: Received) -> Reply:
        if received.method == "GET":
            return Reply(status=404, body={"code": "index_not_found"})
        if not received.path.endswith("/documents"):
            return Reply({}, 202)
        with self._lock:
            self.left -= 1
            is_taken = self.left >= 0 or self.is_open.is_set()
            if is_taken:
                self.taken += [each["id"] for each in received.documents]
        if is_taken:
            return Reply({}, 202)
        self.is_full.set()
        if self.refusal:
            return self.refusal
        self.is_open.wait(PATIENCE_S)
        return Reply({}, 503)


@pytest.fixture
def host() -> Iterator[Callable[[Target], ScriptedServer]]:
    made: list[ScriptedServer] = []

    def listen(target: Target) -> ScriptedServer:
        made.append(ScriptedServer(target))
        return made[-1]

    yield listen
    for each in made:
        each.close()


def test_all_arrives_at_another_instance(source: Daemon, tmp_path: Path) -> None:
    fill(source)
    folder = tmp_path / "target"
    folder.mkdir()
    key = "a-key-of-sixteen-bytes"
    with running(folder, f"--master-key={key}") as target:
        uid = export(source, f"http://127.0.0.1:{target.port}/", apiKey=key)
        assert ended(source, uid)["details"]["indexes"] == {
            "films": {"filter": None, "overrideSettings": False, "matched_documents": COUNT}}
        bearer = {"authorization": f"Bearer {key}"}

        def ask(path: str) -> DaemonReply:
            return target.call("GET", path, headers=bearer)

        wait_for(lambda: not ask("/tasks?statuses=enqueued,processing").json["total"])
        assert ask("/tasks?statuses=failed").json["total"] == 0
        assert ask("/indexes/films/settings").json == source.get("/indexes/films/settings")
        page = f"/indexes/films/documents?limit={COUNT}&retrieveVectors=true"
        own, other = source.get(page)["results"], ask(page).json["results"]
        assert sorted(own, key=lambda each: each["id"]) == sorted(other, key=lambda each: each["id"])


def test_after_a_kill_nothing_comes_twice(source: Daemon, host: Callable[[Target], ScriptedServer]) -> None:
    fill(source)
    target = Target(25)
    receiver = host(target)
    uid = export(source, receiver.url, payloadSize=2000)
    assert target.is_full.wait(PATIENCE_S)
    wait_for(lambda: len(receiver.of("POST", "/documents")) >= 29)
    time.sleep(0.3)  # until the last acknowledgement is recorded
    source.kill9()
    before = [*target.taken]
    target.is_open.set()
    source.start()
    assert ended(source, uid)["details"]["indexes"]["films"]["matched_documents"] == COUNT
    assert len(before) > 100 and sorted(target.taken) == [*range(COUNT)]
    assert [each.method for each in receiver.requests].count("GET") == 1
    wait_for(lambda: not [*(source.data / "exports").iterdir()])  # deleted right after the task has ended


def test_35_others_run_meanwhile_and_a_cancelation_ends_it(source: Daemon, host: Callable[[Target], ScriptedServer]) -> None:
    fill(source)
    receiver = host(Target(3, Reply({}, 503)))
    uid = export(source, receiver.url, payloadSize=2000)
    wait_for(lambda: len(receiver.of("POST", "/documents")) >= 7)
    source.done(source.post("/indexes/films/documents", [{"id": 1, "title": "other"}]), seconds=10)
    assert source.done(source.post("/dumps", {}), seconds=10)["status"] == "succeeded"
    shown = task(source, uid)
    assert shown["status"] == "processing"
    steps = source.get("/batches?statuses=processing")["results"][0]["progress"]["steps"]
    assert [each["currentStep"] for each in steps] == ["processing tasks", "Exporting index `films`", "document"]
    began = time.monotonic()
    canceled = source.call("POST", f"/tasks/cancel?uids={uid}").json["taskUid"]
    assert ended(source, canceled)["details"]["canceledTasks"] == 1
    assert time.monotonic() - began < 2
    assert (task(source, uid)["status"], task(source, uid)["details"]) == ("canceled", shown["details"])


def test_a_target_that_was_away_gets_the_rest(source: Daemon) -> None:
    fill(source)
    first, second = Target(5, Reply({}, 503)), Target(COUNT)
    with scripted(first) as host:
        port = host.server_port
        uid = export(source, host.url, payloadSize=2000)
        assert first.is_full.wait(PATIENCE_S)
    time.sleep(0.5)  # nobody listens
    with scripted(second, port=port):
        assert ended(source, uid)["status"] == "succeeded"
    taken = first.taken + second.taken
    # The server may end before it has acknowledged its last bodies.
    assert {*taken} == {*range(COUNT)} and len(taken) <= COUNT + len(first.taken)


def test_a_stop_does_not_wait(source: Daemon, host: Callable[[Target], ScriptedServer]) -> None:
    fill(source, 100)
    target = Target(3, Reply({}, 503))
    uid = export(source, host(target).url)
    assert target.is_full.wait(PATIENCE_S)
    began = time.monotonic()
    assert source.stop() == 0 and time.monotonic() - began < 3
    before = [*target.taken]  # their acknowledgements may have come too late
    target.is_open.set()
    source.start()
    assert ended(source, uid)["status"] == "succeeded" and {*target.taken} == {*range(100)}
    assert len(before) < 10 and len(target.taken) <= 100 + len(before)
