"""Applies the entries of the log to a data folder, in order; all nodes apply them alike, so all reach the same state.

Kinds of entries:

    task        task: members of a Task (svcd.instance.task_records); payload: from put_payload(), or null
    rows        changes: rows before and after (svcd.instance.rows)
    term        term, node: a node has taken the lease
    begin       term, tasks (ranges of uids), shape, strategy: the leader has decided which batch runs next
    end         term, batch, and the outcome passed to svcd.cluster.node.Node.committed_end(): the leader has run the batch
    delivered   webhook, batch: a webhook has received a notice

All nodes ignore `begin` and `end` of a leader that was replaced, because they come after the `term` of its successor.
Applying depends on neither clock nor chance; moments come from the entries, moved forward so that they only grow.
"""
from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from svcd.cluster.entries import Entry, read_payload
from svcd.cluster.log import Log
from svcd.index.connections import sync_folder
from svcd.instance import applied_log, rows
from svcd.instance.applied_log import BegunBatch, Position
from svcd.instance.instance import Instance
from svcd.instance.rows import RowChange
from svcd.instance.task_records import Task

_TASK_MEMBERS = ("kind", "index_uid", "details", "content", "payload_bytes", "custom_metadata")
_FEW_FILES = 8  # up to this many files are synced one by one
Effect = Callable[[], None]  # runs after the commit of an entry


def task_entry(draft: Task, payload: dict[str, Any] | None) -> dict[str, Any]:
    """Return the members of the entry of a new task."""
    members = asdict(draft)
    return {"kind": "task", "task": {name: members[name] for name in _TASK_MEMBERS}, "payload": payload}


def rows_entry(changes: Sequence[RowChange]) -> dict[str, Any]:
    """Return the members of the entry of changed rows."""
    return {"kind": "rows", "changes": [change._asdict() for change in changes]}


class Applier:
    """Applies entries; one thread at a time.

    Called after the commit: on_begun with each batch that has begun; on_end with the uid and the end of each batch that the
    leader has run; on_term with the entry of each new leader; on_result with each entry and its result.
    """

    def __init__(self, instance: Instance, log: Log, position: Position) -> None:
        self.position = position
        self._next = position  # after the entries that are being applied
        self.on_result: Callable[[Entry, Any], None] = lambda entry, result: None
        self.on_begun: Callable[[BegunBatch], None] = lambda batch: None
        self.on_end: Callable[[int, Entry], None] = lambda uid, end: None
        self.on_term: Callable[[Entry], None] = lambda entry: None
        self._instance, self._log = instance, log
        self._lock = threading.Lock()  # guards the replacing of _begun
        self._begun: set[int] = set()  # tasks of batches that have begun and not ended on this node; replaced, never changed
        self._kinds: Mapping[str, Callable[[sqlite3.Connection, Entry], tuple[Any, list[Effect]]]] = {
            "task": self._task, "rows": self._rows, "term": self._term, "begin": self._begin, "end": self._end,
            "delivered": self._delivered}

    def remember(self, uids: Iterable[int]) -> None:
        """Add tasks of a batch that has begun."""
        with self._lock:
            self._begun = self._begun.union(uids)

    def forget(self, uids: Iterable[int]) -> None:
        """Remove tasks that have ended on this node. Any thread may call."""
        with self._lock:
            self._begun = self._begun.difference(uids)

    def apply(self, entries: Sequence[tuple[int, Entry]]) -> None:
        """Apply entries with their numbers, and call on_result for each. Applies none if it raises sqlite3.Error, Unavailable."""
        payloads = [entry["payload"] for _, entry in entries if entry.get("payload")]
        # The node that received a payload has its file already.
        missing = [each for each in payloads if not (self._instance.queue.payload_folder / each["name"]).exists()]
        for payload in missing:
            self.fetch(payload, is_synced=len(missing) <= _FEW_FILES)
        if len(missing) > _FEW_FILES:  # this node catches up: many small files
            os.sync()
        elif missing:
            sync_folder(self._instance.queue.payload_folder)
        effects: list[Effect] = []
        results = []
        self._next, added = self.position, self._begun
        try:
            with self._instance.queue.finishing() as connection:
                for number, entry in entries:
                    moment = max(entry.get("at", 0), self._next.moment + 1)
                    self._next = self._next._replace(applied=number, moment=moment)
                    result, more = self._kinds[entry["kind"]](connection, entry)
                    results.append(result)
                    effects += more
                applied_log.set_position(connection, self._next)
        except BaseException:
            self.forget(self._begun - added)
            raise
        for effect in effects:
            effect()
        for (_, entry), result in zip(entries, results, strict=True):
            self.on_result(entry, result)
        self.position = self._next  # last, so that other threads see only finished entries

    def fetch(self, payload: dict[str, Any], is_synced: bool = True) -> None:
        """Write the file of a payload unless it exists. Raises Unavailable, MissingPiece, Damaged."""
        path = self._instance.queue.payload_folder / payload["name"]
        if path.exists():
            return
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("wb") as file:
            for piece in read_payload(self._log, payload):
                file.write(piece)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        partial.replace(path)

    def _task(self, connection: sqlite3.Connection, entry: Entry) -> tuple[Task, list[Effect]]:
        payload = entry["payload"]["name"] if entry["payload"] else None
        draft = Task(-1, status="enqueued", enqueued_at=0, payload=payload, **entry["task"])
        task = self._instance.queue.insert(draft, self._next.moment)
        return task, [lambda: self._instance.queue.on_enqueued(task)]

    def _rows(self, connection: sqlite3.Connection, entry: Entry) -> tuple[bool, list[Effect]]:
        changes = [RowChange(**change) for change in entry["changes"]]
        if not rows.apply(connection, changes):
            return False, []

        def follow() -> None:
            for change in changes:
                self._instance.row_changed(change.table, change.key)
        return True, [follow]

    def _term(self, connection: sqlite3.Connection, entry: Entry) -> tuple[bool, list[Effect]]:
        if entry["term"] <= self._next.term:
            return False, []
        self._next = self._next._replace(term=entry["term"])
        return True, [lambda: self.on_term(entry)]

    def _begin(self, connection: sqlite3.Connection, entry: Entry) -> tuple[bool, list[Effect]]:
        uids = applied_log.numbers(entry["tasks"])
        if entry["term"] != self._next.term or not self._begun.isdisjoint(uids):
            return False, []
        (enqueued,) = connection.execute("SELECT count(*) FROM tasks WHERE status = 'enqueued' AND uid IN "
                                         "(SELECT value FROM json_each(?))", (json.dumps(uids),)).fetchone()
        if enqueued != len(uids):
            return False, []
        batch = BegunBatch(applied_log.next_batch(connection), uids, entry["shape"], entry["strategy"], self._next.moment)
        applied_log.add_begun(connection, batch)
        self.remember(uids)
        return True, [lambda: self.on_begun(batch)]

    def _end(self, connection: sqlite3.Connection, entry: Entry) -> tuple[bool, list[Effect]]:
        if entry["term"] != self._next.term:
            return False, []
        end = {**entry, "at": self._next.moment}
        if not applied_log.set_end(connection, entry["batch"], end):
            return False, []
        return True, [lambda: self.on_end(entry["batch"], end)]

    def _delivered(self, connection: sqlite3.Connection, entry: Entry) -> tuple[bool, list[Effect]]:
        self._instance.outbox.remove_delivered(connection, entry["webhook"], entry["batch"])
        return True, []
