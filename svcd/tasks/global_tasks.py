"""Tasks of the whole instance: cancelation, deletion, swaps, dumps and snapshots; and the tasks that svcd itself enqueues.

Cancelations, deletions and swaps change only instance.sqlite; each runs inside the transaction that ends it. The indexing process
writes dumps and snapshots; this module names their files and makes the requests. svcd itself enqueues the automatic clean-up and
scheduled snapshots. See docs/tasks-and-batches.md#cancelation-and-deletion, #swaps, and docs/dumps.md.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from svcd.base import quantities
from svcd.base.errors import ApiError
from svcd.index.connections import delete_copy, sync_folder
from svcd.instance.instance import Instance
from svcd.instance.queue import Queue, RunningBatch
from svcd.instance.task_records import CANCELED, ENQUEUED, FAILED, FINISHED, SUCCEEDED, Task, TaskFilter
from svcd.tasks.batching import failed_details, is_renaming
from svcd.tasks.indexing_client import Progress
from svcd.validation.messages import name_list

MAX_TASKS = 1_000_000
CLEAN_UP_SIZE = 100_000

_Ended = tuple[dict[str, Any], list[Task]]  # counters that a task shows, other tasks that end with it


# Cancelation, deletion, swaps


def indexes_of(task: Task) -> Sequence[str]:
    """Return the uids of the indexes that a task names."""
    if task.kind == "indexSwap":
        return [index_uid for swap in task.content["swaps"] for index_uid in swap["indexes"]]
    if is_renaming(task):
        return [uid for uid in (task.index_uid, task.content["newIndexUid"]) if uid is not None]
    return [task.index_uid] if task.index_uid is not None else []


def run(instance: Instance, connection: sqlite3.Connection, running: RunningBatch, progress: Progress) -> list[Task]:
    """Run a batch of global tasks; return all tasks that end with it, including canceled tasks."""
    ended: list[Task] = []
    for task in running.tasks.values():
        try:
            shown, others = _ACTIONS[task.kind](instance, connection, task, progress)
        except ApiError as error:
            ended.append(replace(task, status=FAILED, error=dict(error.as_json()),
                                 details=failed_details(task.kind, task.details)))
            continue
        ended += [replace(task, status=SUCCEEDED, details={**(task.details or {}), **shown}), *others]
    return ended


def _cancel(instance: Instance, connection: sqlite3.Connection, task: Task, progress: Progress) -> _Ended:
    progress("retrieving tasks", 0, 1)
    others = [each for each in instance.queue.tasks_of(task.content["uids"]) if each.status == ENQUEUED and each.uid != task.uid]
    progress("updating tasks", 0, len(others))
    canceled = [replace(each, status=CANCELED, canceled_by=task.uid, batch_uid=task.batch_uid,
                        details=failed_details(each.kind, each.details)) for each in others]
    return {"canceledTasks": len(canceled)}, canceled


def _delete(instance: Instance, connection: sqlite3.Connection, task: Task, progress: Progress) -> _Ended:
    progress("deleting tasks", 0, len(task.content["uids"]))
    return {"deletedTasks": instance.queue.delete(connection, task.content["uids"])}, []


def new_names(instance: Instance, task: Task) -> dict[str, str]:
    """Return old name -> new name of the indexes that a swap or renaming names. Raises index_not_found, index_already_exists."""
    if task.kind == "indexUpdate":
        old, new = task.index_uid or "", task.content["newIndexUid"]
        _check_swaps([] if instance.index(old) else [old], [(old, new)] if instance.index(new) else [])
        return {old: new}
    names: dict[str, str] = {}
    taken: list[tuple[str, str]] = []
    missing: list[str] = []
    for swap in task.content["swaps"]:
        (left, right), is_rename = swap["indexes"], swap.get("rename", False)
        names |= {left: right, right: left}
        if is_rename and instance.index(right):
            taken.append((left, right))
        missing += [each for each in ([left] if is_rename else [left, right]) if not instance.index(each)]
    _check_swaps(sorted(missing), taken)
    return names


def _swap(instance: Instance, connection: sqlite3.Connection, task: Task, progress: Progress) -> _Ended:
    progress("ensuring correctness of the swap", 0, 1)
    names = new_names(instance, task)
    progress("swapping the indexes", 0, 1)
    instance.rename_indexes(connection, names)
    progress("update the tasks", 0, 1)
    instance.queue.rename_indexes(connection, names, task.uid)
    return {}, []


def _rename(instance: Instance, connection: sqlite3.Connection, task: Task, progress: Progress) -> _Ended:
    """Rename an index and its history, like a swap with `rename`."""
    old, new, primary_key = task.index_uid or "", task.content["newIndexUid"], task.content.get("primaryKey")
    progress("updating the index", 0, 1)
    names = new_names(instance, task)
    row = instance.require_index(old)
    if primary_key not in (None, row.primary_key):  # the previous task should have set it; its error says why it failed
        raise ApiError("index_primary_key_already_exists",
                       f"Index `{old}` keeps its name, because its primary key could not be changed to `{primary_key}`.")
    instance.rename_indexes(connection, names)
    instance.update_index(connection, new, updated_at=task.started_at or task.enqueued_at, primary_key=row.primary_key,
                          stats=row.stats)
    instance.queue.rename_indexes(connection, names, task.uid)
    return {}, []


def _check_swaps(missing: Sequence[str], taken: Sequence[tuple[str, str]]) -> None:
    if missing:
        raise ApiError("index_not_found", f"{'Index' if len(missing) == 1 else 'Indexes'} {name_list(missing)} not found.")
    if len(taken) == 1:
        (left, right), = taken
        raise ApiError("index_already_exists", f"Cannot rename `{left}` to `{right}` as the index already exists. "
                                               f"Hint: You can remove `{right}` first and then do your remove.")
    if taken:
        which = name_list(sorted(right for _, right in taken))
        raise ApiError("index_already_exists",
                       "The following indexes are being renamed but cannot because their new name conflicts with an "
                       f"already existing index: {which}. Renaming doesn't overwrite the other index name.")


_ACTIONS: dict[str, Callable[[Instance, sqlite3.Connection, Task, Progress], _Ended]] = {
    "taskCancelation": _cancel, "taskDeletion": _delete, "indexSwap": _swap, "indexUpdate": _rename}


# Dumps and snapshots. A file is written under a hidden name, and renamed when it is complete and synced: a file under its final
# name is complete. The next archive overwrites the hidden file of a killed daemon (docs/dumps.md#container).


class Folders(NamedTuple):
    """The folders of dumps and snapshots. store: the fields of the ObjectStore that gets the snapshots instead, if any."""

    dumps: Path = Path("dumps")
    snapshots: Path = Path("snapshots")
    store: Mapping[str, Any] | None = None


class Archive(NamedTuple):
    """A file to be written, or an object to be uploaded. request: for the indexing process; details: of the task on success."""

    path: Path
    partial: Path
    copy: Path
    request: Mapping[str, Any]
    details: Mapping[str, Any]

    @property
    def is_uploaded(self) -> bool:
        """Whether the archive goes to the object store."""
        return "store" in self.request

    def publish(self) -> None:
        """Rename the complete file to its final name, durably; replaces an older one. Raises OSError."""
        if self.is_uploaded:  # the store has published it at the end of the upload
            return
        self.partial.replace(self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Delete temporary files, if any."""
        for path in (self.partial, self.copy):
            try:
                delete_copy(path)
            except OSError:  # the folder is unusable, which is the error of the task
                pass


def planned_archive(running: RunningBatch, instance: Instance, folders: Folders) -> Archive:
    """Return the archive that a batch of dump or snapshot tasks writes."""
    if next(iter(running.tasks.values())).kind == "dumpCreation":
        (task,) = running.tasks.values()
        uid = dump_uid(running.batch.started_at)
        batch = replace(running.batch, details={"taskUid": task.uid, "dumpUid": uid}, stats={}, progress=None)
        webhooks = {row.uuid: {"url": row.url, "headers": dict(row.headers)}
                    for row in instance.webhooks.all() if row.is_editable}
        return _archive("dump", f"{uid}.dump", instance, folders.dumps, {"dumpUid": uid}, {
            "batch": asdict(batch), "keys": task.content["keys"], "instanceUid": task.content["instanceUid"],
            "features": instance.features(), "network": instance.stored_network, "webhooks": webhooks,
            "chats": instance.chat_workspaces.all()})
    name = f"{instance.path.absolute().name}.snapshot"
    request: dict[str, Any] = {"taskUids": list(running.tasks), "instanceUid": instance.uid}
    if folders.store is None:
        return _archive("snapshot", name, instance, folders.snapshots, {}, request)
    # An upload copies each index file into the data folder: only that disk is known to have room for the copy.
    return _archive("snapshot", name, instance, instance.path, {}, {**request, "store": dict(folders.store), "name": name})


def dump_uid(moment: int) -> str:
    """Return the uid of a dump, such as `20261120-073750843`: UTC, to the millisecond."""
    digits = "".join(filter(str.isdigit, quantities.rfc3339(moment)))
    return f"{digits[:8]}-{digits[8:14]}{moment // 1_000_000 % 1000:03d}"


def _archive(kind: str, name: str, instance: Instance, folder: Path, details: Mapping[str, Any],
             request: Mapping[str, Any]) -> Archive:
    # Instances may share a folder, so temporary names contain the instance uid.
    partial, copy = (folder / f".{instance.uid}.{kind}.{suffix}" for suffix in ("part", "copy"))
    return Archive(folder / name, partial, copy, details=details, request={
        "do": "archive", "archive": kind, "folder": str(instance.path), "partial": str(partial), "copy": str(copy), **request})


# Tasks that svcd enqueues itself


def clean_up(queue: Queue) -> None:
    """When MAX_TASKS are stored, enqueue the deletion of the oldest CLEAN_UP_SIZE finished tasks."""
    if queue.count_at_most(MAX_TASKS) < MAX_TASKS or "taskDeletion" in queue.enqueued_kinds():
        return
    before = quantities.now()
    wanted = TaskFilter(statuses=FINISHED, before_enqueued_at=before)
    uids = queue.matching(wanted)[:CLEAN_UP_SIZE]
    if uids:
        newest = queue.task(uids[-1])
        moment = quantities.rfc3339_micro(newest.enqueued_at if newest else before)
        queue.enqueue("taskDeletion", None, content={"uids": uids}, details={
            "matchedTasks": len(uids), "deletedTasks": None,
            "originalFilter": f"?beforeEnqueuedAt={moment}&statuses=succeeded,failed,canceled"})


class SnapshotSchedule:
    """Enqueues a snapshot every `every_s` seconds, in the thread "svcd-snapshots" from start() to stop().

    The first interval begins at the start, so an instance that restarts more often gets no snapshot.
    on_refusal: called with the reason when a snapshot cannot be enqueued.
    """

    def __init__(self, queue: Queue, every_s: float, on_refusal: Callable[[str], None] = print,
                 is_ours: Callable[[], bool] = lambda: True) -> None:
        """is_ours: returns False while another node of the cluster makes the snapshots."""
        self._is_ours, self._queue, self._every_s, self._on_refusal = is_ours, queue, every_s, on_refusal
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="svcd-snapshots")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                if self._is_ours():
                    self._queue.enqueue("snapshotCreation", None, details=None)
            except (ApiError, sqlite3.OperationalError) as refusal:  # queue or disk is full, perhaps only for now
                self._on_refusal(f"no snapshot could be enqueued: {refusal}")
