"""The daemon's side of dumps and snapshots: names of files, requests to the writing process, scheduled snapshots.

A file is written under a hidden name and renamed when it is complete and synced, so a file under its final name is never
incomplete. What a killed daemon left under the hidden name is overwritten by the next. See docs/dumps.md#container.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from svcd.base import quantities
from svcd.base.errors import ApiError
from svcd.index.connections import sync_folder
from svcd.instance.instance import Instance
from svcd.instance.queue import Queue, RunningBatch


@dataclass(frozen=True)
class Folders:
    """The folders of dumps and snapshots."""

    dumps: Path = Path("dumps")
    snapshots: Path = Path("snapshots")


@dataclass(frozen=True)
class Archive:
    """A file to be written. request: to the indexing process; details: what the task shows on success."""

    path: Path
    partial: Path
    copy: Path
    request: Mapping[str, Any]
    details: Mapping[str, Any]

    def publish(self) -> None:
        """Rename the complete file to its final name, durably; replaces an older one. Raises OSError."""
        self.partial.replace(self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Delete temporary files, if any."""
        for path in (self.partial, self.copy):
            try:
                path.unlink(missing_ok=True)
            except OSError:  # the folder is unusable, which is the error of the task
                pass


def planned_archive(running: RunningBatch, instance: Instance, folders: Folders) -> Archive:
    """The file that a batch of dump or snapshot tasks writes."""
    kind = next(iter(running.tasks.values())).kind
    return _dump_of(running, instance, folders.dumps) if kind == "dumpCreation" else \
        _snapshot_of(running, instance, folders.snapshots)


def dump_uid(moment: int) -> str:
    """`20261120-073750843`: UTC, to the millisecond."""
    digits = "".join(filter(str.isdigit, quantities.rfc3339(moment)))
    return f"{digits[:8]}-{digits[8:14]}{moment // 1_000_000 % 1000:03d}"


def _dump_of(running: RunningBatch, instance: Instance, folder: Path) -> Archive:
    (task,) = running.tasks.values()
    uid = dump_uid(running.batch.started_at)
    batch = replace(running.batch, details={"taskUid": task.uid, "dumpUid": uid}, stats={}, progress=None)
    webhooks = {row.uuid: {"url": row.url, "headers": dict(row.headers)}
                for row in instance.webhooks.all() if row.is_editable}
    return _archive("dump", f"{uid}.dump", instance, folder, {"dumpUid": uid}, {
        "batch": asdict(batch), "keys": task.content["keys"], "instanceUid": task.content["instanceUid"],
        "features": instance.features(), "webhooks": webhooks})


def _snapshot_of(running: RunningBatch, instance: Instance, folder: Path) -> Archive:
    return _archive("snapshot", f"{instance.path.absolute().name}.snapshot", instance, folder, {}, {
        "taskUids": list(running.tasks), "instanceUid": instance.uid})


def _archive(kind: str, name: str, instance: Instance, folder: Path, details: Mapping[str, Any],
             request: Mapping[str, Any]) -> Archive:
    # Instances may share a folder, so temporary names contain the instance uid.
    partial, copy = (folder / f".{instance.uid}.{kind}.{suffix}" for suffix in ("part", "copy"))
    return Archive(folder / name, partial, copy, details=details, request={
        "do": "archive", "archive": kind, "folder": str(instance.path), "partial": str(partial), "copy": str(copy), **request})


# Scheduled snapshots, in the thread "svcd-snapshots" from start() to stop(). The first is enqueued after the first interval
# since the start, so an instance that is restarted more often gets none.

class SnapshotSchedule:
    """Enqueues a snapshot every `every_s` seconds. on_refusal: called with the reason when that is not possible."""

    def __init__(self, queue: Queue, every_s: float, on_refusal: Callable[[str], None] = print) -> None:
        self._queue = queue
        self._every_s = every_s
        self._on_refusal = on_refusal
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
                self._queue.enqueue("snapshotCreation", None, details=None)
            except (ApiError, sqlite3.OperationalError) as refusal:  # queue or disk is full, perhaps only for now
                self._on_refusal(f"no snapshot could be enqueued: {refusal}")
