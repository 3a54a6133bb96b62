"""What must hold of running tasks:

1. A task ends once; its effect and its end are one, whatever line a crash hits.
2. Tasks of one index run in their order; a task whose content is impossible fails alone.
3. An error of the indexing fails its batch, and nothing of the batch is kept.
4. Cancelations come first, touch only what they name, and leave a canceled task without effect.
5. Swaps exchange names, documents and history at once, or not at all.
6. Documents get the smallest free docids in order; a deleted one keeps its own until the batch ends.
7. Of idle indexing processes all but one end after a while.
"""
from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from svcd.base.quantities import human_size
from svcd.index.writer import IndexWriter
from svcd.instance.instance import Instance
from svcd.instance.task_records import Task, TaskFilter
from svcd.tasks.batching import Limits
from svcd.tasks.indexing_client import IndexingProcessDied
from svcd.tasks.runner import Runner
from tests.tasks.conftest import LocalWriter, TaskHarness


def test_documents_are_added_replaced_and_updated(harness: TaskHarness) -> None:
    harness.add([{"id": 1, "title": "Alien", "year": 1979}, {"id": 2, "title": "Brazil"}])
    harness.add([{"id": 2, "title": "Brazil 2"}])
    last = harness.add([{"id": 1, "year": 1980}], method="update")
    harness.run()
    assert harness.documents() == {0: {"id": 1, "title": "Alien", "year": 1980}, 1: {"id": 2, "title": "Brazil 2"}}
    ended = harness.task(last)
    assert (ended.status, ended.batch_uid, ended.details) == ("succeeded", 0, {"receivedDocuments": 1, "indexedDocuments": 1})
    assert harness.find("alien") == [0] and harness.find("2") == [1]
    row = harness.instance.require_index("movies")
    assert (row.primary_key, row.stats["documents"], row.stats["fields"]) == ("id", 2, {"id": 2, "title": 2, "year": 1})
    assert not list(harness.queue.payload_folder.iterdir())


def test_a_docid_is_not_given_away_while_its_document_may_come_back(harness: TaskHarness) -> None:
    harness.change({"filterableAttributes": ["id"]})
    harness.add([{"id": 1}, {"id": 2}])
    harness.run()
    harness.do("documentDeletion", details={"deletedDocuments": None}, filter="id EXISTS")  # is written before what follows
    harness.add([{"id": 3}, {"id": 1}])
    harness.run()
    assert harness.documents() == {0: {"id": 1}, 2: {"id": 3}}


def test_a_batch_shows_its_tasks_together(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.add([{"id": 2}, {"id": 3}])
    harness.run()
    batch = harness.queue.batch(0)
    assert batch and batch.details == {"receivedDocuments": 3, "indexedDocuments": 3}
    assert batch.stats["status"] == {"succeeded": 2} and batch.stats["indexUids"] == {"movies": 2}
    assert batch.strategy == "batched all enqueued tasks" and batch.progress is None


def test_a_batch_names_the_steps_that_its_time_went_to(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.run()
    assert steps_of_last(harness) == {"indexing", "committing"}
    for kind, index_uid, content, steps in [
        ("documentDeletion", "movies", {"ids": ["1"]}, {"delete documents", "indexing", "committing"}),
        ("indexCompaction", "movies", {}, {"copy and compact the index"}),
        ("indexSwap", None, {"swaps": [{"indexes": ["movies", "films"], "rename": True}]},
         {"ensuring correctness of the swap", "swapping the indexes", "update the tasks"}),
        ("taskCancelation", None, {"uids": [0]}, {"retrieving tasks", "updating tasks"}),
        ("taskDeletion", None, {"uids": [0]}, {"deleting tasks"}),
        ("indexDeletion", "films", {}, {"deleting the index"}),
    ]:
        harness.do(kind, index_uid, {}, **content)
        harness.run()
        assert steps_of_last(harness) == steps


def steps_of_last(harness: TaskHarness) -> set[str]:
    batch = harness.queue.list_batches(TaskFilter(), 1, None, False).results[0]
    return {path.removeprefix("processing tasks > ") for path in batch.stats["progressTrace"]} - {"processing tasks"}


def test_an_impossible_task_fails_alone(harness: TaskHarness) -> None:
    good = harness.add([{"id": 1, "title": "kept"}])
    bad = harness.add([{"id": 2, "title": "lost"}, {"id": "not valid!"}])
    after = harness.add([{"id": 3}])
    harness.run()
    assert [harness.task(task).status for task in (good, bad, after)] == ["succeeded", "failed", "succeeded"]
    assert harness.task(bad).error["code"] == "invalid_document_id"
    assert harness.task(bad).details == {"receivedDocuments": 2, "indexedDocuments": 0}
    assert list(harness.documents().values()) == [{"id": 1, "title": "kept"}, {"id": 3}]
    assert not harness.find("lost")


def _order(harness: TaskHarness) -> list[str]:
    return list(harness.documents()[0])


def test_a_key_that_is_guessed_stays_where_the_first_document_has_it(harness: TaskHarness) -> None:
    harness.add([{"title": "a", "id": 1, "year": 5}, {"year": 1, "id": 2, "title": "b"}])
    harness.run()
    assert [list(document) for document in harness.documents().values()] == [["title", "id", "year"]] * 2


def test_a_key_that_is_named_comes_before_all_other_fields(harness: TaskHarness) -> None:
    harness.add([{"title": "a", "id": 1}], key="id")
    harness.run()
    assert _order(harness) == ["id", "title"]


@pytest.mark.parametrize("kind", ["indexCreation", "indexUpdate"])
def test_the_key_of_an_empty_index_comes_before_all_other_fields(harness: TaskHarness, kind: str) -> None:
    harness.do("indexCreation", details={"primaryKey": None})
    harness.run()
    if kind == "indexCreation":
        harness.do("indexDeletion", details={"deletedDocuments": None})
    harness.do(kind, details={"primaryKey": "id"}, primaryKey="id")
    harness.add([{"title": "a", "id": 1}])
    harness.run()
    assert _order(harness) == ["id", "title"]


def test_an_update_to_null_leaves_the_key_as_it_is(harness: TaskHarness) -> None:
    harness.do("indexCreation", details={"primaryKey": "id"}, primaryKey="id")
    update = harness.do("indexUpdate", details={"primaryKey": None}, primaryKey=None)
    harness.run()
    index = harness.instance.index("movies")
    assert index and index.primary_key == "id" and harness.task(update).status == "succeeded"


def test_documents_that_are_skipped_number_their_fields(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.add([{"id": 2, "year": 5}], may_create=False)
    harness.add([{"title": "a", "year": 5, "id": 1}])
    harness.run()
    assert _order(harness) == ["id", "year", "title"]


def test_an_impossible_task_leaves_no_order_of_fields(harness: TaskHarness) -> None:
    harness.add([{"year": 1, "id": n, "title": "lost"} for n in range(600)] + [{"title": "no key"}])
    harness.add([{"title": "a", "id": 1, "year": 5}])
    harness.run()
    assert list(harness.documents().values()) == [{"title": "a", "id": 1, "year": 5}]
    assert _order(harness) == ["title", "id", "year"]


def test_a_large_impossible_task_fails_alone(tmp_path: Any) -> None:
    from svcd.tasks.indexing import MemoryBudget
    harness = TaskHarness(tmp_path / "data", budget=MemoryBudget(documents=100))
    harness.add([{"id": 1}])
    bad = harness.add([{"id": n, "title": "lost"} for n in range(2, 50)] + [{"id": "not valid!"}])
    harness.add([{"id": 99, "title": "kept"}])
    harness.run()
    assert harness.task(bad).status == "failed"
    assert harness.documents() == {0: {"id": 1}, 1: {"id": 99, "title": "kept"}}
    harness.instance.close()


def test_what_a_large_impossible_task_gathered_last_is_undone_too(tmp_path: Any) -> None:
    from svcd.tasks.indexing import MemoryBudget
    harness = TaskHarness(tmp_path / "data", budget=MemoryBudget(documents=30_000))
    harness.add([{"id": n, "title": "lost"} for n in range(600)] + [{"title": "no key " * 4_000}])
    harness.add([{"id": 1000}])
    harness.run()
    assert harness.documents() == {0: {"id": 1000}}
    harness.instance.close()


@pytest.mark.parametrize("most_bytes", [100, 1 << 20])
def test_an_impossible_task_takes_no_docids(tmp_path: Any, most_bytes: int) -> None:
    from svcd.tasks.indexing import MemoryBudget
    harness = TaskHarness(tmp_path / "data", budget=MemoryBudget(documents=most_bytes))
    harness.add([{"id": n} for n in (7, 8)])
    harness.run()
    harness.delete([7])
    harness.add([{"id": n, "title": "lost"} for n in range(1000)] + [{"title": "no key"}])
    harness.add([{"id": 2000}])
    harness.add([{"id": 7}])
    harness.run()
    assert harness.documents() == {0: {"id": 7}, 1: {"id": 8}, 2: {"id": 2000}}
    harness.instance.close()


def test_a_failed_first_task_leaves_an_empty_index(harness: TaskHarness) -> None:
    task = harness.add([{"name": "no key"}])
    harness.run()
    assert harness.task(task).error["code"] == "index_primary_key_no_candidate_found"
    assert harness.instance.require_index("movies").primary_key is None


def test_nothing_of_a_failed_batch_is_kept(harness: TaskHarness) -> None:
    harness.change({"sortableAttributes": ["_geo"]})
    first, second = harness.add([{"id": 1, "title": "lost"}]), harness.add([{"id": 2, "_geo": "nowhere"}])
    harness.run()
    assert {harness.task(task).error["code"] for task in (first, second)} == {"invalid_document_geo_field"}
    assert harness.task(first).error["message"].startswith("Index `movies`: ")
    assert harness.documents() == {} and not harness.find("lost")


def test_unknown_indexes_are_reported(harness: TaskHarness) -> None:
    tasks = [harness.delete([1]), harness.clear("other"), harness.do("indexDeletion", "third", {"deletedDocuments": None}),
             harness.do("indexUpdate", "fourth", {"primaryKey": "id"}, primaryKey="id")]
    harness.run()
    assert [harness.task(task).error["code"] for task in tasks] == ["index_not_found"] * 4
    assert harness.task(tasks[2]).details == {"deletedDocuments": 0}


def test_index_creation_update_and_deletion(harness: TaskHarness) -> None:
    harness.do("indexCreation", details={"primaryKey": "sku"}, primaryKey="sku")
    again = harness.do("indexCreation", details={"primaryKey": None})
    harness.run()
    assert harness.task(again).error["code"] == "index_already_exists"
    harness.do("indexUpdate", details={"primaryKey": "id"}, primaryKey="id")
    harness.add([{"id": 1}])
    refused = harness.do("indexUpdate", details={"primaryKey": "sku"}, primaryKey="sku")
    harness.run()
    assert harness.task(refused).error["code"] == "index_primary_key_already_exists"
    gone = harness.do("indexDeletion", details={"deletedDocuments": None})
    harness.run()
    assert harness.task(gone).details == {"deletedDocuments": 1}
    assert harness.instance.index("movies") is None
    assert not list((harness.path / "indexes").iterdir())


def _is_moved(harness: TaskHarness, *tasks: Task) -> bool:
    """Whether these tasks, as one batch, move `updatedAt` of the index."""
    before = harness.instance.require_index("movies").updated_at
    harness.run()
    return harness.instance.require_index("movies").updated_at > before


def test_an_index_is_updated_when_it_is_created_unless_a_task_writes(harness: TaskHarness) -> None:
    harness.do("indexCreation", details={"primaryKey": None})
    harness.do("indexCreation", "keyed", details={"primaryKey": "id"}, primaryKey="id")
    harness.add([{"no": 1}], "failed")
    harness.add([{"id": 1}], "added")
    harness.change({}, "set")
    harness.run()
    rows = {row.uid: row.updated_at > row.created_at for row in harness.instance.list_indexes()[0]}
    assert rows == {"movies": False, "keyed": True, "failed": False, "added": True, "set": True}


def test_tasks_that_find_nothing_to_do_leave_the_moment_of_the_last_update(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.run()
    assert not _is_moved(harness, harness.delete([7]))
    assert not _is_moved(harness, harness.do("indexUpdate", details={"primaryKey": None}, primaryKey=None))
    assert not _is_moved(harness, harness.add([{"no": 1}]))
    assert not _is_moved(harness, harness.do("indexCompaction", details={}))
    assert _is_moved(harness, harness.delete([7]), harness.delete([1]))
    assert _is_moved(harness, harness.clear())
    assert _is_moved(harness, harness.add([]))
    assert _is_moved(harness, harness.change({}))


def test_docids_are_the_smallest_free_ones(harness: TaskHarness) -> None:
    harness.add([{"id": n} for n in range(5)])
    harness.run()
    harness.delete([1, 3])
    harness.run()
    harness.add([{"id": n} for n in (10, 11, 12)])
    harness.run()
    assert {docid: each["id"] for docid, each in harness.documents().items()} == {0: 0, 1: 10, 2: 2, 3: 11, 4: 4, 5: 12}


def test_a_deleted_document_keeps_its_docid_within_the_batch(harness: TaskHarness) -> None:
    harness.add([{"id": 1, "old": 1}, {"id": 2}])
    harness.run()
    first = harness.delete([1, 7])
    harness.add([{"id": 3}, {"id": 1, "new": 1}], method="update")
    harness.run()
    assert harness.documents() == {0: {"id": 1, "new": 1}, 1: {"id": 2}, 2: {"id": 3}}
    assert harness.task(first).details["deletedDocuments"] == 1


def test_documents_that_may_not_be_created_are_skipped(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.add([{"id": 1, "a": 1}, {"id": 2}], may_create=False)
    harness.run()
    assert list(harness.documents().values()) == [{"id": 1, "a": 1}]


def test_a_document_that_comes_several_times_is_indexed_once(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    task = harness.add([{"id": "1", "a": 1}, {"id": 2}, {"id": 1, "b": 2}, {"id": 300}], method="update")
    again = harness.add([{"id": 2}, {"id": 2}])
    harness.run()
    assert [harness.task(each).details["indexedDocuments"] for each in (task, again)] == [3, 1]
    assert list(harness.documents().values()) == [{"id": 1, "a": 1, "b": 2}, {"id": 2}, {"id": 300}]


def test_a_task_counts_its_documents_whether_or_not_they_may_be_created(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    task = harness.add([{"id": 1, "a": 1}, {"id": 2}], may_create=False)
    harness.run()
    assert harness.task(task).details["indexedDocuments"] == 2


def test_clearing_forgets_what_came_before(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.run()
    added, cleared = harness.add([{"id": 2}]), harness.clear()
    harness.run()
    assert harness.task(added).details["indexedDocuments"] == 0
    assert harness.task(cleared).details == {"deletedDocuments": 1}
    assert harness.documents() == {}


def test_the_first_deletion_of_all_counts_what_there_was(harness: TaskHarness) -> None:
    """Deletions of some beside it find nothing left, whether they came earlier or later."""
    harness.add([{"id": 1}, {"id": 2}])
    harness.run()
    deletions = [harness.delete([1]), harness.clear(), harness.delete([2]), harness.clear()]
    harness.run()
    assert [harness.task(task).details["deletedDocuments"] for task in deletions] == [0, 2, 0, 0]
    assert len({harness.task(task).batch_uid for task in deletions}) == 1


def test_settings_are_merged_and_words_redone(harness: TaskHarness) -> None:
    harness.add([{"id": 1, "title": "seen", "note": "hidden"}])
    harness.change({"stopWords": ["the"]})
    harness.change({"searchableAttributes": ["title"]})
    harness.run()
    assert harness.find("seen") and not harness.find("hidden")
    harness.change({"searchableAttributes": None})
    harness.run()
    assert harness.find("hidden")
    with harness.instance.read("movies") as reader:
        assert reader.stored_settings == {"stopWords": ["the"]}


def test_swaps_exchange_names_and_history(harness: TaskHarness) -> None:
    before = harness.add([{"id": 1}], "a")
    harness.add([{"id": 2}], "b")
    swap = harness.do("indexSwap", None, {"swaps": [{"indexes": ["a", "b"], "rename": False}]},
                    swaps=[{"indexes": ["a", "b"], "rename": False}])
    after = harness.add([{"id": 3}], "a")
    harness.run()
    assert harness.task(swap).status == "succeeded"
    assert [each["id"] for each in harness.documents("a").values()] == [2, 3]
    assert harness.task(before).index_uid == "b" and harness.task(after).index_uid == "a"


def test_swaps_rewrite_older_tasks_and_batches_and_leave_errors(harness: TaskHarness) -> None:
    """The history names indexes as they are, except in texts."""
    def swap(*uids: str) -> Task:
        swaps = [{"indexes": list(uids), "rename": False}]
        return harness.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)

    for uid in "abc":
        harness.do("indexCreation", uid, {"primaryKey": None})
    failed = harness.do("indexCreation", "a", {"primaryKey": None})
    first = swap("a", "b")
    harness.run()
    swap("b", "c")
    harness.run()
    older = harness.queue.task(first.uid, with_content=True)
    assert older and older.content == older.details == {"swaps": [{"indexes": ["a", "c"], "rename": False}]}
    refused = harness.task(failed)
    assert refused.index_uid == "c" and refused.error["message"] == "Index `a` already exists."
    assert harness.queue.batch(refused.batch_uid).stats["indexUids"] == {"c": 1}
    assert harness.queue.batch(older.batch_uid).details == {"swaps": [{"indexes": ["a", "c"], "rename": False}]}


def test_lists_of_batches_by_index_and_their_stats_agree_after_swaps(harness: TaskHarness) -> None:
    for uid in "abc":
        harness.add([{"id": 1}], uid)
    harness.run()
    for swaps in ([["a", "b"]], [["b", "c"]], [["a", "d"]]):
        content = {"swaps": [{"indexes": pair, "rename": "d" in pair} for pair in swaps]}
        harness.do("indexSwap", None, content, **content)
        harness.run()
    for uid in "abcd":
        found = harness.queue.list_batches(TaskFilter(index_uids=[uid]), 20, None, False)
        assert [batch.stats["indexUids"] for batch in found.results] == [{uid: 1}] * (uid != "a") and found.total == len(found.results)
        tasks = harness.queue.list_tasks(TaskFilter(index_uids=[uid]), 20, None, False).results
        assert [task.batch_uid for task in tasks] == [batch.uid for batch in found.results]
        assert harness.queue.matching(TaskFilter(index_uids=[uid])) == [task.uid for task in tasks]
    swapped = [task for task in harness.queue.tasks_of(range(9)) if task.kind == "indexSwap"]
    assert [harness.queue.batch(task.batch_uid).details for task in swapped] == [task.details for task in swapped]
    assert swapped[0].details["swaps"][0]["indexes"] == ["d", "c"]


def test_a_swap_with_a_missing_index_does_nothing(harness: TaskHarness) -> None:
    harness.add([{"id": 1}], "a")
    swaps = [{"indexes": ["a", "c"], "rename": True}, {"indexes": ["x", "y"]}]
    swap = harness.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)
    harness.run()
    assert harness.task(swap).error["message"] == "Indexes `x`, `y` not found."
    assert harness.instance.index("a") and not harness.instance.index("c")


def test_nothing_overtakes_a_swap(harness: TaskHarness) -> None:
    harness.add([{"id": 1}], "a")
    harness.add([{"id": 2}], "b")
    harness.run()
    swaps = [{"indexes": ["a", "b"]}]
    harness.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)
    tasks = [harness.add([{"id": 3}], "b"), harness.add([{"id": 4}], "b")]
    harness.runner.step()
    assert harness.instance.queue.list_tasks(TaskFilter(statuses=["enqueued"]), 20, None, False).total == 2
    harness.run()
    assert {each["id"] for each in harness.documents("b").values()} == {1, 3, 4}
    assert len({harness.task(task).batch_uid for task in tasks}) == 1


def test_a_cancelation_comes_first_and_takes_what_it_names(harness: TaskHarness) -> None:
    kept, canceled = harness.add([{"id": 1}]), harness.add([{"id": 2}])
    cancel = harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=1"},
                      uids=[canceled.uid])
    harness.run()
    ended = harness.task(canceled)
    assert (ended.status, ended.canceled_by, ended.started_at, ended.batch_uid) == ("canceled", cancel.uid, None, 0)
    assert ended.details == {"receivedDocuments": 1, "indexedDocuments": 0}
    assert harness.task(cancel).details["canceledTasks"] == 1 and harness.task(kept).status == "succeeded"
    assert list(harness.documents().values()) == [{"id": 1}]
    assert not list(harness.queue.payload_folder.iterdir())


def test_deletions_remove_finished_tasks_alone(harness: TaskHarness) -> None:
    done = harness.add([{"id": 1}])
    harness.run()
    waiting = harness.add([{"id": 2}])
    deletion = harness.do("taskDeletion", None, {"matchedTasks": 2, "deletedTasks": None, "originalFilter": "?uids=*"},
                        uids=[done.uid, waiting.uid])
    harness.run()
    assert harness.queue.task(done.uid) is None and harness.queue.batch(0) is None
    assert harness.task(deletion).details["deletedTasks"] == 1
    assert harness.task(waiting).status == "succeeded"
    assert harness.add([{"id": 3}]).uid == 3


def test_batch_limits_are_kept(tmp_path: Any) -> None:
    harness = TaskHarness(tmp_path / "data", limits=Limits(tasks=2))
    tasks = [harness.add([{"id": n}]) for n in range(3)]
    harness.run()
    assert [harness.task(task).batch_uid for task in tasks] == [0, 0, 1]
    harness.instance.close()


def test_compaction_reports_sizes(harness: TaskHarness) -> None:
    harness.add([{"id": n, "text": "word " * 100} for n in range(50)])
    harness.clear()
    harness.run()
    task = harness.do("indexCompaction", details={"preCompactionSize": None, "postCompactionSize": None})
    harness.run()
    assert harness.task(task).status == "succeeded"
    assert harness.task(task).details["postCompactionSize"].endswith("iB")


class Stop(Exception):
    """The daemon ends here."""


def test_a_stop_before_the_commit_runs_the_batch_again(harness: TaskHarness) -> None:
    def stop() -> None:
        raise IndexingProcessDied("killed")
    task = harness.add([{"id": 1, "title": "once"}])
    harness.writer.before = stop
    harness.runner.stop(0)
    harness.runner.step()
    assert harness.task(task).status == "enqueued"
    harness.restart()
    harness.run()
    assert harness.task(task).status == "succeeded" and harness.find("once") == [0]


@pytest.mark.parametrize("more", [0, 1])
def test_a_stop_after_the_commit_ends_the_task_with_its_first_outcome(harness: TaskHarness, more: int) -> None:
    harness.add([{"id": 1}])
    harness.run()
    task = harness.delete([1, 2])
    harness.writer.after = lambda: (_ for _ in ()).throw(Stop())
    harness.runner.step()
    harness.bugs.clear()
    assert harness.task(task).status == "enqueued" and harness.documents() == {}
    harness.restart()
    others = [harness.delete([1]) for _ in range(more)]
    harness.run()
    assert harness.task(task).details["deletedDocuments"] == 1  # as it was when it took effect
    assert [harness.task(each).details["deletedDocuments"] for each in others] == [0] * more


def test_a_crash_of_the_indexing_fails_the_batch_and_goes_on(harness: TaskHarness) -> None:
    def crash() -> None:
        raise IndexingProcessDied("status -9")
    task = harness.add([{"id": 1}])
    harness.writer.before = crash
    harness.runner.step()
    assert harness.task(task).error["code"] == "internal" and len(harness.bugs) == 1
    harness.bugs.clear()
    harness.writer.before = lambda: None
    harness.add([{"id": 2}])
    harness.run()
    assert list(harness.documents().values()) == [{"id": 2}]


def test_a_full_disk_fails_the_batch_with_a_clear_error(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.add([{"id": 1}])
    harness.run()
    monkeypatch.setattr(IndexWriter, "write", fill_the_disk)
    task = harness.add([{"id": 2, "text": "too much"}])
    harness.run()
    assert harness.task(task).error["code"] == "no_space_left_on_device"
    monkeypatch.undo()
    assert list(harness.documents().values()) == [{"id": 1}]


def fill_the_disk(writer: IndexWriter, _changes: Any, _encoded: Any) -> None:
    """Raise what SQLite raises when a database cannot grow."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE full(value)")
        connection.execute("INSERT INTO full VALUES (zeroblob(1000000))")


def test_files_that_no_row_names_go_at_the_start(harness: TaskHarness) -> None:
    (harness.path / "indexes" / "0000.sqlite").write_text("made, never committed")
    (harness.queue.payload_folder / "upload").write_text("never acknowledged")
    harness.restart()
    assert not list((harness.path / "indexes").iterdir()) and not list(harness.queue.payload_folder.iterdir())


def test_a_canceled_running_batch_leaves_nothing(harness: TaskHarness) -> None:
    canceled, other = harness.add([{"id": 1, "title": "canceled"}]), harness.add([{"id": 2}])

    def cancel_meanwhile() -> None:
        assert harness.runner.kill_batches([canceled.uid])
        raise IndexingProcessDied("killed")
    harness.writer.before = cancel_meanwhile
    harness.runner.step()
    harness.writer.before = lambda: None
    assert harness.task(canceled).status == harness.task(other).status == "enqueued"
    harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": ""}, uids=[canceled.uid])
    harness.run()
    assert harness.task(canceled).status == "canceled" and harness.task(other).status == "succeeded"
    assert list(harness.documents().values()) == [{"id": 2}]


def test_a_running_task_is_seen_as_processing(harness: TaskHarness) -> None:
    seen: list[Task] = []
    task = harness.add([{"id": 1}])
    harness.writer.before = lambda: seen.append(harness.task(task))
    harness.writer.after = lambda: seen.extend(
        harness.queue.list_tasks(TaskFilter(statuses=["processing"]), 10, None, False).results)
    harness.run()
    assert [each.status for each in seen] == ["processing", "processing"]
    assert seen[0].batch_uid == 0 and seen[0].started_at
    assert not harness.queue.matching(TaskFilter(statuses=["processing"]))


class StartedWriter(LocalWriter):
    """One with a process, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_started = True
        self.closed = threading.Event()

    def close(self) -> None:
        self.is_started = False
        self.closed.set()


def test_spare_indexing_processes_end(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "data")
    writers = [StartedWriter() for _ in range(3)]
    unused = iter([*writers, StartedWriter()])  # the last is that of exports
    runner = Runner(instance, workers=3, make_writer=lambda _: next(unused), spare_s=0.01)
    runner.start()
    for _ in range(1000):
        if sum(writer.closed.is_set() for writer in writers) == 2:
            break
        threading.Event().wait(0.01)
    (kept,) = (writer for writer in writers if not writer.closed.is_set())
    assert not kept.closed.wait(0.05)
    runner.stop()
    instance.close()


# -- Figures of a batch


def test_a_batch_shows_the_tables_whose_sizes_it_changed(harness: TaskHarness) -> None:
    harness.add([{"id": 1, "title": "Alien"}])
    sizes = []

    def run() -> None:
        harness.run()
        with harness.instance.read("movies") as reader:
            sizes.append(reader.internal_database_sizes())

    run()
    harness.add([{"id": n, "title": f"film{n} " * 30} for n in range(300)])
    run()
    harness.do("documentDeletion", details={"deletedDocuments": None}, all=True)
    run()
    for n, (before, after) in enumerate(pairwise(sizes), start=1):
        changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        assert "documents" in changed and harness.queue.batch(n).stats["internalDatabaseSizes"] == {
            name: f"{human_size(after[name])} ({'+' if change > 0 else '-'}{human_size(abs(change))})" for name, change in changed.items()}
    assert sizes[1]["documents"] > sizes[0]["documents"] == sizes[2]["documents"]


def test_sizes_are_not_read_from_a_file_that_is_large_for_the_batch(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.tasks.indexing._SIZES_READ", 1000)
    harness.add([{"id": 1}])
    harness.run()
    stats = harness.queue.batch(0).stats
    assert "internalDatabaseSizes" not in stats
    assert stats["writeChannelCongestion"] == {"attempts": 1, "blocking_attempts": 0, "blocking_ratio": 0.0}


def test_what_writes_no_documents_has_no_congestion(harness: TaskHarness) -> None:
    harness.do("indexCreation", details={"primaryKey": None})
    harness.run()
    assert "writeChannelCongestion" not in harness.queue.batch(0).stats
