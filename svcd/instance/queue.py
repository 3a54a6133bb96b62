"""The task queue in instance.sqlite: enqueue, list, start and finish batches, delete.

A task is stored as `enqueued`, and later once more as finished. `processing` is not stored: it is a view of the running batches,
which are in memory, so a stop at any moment leaves the task enqueued. Every change is durable when the call returns. svcd.tasks
runs the tasks. See docs/tasks-and-batches.md#queue.
"""
from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from svcd.base import logs, quantities
from svcd.base.errors import ApiError
from svcd.index.connections import ReadPool, write_transaction
from svcd.index.disk_space import Reserve, lacks_room
from svcd.instance import task_changes, task_records
from svcd.instance.task_changes import TO_ENQUEUED, TO_PROCESSING, Listeners, Position
from svcd.instance.task_records import ENQUEUED, PROCESSING, Batch, Page, Task, TaskFilter

T = TypeVar("T", Task, Batch)
IsAllowed = Callable[[str], bool]

# Size limit of the task database; above 40 % of it, new tasks are refused (docs/tasks-and-batches.md#queue).
DATABASE_BYTES = 20 << 30
MAX_BYTES = DATABASE_BYTES * 2 // 5
_TASK_TRIMMING_KINDS = ("taskCancelation", "taskDeletion")
# Kinds that free disk space, and may use the reserve to do so (docs/tasks-and-batches.md#full-disk).
SPACE_FREEING_KINDS = frozenset(("taskCancelation", "taskDeletion", "indexDeletion", "documentDeletion"))

# Lists do not read `content`, which may hold a million identifiers; only the runner does.
_TASK_COLUMNS = ("uid, kind, index_uid, status, enqueued_at, batch_uid, canceled_by, details, error, {content}, payload, "
                 "payload_bytes, custom_metadata, started_at, finished_at")
_COLUMNS_WITHOUT_CONTENT, _ALL_COLUMNS = _TASK_COLUMNS.format(content="'{}'"), _TASK_COLUMNS.format(content="content")
_JSON_COLUMNS = (7, 8, 9)
# An SQL index alone answers each part, without reading a table of a million tasks.
_COUNTS = f"""
    SELECT CASE WHEN status = '{ENQUEUED}' AND uid IN (SELECT value FROM json_each(?)) THEN '{PROCESSING}'
           ELSE status END AS seen, kind, NULL, count(*) FROM tasks GROUP BY seen, kind
    UNION ALL SELECT NULL, NULL, index_uid, count(*) FROM tasks WHERE index_uid IS NOT NULL GROUP BY index_uid
    UNION ALL SELECT NULL, NULL, side.value, count(DISTINCT uid) FROM tasks, json_each(details, '$.swaps') AS pair,
           json_each(pair.value, '$.indexes') AS side WHERE kind = 'indexSwap' GROUP BY side.value"""
# Up to MAX_TASKS_FIRST visible tasks, batches are found through these; beyond, each batch is checked for a visible task.
MAX_TASKS_FIRST = 10_000
# Every distinct index_uid, with one look-up in the SQL index for each (a loose index scan) instead of a full scan.
_INDEXES = """
    WITH RECURSIVE named(uid) AS (SELECT min(index_uid) FROM tasks
        UNION ALL SELECT (SELECT min(index_uid) FROM tasks WHERE index_uid > named.uid) FROM named
        WHERE named.uid IS NOT NULL)
    SELECT uid FROM named WHERE uid IS NOT NULL"""
_BATCH_COLUMNS = "uid, started_at, strategy, details, stats, finished_at, earliest_enqueued_at, latest_enqueued_at"


@dataclass
class RunningBatch:
    """A batch between its start and its end, with its tasks by uid; batch.progress is replaced while it runs."""

    batch: Batch
    tasks: dict[int, Task]


class _SharedConnection(threading.local):
    """The connection of one_state() in this thread."""

    connection: sqlite3.Connection | None = None


class Queue:
    """The task queue of an instance. All writes go through one connection under one lock."""

    def __init__(self, path: Path, writer: sqlite3.Connection, lock: threading.RLock, readers: ReadPool,
                 payload_folder: Path, reserve: Reserve | None = None) -> None:
        self.payload_folder = payload_folder
        # Called outside the lock with each task that was enqueued.
        self.on_enqueued: Callable[[Task], None] = lambda task: None
        # Sends a task without uid through the log of a cluster, and returns it as stored; None on a single node.
        self.replicate: Callable[[Task], Task] | None = None
        self.listeners = Listeners()
        self._path = path
        self._writer = writer
        self._lock = lock  # guards _writer, _running and the next three
        self._last_moment = 0
        self._ended: list[int] = []  # uids of tasks that end with the current transaction
        self._requeued: dict[int, int] = {}  # uid of a requeued task -> moment
        self._readers = readers
        self._reserve = reserve or Reserve(path.parent)
        self._running: dict[int, RunningBatch] = {}
        self._shared = _SharedConnection()
        self._next_batch = 1 + self._highest("SELECT max(coalesce((SELECT max(uid) FROM batches), -1), "
                                             "coalesce((SELECT max(batch_uid) FROM tasks), -1))")

    def _highest(self, query: str) -> int:
        (highest,) = self._writer.execute(query).fetchone()
        return -1 if highest is None else highest

    def next_moment(self) -> int:
        """Under the lock: return the present moment, later than all returned before, so that changes have one order."""
        self._last_moment = max(quantities.now(), self._last_moment + 1)
        return self._last_moment

    def enqueue(self, kind: str, index_uid: str | None, *, details: dict[str, Any] | None,
                content: dict[str, Any] | None = None, payload: Path | None = None, payload_bytes: int = 0,
                custom_metadata: str | None = None) -> Task:
        """Add a task, durably. The payload must be synced already; the queue takes over its file.

        Raises no_space_left_on_device when the task database or the disk is so full that only deletions are allowed.
        """
        self.check_space(kind)
        draft = Task(-1, kind, index_uid, ENQUEUED, 0, details=details, content=content or {},
                     payload=payload.name if payload else None, payload_bytes=payload_bytes, custom_metadata=custom_metadata)
        with self._lock:
            if not (kind in _TASK_TRIMMING_KINDS and draft.content.get("uids")) and _bytes_of(self._writer)[1] > MAX_BYTES:
                raise ApiError("no_space_left_on_device",
                               "Svc cannot receive write operations because the limit of the task database has been "
                               "reached. Please delete tasks to continue performing write operations.")
            if self.replicate is None:
                try:
                    task = self.insert(draft, self.next_moment())
                except sqlite3.OperationalError as error:
                    if not lacks_room(error) or kind not in SPACE_FREEING_KINDS:
                        raise
                    self._free_space()
                    task = self.insert(draft, self.next_moment())
        if self.replicate is not None:
            return self.replicate(draft)
        self.on_enqueued(task)
        self.listeners.notify()
        return task

    def insert(self, draft: Task, moment: int) -> Task:
        """Under the lock: store a new task with the next uid, in the open transaction or its own. moment: of enqueueing."""
        task = replace(draft, uid=self._highest("SELECT max(uid) FROM tasks") + 1, enqueued_at=moment)
        self._last_moment = max(self._last_moment, moment)
        insert_tasks(self._writer, [task])
        return task

    def check_space(self, kind: str) -> None:
        """Raise no_space_left_on_device for a kind that takes disk space, if only the reserve is left."""
        if kind in SPACE_FREEING_KINDS:
            self._reserve.make_way()
        else:
            self._reserve.refuse_growth()

    def _free_space(self) -> None:
        """Release the reserve after a write failed for lack of space, and checkpoint, so that the log need not grow."""
        self._reserve.give_up()
        try:
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.OperationalError:  # the file cannot grow either
            pass

    def task(self, uid: int, *, with_content: bool = False) -> Task | None:
        """Return a task, or None. with_content: also read `content`, which only the runner needs."""
        with self._reading() as connection:
            columns = _ALL_COLUMNS if with_content else _COLUMNS_WITHOUT_CONTENT
            return next(self._tasks(connection, "uid = ?", [uid], columns), None)

    # `is_allowed` tells which indexes the caller may see, and hides global tasks and batches; None shows everything. Totals
    # count only visible tasks and batches, so that filters reveal nothing about other indexes.

    def batch(self, uid: int, is_allowed: IsAllowed | None = None) -> Batch | None:
        """Return a running or finished batch with at least one visible task, or None."""
        running = self._running.get(uid)
        if running:
            return running.batch if _is_visible(running, is_allowed) else None
        with self._reading() as connection:
            condition = _joined(("uid = ?", [uid]), self._visible_batches(connection, is_allowed))
            return next(_batches(connection, *condition), None)

    def list_tasks(self, wanted: TaskFilter, limit: int, from_uid: int | None, reverse: bool,
                   is_allowed: IsAllowed | None = None) -> Page[Task]:
        """Return a page of the matching tasks, newest first unless `reverse`.

        With `index_uids` in the filter, the total counts swaps of these indexes, but the results do not show them. Without a
        filter the total counts all tasks, visible or not (recorded behaviour; uids of visible tasks reveal as much).
        """
        running = self._running_tasks()
        counted = task_records.task_condition(wanted, running, counts_swaps=True)
        with self._reading() as connection:
            visible = self._visible_tasks(connection, is_allowed)
            total = self._count(connection, "tasks", counted if wanted == TaskFilter() else _joined(counted, visible))
            condition = _joined(task_records.task_condition(wanted, running), visible)
            rows = list(self._tasks(connection, *_paged(condition, limit, from_uid, reverse)))
        return _page(rows, total, limit)

    def list_batches(self, wanted: TaskFilter, limit: int, from_uid: int | None, reverse: bool,
                     is_allowed: IsAllowed | None = None) -> Page[Batch]:
        """Return a page of the batches with a matching task, newest first unless `reverse`."""
        condition = task_records.batch_condition(wanted, self._running_tasks())
        with self._reading() as connection:
            visible = _joined(condition, self._visible_batches(connection, is_allowed))
            stored = list(_batches(connection, *_paged(visible, limit, from_uid, reverse)))
            total = self._count(connection, "batches", visible)
            running = [one for one in self._matching_batches(wanted) if not any(batch.uid == one.batch.uid for batch in stored)]
        seen = [one.batch for one in running if _is_visible(one, is_allowed)]
        inside = [b for b in seen if from_uid is None or (b.uid >= from_uid if reverse else b.uid <= from_uid)]
        merged = sorted(stored + inside, key=lambda batch: batch.uid, reverse=not reverse)
        return _page(merged[:limit + 1], total + len(seen), limit)

    def matching(self, wanted: TaskFilter, is_allowed: IsAllowed | None = None) -> list[int]:
        """Return the uids of all matching tasks, ascending."""
        condition = task_records.task_condition(wanted, self._running_tasks())
        with self._reading() as connection:
            sql, values = _joined(condition, self._visible_tasks(connection, is_allowed))
            return [row[0] for row in connection.execute(f"SELECT uid FROM tasks WHERE {sql} ORDER BY uid", values)]

    def _visible_tasks(self, connection: sqlite3.Connection, is_allowed: IsAllowed | None) -> task_records.Condition:
        if is_allowed is None:
            return "1", []
        return task_records.among("index_uid", [uid for (uid,) in connection.execute(_INDEXES) if is_allowed(uid)])

    def _visible_batches(self, connection: sqlite3.Connection, is_allowed: IsAllowed | None) -> task_records.Condition:
        if is_allowed is None:
            return "1", []
        sql, values = self._visible_tasks(connection, is_allowed)
        some = f"(SELECT 1 FROM tasks WHERE {sql} LIMIT {MAX_TASKS_FIRST + 1})"
        if self._count(connection, some, ("1", values)) <= MAX_TASKS_FIRST:
            return f"uid IN (SELECT batch_uid FROM tasks WHERE {sql})", values
        return f"EXISTS (SELECT 1 FROM tasks WHERE batch_uid = batches.uid AND {sql})", values

    def tasks_of(self, uids: Iterable[int], *, with_content: bool = False) -> list[Task]:
        """Return the existing tasks with these uids, ascending."""
        columns = _ALL_COLUMNS if with_content else _COLUMNS_WITHOUT_CONTENT
        with self._reading() as connection:
            return list(self._tasks(connection, "uid IN (SELECT value FROM json_each(?)) ORDER BY uid",
                                    [json.dumps(list(uids))], columns))

    def enqueued(self, kinds: Sequence[str], *, newest_first: bool = False, with_content: bool = True) -> Iterator[Task]:
        """Yield enqueued tasks of some kinds that are not running, oldest first by default; read lazily.

        The parts, each in the order of the index, are merged: SQLite would sort the whole backlog for one part with all kinds.
        """
        columns = _ALL_COLUMNS if with_content else _COLUMNS_WITHOUT_CONTENT
        part = f"SELECT {columns} FROM tasks INDEXED BY idx_tasks_status_kind_uid WHERE status = '{ENQUEUED}' AND kind = ?"
        each = list(dict.fromkeys(kinds))
        query = f"{' UNION ALL '.join([part] * len(each))} ORDER BY uid {'DESC' if newest_first else 'ASC'}"
        yield from self._enqueued(query, each)

    def enqueued_of(self, index_uid: str, kinds: Sequence[str], from_uid: int = 0) -> Iterator[Task]:
        """Yield enqueued tasks of an index and of some kinds that are not running, oldest first; read lazily.

        from_uid: of the oldest one, if known: the finished tasks before it, perhaps a million, are then not read.
        """
        yield from self._enqueued(
            f"SELECT {_ALL_COLUMNS} FROM tasks INDEXED BY idx_tasks_index_uid WHERE index_uid = ? AND uid >= ? "
            f"AND status = '{ENQUEUED}' AND kind IN (SELECT value FROM json_each(?)) ORDER BY uid",
            [index_uid, from_uid, json.dumps(list(kinds))])

    def _enqueued(self, query: str, values: Sequence[Any]) -> Iterator[Task]:
        with self._reading() as connection:
            yield from (task for task in map(self._as_running, _tasks_of(connection, query, values)) if task.status == ENQUEUED)

    def enqueued_kinds(self) -> set[str]:
        """Return the kinds of the enqueued tasks that are not running."""
        running = {uid: task.kind for batch in self.running() for uid, task in batch.tasks.items()}
        counts: dict[str, int] = {}
        for kind in running.values():
            counts[kind] = counts.get(kind, 0) + 1
        with self._reading() as connection:
            rows = connection.execute(f"SELECT kind, count(*) FROM tasks WHERE status = '{ENQUEUED}' GROUP BY kind").fetchall()
        return {kind for kind, count in rows if count > counts.get(kind, 0)}

    def enqueued_indexes(self) -> list[str]:
        """Return the index_uids of enqueued tasks."""
        with self._reading() as connection:
            return [row[0] for row in connection.execute(
                f"SELECT DISTINCT index_uid FROM tasks WHERE status = '{ENQUEUED}' AND index_uid IS NOT NULL")]

    def count_at_most(self, limit: int) -> int:
        """Return an upper bound of the number of stored tasks: the exact number if the uids span at least `limit`."""
        with self._reading() as connection:
            # Two queries: SQLite reads a whole index for one that asks for both.
            lowest, highest = connection.execute("SELECT (SELECT min(uid) FROM tasks), (SELECT max(uid) FROM tasks)").fetchone()
            span = 0 if highest is None else highest - lowest + 1
            return span if span < limit else self._count(connection, "tasks", ("1", []))

    def count_enqueued(self) -> int:
        """Return the number of enqueued and running tasks."""
        with self._reading() as connection:
            return self._count(connection, "tasks", (f"status = '{ENQUEUED}'", []))

    def counts(self) -> dict[str, dict[str, int]]:
        """Return `statuses`, `types`, `indexes` -> value -> number of tasks, above 0; a swap counts for each of its indexes."""
        counts: dict[str, dict[str, int]] = {"statuses": {}, "types": {}, "indexes": {}}
        running = json.dumps(list(self._running_tasks()))
        with self._reading() as connection:
            for status, kind, index_uid, count in connection.execute(_COUNTS, [running]):
                for name, value in (("statuses", status), ("types", kind), ("indexes", index_uid)):
                    if value is not None:
                        counts[name][value] = counts[name].get(value, 0) + count
        return counts

    def oldest_enqueued_at(self) -> int | None:
        """Return when the oldest unfinished task was enqueued, or None."""
        with self._reading() as connection:
            row = connection.execute("SELECT enqueued_at FROM tasks WHERE uid = "
                                     f"(SELECT min(uid) FROM tasks WHERE status = '{ENQUEUED}')").fetchone()
        return row[0] if row else None

    def bytes_left(self) -> int:
        """Return the bytes by which the queue may still grow, until its limit or the end of the disk."""
        disk = os.statvfs(self._path)
        return max(0, min(MAX_BYTES - self.bytes()[1], disk.f_bavail * disk.f_frsize))

    def bytes(self) -> tuple[int, int]:
        """Return the size of the database in bytes, and the bytes in use (without free pages)."""
        with self._reading() as connection:
            return _bytes_of(connection)

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """Let all reads of this thread see one state of the file until the block ends, in one read transaction."""
        with self._readers.transaction(self._path) as self._shared.connection:
            try:
                yield
            finally:
                self._shared.connection = None

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        shared = self._shared.connection
        return self._readers.transaction(self._path) if shared is None else nullcontext(shared)

    def _count(self, connection: sqlite3.Connection, table: str, condition: task_records.Condition) -> int:
        count: int = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition[0]}", condition[1]).fetchone()[0]
        return count

    def _tasks(self, connection: sqlite3.Connection, condition: str, values: Sequence[Any],
               columns: str = _COLUMNS_WITHOUT_CONTENT) -> Iterator[Task]:
        yield from map(self._as_running, _tasks(connection, condition, values, columns))

    # Running batches: in memory

    def start(self, tasks: Sequence[Task], strategy: str, describe: Callable[[RunningBatch], None] = lambda running: None,
              begun: tuple[int, int] | None = None) -> RunningBatch:
        """Start a batch of enqueued tasks, which are shown as processing from now on.

        describe: fills in details and stats first. begun: uid and start of a batch that the replicated log has begun.
        """
        with self._lock:
            uid, started_at = begun or (self._next_batch, self.next_moment())
            batch = Batch(uid, started_at, strategy, earliest_enqueued_at=min(task.enqueued_at for task in tasks),
                          latest_enqueued_at=max(task.enqueued_at for task in tasks))
            self._next_batch = uid + 1
            running = RunningBatch(batch, {task.uid: replace(
                task, status=PROCESSING, batch_uid=batch.uid, started_at=batch.started_at) for task in tasks})
            describe(running)
            self._running[batch.uid] = running
            for uid in self._requeued.keys() & running.tasks.keys():
                del self._requeued[uid]
        self.listeners.notify()
        return running

    def requeue(self, running: RunningBatch, uids: Iterable[int] | None = None) -> None:
        """Make tasks of a batch (all by default) enqueued again. A batch without tasks is removed."""
        with self._lock:
            moment = self.next_moment()
            for uid in list(running.tasks if uids is None else uids):
                if running.tasks.pop(uid, None):
                    self._requeued[uid] = moment
            if not running.tasks:
                self._running.pop(running.batch.uid, None)
        self.listeners.notify()

    def running(self) -> list[RunningBatch]:
        """Return the running batches."""
        return list(self._running.values())

    def _running_tasks(self) -> dict[int, int]:
        return {uid: running.batch.started_at for running in self.running() for uid in running.tasks}

    def _matching_batches(self, wanted: TaskFilter) -> list[RunningBatch]:
        condition, values = task_records.task_condition(wanted._replace(batch_uids=None), self._running_tasks(), dates=False)
        with self._reading() as connection:
            matching = {row[0] for row in connection.execute(
                f"SELECT uid FROM tasks WHERE status = '{ENQUEUED}' AND {condition}", values)}
        return [running for running in self.running() if matching & set(running.tasks)
                and (wanted.batch_uids is None or running.batch.uid in wanted.batch_uids)
                and _batch_dates_match(running.batch, wanted)]

    def _as_running(self, task: Task) -> Task:
        if task.status != ENQUEUED:
            return task
        for running in self.running():
            if task.uid in running.tasks:
                return running.tasks[task.uid]
        return task

    # Changes, for streams

    def changes_of_tasks(self, since: Position, most: int) -> list[tuple[Position, Task]]:
        """Return the first `most` changes of tasks after a position, in order, each with the present task."""
        until, running, requeued = self._stable_view(since)
        found = {Position(batch.batch.started_at, TO_PROCESSING, task.uid): task for batch in running
                 for task in list(batch.tasks.values())}
        found = {change: task for change, task in found.items() if since < change}
        again = [Position(moment, TO_ENQUEUED, uid) for uid, moment in requeued.items()]
        with self._reading() as connection:
            stored = task_changes.of_tasks(connection, since, until, most)
            order = sorted({*stored, *found, *(change for change in again if since < change)})[:most]
            tasks = {task.uid: task for task in self._tasks(
                connection, "uid IN (SELECT value FROM json_each(?))", [task_changes.uids_of(order)])}
        return [(change, found.get(change) or tasks[change.uid]) for change in order if change in found or change.uid in tasks]

    def changes_of_batches(self, since: Position, most: int) -> list[tuple[Position, Batch]]:
        """Return the first `most` changes of batches after a position, in order, each with the present batch."""
        until, running, _ = self._stable_view(since)
        found = {Position(one.batch.started_at, TO_PROCESSING, one.batch.uid): one.batch for one in running}
        found = {change: batch for change, batch in found.items() if since < change}
        with self._reading() as connection:
            order = sorted({*found, *task_changes.of_batches(connection, since, until)})[:most]
            batches = {batch.uid: batch for batch in _batches(
                connection, "uid IN (SELECT value FROM json_each(?))", [task_changes.uids_of(order)])}
        return [(change, batches.get(change.uid) or found[change]) for change in order
                if change in found or change.uid in batches]

    def current_position(self) -> Position:
        """Return the position after all changes so far."""
        with self._lock:
            return Position(self.next_moment())

    def _stable_view(self, since: Position) -> tuple[int, list[RunningBatch], dict[int, int]]:
        """Return a moment, and the unstored changes up to it: running batches since `since`, and requeued tasks.

        Every later change, stored or not, has a later moment.
        """
        with self._lock:
            running = [one for one in self._running.values() if one.batch.started_at >= since.moment]
            return self.next_moment(), running, dict(self._requeued)

    # Finish and delete

    @contextmanager
    def finishing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction in which tasks end, together with their changes of instance.sqlite."""
        self._reserve.make_way()
        with self._lock:
            self._ended = []
            try:
                with write_transaction(self._writer) as connection:
                    yield connection
            except sqlite3.OperationalError as error:
                if lacks_room(error):  # so that the caller may try again
                    self._free_space()
                raise
            ended = self._ended
            for uid in ended if self._requeued else ():
                self._requeued.pop(uid, None)
        self.listeners.notify(ended)

    def finish(self, connection: sqlite3.Connection, running: RunningBatch, finished: Sequence[Task]) -> None:
        """Inside finishing(): store a batch and the end of its tasks. Call forget() after the commit."""
        insert_batches(connection, [running.batch])
        self.store(connection, finished)

    def store(self, connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
        """Inside finishing(): update the rows of tasks that end. A finished task is never changed."""
        tasks = list(tasks)
        self._ended += [task.uid for task in tasks]
        connection.executemany(
            "UPDATE tasks SET index_uid = ?, status = ?, batch_uid = ?, canceled_by = ?, details = ?, error = ?, "
            "started_at = ?, finished_at = ?, payload = NULL WHERE uid = ? AND status = 'enqueued'",
            [(task.index_uid, task.status, task.batch_uid, task.canceled_by, _text(task.details), _text(task.error),
              task.started_at, task.finished_at, task.uid) for task in tasks])

    def forget(self, running: RunningBatch) -> None:
        """After the commit of finish(): remove the batch from the running ones."""
        with self._lock:
            self._running.pop(running.batch.uid, None)

    def delete(self, connection: sqlite3.Connection, uids: Sequence[int]) -> int:
        """Inside finishing(): delete finished tasks, and batches without tasks. Return the number of deleted tasks."""
        listed = json.dumps(list(uids))
        among = "uid IN (SELECT value FROM json_each(?)) AND status <> 'enqueued'"
        batches = [row[0] for row in connection.execute(f"SELECT DISTINCT batch_uid FROM tasks WHERE {among}", (listed,))]
        gone = connection.execute(f"DELETE FROM tasks WHERE {among}", (listed,)).rowcount
        connection.execute(
            "DELETE FROM batches WHERE uid IN (SELECT value FROM json_each(?)) "
            "AND NOT EXISTS (SELECT 1 FROM tasks WHERE batch_uid = batches.uid)", (json.dumps(batches),))
        return gone

    def rename_indexes(self, connection: sqlite3.Connection, names: dict[str, str], before_uid: int) -> None:
        """Inside finishing(): give finished tasks that are older than a swap the new names of their indexes.

        names: old uid -> new uid. This rewrites index, content and details of the tasks, and details and stats of their batches;
        the texts of errors and strategies do not change. See docs/tasks-and-batches.md#swaps.
        """
        rows = connection.execute(
            "SELECT uid, batch_uid, index_uid FROM tasks WHERE uid < ? AND status <> 'enqueued' AND index_uid IN "
            "(SELECT value FROM json_each(?))", (before_uid, json.dumps(list(names)))).fetchall()
        connection.executemany("UPDATE tasks SET index_uid = ? WHERE uid = ?",
                               [(names[index_uid], uid) for uid, _, index_uid in rows])
        swaps = connection.execute("SELECT uid, batch_uid, details, content FROM tasks WHERE uid < ? AND kind = 'indexSwap' "
                                   "AND status <> 'enqueued'", (before_uid,)).fetchall()
        connection.executemany("UPDATE tasks SET details = ?, content = ? WHERE uid = ?", [
            (_renamed_swaps(details, names), _renamed_swaps(content, names), uid) for uid, _, details, content in swaps])
        batches = connection.execute("SELECT uid, details, stats FROM batches WHERE uid IN (SELECT value FROM json_each(?))",
                                     (json.dumps(list({row[1] for row in (*rows, *swaps)})),)).fetchall()
        connection.executemany("UPDATE batches SET details = ?, stats = ? WHERE uid = ?", [
            (_renamed_swaps(details, names), _renamed_stats(stats, names), uid) for uid, details, stats in batches])

    def remove_payload(self, name: str | None) -> None:
        """Delete the payload of a finished task; if this fails, the next start tries again."""
        if name:
            _remove_quietly(self.payload_folder / name)

    def remove_orphaned_payloads(self) -> None:
        """Delete payloads that no enqueued task names: from unacknowledged uploads, or of finished tasks."""
        with self._reading() as connection:
            wanted = {row[0] for row in connection.execute(
                f"SELECT payload FROM tasks WHERE status = '{ENQUEUED}' AND payload IS NOT NULL")}
        for path in self.payload_folder.iterdir():
            if path.name not in wanted:
                _remove_quietly(path)

    def compact(self) -> tuple[int, int]:
        """Return free pages to the disk. Return the bytes before and after."""
        before = self.bytes()[0]
        with self._lock:
            self._writer.execute("VACUUM")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before, self.bytes()[0]


def _bytes_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the size of a database in bytes, and the bytes in use (without free pages)."""
    size, pages, free = (connection.execute(f"PRAGMA {name}").fetchone()[0]
                         for name in ("page_size", "page_count", "freelist_count"))
    return size * pages, size * (pages - free)


def _remove_quietly(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logs.warn("a payload could not be deleted", file=path.name, reason=error.strerror)


def insert_tasks(connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Insert tasks with their uids; payloads of enqueued tasks must already be in the payload folder."""
    connection.executemany(
        "INSERT INTO tasks(uid, batch_uid, index_uid, status, kind, canceled_by, details, error, content, payload, "
        "payload_bytes, custom_metadata, enqueued_at, started_at, finished_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((task.uid, task.batch_uid, task.index_uid, task.status, task.kind, task.canceled_by, _text(task.details),
          _text(task.error), _text(task.content), task.payload, task.payload_bytes, task.custom_metadata,
          task.enqueued_at, task.started_at, task.finished_at) for task in tasks))


def insert_batches(connection: sqlite3.Connection, batches: Iterable[Batch]) -> None:
    """Insert finished batches with their uids."""
    connection.executemany(
        f"INSERT INTO batches({_BATCH_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ((batch.uid, batch.started_at, batch.strategy, _text(batch.details), _text(batch.stats), batch.finished_at,
          batch.earliest_enqueued_at, batch.latest_enqueued_at) for batch in batches))


def stored_tasks(connection: sqlite3.Connection) -> Iterator[Task]:
    """Yield all tasks of an instance.sqlite with content, oldest first; running tasks are stored as enqueued."""
    return _tasks(connection, "1 ORDER BY uid", (), _ALL_COLUMNS)


def stored_batches(connection: sqlite3.Connection) -> Iterator[Batch]:
    """Yield all finished batches of an instance.sqlite, oldest first."""
    return _batches(connection, "1 ORDER BY uid", ())


def _tasks(connection: sqlite3.Connection, condition: str, values: Sequence[Any], columns: str) -> Iterator[Task]:
    yield from _tasks_of(connection, f"SELECT {columns} FROM tasks WHERE {condition}", values)


def _tasks_of(connection: sqlite3.Connection, query: str, values: Sequence[Any]) -> Iterator[Task]:
    for row in connection.execute(query, values):
        yield Task(*(json.loads(value) if place in _JSON_COLUMNS and value else value for place, value in enumerate(row)))


def _is_visible(running: RunningBatch, is_allowed: IsAllowed | None) -> bool:
    if is_allowed is None:
        return True
    return any(task.index_uid is not None and is_allowed(task.index_uid) for task in list(running.tasks.values()))


def _joined(left: task_records.Condition, right: task_records.Condition) -> task_records.Condition:
    return f"{left[0]} AND {right[0]}", [*left[1], *right[1]]


def _text(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _paged(condition: task_records.Condition, limit: int, from_uid: int | None, reverse: bool) -> task_records.Condition:
    sql, values = condition
    if from_uid is not None:
        sql, values = f"{sql} AND uid {'>=' if reverse else '<='} ?", [*values, min(from_uid, (1 << 63) - 1)]
    # One row more than the page: the first of the next page.
    return f"{sql} ORDER BY uid {'ASC' if reverse else 'DESC'} LIMIT ?", [*values, min(limit, 1 << 62) + 1]


def _page(rows: list[T], total: int, limit: int) -> Page[T]:
    uids: list[int] = [row.uid for row in rows]
    return Page(rows[:limit], total, uids[0] if uids and limit else None, uids[limit] if len(rows) > limit else None)


def _batches(connection: sqlite3.Connection, condition: str, values: Sequence[Any]) -> Iterator[Batch]:
    for uid, started_at, strategy, details, stats, finished_at, earliest, latest in connection.execute(
            f"SELECT {_BATCH_COLUMNS} FROM batches WHERE {condition}", values):
        yield Batch(uid, started_at, strategy, json.loads(details), json.loads(stats), finished_at,
                    earliest_enqueued_at=earliest, latest_enqueued_at=latest)


def _batch_dates_match(batch: Batch, wanted: TaskFilter) -> bool:
    """Return whether a running batch, which has no end yet, meets the date conditions of a filter."""
    if wanted.before_finished_at is not None or wanted.after_finished_at is not None:
        return False
    earliest, latest = batch.earliest_enqueued_at or 0, batch.latest_enqueued_at or 0
    below = ((earliest, wanted.before_enqueued_at), (batch.started_at, wanted.before_started_at))
    above = ((latest, wanted.after_enqueued_at), (batch.started_at, wanted.after_started_at))
    return (all(bound is None or moment < bound for moment, bound in below)
            and all(bound is None or moment > bound for moment, bound in above))


def _renamed_swaps(written: str, names: dict[str, str]) -> str:
    """Replace names in the JSON of a swap's details or content, or of its batch's details: all have the same shape."""
    value = json.loads(written)
    for swap in value.get("swaps", ()):
        swap["indexes"] = [names.get(index_uid, index_uid) for index_uid in swap["indexes"]]
    return json.dumps(value, ensure_ascii=False)


def _renamed_stats(written: str, names: dict[str, str]) -> str:
    """Replace names in the JSON of the stats of a batch."""
    value = json.loads(written)
    if counts := value.get("indexUids"):
        value["indexUids"] = {names.get(index_uid, index_uid): count for index_uid, count in counts.items()}
    return json.dumps(value, ensure_ascii=False)


# A view of the queue at one moment, for lists that are sent in portions while tasks run. One read transaction fixes the state of
# the file, and the running batches are copied.


@contextmanager
def queue_snapshot(queue: Queue) -> Iterator[Queue]:
    """Give the present state of the queue, read-only, until the block ends."""
    # Copied before the transaction begins, as for every list: a batch that ends in between is then in the file.
    running = [RunningBatch(replace(one.batch), dict(one.tasks)) for one in queue.running()]
    with queue._reading() as connection:
        yield _QueueSnapshot(connection, running)


class _QueueSnapshot(Queue):
    """The lists of Queue over one read transaction."""

    def __init__(self, connection: sqlite3.Connection, running: Sequence[RunningBatch]) -> None:
        # The constructor of the base is not called: it would need the writer.
        self._connection = connection
        self._running_batches = list(running)
        self._counts: dict[tuple[str, str], int] = {}

    def running(self) -> list[RunningBatch]:
        return self._running_batches

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        yield self._connection

    def _count(self, connection: sqlite3.Connection, table: str, condition: task_records.Condition) -> int:
        """Count once: every portion of a list needs the same total."""
        key = table, repr(condition)
        if key not in self._counts:
            self._counts[key] = super()._count(connection, table, condition)
        return self._counts[key]
