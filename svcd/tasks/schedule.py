"""Snapshots on time: every so many seconds one is enqueued.

Thread: "svcd-snapshots", from start() to stop(). The first is enqueued when the first time is over, as after each
start: who starts svcd again and again within that time gets none. Refuses to know what a snapshot is.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from svcd.base.errors import ApiError
from svcd.instance.queue import Queue


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
