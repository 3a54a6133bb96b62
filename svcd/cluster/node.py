"""A node of a cluster: sends accepted writes through the log, applies the log, and decides which batch runs next if it leads.

Threads: "svcd-log" applies the entries of other nodes; a thread that has written an entry applies up to it itself, so its caller
does not wait for a poll. "svcd-members" belongs to svcd.cluster.members. `_applying` lets one thread apply at a time; `_changed`
guards `_ends`, `_leader` and `_stopping`, and is notified when one of them or the position changes.

The runner (svcd.tasks.runner) calls is_leading(), begin() and committed_end(); on_begun tells it which batches have begun. See
docs/cluster.md.
"""
from __future__ import annotations

import shutil
import sqlite3
import threading
import time
import uuid as uuids
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from svcd.base import logs, quantities
from svcd.base.errors import ApiError
from svcd.cluster import entries
from svcd.cluster.applier import Applier, rows_entry, task_entry
from svcd.cluster.entries import Damaged, Entry
from svcd.cluster.log import Log, MissingPiece, Trimmed, Unavailable
from svcd.instance import applied_log
from svcd.instance.applied_log import BegunBatch, ClusterStopped, Position
from svcd.instance.instance import Instance
from svcd.instance.rows import RowChange
from svcd.instance.task_records import Task

# Maximum number of entries read at once, and applied in one transaction.
MOST_ENTRIES = 250
# Seconds for which a read waits for entries, and pause of a thread that waits until its own entry is applied.
WAIT_S, LOOK_S = 1.0, 0.002
# Pause after a failed read of the log.
RETRY_S = 0.25
RETRY_AFTER_S = 1
# Seconds for which a node that could not finish a batch leaves leading to other nodes.
UNFIT_S = 15.0


class Node:
    """A node of a cluster. name: of this node; timeout_s: time limit of a write."""

    def __init__(self, instance: Instance, log: Log, position: Position, *, name: str, timeout_s: float = 5.0) -> None:
        self.name, self.log = name, log
        self.on_begun: Callable[[BegunBatch], None] = lambda batch: None  # called with each batch that has begun, in order
        self.on_leadership: list[Callable[[], None]] = []  # called when this node begins or stops to lead
        self.on_lost: Callable[[str], None] = lambda reason: None  # called when the log lacks entries that this node needs
        self._instance, self._timeout_s = instance, timeout_s
        self._ends: dict[int, Entry] = {}
        self._applier = Applier(instance, log, position)
        self._applier.on_begun = lambda batch: self.on_begun(batch)  # noqa: PLW0108 (it is set later)
        self._applier.on_end = self._ends.__setitem__
        self._applier.on_term = self._note_term
        self._applier.on_result = self._note_result
        self._applying = threading.Lock()
        self._changed = threading.Condition()
        self._awaited: dict[str, list[Any]] = {}  # identity of an entry of this node -> its result, once applied
        self._begun_before: list[BegunBatch] = []
        self._leader: str | None = None
        self._leads_until = 0.0
        self._own_term = -1
        self.is_verified = False  # the log belongs to this data folder
        self._stopping = False
        self._fault: str | None = None
        self._failed_at, self._failure = float("-inf"), ""
        self._thread = threading.Thread(target=self._follow, name="svcd-log")

    @property
    def position(self) -> Position:
        """How far this node has applied the log."""
        return self._applier.position

    @property
    def fault(self) -> str | None:
        """Why this node does not follow the log at the moment; None if it does."""
        return self._fault or (None if self.is_fit() else self._failure)

    # Start and stop

    def open(self) -> None:
        """Take over the writes of the instance. begun_before() returns the batches that had begun before the start."""
        with self._instance.read_instance() as connection:
            self._begun_before = applied_log.begun_batches(connection)
        for batch in self._begun_before:
            self._applier.remember(batch.tasks)
        self._ends.update((batch.uid, batch.end) for batch in self._begun_before if batch.end)
        self._instance.queue.replicate = self._enqueue
        self._instance.rows.replicate = self._change_rows
        self._instance.outbox.replicate = self._note_delivery

    def begun_before(self) -> Sequence[BegunBatch]:
        """Return the batches that had begun before the start."""
        return self._begun_before

    def start(self) -> None:
        """Start following the log."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following the log; waits until the current entries are applied."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    # Accepted writes

    def _enqueue(self, draft: Task) -> Task:
        path = None if draft.payload is None else self._instance.queue.payload_folder / draft.payload
        try:
            payload = None if path is None else entries.put_payload(self.log, path)
            task: Task = self._submit(task_entry(draft, payload))
            return task
        except Unavailable as failure:
            if path is not None:
                with self._applying:  # if the entry was written after all, applying it takes the pieces in the log
                    path.unlink(missing_ok=True)
            raise _unavailable(failure) from None

    def _change_rows(self, changes: Sequence[RowChange]) -> bool:
        try:
            return bool(self._submit(rows_entry(changes)))
        except Unavailable as failure:
            raise _unavailable(failure) from None

    def _note_delivery(self, webhook: str, batch_uid: int) -> None:
        while not self._stopping:
            try:
                self._submit({"kind": "delivered", "webhook": webhook, "batch": batch_uid})
                return
            except Unavailable:  # if this node dies before it is noted, its successor delivers the notice again
                self._pause()

    def _submit(self, entry: Entry) -> Any:
        """Append an entry, apply the log up to it, and return its result. Raises Unavailable."""
        if not self.is_verified:
            raise Unavailable("this node does not know at the moment whether the log is its own")
        identity = uuids.uuid4().hex
        until = time.monotonic() + self._timeout_s
        result = self._awaited[identity] = []
        entry = {**entry, "at": quantities.now()}
        number = 0
        try:
            while not number:
                try:
                    body = entries.encode(self.log, identity, entry)
                    number = self.log.append(identity, body)
                except Unavailable:
                    if self._stopping or time.monotonic() + RETRY_S > until:
                        raise
                    time.sleep(RETRY_S)
            self._apply_up_to(number, body, until)
        finally:
            self._awaited.pop(identity, None)
        return result[0]

    def _apply_up_to(self, number: int, body: bytes, until: float) -> None:
        """Apply the log up to an entry of this node, without reading it again if no other entry came before it."""
        while self.position.applied < number:
            if self._applying.acquire(timeout=max(0.0, until - time.monotonic())):
                try:
                    if self.position.applied == number - 1:
                        self._apply([(number, body)])
                    elif self.position.applied < number:
                        self._apply(self.log.read(self.position.applied, MOST_ENTRIES, 0))
                except (sqlite3.Error, OSError, MissingPiece, Damaged, Trimmed) as error:
                    raise Unavailable(f"this node could not apply the log: {error}") from None
                finally:
                    self._applying.release()
            if self.position.applied < number:
                if time.monotonic() > until:
                    raise Unavailable("the log has taken it, but this node has not applied it yet")
                time.sleep(LOOK_S)

    # Applying the log

    def _follow(self) -> None:
        while not self._stopping:
            if not self.is_verified:
                self._pause()
                continue
            try:
                found = self.log.read(self.position.applied, MOST_ENTRIES, WAIT_S)
                if found:
                    with self._applying:
                        self._apply(found)
                self._set_fault(None)
            except Trimmed as trimmed:
                self.on_lost(f"{trimmed}, this node has applied {self.position.applied}")
                return
            except Exception as error:  # no quorum, a full disk, an entry of a newer svcd: tried again
                self._set_fault(f"{type(error).__name__}: {error}")
                self._pause()

    def _apply(self, found: Sequence[tuple[int, bytes]]) -> None:
        """Apply entries, except those already applied. The caller holds `_applying`."""
        fresh = [(number, entries.decode(self.log, body)) for number, body in found if number > self.position.applied]
        if not fresh:
            return
        self._applier.apply(fresh)
        self._instance.queue.listeners.notify()
        with self._changed:
            self._changed.notify_all()

    def _set_fault(self, fault: str | None) -> None:
        if fault != self._fault:
            self._fault = fault
            if fault is None:
                logs.info("the log of the cluster is followed again")
            else:
                logs.warn("the log of the cluster cannot be followed at the moment", reason=fault)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def wait_for(self, is_met: Callable[[], bool], within_s: float) -> bool:
        """Wait until a condition that depends on the log is met. Returns False if it is not met in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopping or is_met(), within_s) and is_met()

    def report_failure(self, reason: str) -> None:
        """Note that this node could not finish a batch, for example on a full disk: another node should lead for a while."""
        self._failed_at, self._failure = time.monotonic(), reason

    def is_fit(self) -> bool:
        """Return whether this node is able to lead."""
        return self._fault is None and time.monotonic() - self._failed_at > UNFIT_S

    # Leading

    @property
    def leader(self) -> str | None:
        """The name of the node that took the lease last, as far as this node has applied the log."""
        return self._leader

    def is_leading(self) -> bool:
        """Return whether this node holds the lease, and has applied all entries of its predecessors."""
        return self._own_term == self.position.term and time.monotonic() < self._leads_until

    def lead(self, term: int, until: float) -> None:
        """Begin to lead with a new term. until: monotonic time at which the lease ends. Raises Unavailable."""
        self._leads_until = until
        if self._submit({"kind": "term", "term": term, "node": self.name}):
            self._own_term = term
            logs.info("this node leads the cluster", node=self.name, term=term)
            self._tell_leadership()

    def renew(self, until: float) -> None:
        """Extend the lease. until: monotonic time; a past time stops leading."""
        led = self.is_leading()
        self._leads_until = until
        if led != self.is_leading():
            self._tell_leadership()

    def _tell_leadership(self) -> None:
        for tell in self.on_leadership:
            tell()

    def begin(self, tasks: Iterable[Task], shape: str, strategy: str) -> bool:
        """As the leader, have all nodes run a batch. Returns False if the log refused the entry, or this node no longer leads.

        If the log could not be written, it returns True after a pause while this node leads: the caller chooses a batch again.
        """
        try:
            return bool(self._submit({"kind": "begin", "term": self._own_term, "shape": shape, "strategy": strategy,
                                      "tasks": applied_log.ranges(task.uid for task in tasks)}))
        except Unavailable as failure:
            logs.warn("a batch could not begin", reason=str(failure))
            self._pause()
            return self.is_leading()

    def committed_end(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> Entry:
        """Wait for the end of a batch in the log and return it; while this node leads, it writes the result of `outcome`.

        Raises ClusterStopped.
        """
        while True:
            end = self._ends.get(batch_uid)
            if end is not None:
                return end
            if self._stopping:
                raise ClusterStopped
            if not self.is_leading():
                self.wait_for(lambda: batch_uid in self._ends or self.is_leading(), WAIT_S)
                continue
            result = dict(outcome())  # may take long
            try:
                self._submit({**result, "kind": "end", "term": self._own_term, "batch": batch_uid})
            except Unavailable as failure:
                logs.warn("the end of a batch could not be written", batch=batch_uid, reason=str(failure))
                self._pause()

    def end_unless_leading(self, batch_uid: int) -> Entry | None:
        """Wait for the end of a batch in the log and return it; None as soon as this node leads. Raises ClusterStopped."""
        while not self._stopping:
            if (end := self._ends.get(batch_uid)) is not None or self.is_leading():
                return end
            self.wait_for(lambda: batch_uid in self._ends or self.is_leading(), WAIT_S)
        raise ClusterStopped

    def share_file(self, path: Path) -> dict[str, Any]:
        """Put a file into the log and the payloads of this node; return the member `payload` for an entry. Raises OSError."""
        shared = self._instance.queue.payload_folder / f"answers-{uuids.uuid4().hex}"
        shutil.copyfile(path, shared)
        try:
            return entries.put_payload(self.log, shared)
        except Unavailable as failure:
            raise OSError(f"the log could not be written: {failure}") from None

    def take_file(self, payload: dict[str, Any], path: Path) -> None:
        """Move the payload of an entry to `path`. Raises OSError."""
        try:
            self._applier.fetch(payload)
        except (Unavailable, MissingPiece, Damaged) as failure:
            raise OSError(f"the log could not be read: {failure}") from None
        (self._instance.queue.payload_folder / payload["name"]).replace(path)

    def ended(self, batch_uid: int, tasks: Iterable[int]) -> None:
        """Note that a batch has ended on this node, durably."""
        self._applier.forget(tasks)
        end = self._ends.pop(batch_uid, None)
        if end and end.get("payload"):  # responses of embedders, which this batch alone needed
            (self._instance.queue.payload_folder / end["payload"]["name"]).unlink(missing_ok=True)
        with self._changed:
            self._changed.notify_all()

    def _note_result(self, entry: Entry, result: Any) -> None:
        waiting = self._awaited.get(entry["identity"])
        if waiting is not None:
            waiting.append(result)

    def _note_term(self, entry: Entry) -> None:
        self._leader = entry["node"]


def _unavailable(failure: Unavailable) -> ApiError:
    return ApiError("cluster_unavailable", f"The write could not be stored by a majority of the cluster: {failure}. "
                                           "Nothing is known to be lost; try again in a moment.",
                    (("Retry-After", str(RETRY_AFTER_S)),))
