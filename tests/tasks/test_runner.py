"""What must hold of running tasks:

1. A task ends once; its effect and its end are one, whatever line a crash hits.
2. Tasks of one index run in their order; a task whose content is impossible fails alone.
3. An error of the indexing fails its batch, and nothing of the batch is kept.
4. Cancelations come first, touch only what they name, and leave a canceled task without effect.
5. Swaps exchange names, documents and history at once, or not at all.
6. Documents get the smallest free docids in order; a deleted one keeps its own until the batch ends.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.index.writer import IndexWriter
from svcd.instance.task_records import Task, TaskFilter
from svcd.tasks.batching import Limits
from svcd.tasks.indexing_client import IndexingProcessDied
from tests.tasks.conftest import House


def test_documents_are_added_replaced_and_updated(house: House) -> None:
    house.add([{"id": 1, "title": "Alien", "year": 1979}, {"id": 2, "title": "Brazil"}])
    house.add([{"id": 2, "title": "Brazil 2"}])
    last = house.add([{"id": 1, "year": 1980}], method="update")
    house.run()
    assert house.documents() == {0: {"id": 1, "title": "Alien", "year": 1980}, 1: {"id": 2, "title": "Brazil 2"}}
    ended = house.task(last)
    assert (ended.status, ended.batch_uid, ended.details) == ("succeeded", 0, {"receivedDocuments": 1, "indexedDocuments": 1})
    assert house.find("alien") == 0b01 and house.find("2") == 0b10
    row = house.instance.require_index("movies")
    assert (row.primary_key, row.stats["documents"], row.stats["fields"]) == ("id", 2, {"id": 2, "title": 2, "year": 1})
    assert not list(house.queue.payload_folder.iterdir())


def test_a_docid_is_not_given_away_while_its_document_may_come_back(house: House) -> None:
    house.change({"filterableAttributes": ["id"]})
    house.add([{"id": 1}, {"id": 2}])
    house.run()
    house.do("documentDeletion", details={"deletedDocuments": None}, filter="id EXISTS")  # is written before what follows
    house.add([{"id": 3}, {"id": 1}])
    house.run()
    assert house.documents() == {0: {"id": 1}, 2: {"id": 3}}


def test_a_batch_shows_its_tasks_together(house: House) -> None:
    house.add([{"id": 1}])
    house.add([{"id": 2}, {"id": 3}])
    house.run()
    batch = house.queue.batch(0)
    assert batch and batch.details == {"receivedDocuments": 3, "indexedDocuments": 3}
    assert batch.stats["status"] == {"succeeded": 2} and batch.stats["indexUids"] == {"movies": 2}
    assert batch.strategy == "batched all enqueued tasks" and batch.progress is None


def test_a_batch_names_the_steps_that_its_time_went_to(house: House) -> None:
    house.add([{"id": 1}])
    house.run()
    assert steps_of_last(house) == {"indexing", "committing"}
    for kind, index_uid, content, steps in [
        ("documentDeletion", "movies", {"ids": ["1"]}, {"delete documents", "indexing", "committing"}),
        ("indexCompaction", "movies", {}, {"copy and compact the index"}),
        ("indexSwap", None, {"swaps": [{"indexes": ["movies", "films"], "rename": True}]},
         {"ensuring correctness of the swap", "swapping the indexes", "update the tasks"}),
        ("taskCancelation", None, {"uids": [0]}, {"retrieving tasks", "updating tasks"}),
        ("taskDeletion", None, {"uids": [0]}, {"deleting tasks"}),
        ("indexDeletion", "films", {}, {"deleting the index"}),
    ]:
        house.do(kind, index_uid, {}, **content)
        house.run()
        assert steps_of_last(house) == steps


def steps_of_last(house: House) -> set[str]:
    batch = house.queue.list_batches(TaskFilter(), 1, None, False).results[0]
    return {path.removeprefix("processing tasks > ") for path in batch.stats["progressTrace"]} - {"processing tasks"}


def test_an_impossible_task_fails_alone(house: House) -> None:
    good = house.add([{"id": 1, "title": "kept"}])
    bad = house.add([{"id": 2, "title": "lost"}, {"id": "not valid!"}])
    after = house.add([{"id": 3}])
    house.run()
    assert [house.task(task).status for task in (good, bad, after)] == ["succeeded", "failed", "succeeded"]
    assert house.task(bad).error["code"] == "invalid_document_id"
    assert house.task(bad).details == {"receivedDocuments": 2, "indexedDocuments": 0}
    assert list(house.documents().values()) == [{"id": 1, "title": "kept"}, {"id": 3}]
    assert not house.find("lost")


def _order(house: House) -> list[str]:
    return list(house.documents()[0])


def test_a_key_that_is_guessed_stays_where_the_first_document_has_it(house: House) -> None:
    house.add([{"title": "a", "id": 1, "year": 5}, {"year": 1, "id": 2, "title": "b"}])
    house.run()
    assert [list(document) for document in house.documents().values()] == [["title", "id", "year"]] * 2


def test_a_key_that_is_named_comes_before_all_other_fields(house: House) -> None:
    house.add([{"title": "a", "id": 1}], key="id")
    house.run()
    assert _order(house) == ["id", "title"]


@pytest.mark.parametrize("kind", ["indexCreation", "indexUpdate"])
def test_the_key_of_an_empty_index_comes_before_all_other_fields(house: House, kind: str) -> None:
    house.do("indexCreation", details={"primaryKey": None})
    house.run()
    if kind == "indexCreation":
        house.do("indexDeletion", details={"deletedDocuments": None})
    house.do(kind, details={"primaryKey": "id"}, primaryKey="id")
    house.add([{"title": "a", "id": 1}])
    house.run()
    assert _order(house) == ["id", "title"]


def test_an_update_to_null_leaves_the_key_as_it_is(house: House) -> None:
    house.do("indexCreation", details={"primaryKey": "id"}, primaryKey="id")
    update = house.do("indexUpdate", details={"primaryKey": None}, primaryKey=None)
    house.run()
    index = house.instance.index("movies")
    assert index and index.primary_key == "id" and house.task(update).status == "succeeded"


def test_documents_that_are_skipped_number_their_fields(house: House) -> None:
    house.add([{"id": 1}])
    house.add([{"id": 2, "year": 5}], may_create=False)
    house.add([{"title": "a", "year": 5, "id": 1}])
    house.run()
    assert _order(house) == ["id", "year", "title"]


def test_an_impossible_task_leaves_no_order_of_fields(house: House) -> None:
    house.add([{"year": 1, "id": n, "title": "lost"} for n in range(600)] + [{"title": "no key"}])
    house.add([{"title": "a", "id": 1, "year": 5}])
    house.run()
    assert list(house.documents().values()) == [{"title": "a", "id": 1, "year": 5}]
    assert _order(house) == ["title", "id", "year"]


def test_a_large_impossible_task_fails_alone(tmp_path: Any) -> None:
    from svcd.tasks.indexing import MemoryBudget
    house = House(tmp_path / "data", budget=MemoryBudget(documents=100))
    house.add([{"id": 1}])
    bad = house.add([{"id": n, "title": "lost"} for n in range(2, 50)] + [{"id": "not valid!"}])
    house.add([{"id": 99, "title": "kept"}])
    house.run()
    assert house.task(bad).status == "failed"
    assert house.documents() == {0: {"id": 1}, 1: {"id": 99, "title": "kept"}}
    house.instance.close()


def test_what_a_large_impossible_task_gathered_last_is_undone_too(tmp_path: Any) -> None:
    from svcd.tasks.indexing import MemoryBudget
    house = House(tmp_path / "data", budget=MemoryBudget(documents=30_000))
    house.add([{"id": n, "title": "lost"} for n in range(600)] + [{"title": "no key " * 4_000}])
    house.add([{"id": 1000}])
    house.run()
    assert house.documents() == {0: {"id": 1000}}
    house.instance.close()


@pytest.mark.parametrize("most_bytes", [100, 1 << 20])
def test_an_impossible_task_takes_no_docids(tmp_path: Any, most_bytes: int) -> None:
    from svcd.tasks.indexing import MemoryBudget
    house = House(tmp_path / "data", budget=MemoryBudget(documents=most_bytes))
    house.add([{"id": n} for n in (7, 8)])
    house.run()
    house.delete([7])
    house.add([{"id": n, "title": "lost"} for n in range(1000)] + [{"title": "no key"}])
    house.add([{"id": 2000}])
    house.add([{"id": 7}])
    house.run()
    assert house.documents() == {0: {"id": 7}, 1: {"id": 8}, 2: {"id": 2000}}
    house.instance.close()


def test_a_failed_first_task_leaves_an_empty_index(house: House) -> None:
    task = house.add([{"name": "no key"}])
    house.run()
    assert house.task(task).error["code"] == "index_primary_key_no_candidate_found"
    assert house.instance.require_index("movies").primary_key is None


def test_nothing_of_a_failed_batch_is_kept(house: House) -> None:
    house.change({"sortableAttributes": ["_geo"]})
    first, second = house.add([{"id": 1, "title": "lost"}]), house.add([{"id": 2, "_geo": "nowhere"}])
    house.run()
    assert {house.task(task).error["code"] for task in (first, second)} == {"invalid_document_geo_field"}
    assert house.task(first).error["message"].startswith("Index `movies`: ")
    assert house.documents() == {} and not house.find("lost")


def test_unknown_indexes_are_told(house: House) -> None:
    tasks = [house.delete([1]), house.clear("other"), house.do("indexDeletion", "third", {"deletedDocuments": None}),
             house.do("indexUpdate", "fourth", {"primaryKey": "id"}, primaryKey="id")]
    house.run()
    assert [house.task(task).error["code"] for task in tasks] == ["index_not_found"] * 4
    assert house.task(tasks[2]).details == {"deletedDocuments": 0}


def test_index_creation_update_and_deletion(house: House) -> None:
    house.do("indexCreation", details={"primaryKey": "sku"}, primaryKey="sku")
    again = house.do("indexCreation", details={"primaryKey": None})
    house.run()
    assert house.task(again).error["code"] == "index_already_exists"
    house.do("indexUpdate", details={"primaryKey": "id"}, primaryKey="id")
    house.add([{"id": 1}])
    refused = house.do("indexUpdate", details={"primaryKey": "sku"}, primaryKey="sku")
    house.run()
    assert house.task(refused).error["code"] == "index_primary_key_already_exists"
    gone = house.do("indexDeletion", details={"deletedDocuments": None})
    house.run()
    assert house.task(gone).details == {"deletedDocuments": 1}
    assert house.instance.index("movies") is None
    assert not list((house.path / "indexes").iterdir())


def _is_moved(house: House, *tasks: Task) -> bool:
    """Whether these tasks, as one batch, move `updatedAt` of the index."""
    before = house.instance.require_index("movies").updated_at
    house.run()
    return house.instance.require_index("movies").updated_at > before


def test_an_index_is_updated_when_it_is_created_unless_a_task_writes(house: House) -> None:
    house.do("indexCreation", details={"primaryKey": None})
    house.do("indexCreation", "keyed", details={"primaryKey": "id"}, primaryKey="id")
    house.add([{"no": 1}], "failed")
    house.add([{"id": 1}], "added")
    house.change({}, "set")
    house.run()
    rows = {row.uid: row.updated_at > row.created_at for row in house.instance.list_indexes()[0]}
    assert rows == {"movies": False, "keyed": True, "failed": False, "added": True, "set": True}


def test_tasks_that_find_nothing_to_do_leave_the_moment_of_the_last_update(house: House) -> None:
    house.add([{"id": 1}])
    house.run()
    assert not _is_moved(house, house.delete([7]))
    assert not _is_moved(house, house.do("indexUpdate", details={"primaryKey": None}, primaryKey=None))
    assert not _is_moved(house, house.add([{"no": 1}]))
    assert not _is_moved(house, house.do("indexCompaction", details={}))
    assert _is_moved(house, house.delete([7]), house.delete([1]))
    assert _is_moved(house, house.clear())
    assert _is_moved(house, house.add([]))
    assert _is_moved(house, house.change({}))


def test_docids_are_the_smallest_free_ones(house: House) -> None:
    house.add([{"id": n} for n in range(5)])
    house.run()
    house.delete([1, 3])
    house.run()
    house.add([{"id": n} for n in (10, 11, 12)])
    house.run()
    assert {docid: each["id"] for docid, each in house.documents().items()} == {0: 0, 1: 10, 2: 2, 3: 11, 4: 4, 5: 12}


def test_a_deleted_document_keeps_its_docid_within_the_batch(house: House) -> None:
    house.add([{"id": 1, "old": 1}, {"id": 2}])
    house.run()
    first = house.delete([1, 7])
    house.add([{"id": 3}, {"id": 1, "new": 1}], method="update")
    house.run()
    assert house.documents() == {0: {"id": 1, "new": 1}, 1: {"id": 2}, 2: {"id": 3}}
    assert house.task(first).details["deletedDocuments"] == 1


def test_documents_that_may_not_be_created_are_skipped(house: House) -> None:
    house.add([{"id": 1}])
    house.add([{"id": 1, "a": 1}, {"id": 2}], may_create=False)
    house.run()
    assert list(house.documents().values()) == [{"id": 1, "a": 1}]


def test_a_document_that_comes_several_times_is_indexed_once(house: House) -> None:
    house.add([{"id": 1}])
    task = house.add([{"id": "1", "a": 1}, {"id": 2}, {"id": 1, "b": 2}, {"id": 300}], method="update")
    again = house.add([{"id": 2}, {"id": 2}])
    house.run()
    assert [house.task(each).details["indexedDocuments"] for each in (task, again)] == [3, 1]
    assert list(house.documents().values()) == [{"id": 1, "a": 1, "b": 2}, {"id": 2}, {"id": 300}]


def test_a_task_counts_its_documents_whether_or_not_they_may_be_created(house: House) -> None:
    house.add([{"id": 1}])
    task = house.add([{"id": 1, "a": 1}, {"id": 2}], may_create=False)
    house.run()
    assert house.task(task).details["indexedDocuments"] == 2


def test_clearing_forgets_what_came_before(house: House) -> None:
    house.add([{"id": 1}])
    house.run()
    added, cleared = house.add([{"id": 2}]), house.clear()
    house.run()
    assert house.task(added).details["indexedDocuments"] == 0
    assert house.task(cleared).details == {"deletedDocuments": 1}
    assert house.documents() == {}


def test_the_first_deletion_of_all_counts_what_there_was(house: House) -> None:
    """Deletions of some beside it find nothing left, whether they came earlier or later."""
    house.add([{"id": 1}, {"id": 2}])
    house.run()
    deletions = [house.delete([1]), house.clear(), house.delete([2]), house.clear()]
    house.run()
    assert [house.task(task).details["deletedDocuments"] for task in deletions] == [0, 2, 0, 0]
    assert len({house.task(task).batch_uid for task in deletions}) == 1


def test_settings_are_merged_and_words_redone(house: House) -> None:
    house.add([{"id": 1, "title": "seen", "note": "hidden"}])
    house.change({"stopWords": ["the"]})
    house.change({"searchableAttributes": ["title"]})
    house.run()
    assert house.find("seen") and not house.find("hidden")
    house.change({"searchableAttributes": None})
    house.run()
    assert house.find("hidden")
    with house.instance.read("movies") as reader:
        assert reader.stored_settings == {"stopWords": ["the"]}


def test_swaps_exchange_names_and_history(house: House) -> None:
    before = house.add([{"id": 1}], "a")
    house.add([{"id": 2}], "b")
    swap = house.do("indexSwap", None, {"swaps": [{"indexes": ["a", "b"], "rename": False}]},
                    swaps=[{"indexes": ["a", "b"], "rename": False}])
    after = house.add([{"id": 3}], "a")
    house.run()
    assert house.task(swap).status == "succeeded"
    assert [each["id"] for each in house.documents("a").values()] == [2, 3]
    assert house.task(before).index_uid == "b" and house.task(after).index_uid == "a"


def test_swaps_rewrite_older_swaps_and_leave_errors_and_batches(house: House) -> None:
    """What the reference engine does: its history names indexes as they are, its errors and batches as they were."""
    def swap(*uids: str) -> Task:
        swaps = [{"indexes": list(uids), "rename": False}]
        return house.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)

    for uid in "abc":
        house.do("indexCreation", uid, {"primaryKey": None})
    failed = house.do("indexCreation", "a", {"primaryKey": None})
    first = swap("a", "b")
    house.run()
    swap("b", "c")
    house.run()
    older = house.queue.task(first.uid, with_content=True)
    assert older and older.content == older.details == {"swaps": [{"indexes": ["a", "c"], "rename": False}]}
    refused = house.task(failed)
    assert refused.index_uid == "c" and refused.error["message"] == "Index `a` already exists."
    assert house.queue.batch(refused.batch_uid).stats["indexUids"] == {"a": 1}


def test_a_swap_with_a_missing_index_does_nothing(house: House) -> None:
    house.add([{"id": 1}], "a")
    swaps = [{"indexes": ["a", "c"], "rename": True}, {"indexes": ["x", "y"]}]
    swap = house.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)
    house.run()
    assert house.task(swap).error["message"] == "Indexes `x`, `y` not found."
    assert house.instance.index("a") and not house.instance.index("c")


def test_nothing_overtakes_a_swap(house: House) -> None:
    house.add([{"id": 1}], "a")
    house.add([{"id": 2}], "b")
    house.run()
    swaps = [{"indexes": ["a", "b"]}]
    house.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)
    tasks = [house.add([{"id": 3}], "b"), house.add([{"id": 4}], "b")]
    house.runner.step()
    assert house.instance.queue.list_tasks(TaskFilter(statuses=["enqueued"]), 20, None, False).total == 2
    house.run()
    assert {each["id"] for each in house.documents("b").values()} == {1, 3, 4}
    assert len({house.task(task).batch_uid for task in tasks}) == 1


def test_a_cancelation_comes_first_and_takes_what_it_names(house: House) -> None:
    kept, canceled = house.add([{"id": 1}]), house.add([{"id": 2}])
    cancel = house.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=1"},
                      uids=[canceled.uid])
    house.run()
    ended = house.task(canceled)
    assert (ended.status, ended.canceled_by, ended.started_at, ended.batch_uid) == ("canceled", cancel.uid, None, 0)
    assert ended.details == {"receivedDocuments": 1, "indexedDocuments": 0}
    assert house.task(cancel).details["canceledTasks"] == 1 and house.task(kept).status == "succeeded"
    assert list(house.documents().values()) == [{"id": 1}]
    assert not list(house.queue.payload_folder.iterdir())


def test_deletions_remove_finished_tasks_alone(house: House) -> None:
    done = house.add([{"id": 1}])
    house.run()
    waiting = house.add([{"id": 2}])
    deletion = house.do("taskDeletion", None, {"matchedTasks": 2, "deletedTasks": None, "originalFilter": "?uids=*"},
                        uids=[done.uid, waiting.uid])
    house.run()
    assert house.queue.task(done.uid) is None and house.queue.batch(0) is None
    assert house.task(deletion).details["deletedTasks"] == 1
    assert house.task(waiting).status == "succeeded"
    assert house.add([{"id": 3}]).uid == 3


def test_batch_limits_are_kept(tmp_path: Any) -> None:
    house = House(tmp_path / "data", limits=Limits(tasks=2))
    tasks = [house.add([{"id": n}]) for n in range(3)]
    house.run()
    assert [house.task(task).batch_uid for task in tasks] == [0, 0, 1]
    house.instance.close()


def test_compaction_tells_sizes(house: House) -> None:
    house.add([{"id": n, "text": "word " * 100} for n in range(50)])
    house.clear()
    house.run()
    task = house.do("indexCompaction", details={"preCompactionSize": None, "postCompactionSize": None})
    house.run()
    assert house.task(task).status == "succeeded"
    assert house.task(task).details["postCompactionSize"].endswith("iB")


class Stop(Exception):
    """The daemon ends here."""


def test_a_stop_before_the_commit_runs_the_batch_again(house: House) -> None:
    def stop() -> None:
        raise IndexingProcessDied("killed")
    task = house.add([{"id": 1, "title": "once"}])
    house.writer.before = stop
    house.runner._stopping = True
    house.runner.step()
    assert house.task(task).status == "enqueued"
    house.restart()
    house.run()
    assert house.task(task).status == "succeeded" and house.find("once") == 1


@pytest.mark.parametrize("more", [0, 1])
def test_a_stop_behind_the_commit_ends_the_task_with_its_first_outcome(house: House, more: int) -> None:
    house.add([{"id": 1}])
    house.run()
    task = house.delete([1, 2])
    house.writer.after = lambda: (_ for _ in ()).throw(Stop())
    house.runner.step()
    house.bugs.clear()
    assert house.task(task).status == "enqueued" and house.documents() == {}
    house.restart()
    others = [house.delete([1]) for _ in range(more)]
    house.run()
    assert house.task(task).details["deletedDocuments"] == 1  # as it was when it took effect
    assert [house.task(each).details["deletedDocuments"] for each in others] == [0] * more


def test_a_crash_of_the_indexing_fails_the_batch_and_goes_on(house: House) -> None:
    def crash() -> None:
        raise IndexingProcessDied("status -9")
    task = house.add([{"id": 1}])
    house.writer.before = crash
    house.runner.step()
    assert house.task(task).error["code"] == "internal" and len(house.bugs) == 1
    house.bugs.clear()
    house.writer.before = lambda: None
    house.add([{"id": 2}])
    house.run()
    assert list(house.documents().values()) == [{"id": 2}]


def test_a_full_disk_fails_the_batch_in_words(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.add([{"id": 1}])
    house.run()
    monkeypatch.setattr(IndexWriter, "write", fill_the_disk)
    task = house.add([{"id": 2, "text": "too much"}])
    house.run()
    assert house.task(task).error["code"] == "no_space_left_on_device"
    monkeypatch.undo()
    assert list(house.documents().values()) == [{"id": 1}]


def fill_the_disk(writer: IndexWriter, _changes: Any) -> None:
    (pages,) = writer._connection.execute("PRAGMA page_count").fetchone()
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    writer._connection.execute("INSERT INTO meta(key, value) VALUES ('filler', zeroblob(1000000))")


def test_files_that_no_row_names_go_at_the_start(house: House) -> None:
    (house.path / "indexes" / "0000.sqlite").write_text("made, never committed")
    (house.queue.payload_folder / "upload").write_text("never acknowledged")
    house.restart()
    assert not list((house.path / "indexes").iterdir()) and not list(house.queue.payload_folder.iterdir())


def test_a_canceled_running_batch_leaves_nothing(house: House) -> None:
    canceled, other = house.add([{"id": 1, "title": "canceled"}]), house.add([{"id": 2}])

    def cancel_meanwhile() -> None:
        job = next(iter(house.runner._busy.values()))
        job.is_canceled = True
        raise IndexingProcessDied("killed")
    house.writer.before = cancel_meanwhile
    house.runner.step()
    house.writer.before = lambda: None
    assert house.task(canceled).status == house.task(other).status == "enqueued"
    house.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": ""}, uids=[canceled.uid])
    house.run()
    assert house.task(canceled).status == "canceled" and house.task(other).status == "succeeded"
    assert list(house.documents().values()) == [{"id": 2}]


def test_a_running_task_is_seen_as_processing(house: House) -> None:
    seen: list[Task] = []
    task = house.add([{"id": 1}])
    house.writer.before = lambda: seen.append(house.task(task))
    house.writer.after = lambda: seen.extend(
        house.queue.list_tasks(TaskFilter(statuses=["processing"]), 10, None, False).results)
    house.run()
    assert [each.status for each in seen] == ["processing", "processing"]
    assert seen[0].batch_uid == 0 and seen[0].started_at
    assert not house.queue.matching(TaskFilter(statuses=["processing"]))
