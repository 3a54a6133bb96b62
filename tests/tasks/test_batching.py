"""What must hold of batches (docs/tasks-and-batches.md#batching):

1. Tasks of one index join, in their order, as long as the table says so; the reason of the stop is told.
2. A task that gives a primary key joins only where it can't change what the others mean.
3. Without the index, a task that may make it does not join a batch that may not.
4. Limits on tasks and bytes are kept, but the first task always fits.
5. Creation, update and deletion of an index stand alone as a first task.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.instance.task_records import Task
from svcd.tasks import batching
from svcd.tasks.batching import IndexState, Limits, plan_by_rank, plan_for_index

EXISTS, ABSENT = IndexState(True), IndexState(False)


def tasks(*wanted: tuple[str, dict[str, Any]] | str, size: int = 0) -> list[Task]:
    made = []
    for uid, each in enumerate(wanted):
        name, content = (each, {}) if isinstance(each, str) else each
        kind, base = SHORT[name]
        made.append(Task(uid, kind, "movies", "enqueued", uid, content={**base, **content}, payload_bytes=size))
    return made


SHORT: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("documentAdditionOrUpdate", {}), "ids": ("documentDeletion", {"ids": []}),
    "filter": ("documentDeletion", {"filter": "a = 1"}), "all": ("documentDeletion", {"all": True}),
    "settings": ("settingsUpdate", {}), "drop": ("indexDeletion", {}), "create": ("indexCreation", {}),
    "update": ("indexUpdate", {}), "edit": ("documentEdition", {}),
}

# (enqueued tasks, how many run together, shape of the batch)
JOINING = [
    ("add add add", 3, batching.DOCUMENTS), ("add ids add", 3, batching.DOCUMENTS), ("add filter", 1, batching.DOCUMENTS),
    ("add settings", 1, batching.DOCUMENTS), ("add all ids", 3, batching.CLEAR), ("add all add", 2, batching.CLEAR),
    ("add drop add", 2, batching.INDEX_DELETION), ("ids ids", 2, batching.DELETIONS), ("ids add", 2, batching.DOCUMENTS),
    ("ids filter ids", 3, batching.FILTER_DELETIONS), ("filter add filter", 2, batching.DOCUMENTS),
    ("all ids all", 3, batching.CLEAR), ("all settings", 1, batching.CLEAR), ("settings settings", 2, batching.SETTINGS),
    ("settings add", 1, batching.SETTINGS), ("settings all ids settings", 4, batching.CLEAR_AND_SETTINGS),
    ("settings drop", 2, batching.INDEX_DELETION), ("create add", 1, batching.ALONE), ("update update", 1, batching.ALONE),
    ("drop add", 1, batching.INDEX_DELETION), ("add create", 1, batching.DOCUMENTS), ("add edit", 1, batching.DOCUMENTS),
]


@pytest.mark.parametrize("names, together, shape", JOINING, ids=str)
def test_the_table_is_kept(names: str, together: int, shape: str) -> None:
    plan = plan_for_index(tasks(*names.split()), EXISTS, Limits())
    assert plan is not None
    assert (len(plan.tasks), plan.shape) == (together, shape)
    assert [task.uid for task in plan.tasks] == list(range(together))
    assert "{" not in plan.strategy


def test_a_stop_names_its_task_and_reason() -> None:
    plan = plan_for_index(tasks("add", "settings"), EXISTS, Limits())
    assert plan and plan.strategy == ("stopped before task with id 1 because it is a settings change "
                                      "which cannot be batched with document operations")


def keyed(*keys: str | None) -> list[Task]:
    return tasks(*(("add", {"primaryKey": key}) for key in keys))


@pytest.mark.parametrize("keys, index, together", [
    ((None, None), EXISTS, 2), (("id", "id"), EXISTS, 2), (("id", "sku"), EXISTS, 1), (("id", None), EXISTS, 2),
    ((None, "id"), EXISTS, 1), (("sku", "id"), IndexState(True, "id"), 1), (("id", "sku"), IndexState(True, "id"), 1),
])
def test_primary_keys_part_batches(keys: tuple[str | None, ...], index: IndexState, together: int) -> None:
    plan = plan_for_index(keyed(*keys), index, Limits())
    assert plan and len(plan.tasks) == together


def test_a_first_task_with_another_key_than_the_index_stays_alone() -> None:
    """It fails, and the others need not be in a batch with it."""
    plan = plan_for_index(keyed("sku", None), IndexState(True, "id"), Limits())
    assert plan and (len(plan.tasks), plan.shape) == (1, batching.DOCUMENTS)
    assert plan.strategy == ("stopped batching before task with id 0 because its primary key `sku` is different from the "
                             "primary key of the index `id`")


def test_an_index_deletion_ends_a_batch_also_as_its_only_task() -> None:
    for names, uid in (("drop add", 0), ("add drop add", 1)):
        plan = plan_for_index(tasks(*names.split()), EXISTS, Limits())
        assert plan and plan.strategy == f"stopped after task with id {uid} because it deletes the index"


def test_a_key_after_deletions_alone_joins() -> None:
    plan = plan_for_index(tasks("ids", ("add", {"primaryKey": "id"})), EXISTS, Limits())
    assert plan and len(plan.tasks) == 2


def test_an_addition_does_not_join_deletions_on_an_index_it_would_make() -> None:
    joined = plan_for_index(tasks("ids", ("add", {"mayCreateIndex": False})), ABSENT, Limits())
    apart = plan_for_index(tasks("ids", "add"), ABSENT, Limits())
    assert joined and apart and (len(joined.tasks), len(apart.tasks)) == (2, 1)


def test_limits_stop_a_batch_but_never_its_first_task() -> None:
    by_count = plan_for_index(tasks("add", "add", "add"), EXISTS, Limits(tasks=2))
    by_size = plan_for_index(tasks("add", "add", "add", size=10), EXISTS, Limits(payload_bytes=25))
    first = plan_for_index(tasks("add", "add", size=10), EXISTS, Limits(tasks=0, payload_bytes=1))
    assert by_count and by_size and first
    assert [len(plan.tasks) for plan in (by_count, by_size, first)] == [2, 2, 1]
    assert by_size.strategy == "batched up to configured batch size limit of 25B with a total of 30B"


def test_only_as_many_tasks_are_read_as_are_needed() -> None:
    def upcoming():
        yield from tasks("create")
        raise AssertionError("read too far")
    assert plan_for_index(upcoming(), EXISTS, Limits())


def test_special_kinds_are_taken_as_the_table_says() -> None:
    deletions = [Task(n, "taskDeletion", None, "enqueued", n) for n in range(3)]
    cancelations = [Task(n, "taskCancelation", None, "enqueued", n) for n in (2, 1)]
    together, alone = plan_by_rank("taskDeletion", iter(deletions)), plan_by_rank("taskCancelation", iter(cancelations))
    assert together and alone and plan_by_rank("taskDeletion", iter(())) is None
    assert ([task.uid for task in together.tasks], [task.uid for task in alone.tasks]) == ([0, 1, 2], [2])


def test_every_row_of_the_table_leads_somewhere() -> None:
    classes = {batching.ADD, batching.DELETE_IDS, batching.DELETE_FILTER, batching.DELETE_ALL, batching.SETTINGS, batching.INDEX_DELETION}
    of_rules = {batching.RULES, batching.RULES_CLEARED}  # no task of another index is among them
    assert all(set(row) == classes for shape, row in batching.JOINS.items() if shape not in of_rules)
    assert {becomes for shape in of_rules for becomes in batching.JOINS[shape].values()} == of_rules


def test_changes_of_search_rules_run_together() -> None:
    def tasks(*kinds: str) -> list[Task]:
        return [Task(uid, kind, ".svc_dsr", "enqueued", uid, content={"uid": "a"}) for uid, kind in enumerate(kinds)]

    update, clear = "dsrUpdate", "dsrClear"
    plans = [plan_for_index(tasks(*kinds), IndexState(False), Limits()) for kinds in (
        (update, update), (update, clear, clear, update), (clear, update))]
    assert [plan and (plan.shape, len(plan.tasks)) for plan in plans] == [
        (batching.RULES, 2), (batching.RULES_CLEARED, 3), (batching.RULES_CLEARED, 1)]
