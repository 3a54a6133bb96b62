"""Changes of the documents of an index, followed (docs/guide/follow.md). What must hold:

1. A follower that replays random writes, batched at random, has an equal index; also one that gets no documents.
2. It reads everything again only if the index was deleted or swapped, and then it is told to.
3. A position is good for as long as the log has its row: it survives the end of svcd, and old rows go after --changes-keep. The last
   change that a follower has seen may be old.
4. A log that missed a write begins anew; what was deleted, swapped or restored is another log.
5. As server-sent events each change comes once, with its `seq` as its id; the stream ends where a request is refused.
6. With the option off, the route says how to switch it on, and an index has no log.
"""
from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from svcd.api import streaming
from svcd.instance.instance import Instance
from svcd.instance.queue import Queue
from svcd.tasks.runner import Runner
from tests.api.conftest import Client, client_of
from tests.support.follower import Follower, everything, random_writes
from tests.support.tasks_in_process import LocalWriter

WRITES = 500
KEEP_S = 3600
CHANGES = "/indexes/films/changes"


class World:
    """An instance that keeps changes for KEEP_S; open() opens it again, as after a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()

    def open(self, keep_s: int | None = KEEP_S) -> None:
        self.instance = Instance(self.path)
        self.instance.force_feature("editDocumentsByFunction")
        self.client: Client = client_of(self.instance, None, lambda: 0, self.instance.keys)
        self.client.app.services.keeps_changes = keep_s is not None
        self._runner = Runner(self.instance, make_writer=lambda _: LocalWriter(), changes_keep_s=keep_s)  # type: ignore[arg-type]

    def again(self, keep_s: int | None = KEEP_S) -> None:
        self.instance.close()
        self.open(keep_s)

    def write(self, method: str, path: str, body: Any = None) -> None:
        got = self.client.json(method, path, body) if body is not None else self.client.send(method, path)
        assert got.status == 202, (method, path, got.text)

    def work(self) -> None:
        while self._runner.step():
            pass

    def add(self, *ids: int) -> None:
        self.write("POST", "/indexes/films/documents", [{"id": each} for each in ids])
        self.work()

    def get(self, path: str) -> tuple[int, str]:
        got = self.client.get(path)
        return got.status, got.text

    def lines(self, query: str = "") -> list[dict[str, Any]]:
        status, text = self.get(f"{CHANGES}{query}")
        assert status == 200, text
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "data")
    yield made
    made.instance.close()


def test_a_follower_of_random_writes_has_an_equal_index(world: World) -> None:
    chance, follower, is_another = random.Random(3), Follower(world.get, "films"), False
    for number, write in enumerate(islice(random_writes(chance), WRITES)):
        is_another |= write[1] == "/swap-indexes" or write[:2] == ("DELETE", "/indexes/films")
        world.write(*write)
        if chance.random() < 0.3:
            world.work()
        if number % 100 == 99:
            world.again()
        if chance.random() < 0.1:
            world.work()
            before = follower.reread
            follower.catch_up()
            assert is_another or follower.reread == before
            is_another = False
            assert follower.documents == {str(each["id"]): each for each in everything(world.get, "/indexes/films")}
            assert follower.ids == set(follower.documents)
    assert 0 < follower.reread < 40


def test_changes_come_in_order_with_what_became_of_each(world: World) -> None:
    world.add(1, 2)
    world.write("DELETE", "/indexes/films/documents/1")
    world.work()
    world.add(1)
    world.write("DELETE", "/indexes/films/documents")
    world.work()
    found = world.lines("?since=0")
    assert [(each["operation"], each.get("id")) for each in found] == [
        ("put", "1"), ("put", "2"), ("delete", "1"), ("put", "1"), ("clear", None)]
    assert world.lines(f"?since={found[2]['seq']}") == found[3:]
    assert world.lines(f"?since={found[-1]['seq']}") == []
    assert [set(each) for each in world.lines()] == [{"seq"}] and world.lines()[0]["seq"] == found[-1]["seq"]


def test_documents_come_as_they_are_now(world: World) -> None:
    world.write("POST", "/indexes/films/documents", [{"id": 1, "t": "a"}, {"id": 2}])
    world.work()
    world.write("PUT", "/indexes/films/documents", [{"id": 1, "t": "b"}])
    world.write("DELETE", "/indexes/films/documents/2")
    world.work()
    shown = [(each["operation"], each.get("document")) for each in world.lines("?since=0&documents=true")]
    assert shown == [("put", {"id": 1, "t": "b"}), ("delete", None), ("put", {"id": 1, "t": "b"}), ("delete", None)]


def test_what_does_not_change_is_no_change(world: World) -> None:
    world.add(1)
    now = world.lines()
    world.add(1)
    world.write("PATCH", "/indexes/films/settings", {"stopWords": ["a"]})
    world.write("DELETE", "/indexes/films/documents/7")
    world.work()
    assert world.lines(f"?since={now[0]['seq']}") == [] and world.lines() == now


def test_many_changes_come_in_pages(world: World) -> None:
    world.write("POST", "/indexes/films/documents", [{"id": each, "t": "x" * 2000} for each in range(1500)])
    world.work()
    for query, most in (("", 1000), ("&documents=true", 140)):
        seq, ids = "0", []
        while page := world.lines(f"?since={seq}{query}"):
            assert len(page) <= most
            seq, ids = page[-1]["seq"], ids + [each["id"] for each in page]
        assert ids == list(map(str, range(1500)))


def gone(world: World, seq: str) -> str:
    """The message for a position that the log does not know."""
    got = world.client.get(f"{CHANGES}?since={seq}")
    assert got.fault[:2] == (410, "changes_gone"), got.text
    now = world.lines()[0]["seq"]
    assert f"`since={now}`" in got.fault[2] and world.lines(f"?since={now}") == []
    return got.fault[2]


def test_old_changes_go_and_the_last_one_seen_may_be_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    next_moment, days = Queue.next_moment, [0]
    monkeypatch.setattr(Queue, "next_moment", lambda self: next_moment(self) + days[0] * 86_400 * 10**9)
    world.add(1)
    world.add(2)
    first, second = (each["seq"] for each in world.lines("?since=0"))
    days[0] = 1
    world.add(3, 4)
    found = world.lines(f"?since={second}")
    assert [each["id"] for each in found] == ["3", "4"]
    for seq in ("0", first):
        gone(world, seq)
    days[0] = 2
    world.add(5)
    assert [each["id"] for each in world.lines(f"?since={found[-1]['seq']}")] == ["5"]
    for seq in (second, found[0]["seq"]):
        gone(world, seq)


def test_a_log_that_missed_a_write_begins_anew(world: World) -> None:
    world.add(1)
    seq = world.lines()[0]["seq"]
    world.again(None)
    world.again()
    assert world.lines(f"?since={seq}") == []  # nothing was written meanwhile
    world.again(None)
    world.add(2)
    world.again()
    gone(world, seq)
    gone(world, "0")
    now = world.lines()[0]["seq"]
    world.add(3)
    assert [each["id"] for each in world.lines(f"?since={now}")] == ["3"]
    gone(world, seq)


def test_another_index_of_the_name_is_another_log(world: World) -> None:
    world.add(1)
    seq = world.lines()[0]["seq"]
    world.write("POST", "/indexes/books/documents", [{"id": 1}])
    world.write("POST", "/swap-indexes", [{"indexes": ["films", "books"]}])
    world.work()
    gone(world, seq)
    world.write("DELETE", "/indexes/films")
    world.work()
    assert world.get(f"{CHANGES}?since={seq}")[0] == 404
    world.add(1)
    gone(world, seq)
    assert [each["id"] for each in world.lines("?since=0")] == ["1"]


def test_a_restored_backup_that_was_written_to_is_another_log(world: World, tmp_path: Path) -> None:
    world.add(1)
    world.instance.close()
    shutil.copytree(world.path, tmp_path / "backup")
    world.open()
    world.add(2)
    seq = world.lines()[0]["seq"]
    world.instance.close()
    shutil.rmtree(world.path)
    (tmp_path / "backup").rename(world.path)
    world.open()
    gone(world, seq)
    world.add(3)
    world.add(4)
    gone(world, seq)


def test_a_stream_sends_each_change_and_ends_where_a_request_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.0)
    world.add(1)
    (first,) = world.lines("?since=0")
    body: Any = world.client.answer("GET", f"{CHANGES}?since=0", headers={"accept": "text/event-stream"}).body
    stream = iter(body)
    assert next(stream) == b"id: 0:-2\n\n"
    assert next(stream) == f"id: {first['seq']}\ndata: {json.dumps(first, separators=(',', ':'))}\n\n".encode()
    world.add(2)
    assert b'"id":"2"' in next(stream)
    assert next(stream) == b":\n\n"
    world.write("DELETE", "/indexes/films")
    world.work()
    assert list(stream) == []
    world.add(5)
    headers = {"accept": "text/event-stream", "last-event-id": first["seq"]}
    assert world.client.answer("GET", f"{CHANGES}?since=0", headers=headers).status == 410


def test_without_the_option_there_is_no_log(world: World) -> None:
    world.again(None)
    world.add(1)
    assert world.client.get(CHANGES).fault == (400, "feature_not_enabled", (
        "Changes of documents are not kept. To follow them from then on, start svcd with `--changes-keep SECONDS`."))
    with world.instance.read("films") as reader:
        assert reader.transaction.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'document_changes'").fetchall() == []


@pytest.mark.parametrize("since", ["x", "1", "1:2:3", "-1:0", "99999999999999999999:0", "1:" + "9" * 30])
def test_a_position_is_checked(world: World, since: str) -> None:
    world.add(1)
    for got in (world.client.get(f"{CHANGES}?since={since}"), world.client.get(CHANGES, **{"last-event-id": since})):
        assert got.fault[:2] == (400, "bad_request") and f"`{since}` is not a position" in got.fault[2]
    assert world.client.get("/indexes/none/changes").fault[:2] == (404, "index_not_found")


