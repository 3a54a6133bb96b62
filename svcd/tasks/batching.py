"""The kinds of tasks, and which enqueued tasks run together in a batch: tables and pure functions.

KINDS has the rank of each kind, how its tasks are taken, and the counters of a failed task. svcd.tasks.global_tasks and
svcd.tasks.indexing run the batches. Iterators of tasks are read only as far as needed, because the queue may be long.
See docs/tasks-and-batches.md#kinds and #batching.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.instance.task_records import Task

# Which enqueued tasks of a kind form a batch when its rank is served.
NEWEST_ALONE = "newest alone"
OLDEST_ALONE = "oldest alone"
ALL_TOGETHER = "all together"
WITH_ITS_INDEX = "with the following tasks of its index"

# Classes of tasks of one index in batching (the columns of the table in docs/tasks-and-batches.md#batching).
ADD = "add or update"
DELETE_IDS = "delete by id"
DELETE_FILTER = "delete by filter"
DELETE_ALL = "delete all"
SETTINGS = "settings"
INDEX_DELETION = "index deletion"
RULE_UPDATE = "rule update"
RULES_CLEAR = "clear of rules"
ALONE = "alone"

# Shapes of batches of one index (the rows of the table).
DOCUMENTS = "documents"
DELETIONS = "deletions by id"
FILTER_DELETIONS = "deletions with a filter"
CLEAR = "clear"
CLEAR_AND_SETTINGS = "clear and settings"
RULES = "search rules"
RULES_CLEARED = "search rules cleared"

ALREADY_APPLIED = "already applied"  # after a crash: the file of the index holds the outcomes


class Kind(NamedTuple):
    """A kind of tasks. rank: lower ranks are served first. failed: counters that failed and canceled tasks show.

    is_archive: reads all indexes in one state, so no index is written meanwhile. runs_beside: has its own thread and process,
    beside all other batches. is_recorded: the file of the index stores its outcome.
    """

    rank: int = 9
    taken: str = WITH_ITS_INDEX
    is_global: bool = False
    is_archive: bool = False
    runs_beside: bool = False
    is_recorded: bool = True
    failed: Mapping[str, Any] = {}


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
    "export": Kind(rank=6, taken=OLDEST_ALONE, runs_beside=True, is_recorded=False),
    "upgradeDatabase": Kind(rank=2, taken=ALL_TOGETHER, is_global=True),
    "indexCompaction": Kind(rank=5, taken=OLDEST_ALONE, is_recorded=False),
    "networkTopologyChange": Kind(rank=3, taken=OLDEST_ALONE, is_global=True),
    "dsrUpdate": Kind(),
    "dsrClear": Kind(failed={"deletedDocuments": 0}),
}


def is_renaming(task: Task) -> bool:
    """Return whether a task renames an index, by a swap or by a change of the index."""
    return task.kind == "indexSwap" or task.kind == "indexUpdate" and bool(task.content.get("newIndexUid"))


def kind_of(task: Task) -> Kind:
    """Return how a task is run: a change of the name of an index runs like a swap."""
    return KINDS["indexSwap" if is_renaming(task) else task.kind]


_CLASSES = {"documentAdditionOrUpdate": ADD, "settingsUpdate": SETTINGS, "indexDeletion": INDEX_DELETION,
            "dsrUpdate": RULE_UPDATE, "dsrClear": RULES_CLEAR}


def batching_class(kind: str, content: Mapping[str, Any]) -> str:
    """Return the class of a task in batching."""
    if kind == "documentDeletion":
        return DELETE_ALL if content.get("all") else DELETE_FILTER if "filter" in content else DELETE_IDS
    return _CLASSES.get(kind, ALONE)


def changes_index(kind: str, content: Mapping[str, Any], details: Mapping[str, Any] | None) -> bool:
    """Return whether a succeeded task changes `updatedAt` of its index; a task without effect does not (recorded behaviour)."""
    if kind in ("indexCreation", "indexUpdate"):
        return content.get("primaryKey") is not None
    if kind == "indexCompaction":
        return False
    counters = KINDS[kind].failed.keys() - {"indexedDocuments"} if not content.get("all") else ()
    return not counters or any((details or {}).get(counter) for counter in counters)


def failed_details(kind: str, details: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the details of a failed or canceled task: unknown counters become 0."""
    if details is None:
        return None
    return {name: KINDS[kind].failed[name] if value is None and name in KINDS[kind].failed else value
            for name, value in details.items()}


# Batching. The strategy of a batch is the text in `/batches` that says why the batch ends where it does.

UNSPECIFIED = "unspecified"
ALL_TASKS = "batched all enqueued tasks"
_ALL_OF_INDEX = "batched all enqueued tasks for index `{uid}`"
_TASK_LIMIT = "batched up to configured batch limit of {limit} tasks"
_SIZE_LIMIT = "batched up to configured batch size limit of {limit}B with a total of {total}B"
_ONLY = "created batch containing only task with id {id} of type `{kind}` that cannot be batched with any other task."
_LAST_OF_TYPE = "stopped after the last task of type `{kind}` because they cannot be batched with tasks of any other type."
_OTHER_INDEX_KEY = ("stopped batching before task with id {id} because its primary key `{task}` is different "
                    "from the primary key of the index `{index}`")
_OTHER_BATCH_KEY = ("stopped batching before task with id {id} because its primary key `{task}` is different "
                    "from the primary key of the batch `{batch}`")
_KEY_AND_GUESS = ("stopped batching before task with id {id} because it is setting the `{task}` primary key "
                  "and it would interfere with primary key guessing of the batch")
_CREATION_RULES = ("stopped batching before task with id {id} because its index creation rules differ "
                   "from the ones from the batch")
_INDEX_DELETED = "stopped after task with id {id} because it deletes the index"
_SETTINGS_CHANGE = ("stopped before task with id {id} because it is a settings change "
                    "which cannot be batched with document operations")
_FILTER_DELETION = ("stopped before task with id {id} because it is a deletion by filter "
                    "which cannot be batched with document operations")
_DOCUMENT_OPERATION = ("stopped before task with id {id} because it is a document operation "
                       "which cannot be batched with settings changes")

# Shape so far -> class of the next task -> shape with it; any other text is the reason to stop before that task.
JOINS: dict[str, dict[str, str]] = {
    DOCUMENTS: {ADD: DOCUMENTS, DELETE_IDS: DOCUMENTS, DELETE_ALL: CLEAR, INDEX_DELETION: INDEX_DELETION,
                DELETE_FILTER: _FILTER_DELETION, SETTINGS: _SETTINGS_CHANGE},
    DELETIONS: {ADD: DOCUMENTS, DELETE_IDS: DELETIONS, DELETE_FILTER: FILTER_DELETIONS, DELETE_ALL: CLEAR,
                INDEX_DELETION: INDEX_DELETION, SETTINGS: _SETTINGS_CHANGE},
    FILTER_DELETIONS: {ADD: DOCUMENTS, DELETE_IDS: FILTER_DELETIONS, DELETE_FILTER: FILTER_DELETIONS,
                       DELETE_ALL: CLEAR, INDEX_DELETION: INDEX_DELETION, SETTINGS: _SETTINGS_CHANGE},
    CLEAR: {DELETE_IDS: CLEAR, DELETE_FILTER: CLEAR, DELETE_ALL: CLEAR, INDEX_DELETION: INDEX_DELETION,
            ADD: _LAST_OF_TYPE, SETTINGS: _SETTINGS_CHANGE},
    SETTINGS: {SETTINGS: SETTINGS, DELETE_ALL: CLEAR_AND_SETTINGS, INDEX_DELETION: INDEX_DELETION,
               ADD: _DOCUMENT_OPERATION, DELETE_IDS: _DOCUMENT_OPERATION, DELETE_FILTER: _DOCUMENT_OPERATION},
    CLEAR_AND_SETTINGS: {DELETE_IDS: CLEAR_AND_SETTINGS, DELETE_FILTER: CLEAR_AND_SETTINGS,
                         DELETE_ALL: CLEAR_AND_SETTINGS, SETTINGS: CLEAR_AND_SETTINGS, INDEX_DELETION: INDEX_DELETION,
                         ADD: _DOCUMENT_OPERATION},
    RULES: {RULE_UPDATE: RULES, RULES_CLEAR: RULES_CLEARED},
    RULES_CLEARED: {RULES_CLEAR: RULES_CLEARED},
}
_FIRST = {ADD: DOCUMENTS, DELETE_IDS: DELETIONS, DELETE_FILTER: FILTER_DELETIONS, DELETE_ALL: CLEAR, SETTINGS: SETTINGS,
          RULE_UPDATE: RULES, RULES_CLEAR: RULES_CLEARED}


class Limits(NamedTuple):
    """Maximum number of tasks and of payload bytes of a batch; None means unlimited. The first task always fits."""

    tasks: int | None = None
    payload_bytes: int | None = None


def seconds_until_overtaking(starts: Iterable[float], now: float, after_s: float) -> float:
    """Return the seconds until another batch may start, 0 for now: each running batch must have run for `after_s` seconds.

    starts: when the running batches started, on the clock of `now`. See docs/tasks-and-batches.md#order-across-indexes.
    """
    return max([0.0, *(start + after_s - now for start in starts)])


def awaited_tasks(tasks: Iterable[Task]) -> Iterator[int]:
    """Yield the uids of the tasks that must not be running when a batch starts: a deletion waits for the tasks it deletes."""
    return (uid for task in tasks if task.kind == "taskDeletion" for uid in task.content["uids"])


class IndexState(NamedTuple):
    """The part of the state of an index that batching depends on."""

    exists: bool
    primary_key: str | None = None


class Plan(NamedTuple):
    """Tasks that run as one batch. shape: a row of the table, or SETTINGS, INDEX_DELETION, ALONE. strategy: as shown."""

    tasks: Sequence[Task]
    shape: str
    strategy: str


def plan_by_rank(rank_kind: str, tasks: Iterator[Task]) -> Plan | None:
    """Return the batch of a kind with its own rank. tasks: its enqueued tasks, newest or oldest first as KINDS says."""
    taken = KINDS[rank_kind].taken
    if taken == ALL_TOGETHER:
        together = list(tasks)
        return Plan(together, ALONE, _LAST_OF_TYPE.format(kind=rank_kind)) if together else None
    first = next(tasks, None)
    return Plan([first], ALONE, _ONLY.format(id=first.uid, kind=rank_kind)) if first else None


def plan_for_index(tasks: Iterable[Task], index: IndexState, limits: Limits) -> Plan | None:
    """Return the batch that begins with the oldest enqueued task of an index; None without tasks. tasks: oldest first."""
    upcoming = iter(tasks)
    first = next(upcoming, None)
    if first is None:
        return None
    kind = batching_class(first.kind, first.content)
    if kind == ALONE:
        return Plan([first], kind, _ONLY.format(id=first.uid, kind=first.kind))
    if kind == INDEX_DELETION:
        return Plan([first], kind, _INDEX_DELETED.format(id=first.uid))
    if index.primary_key is not None and _key_of(first) not in (None, index.primary_key):  # it fails, alone
        return Plan([first], _FIRST[kind], _other_index_key(first, index))
    draft = _Draft(index, limits, [first], _FIRST[kind], first.payload_bytes, _key_of(first),
                   kind != ADD or _key_of(first) is not None, may_create(first))
    for task in upcoming:
        if stop := next((reason for check in _CHECKS if (reason := check(draft, task))), None):
            return Plan(draft.tasks, draft.shape, stop)
        draft = draft.joined(task)
        if draft.shape == INDEX_DELETION:
            return Plan(draft.tasks, INDEX_DELETION, _INDEX_DELETED.format(id=task.uid))
    return Plan(draft.tasks, draft.shape, _ALL_OF_INDEX.format(uid=first.index_uid))


class _Draft(NamedTuple):
    """A batch under composition. key_is_settled: no task so far infers the primary key from its documents."""

    index_state: IndexState
    limits: Limits
    tasks: list[Task]
    shape: str
    payload_bytes: int
    key: str | None
    key_is_settled: bool
    may_create: bool

    def joined(self, task: Task) -> _Draft:
        """Return the batch with one more task."""
        kind = batching_class(task.kind, task.content)
        self.tasks.append(task)  # shared with the previous draft, which is not used again
        return self._replace(shape=JOINS[self.shape][kind], payload_bytes=self.payload_bytes + task.payload_bytes,
                             key=self.key or _key_of(task),
                             key_is_settled=self.key_is_settled and (kind != ADD or (self.key or _key_of(task)) is not None))


def _shape_reason(draft: _Draft, task: Task) -> str | None:
    becomes = JOINS[draft.shape].get(batching_class(task.kind, task.content), _LAST_OF_TYPE)
    if becomes in JOINS or becomes == INDEX_DELETION:
        return None
    return becomes.format(id=task.uid, kind=draft.tasks[-1].kind)


def _creation_reason(draft: _Draft, task: Task) -> str | None:
    if draft.index_state.exists or draft.may_create or not may_create(task):
        return None
    return _CREATION_RULES.format(id=task.uid)


def _key_reason(draft: _Draft, task: Task) -> str | None:
    key = _key_of(task)
    if key is None or key == draft.index_state.primary_key:
        return None
    if draft.index_state.primary_key is not None:
        return _other_index_key(task, draft.index_state)
    if draft.key is not None:
        return None if draft.key == key else _OTHER_BATCH_KEY.format(id=task.uid, task=key, batch=draft.key)
    return None if draft.key_is_settled else _KEY_AND_GUESS.format(id=task.uid, task=key)


def _other_index_key(task: Task, index: IndexState) -> str:
    return _OTHER_INDEX_KEY.format(id=task.uid, task=_key_of(task), index=index.primary_key)


def _limit_reason(draft: _Draft, task: Task) -> str | None:
    limits, total = draft.limits, draft.payload_bytes + task.payload_bytes
    if limits.tasks is not None and len(draft.tasks) >= max(limits.tasks, 1):
        return _TASK_LIMIT.format(limit=limits.tasks)
    if limits.payload_bytes is not None and total > limits.payload_bytes:
        return _SIZE_LIMIT.format(limit=limits.payload_bytes, total=total)
    return None


_CHECKS: tuple[Callable[[_Draft, Task], str | None], ...] = (_shape_reason, _creation_reason, _key_reason, _limit_reason)


def _key_of(task: Task) -> str | None:
    return task.content.get("primaryKey") if task.kind == "documentAdditionOrUpdate" else None


def may_create(task: Task) -> bool:
    """Return whether the task may create its index."""
    creates = task.kind in ("documentAdditionOrUpdate", "settingsUpdate", "dsrUpdate", "dsrClear")
    return creates and task.content.get("mayCreateIndex", True)
