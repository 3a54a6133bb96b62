"""The daemon's side of dumps and snapshots: what is asked of the process that writes them, and their names.

A file is written under a name that begins with a dot and gets its own once it is whole and on disk, so that what
bears that name is never half of anything. What a killed daemon left under the first name the next file writes over.
Refuses to know what is in the files (svcd.tasks.archive). Source: dumps.md 1, 4 and 6.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from svcd.base import times
from svcd.base.errors import ApiError
from svcd.index.connections import sync_folder
from svcd.instance.instance import Instance
from svcd.instance.queue import Queue, RunningBatch


@dataclass(frozen=True)
class Folders:
    """Where archives go."""

    dumps: Path = Path("dumps")
    snapshots: Path = Path("snapshots")


@dataclass(frozen=True)
class Archive:
    """One file on its way. request: to the process that writes it; details: what the task shows when it is there."""

    path: Path
    partial: Path
    copy: Path
    request: Mapping[str, Any]
    details: Mapping[str, Any]

    def publish(self) -> None:
        """Give the written file its name, durably; an older one of this name goes. Raises OSError."""
        self.partial.replace(self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove what has no name of its own, if anything."""
        for path in (self.partial, self.copy):
            try:
                path.unlink(missing_ok=True)
            except OSError:  # the folder can't be used, which is what the task says
                pass


def planned_archive(running: RunningBatch, instance: Instance, folders: Folders) -> Archive:
    """The file that a batch of dump or snapshot tasks makes."""
    kind = next(iter(running.tasks.values())).kind
    return _dump_of(running, instance, folders.dumps) if kind == "dumpCreation" else \
        _snapshot_of(running, instance, folders.snapshots)


def dump_uid(moment: int) -> str:
    """`20261120-073750843`: UTC, to the millisecond."""
    digits = "".join(filter(str.isdigit, times.rfc3339(moment)))
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
    # Instances may share a folder, but never a name that is being written.
    partial, copy = (folder / f".{instance.uid}.{kind}.{suffix}" for suffix in ("part", "copy"))
    return Archive(folder / name, partial, copy, details=details, request={
        "do": "archive", "archive": kind, "folder": str(instance.path), "partial": str(partial), "copy": str(copy), **request})


# Snapshots on time: every so many seconds one is enqueued.
#
# Thread: "svcd-snapshots", from start() to stop(). The first is enqueued when the first time is over, as after each
# start: who starts svcd again and again within that time gets none. Refuses to know what a snapshot is.


class SnapshotSchedule:
    """Enqueues a snapshot every `every_s` seconds. on_refusal: is told why one could not be enqueued."""

    def __init__(self, queue: Queue, every_s: float, on_refusal: Callable[[str], None] = print) -> None:
        self._queue = queue
        self._every_s = every_s
        self._on_refusal = on_refusal
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="svcd-snapshots")

    def start(self) -> None:
        """Begin to count."""
        self._thread.start()

    def stop(self) -> None:
        """Enqueue nothing more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._queue.enqueue("snapshotCreation", None, details=None)
            except (ApiError, sqlite3.OperationalError) as refusal:  # the queue or the disk is full; it may have room again
                self._on_refusal(f"no snapshot could be enqueued: {refusal}")
