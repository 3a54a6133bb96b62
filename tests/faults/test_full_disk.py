"""What must hold of a daemon whose disk is full, on a small file system of its own.

1. It starts, and every search and read of every index is answered as before.
2. What takes room is refused in words, at once.
3. Documents, indexes and tasks are deleted, tasks are canceled.
4. When there is room again, all is as ever, with a reserve as before.
5. So it is wherever in a write the room ends: with each number of pages that are left when it begins.

Where no file system can be mounted these are skipped; tests/index/test_disk_space.py holds the same of the parts.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, Reply
from tests.support.small_disks import Filled, small_disk

DISK = "48m"
INDEXES = {"movies": 600, "books": 100, "songs": 100}  # documents


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 48 MB."""
    with small_disk(tmp_path / "disk", DISK) as folder:
        yield folder


@pytest.fixture
def daemon(disk: Path, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon on the small disk, with three indexes; its log lies elsewhere."""
    daemon = Daemon(tmp_path)
    daemon.data = disk / "data.ms"
    daemon.start()
    for index_uid, count in INDEXES.items():
        documents = [{"id": number, "title": f"film number {number} of {index_uid}"} for number in range(count)]
        assert daemon.done(daemon.post(f"/indexes/{index_uid}/documents", documents))["status"] == "succeeded"
    daemon.drain()
    yield daemon
    daemon.kill9()


def searches(daemon: Daemon) -> list[int]:
    """How many documents each index finds, by search, list and single document."""
    found = []
    for index_uid, count in INDEXES.items():
        answer = daemon.post(f"/indexes/{index_uid}/search", {"q": "film number 77", "limit": 3})
        assert answer.status == 200, answer.body
        found.append(answer.json["estimatedTotalHits"])
        assert daemon.get(f"/indexes/{index_uid}/documents?limit=2")["total"] == count
        assert daemon.get(f"/indexes/{index_uid}/documents/7")["id"] == 7
        assert daemon.get(f"/indexes/{index_uid}/settings")
    assert daemon.get("/tasks")["total"] and daemon.get("/stats")["indexes"].keys() == INDEXES.keys()
    return found


def done(daemon: Daemon, reply: Reply) -> dict[str, Any]:
    """The task of an accepted request, once it has ended: those that change tasks are answered 200."""
    assert reply.status in (200, 202), reply.body
    return daemon.done(replace(reply, status=202))


def status(task: dict[str, Any]) -> tuple[str, Any]:
    return task["status"], task["error"]


def room(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def test_searches_and_deletions_go_on(daemon: Daemon, disk: Path) -> None:
    before = searches(daemon)
    assert daemon.stop() == 0
    filler = Filled(disk)
    filler.fill()
    assert room(disk) == 0
    daemon.start()
    filler.fill()  # also what the start did not need of the reserve
    assert searches(daemon) == before
    check_refused(daemon.post("/indexes/movies/documents", [{"id": 5000, "title": "no room" * 1000}]))
    check_refused(daemon.post("/indexes", {"uid": "another"}))
    filler.empty()


def check_refused(reply: Reply) -> None:
    assert (reply.status, reply.code) == (422, "no_space_left_on_device")
    assert "only deletions" in reply.json["message"]


def test_what_frees_room_is_done(daemon: Daemon, disk: Path) -> None:
    filler = Filled(disk)
    reserve = (daemon.data / "reserve").stat().st_size
    assert reserve
    filler.fill()
    searches(daemon)
    for method, path, body in (
            ("POST", "/indexes/movies/documents/delete-batch", list(range(100))),
            ("DELETE", "/indexes/movies/documents/500", None),
            ("DELETE", "/tasks?statuses=succeeded", None),
            ("POST", "/tasks/cancel?statuses=enqueued", None),
            ("DELETE", "/indexes/books/documents", None),
            ("DELETE", "/indexes/songs", None)):
        reply = daemon.call(method, path, None if body is None else json.dumps(body))
        assert status(done(daemon, reply)) == ("succeeded", None), (path, daemon.bugs())
        assert daemon.post("/indexes/movies/search", {"q": "film"}).status == 200
    assert daemon.get("/indexes/movies/stats")["numberOfDocuments"] == 499
    assert daemon.get("/indexes/books/stats")["numberOfDocuments"] == 0
    assert daemon.call("GET", "/indexes/songs").status == 404
    filler.empty()
    added = daemon.post("/indexes/movies/documents", [{"id": 5000, "title": "room"}])
    assert status(daemon.done(added)) == ("succeeded", None)
    assert (daemon.data / "reserve").stat().st_size == reserve
    assert daemon.bugs() == []


def test_a_deletion_after_additions_is_done(daemon: Daemon, disk: Path) -> None:
    """They are of one batch, for which there is no room: the deletion does not fail with the additions."""
    filler = Filled(disk)
    large = [{"id": number, "title": f"{number} " * 2000} for number in range(5000, 5200)]
    added = daemon.post("/indexes/movies/documents", large)
    deleted = daemon.call("DELETE", "/indexes/movies/documents/500")
    filler.fill()
    assert status(daemon.done(deleted)) == ("succeeded", None)
    assert daemon.done(added)["status"] in ("succeeded", "failed")
    assert daemon.call("GET", "/indexes/movies/documents/500").status == 404
    filler.empty()


PAGE = 4096
MOST_LEFT = 250 * PAGE  # more than a few documents take, with all logs


def test_each_write_may_be_the_first_without_room(daemon: Daemon, disk: Path, amount: Callable[[int, int], int],
                                                  figure: Callable[..., None]) -> None:
    filler, states, wrong = Filled(disk), amount(4, 125), []
    outcomes: Counter[str] = Counter()
    for number in range(states):
        filler.fill()
        filler.leave(MOST_LEFT * number // states)
        documents = [{"id": 6000 + number, "title": f"state {number} " + "word " * 40} for _ in range(20)]
        replies = [daemon.post("/indexes/movies/documents", documents),
                   daemon.call("PATCH", "/indexes/books/settings", json.dumps({"stopWords": [f"w{number}"]})),
                   daemon.post("/indexes", {"uid": f"state{number}"})]
        assert daemon.post("/indexes/movies/search", {"q": "film number 77"}).status == 200
        freeing = daemon.call("DELETE", f"/indexes/movies/documents/{100 + number}")
        assert status(daemon.done(freeing)) == ("succeeded", None), (number, daemon.bugs())
        for reply in replies:
            ended = reply.code or (daemon.done(reply)["error"] or {"code": "done"})["code"]
            outcomes[ended] += 1
            if ended not in ("done", "no_space_left_on_device"):
                wrong.append((number, ended))
        filler.empty()
        again = daemon.done(daemon.post("/indexes/movies/documents", [{"id": 6000 + number, "title": f"again {number}"}]))
        assert status(again) == ("succeeded", None), number
    figure(f"writes on a disk that is full after 0 to {MOST_LEFT // PAGE} pages, in {states} states", str(dict(outcomes)),
           limit="done, or no_space_left_on_device")
    assert not wrong
    assert daemon.stop() == 0
    verified = subprocess.run([sys.executable, "-m", "svcd", "verify", "--full", "--folder", str(daemon.data)], check=False,
                              capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
