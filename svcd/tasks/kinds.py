"""The table of task kinds: order in messages, rank and way of taking, counters of a failure.

What a batch of a kind does is in svcd.tasks.global_tasks and svcd.tasks.indexing. See docs/tasks-and-batches.md#kinds.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Which enqueued tasks of a kind form a batch when its rank is served.
NEWEST_ALONE = "newest alone"
OLDEST_ALONE = "oldest alone"
ALL_TOGETHER = "all together"
WITH_ITS_INDEX = "with the following tasks of its index"

# Classes of tasks of one index in batching (the columns of docs/tasks-and-batches.md#batching).
ADD = "add or update"
DELETE_IDS = "delete by id"
DELETE_FILTER = "delete by filter"
DELETE_ALL = "delete all"
SETTINGS = "settings"
INDEX_DELETION = "index deletion"
ALONE = "alone"


@dataclass(frozen=True)
class Kind:
    """rank: lower ranks are served first. failed: counters that failed and canceled tasks show.

    is_archive: reads all indexes in one state, so none is written meanwhile. is_recorded: its outcome is stored in the file of
    its index.
    """

    rank: int = 9
    taken: str = WITH_ITS_INDEX
    is_global: bool = False
    is_archive: bool = False
    is_recorded: bool = True
    failed: Mapping[str, Any] = field(default_factory=dict)


KINDS: dict[str, Kind] = {
    "documentAdditionOrUpdate": Kind(failed={"indexedDocuments": 0}),
    "documentEdition": Kind(failed={"deletedDocuments": 0, "editedDocuments": 0}),
    "documentDeletion": Kind(failed={"deletedDocuments": 0}),
    "settingsUpdate": Kind(),
    "indexCreation": Kind(),
    "indexDeletion": Kind(is_recorded=False, failed={"deletedDocuments": 0}),
    "indexUpdate": Kind(),
    "indexSwap": Kind(is_global=True),
    "taskCancelation": Kind(rank=1, taken=NEWEST_ALONE, is_global=True, failed={"canceledTasks": 0}),
    "taskDeletion": Kind(rank=4, taken=ALL_TOGETHER, is_global=True, failed={"deletedTasks": 0}),
    "dumpCreation": Kind(rank=8, taken=OLDEST_ALONE, is_archive=True),
    "snapshotCreation": Kind(rank=7, taken=ALL_TOGETHER, is_archive=True),
    "export": Kind(rank=6, taken=OLDEST_ALONE, is_global=True),
    "upgradeDatabase": Kind(rank=2, taken=ALL_TOGETHER, is_global=True),
    "indexCompaction": Kind(rank=5, taken=OLDEST_ALONE, is_recorded=False),
    "networkTopologyChange": Kind(rank=3, taken=OLDEST_ALONE, is_global=True),
    "dsrUpdate": Kind(),
    "dsrClear": Kind(failed={"deletedDocuments": 0}),
}

_CLASSES = {"documentAdditionOrUpdate": ADD, "settingsUpdate": SETTINGS, "indexDeletion": INDEX_DELETION}


def batching_class(kind: str, content: Mapping[str, Any]) -> str:
    """The class of a task in batching."""
    if kind == "documentDeletion":
        return DELETE_ALL if content.get("all") else DELETE_FILTER if "filter" in content else DELETE_IDS
    return _CLASSES.get(kind, ALONE)


def changes_index(kind: str, content: Mapping[str, Any], details: Mapping[str, Any] | None) -> bool:
    """Does a succeeded task change `updatedAt` of its index? Not when it had nothing to do (recorded behaviour)."""
    if kind in ("indexCreation", "indexUpdate"):
        return content.get("primaryKey") is not None
    if kind == "indexCompaction":
        return False
    counters = KINDS[kind].failed.keys() - {"indexedDocuments"} if not content.get("all") else ()
    return not counters or any((details or {}).get(counter) for counter in counters)


def failed_details(kind: str, details: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The details of a failed or canceled task: unknown counters become 0."""
    if details is None:
        return None
    return {name: KINDS[kind].failed[name] if value is None and name in KINDS[kind].failed else value
            for name, value in details.items()}
