"""1. Lists of tasks and batches show what is of the key's indexes; what is of no index only keys of all indexes see.
2. Pages of what a key sees, joined, are all it sees, in both directions; totals count what it sees, but that of all
   tasks, without a filter, which counts those of other indexes as recorded.
3. One task or batch that a key may not see is not found, like one that is not there.
4. Cancel and delete match what the key may see, whatever they name.
5. Lists of indexes and statistics show the key's indexes and count no others.
6. A body names only indexes that the key has; a write creates an index only for a key that may.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from svcd.instance import queue
from svcd.instance.data_folder import IndexRow
from svcd.instance.rows import KeyRow
from svcd.instance.task_records import SUCCEEDED
from tests.support.bearers import MASTER_KEY, uid, value_of

INDEXES = ["films", "books", "films_2", "cities", "films"]

Ask = Callable[..., Any]


@pytest.fixture
def ask(connect: Any) -> Ask:
    """ask(bearer, method, url, value) -> the answer."""
    return connect(MASTER_KEY).ask


@pytest.fixture
def key(instance: Any) -> Callable[..., str]:
    """key(indexes, actions) -> the value of a new key."""
    made: list[str] = []

    def make(indexes: list[str], actions: list[str] | None = None) -> str:
        made.append(uid(len(made) + 1))
        instance.keys.add(KeyRow(made[-1], actions or ["*"], indexes, 1, 1))
        return value_of(made[-1])

    return make


@pytest.fixture
def history(instance: Any) -> None:
    """Tasks 0 to 4 finished, one batch each, 5 (no index) too; 6 and 7 (films, books) run as batches 6 and 7; 8 to 12
    of the indexes and 13 (no index) wait."""
    tasks = instance.queue
    for index_uid in (*INDEXES, None):
        running = tasks.start([enqueued(tasks, index_uid)], "test")
        running.batch.finished_at = running.batch.started_at + 1
        with tasks.finishing() as connection:
            ended = [replace(task, status=SUCCEEDED, finished_at=1) for task in running.tasks.values()]
            tasks.finish(connection, running, ended)
        tasks.forget(running)
    for index_uid in INDEXES[:2]:
        tasks.start([enqueued(tasks, index_uid)], "test")
    for index_uid in (*INDEXES, None):
        enqueued(tasks, index_uid)


def enqueued(tasks: Any, index_uid: str | None) -> Any:
    details = {"swaps": [{"indexes": ["films", "cities"], "rename": False}]} if index_uid is None else {}
    return tasks.enqueue("indexSwap" if index_uid is None else "settingsUpdate", index_uid, details=details)


SEEN = [  # indexes of a key, the tasks it sees, the batches
    (["films"], [12, 8, 6, 4, 0], [6, 4, 0]),
    (["films*"], [12, 10, 8, 6, 4, 2, 0], [6, 4, 2, 0]),
    (["books", "cities"], [11, 9, 7, 3, 1], [7, 3, 1]),
    (["none"], [], []),
    (["*"], list(range(13, -1, -1)), list(range(7, -1, -1))),
]
every_key = pytest.mark.parametrize(("indexes", "tasks", "batches"), SEEN)


@every_key
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("few", [0, 10_000])
def test_lists_show_what_the_key_may_see(ask: Ask, key: Any, indexes: list[str], tasks: list[int], batches: list[int],
                                         few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MAX_TASKS_FIRST", few)
    bearer = key(indexes)
    for path, uids, total in (("/tasks", tasks, 14), ("/batches", batches, len(batches))):
        got = ask(bearer, "GET", path).value
        assert ([row["uid"] for row in got["results"]], got["total"], got["next"]) == (uids, total, None)
        assert got["from"] == (uids[0] if uids else None)
        by_index = ask(bearer, "GET", f"{path}?indexUids=films,cities").value["results"]
        assert {row["uid"] for row in by_index} <= set(uids)
        assert ask(bearer, "GET", f"{path}?types=indexSwap").value["results"] == [] or indexes == ["*"]


@every_key
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("filter_text", [
    "indexUids=films", "indexUids=books,cities", "indexUids=secret", "uids=0,1,2,3,4,5,6,7", "uids=8,9", "types=indexSwap",
    "types=settingsUpdate", "statuses=succeeded", "statuses=processing", "statuses=enqueued", "batchUids=5,6,7",
    "afterEnqueuedAt=1970-01-01", "canceledBy=3"])
def test_totals_of_a_filter_count_what_the_key_may_see(ask: Ask, key: Any, indexes: list[str], tasks: list[int],
                                                       batches: list[int], filter_text: str) -> None:
    for path, seen in (("/tasks", tasks), ("/batches", batches)):
        got = ask(key(indexes), "GET", f"{path}?{filter_text}&limit=1").value
        everything = ask(key(["*"]), "GET", f"{path}?{filter_text}").value
        listed = [row["uid"] for row in everything["results"] if row["uid"] in seen]
        assert got["total"] == (everything["total"] if indexes == ["*"] else len(listed))


@every_key
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_joined_are_all_it_sees(ask: Ask, key: Any, indexes: list[str], tasks: list[int], batches: list[int],
                                      limit: int) -> None:
    bearer = key(indexes)
    for path, uids in (("/tasks", tasks), ("/batches", batches)):
        for reverse in (False, True):
            found: list[int] = []
            url: str | None = f"{path}?limit={limit}&reverse={str(reverse).lower()}"
            at = ""
            while True:
                page = ask(bearer, "GET", f"{url}{at}").value
                assert len(page["results"]) == limit or page["next"] is None
                found += [row["uid"] for row in page["results"]]
                if page["next"] is None:
                    break
                at = f"&from={page['next']}"
            assert found == (uids[::-1] if reverse else uids)


@every_key
@pytest.mark.usefixtures("history")
def test_what_it_may_not_see_is_not_found(ask: Ask, key: Any, indexes: list[str], tasks: list[int],
                                          batches: list[int]) -> None:
    bearer = key(indexes)
    for number in range(15):
        got = ask(bearer, "GET", f"/tasks/{number}")
        assert (got.status == 200) == (number in tasks)
        if got.status != 200:
            assert got.fault == (404, "task_not_found", f"Task `{number}` not found.")
    for number in range(9):
        got = ask(bearer, "GET", f"/batches/{number}")
        assert (got.status == 200) == (number in batches)
        if got.status != 200:
            assert got.fault == (404, "batch_not_found", f"Batch `{number}` not found.")


@every_key
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(("method", "path"), [("POST", "/tasks/cancel"), ("DELETE", "/tasks")])
@pytest.mark.parametrize(("query", "matched"), [
    ("uids=*", range(14)), ("uids=0,1,2,3,4,5,6,7,13", [*range(8), 13]),
    ("indexUids=books,cities", [1, 3, 7, 9, 11]), ("statuses=enqueued", range(8, 14)),
    ("types=indexSwap", [5, 13])])
def test_cancel_and_delete_match_what_it_may_see(
        ask: Ask, key: Any, instance: Any, indexes: list[str], tasks: list[int], batches: list[int], method: str,
        path: str, query: str, matched: Any) -> None:
    summary = ask(key(indexes), method, f"{path}?{query}").value
    task = instance.queue.task(summary["taskUid"], with_content=True)
    expected = sorted(set(matched) & set(tasks))
    assert task.content == {"uids": expected} and task.details["matchedTasks"] == len(expected)


def add_indexes(instance: Any, *uids: str) -> None:
    with instance.queue.finishing() as connection:
        for number, index_uid in enumerate(uids):
            row = IndexRow(index_uid, f"uuid-{number}", 1, (1 + number) * 1000, stats={"documents": number, "bytes": 7})
            instance.create_index(connection, row)


@pytest.mark.parametrize(("indexes", "seen"), [
    (["films"], ["films"]), (["films*", "cities"], ["cities", "films", "films_2"]), (["none"], []),
    (["*"], ["books", "cities", "films", "films_2"])])
def test_indexes_and_statistics_are_those_it_may_see(ask: Ask, key: Any, instance: Any, indexes: list[str],
                                                     seen: list[str]) -> None:
    names = ("books", "films", "films_2", "cities")
    add_indexes(instance, *names)
    bearer = key(indexes, ["indexes.get", "stats.get"])
    got = ask(bearer, "GET", "/indexes").value
    assert ([row["uid"] for row in got["results"]], got["total"]) == (seen, len(seen))
    assert [row["uid"] for row in ask(bearer, "GET", "/indexes?offset=1&limit=1").value["results"]] == seen[1:2]
    stats = ask(bearer, "GET", "/stats").value
    assert list(stats["indexes"]) == seen
    newest = max((number for number, name in enumerate(names) if name in seen), default=None)
    assert stats["lastUpdate"] == (None if newest is None else f"1970-01-01T00:00:00.00000{1 + newest}Z")


def test_a_body_names_only_its_indexes(ask: Ask, key: Any, instance: Any) -> None:
    bearer = key(["films*"])
    assert ask(bearer, "POST", "/indexes", {"uid": "films_3"}).status == 202
    assert ask(bearer, "POST", "/swap-indexes", [{"indexes": ["films", "films_2"]}]).status == 202
    for path, value in (("/indexes", {"uid": "books"}), ("/swap-indexes", [{"indexes": ["films", "books"]}]),
                        ("/swap-indexes", [{"indexes": ["films", "films_2"]}, {"indexes": ["books", "cities"]}])):
        assert ask(bearer, "POST", path, value).fault == (403, "invalid_api_key", "The provided API key is invalid.")
    assert instance.queue.count_enqueued() == 2


@pytest.mark.parametrize(("actions", "may"), [
    (["documents.add", "settings.update"], False), (["documents.*", "settings.*", "indexes.update"], False),
    (["documents.add", "settings.update", "indexes.create"], True), (["*"], True)])
def test_a_write_creates_an_index_only_for_a_key_that_may(ask: Ask, key: Any, instance: Any, actions: list[str],
                                                          may: bool) -> None:
    bearer = key(["fi*"], actions)
    for method, path, value in (
            ("POST", "/indexes/films/documents", [{"id": 1}]), ("PUT", "/indexes/films/documents", []),
            ("PATCH", "/indexes/films/settings", {"stopWords": ["the"]}),
            ("PUT", "/indexes/films/settings/stop-words", ["the"])):
        task = instance.queue.task(ask(bearer, method, path, value).value["taskUid"], with_content=True)
        assert task.content["mayCreateIndex"] == may
