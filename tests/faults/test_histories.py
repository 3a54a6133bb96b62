"""What must hold of all that eight clients see at once, who write, read, cancel, swap, and make and delete keys:

1. It can be explained by one order of the tasks (tests.support.observed_order): each reads what it wrote once the task is known to be
   done, nobody reads what is older than what somebody has read before, and nobody what was not asked for yet.
2. A read shows one state of an index: its documents, words, settings and number of documents after some task. The number may be a
   moment behind: it is that of the tasks that have ended.
3. A swap is seen whole by what reads several indexes: `/multi-search`, merged or not, and the list of indexes.
4. A task has its uid in the order of the requests, is found once it is acknowledged, and stays as it ended.
5. A key opens from the answer that it is made until it is deleted, and not after that.
6. So it is when searches are answered by several processes.

The checker must find what is wrong: half of this file shows that it does.
"""
from __future__ import annotations

import http.client
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.history import INDEXES, WORDS, Write
from tests.support.observed_order import History, KeyUse, NewestSeen, Read, Sent, State, TaskSeen

CLIENTS = 8
IDS = range(40)
MASTER_KEY = "a-master-key-of-some-length"
DRAIN_S = 120.0
_NOT_FOUND = re.compile(r"Index `(\w+)` not found")


# What a read shows of a state


def documents(state: State) -> Any:
    return state.documents if state else None


def count(state: State) -> Any:
    return len(state.documents) if state else None


def stop_words(state: State) -> Any:
    return state.settings.get("stopWords", []) if state else None


def is_there(state: State) -> bool:
    return state is not None


def document(number: int) -> Callable[[State], Any]:
    return lambda state: state.documents.get(number) if state else None


def marked(mark: str) -> Callable[[State], Any]:
    """What a search for the mark of a document finds."""
    return lambda state: [each for each in state.documents.values() if each["mark"] == mark] if state else None


def by_id(hits: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    found = {hit["id"]: hit for hit in hits}
    assert len(found) == len(hits)
    return found


class Client:
    """A thread with a connection, which does one thing after the other and writes down what it saw."""

    def __init__(self, number: int, seed: int, daemon: Daemon, history: History, keys: dict[str, str], deadline: float) -> None:
        """history, keys (uid -> key): of all clients."""
        self._number, self._random, self._history, self._keys = number, random.Random(f"{seed} {number}"), history, keys
        self._connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
        self._deadline = deadline
        self._count = 0
        self._marks = ["none"]
        self.complaints: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        with closing(self._connection):
            try:
                while time.monotonic() < self._deadline:
                    self._random.choices(list(_ACTIONS), list(_ACTIONS.values()))[0](self)
            except Exception as error:
                self.complaints.append(repr(error))
                raise

    def _call(self, method: str, path: str, body: Any = None, key: str = MASTER_KEY) -> tuple[float, float, int, Any]:
        """(begin, end, status, answer)"""
        headers = {"authorization": f"Bearer {key}"} | ({"content-type": "application/json"} if body is not None else {})
        begin = time.monotonic()
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        end = time.monotonic()
        if answer.status not in (200, 201, 202, 204, 403, 404) and not _NOT_FOUND.search(content.decode()):
            self.complaints.append(f"{method} {path}: {answer.status} {content[:300]!r}")
        return begin, end, answer.status, json.loads(content) if content else None

    @property
    def _index(self) -> str:
        return self._random.choice(INDEXES)

    # Writes

    def write(self) -> None:
        made = self._random.choices(list(_WRITES), list(_WRITES.values()))[0](self, self._index)
        chance = self._random.random()
        path = f"{made.path}{'&' if '?' in made.path else '?'}wait=5s" if chance < 0.3 else made.path
        begin, end, status, answer = self._call(made.method, path, None if made.body is None else json.loads(made.body))
        uid = answer["uid"] if status == 200 and "uid" in answer else answer["taskUid"]
        self._history.sent.append(Sent(begin, end, uid, made))
        if uid == answer.get("uid"):  # it has waited
            self._history.tasks.append(TaskSeen(begin, end, uid, answer["status"]))
        elif chance > 0.8:
            while self._see_task(uid) in ("enqueued", "processing"):
                time.sleep(0.02)

    def _see_task(self, uid: int) -> str | None:
        begin, end, status, task = self._call("GET", f"/tasks/{uid}")
        shown = task["status"] if status == 200 else None
        self._history.tasks.append(TaskSeen(begin, end, uid, shown))
        return shown

    def _add(self, index: str) -> Write:
        self._count += 1
        is_update = self._random.random() < 0.4
        chosen = self._random.sample(IDS, self._random.choice((1, 5, len(IDS))))
        added = [{"id": n, "mark": f"m{self._number}x{self._count}x{n}", self._random.choice("abc"): self._count,
                  "text": " ".join(self._random.choices(WORDS, k=6))} for n in chosen]
        self._marks = [each["mark"] for each in added]
        return Write("documentAdditionOrUpdate", "PUT" if is_update else "POST", f"/indexes/{index}/documents?primaryKey=id",
                     json.dumps(added), index, added, is_update)

    def _delete(self, index: str) -> Write:
        ids = self._random.sample(IDS, 10)
        return Write("documentDeletion", "POST", f"/indexes/{index}/documents/delete-batch", json.dumps(ids), index, ids=ids)

    def _clear(self, index: str) -> Write:
        return Write("documentDeletion", "DELETE", f"/indexes/{index}/documents", None, index)

    def _settings(self, index: str) -> Write:
        changes = {"stopWords": sorted(self._random.sample(WORDS, 2))}
        return Write("settingsUpdate", "PATCH", f"/indexes/{index}/settings", json.dumps(changes), index, settings=changes)

    def _create(self, index: str) -> Write:
        return Write("indexCreation", "POST", "/indexes", json.dumps({"uid": index, "primaryKey": "id"}), index)

    def _drop(self, index: str) -> Write:
        return Write("indexDeletion", "DELETE", f"/indexes/{index}", None, index)

    def _swap(self, index: str) -> Write:
        other = self._random.choice([each for each in INDEXES if each != index])
        is_rename = self._random.random() < 0.2
        body = [{"indexes": [index, other], "rename": is_rename}]
        return Write("indexSwap", "POST", "/swap-indexes", json.dumps(body), swap=(index, other), is_rename=is_rename)

    def _cancel(self, index: str) -> Write:
        newest = max((each.uid for each in self._history.sent[-5:]), default=0)
        wanted = self._random.choice([f"uids={newest},{newest + 1}", f"indexUids={index}"])
        return Write("taskCancelation", "POST", f"/tasks/cancel?{wanted}")

    # Reads

    def _read(self, what: str, view: Callable[[State], Any], method: str, path: str, body: Any = None, *, index: str,
              shown: Callable[[Any], Any], is_of_ended: bool = False) -> None:
        begin, end, status, answer = self._call(method, path, body)
        self._history.reads.append(Read(begin, end, what, view, {index: shown(answer) if status == 200 else None}, is_of_ended))

    def list_documents(self) -> None:
        index = self._index
        self._read("the list of documents", documents, "GET", f"/indexes/{index}/documents?limit=1000", index=index,
                   shown=lambda answer: by_id(answer["results"]))

    def get_document(self) -> None:
        index, number = self._index, self._random.choice(IDS)
        self._read("a document", document(number), "GET", f"/indexes/{index}/documents/{number}", index=index, shown=lambda answer: answer)

    def search_all(self) -> None:
        index = self._index
        self._read("a search", documents, "POST", f"/indexes/{index}/search", {"limit": 1000}, index=index,
                   shown=lambda answer: by_id(answer["hits"]))

    def search_mark(self) -> None:
        """Of a document that this client wrote last."""
        index, mark = self._index, self._random.choice(self._marks)
        self._read(f"a search for {mark}", marked(mark), "POST", f"/indexes/{index}/search", {"q": f'"{mark}"'}, index=index,
                   shown=lambda answer: answer["hits"])

    def read_count(self) -> None:
        index = self._index
        self._read("the number of documents", count, "GET", f"/indexes/{index}/stats", index=index,
                   shown=lambda answer: answer["numberOfDocuments"], is_of_ended=True)

    def read_settings(self) -> None:
        index = self._index
        self._read("the stop words", stop_words, "GET", f"/indexes/{index}/settings/stop-words", index=index, shown=lambda answer: answer)

    def search_several(self) -> None:
        """Lists of two indexes, or one merged list of them."""
        chosen = self._random.sample(INDEXES, 2)
        is_merged = self._random.random() < 0.5
        queries = [{"indexUid": index, **({} if is_merged else {"limit": 1000})} for index in chosen]
        begin, end, status, answer = self._call("POST", "/multi-search", {"queries": queries, **({"federation": {"limit": 1000}} if is_merged else {})})
        if status != 200:
            values = {_NOT_FOUND.search(answer["message"])[1]: None}
        elif is_merged:
            values = {index: by_id([{name: value for name, value in hit.items() if name != "_federation"} for hit in answer["hits"]
                                    if hit["_federation"]["indexUid"] == index]) for index in chosen}
        else:
            values = {result["indexUid"]: by_id(result["hits"]) for result in answer["results"]}
        self._history.reads.append(Read(begin, end, "a merged search" if is_merged else "a multi-search", documents, values))

    def list_indexes(self) -> None:
        begin, end, _, answer = self._call("GET", "/indexes?limit=100")
        names = {each["uid"] for each in answer["results"]}
        self._history.reads.append(Read(begin, end, "the list of indexes", is_there, {index: index in names for index in INDEXES},
                                        is_of_ended=True))

    def list_tasks(self) -> None:
        begin, end, _, answer = self._call("GET", "/tasks?limit=20")
        self._history.tasks += [TaskSeen(begin, end, task["uid"], task["status"]) for task in answer["results"]]
        if answer["results"]:
            self._history.newest.append(NewestSeen(begin, end, answer["results"][0]["uid"]))

    def look_at_all(self) -> None:
        """Once every task has ended: all of each index, and all tasks as they are."""
        with closing(self._connection):
            begin, end, _, answer = self._call("GET", "/tasks?limit=1000000")
            self._history.tasks += [TaskSeen(begin, end, task["uid"], task["status"]) for task in answer["results"]]
            for index in INDEXES:
                self._read("the list of documents at last", documents, "GET", f"/indexes/{index}/documents?limit=1000", index=index,
                           shown=lambda answer: by_id(answer["results"]))
                self._read("a search at last", documents, "GET", f"/indexes/{index}/search?limit=1000", index=index,
                           shown=lambda answer: by_id(answer["hits"]))

    # Keys

    def make_key(self) -> None:
        begin, end, _, answer = self._call("POST", "/keys", {"actions": ["search"], "indexes": ["*"], "expiresAt": None})
        self._history.keys.append(KeyUse(begin, end, answer["uid"], "made"))
        self._keys[answer["uid"]] = answer["key"]

    def use_key(self) -> None:
        if keys := list(self._keys.items()):
            uid, key = self._random.choice(keys)
            begin, end, status, _ = self._call("POST", f"/indexes/{self._index}/search", {"limit": 0}, key)
            self._history.keys.append(KeyUse(begin, end, uid, "refused" if status == 403 else "accepted"))

    def delete_key(self) -> None:
        """The others use it on, for a while."""
        if len(self._keys) > 3:
            uid = self._random.choice(list(self._keys))
            begin, end, status, _ = self._call("DELETE", f"/keys/{uid}")
            if status == 204:
                self._history.keys.append(KeyUse(begin, end, uid, "deleted"))
            self.use_key()
            if len(self._keys) > 6:
                self._keys.pop(uid, None)


_WRITES: dict[Callable[[Client, str], Write], int] = {
    Client._add: 60, Client._delete: 10, Client._clear: 4, Client._settings: 4, Client._create: 5, Client._drop: 4, Client._swap: 15,
    Client._cancel: 4}
_ACTIONS: dict[Callable[[Client], None], int] = {
    Client.write: 20, Client.list_documents: 8, Client.get_document: 8, Client.search_all: 8, Client.search_mark: 8, Client.read_count: 4,
    Client.read_settings: 4, Client.search_several: 15, Client.list_indexes: 5, Client.list_tasks: 5, Client.make_key: 2, Client.use_key: 8,
    Client.delete_key: 2}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux"))])
def test_what_eight_clients_see_is_explainable(tmp_path: Path, workers: int, amount: Callable[[int, int], int], figure: Callable[..., None],
                                               seed: int) -> None:
    history, keys = History(), dict[str, str]()
    with running(tmp_path, "--search-workers", str(workers), "--master-key", MASTER_KEY) as daemon:
        deadline = time.monotonic() + amount(3, 60)
        clients = [Client(number, seed, daemon, history, keys, deadline) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        history.ended = ended(daemon)
        last = Client(CLIENTS, seed, daemon, history, keys, deadline)
        last.look_at_all()
        assert [complaint for client in [*clients, last] for complaint in client.complaints] == []
        assert daemon.bugs() == [] and "locked" not in daemon.log.read_text()
    done = sum(task["status"] == "succeeded" for task in history.ended.values())
    print(f"{len(history.sent)} tasks ({done} succeeded), {len(history.reads)} reads, {len(history.tasks)} views of tasks, "
          f"{len(history.keys)} uses of {len({use.key for use in history.keys})} keys")
    violations = history.violations()
    print("\n".join(violations[:50]))
    figure(f"{CLIENTS} clients at once, {workers} search workers: what they see and cannot be explained", len(violations),
           f"of {len(history.reads) + len(history.tasks) + len(history.keys)}", limit="0")
    assert violations == []


def ended(daemon: Daemon) -> Mapping[int, dict[str, Any]]:
    """All tasks, once none is left to do."""
    headers = {"authorization": f"Bearer {MASTER_KEY}"}
    deadline = time.monotonic() + DRAIN_S
    while daemon.call("GET", "/tasks?statuses=enqueued,processing&limit=0", headers=headers).json["total"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    tasks = daemon.call("GET", "/tasks?limit=1000000", headers=headers).json["results"]
    return {task["uid"]: task for task in tasks}


# The checker. Tasks: 0 and 1 make `i0` and `i1`, 2 adds to `i0`, 3 swaps the two, 4 adds to `i1` what was `i0`.

ONE, TWO, THREE = {"id": 1, "mark": "a"}, {"id": 2, "mark": "b"}, {"id": 3, "mark": "c"}


@pytest.fixture
def told() -> History:
    """A history without reads; task n was asked for from n to n + 0.5."""
    def added(index: str, document: dict[str, Any]) -> Write:
        return Write("documentAdditionOrUpdate", "POST", "", index=index, documents=[document])

    writes = [added("i0", ONE), added("i1", TWO), added("i0", THREE), Write("indexSwap", "POST", "", swap=("i0", "i1")), added("i1", TWO)]
    tasks = {uid: {"uid": uid, "type": write.kind, "status": "succeeded", "batchUid": uid} for uid, write in enumerate(writes)}
    return History([Sent(uid, uid + 0.5, uid, write) for uid, write in enumerate(writes)], ended=tasks)


def of(*some: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {each["id"]: each for each in some}


def read(begin: float, end: float, **values: Any) -> Read:
    return Read(begin, end, "a read", documents, values)


@pytest.mark.parametrize("reads", [
    [read(0, 9, i0=None)],
    [read(0, 9, i0=None), read(0, 9, i0=of(ONE, THREE)), read(0, 9, i0=of(ONE))],  # at once, so in any order
    [read(0, 1, i0=of(ONE)), read(2, 3, i0=of(ONE, THREE)), read(3.1, 3.2, i0=of(TWO))],
    [read(3, 4, i0=of(TWO), i1=of(ONE, THREE)), read(3, 5, i0=of(ONE, THREE), i1=of(TWO))],
    [read(4, 5, i0=of(TWO), i1=of(ONE, TWO, THREE))],  # the two at different moments
    [read(4, 5, i0=of(TWO), i2=None)],
])
def test_what_can_be_explained_is_no_violation(told: History, reads: Sequence[Read]) -> None:
    told.reads += reads
    assert told.violations() == []


@pytest.mark.parametrize(("reads", "complaint"), [
    ([read(8, 9, i0=of(THREE))], "was so after tasks \\[\\]"),  # never
    ([read(0, 1.5, i0=of(ONE, THREE))], "was so after tasks \\[2\\]"),  # before it was asked for
    ([read(2, 3, i0=of(ONE, THREE)), read(3.1, 4, i0=of(ONE))], "task 2 was known"),  # back in time
    ([read(3, 3.5, i0=of(TWO)), read(3.6, 4, i1=of(TWO)), read(4.1, 5, i1=None)], "task 1 was known"),
    ([read(4, 9, i0=of(TWO), i1=of(TWO))], "swaps not before task 3"),  # half a swap
    ([read(4, 9, i0=of(ONE, THREE), i1=of(ONE, THREE))], "swaps not before task 3"),
    ([read(4, 5, i0=of(TWO)), read(6, 7, i0=of(ONE, THREE), i1=of(TWO))], "task 3 was known"),
])
def test_what_cannot_be_explained_is_found(told: History, reads: Sequence[Read], complaint: str) -> None:
    told.reads += reads
    found = told.violations()
    assert len(found) == 1 and re.search(complaint, found[0]), found


def test_a_task_that_is_known_to_be_done_is_read(told: History) -> None:
    told.tasks.append(TaskSeen(5, 6, 2, "succeeded"))
    told.reads.append(read(5.5, 7, i0=of(ONE)))
    assert told.violations() == []
    told.reads.append(read(6.5, 7, i0=of(ONE)))
    assert len(told.violations()) == 1


def test_what_a_task_did_is_seen_before_it_has_ended(told: History) -> None:
    told.reads += [read(2, 2.5, i0=of(ONE, THREE)), Read(2.6, 2.9, "the number of documents", count, {"i0": 1}, is_of_ended=True)]
    assert told.violations() == []
    told.tasks.append(TaskSeen(2, 2.5, 2, "succeeded"))
    assert len(told.violations()) == 1


def test_a_canceled_task_leaves_no_trace(told: History) -> None:
    told.ended = {**told.ended, 2: {**told.ended[2], "status": "canceled"}}
    told.reads.append(read(3, 3.1, i0=of(ONE)))
    assert told.violations() == []
    told.reads.append(read(3.2, 3.3, i0=of(ONE, THREE)))
    assert len(told.violations()) == 1


def test_a_task_that_ends_otherwise_than_it_must_is_found(told: History) -> None:
    told.ended = {**told.ended, 4: {**told.ended[4], "status": "failed", "error": {"message": "too hard"}}}
    assert "should have succeeded" in told.violations()[0]


@pytest.mark.parametrize(("change", "complaint"), [
    (lambda told: told.sent.append(Sent(6, 7, 3, told.sent[0].write)), "task 3 was asked for after task 4"),
    (lambda told: told.sent.append(Sent(0, 9, 3, told.sent[3].write)), "task 3 was acknowledged twice"),
    (lambda told: told.sent.append(Sent(6, 7, 5, told.sent[0].write)), "task 5 was acknowledged, and is lost"),
    (lambda told: told.tasks.append(TaskSeen(2, 3, 1, None)), "task 1 was acknowledged, and not there"),
    (lambda told: told.tasks.append(TaskSeen(2, 3, 1, "failed")), "task 1 was failed before it was succeeded"),
    (lambda told: told.tasks.extend([TaskSeen(2, 3, 1, "succeeded"), TaskSeen(4, 5, 1, "processing")]), "processing after it had ended"),
    (lambda told: told.newest.append(NewestSeen(2, 3, 0)), "began with 0 after task 1"),
])
def test_what_cannot_be_of_tasks_is_found(told: History, change: Callable[[History], None], complaint: str) -> None:
    change(told)
    assert any(complaint in found for found in told.violations()), told.violations()


@pytest.mark.parametrize(("uses", "is_right"), [
    ([(0, 1, "made"), (1.1, 2, "accepted"), (3, 4, "deleted"), (5, 6, "refused")], True),
    ([(0, 2, "made"), (1, 2, "refused"), (3, 5, "deleted"), (4, 6, "accepted"), (4, 7, "refused")], True),  # at once
    ([(0, 1, "made"), (1.1, 2, "refused"), (3, 4, "deleted")], False),
    ([(0, 1, "made"), (3, 4, "deleted"), (5, 6, "accepted")], False),
    ([(0, 1, "made"), (3, 9, "deleted"), (4, 5, "refused"), (6, 7, "accepted")], False),  # it comes back
])
def test_keys_open_from_their_making_to_their_deletion(uses: Sequence[tuple[float, float, str]], is_right: bool) -> None:
    history = History(keys=[KeyUse(begin, end, "a", did) for begin, end, did in uses])
    assert (history.violations() == []) == is_right
