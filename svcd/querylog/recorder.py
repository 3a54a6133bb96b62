"""Collects the searches of one process in memory, and passes them on in batches.

Threads: request threads append to `_rows` without a lock; the thread "svcd-query-log" sleeps until something is there, waits
PAUSE_S for more, and passes all of it on; `_flushing` keeps batches in their order.
"""
from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from svcd.base import logs

# A killed process loses the searches of this time, and of the write after it: less than a second.
PAUSE_S = 0.4
# Searches that wait for a file that cannot be written; older ones are dropped.
MOST_WAITING = 100_000
MOST_TEXT = 1000  # characters of a text that are kept until it is normalized
_TOTAL = re.compile(rb'"(?:estimatedTotalHits|totalHits)":(\d+)').search


class Search(NamedTuple):
    """An answered search. hits: total number; key_uid: None for the master key and without one; client: tells people apart."""

    request_uid: str
    index_uid: str
    text: str
    hits: int
    milliseconds: int
    key_uid: str | None
    client: str


class Click(NamedTuple):
    """A hit that somebody chose. at: milliseconds since 1970; position: among the hits, from 1; None if unknown."""

    at: int
    request_uid: str
    index_uid: str
    document_id: str
    position: int | None
    key_uid: str | None


class Recorder:
    """Collects searches and clicks. write: gets them in their order."""

    def __init__(self, write: Callable[[Sequence[Search | Click]], None]) -> None:
        self._write = write
        self._rows: deque[Any] = deque(maxlen=MOST_WAITING)
        self._is_awake = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._flushing = threading.Lock()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="svcd-query-log", daemon=True)
        self._thread.start()

    def note(self, request_uid: str, index_uid: str, text: str | None, total: bytes | int, milliseconds: int, key_uid: str | None,
             client: str) -> None:
        """Add a search; called in each. total: the number of hits, or JSON text of the answer that has it."""
        self._rows.append((request_uid, index_uid, (text or "")[:MOST_TEXT], total, milliseconds, key_uid, client))
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()

    def add(self, rows: Sequence[Search | Click]) -> None:
        """Add searches that another process has collected, or clicks."""
        self._rows.extend(rows)
        self._is_awake = True
        self._wake.set()

    def flush(self) -> None:
        """Pass on everything; returns when it is written."""
        with self._flushing:
            self._is_awake = False  # before the rows are taken: a row that comes later wakes the thread again
            taken, rows = self._rows.popleft, list[Search | Click]()
            for _ in range(len(self._rows)):
                row = taken()
                if type(row) is tuple:  # from note(); the others are complete
                    request_uid, index_uid, text, total, milliseconds, key_uid, client = row
                    if type(total) is bytes:
                        found = _TOTAL(total)
                        total = int(found[1]) if found else 0
                    row = Search(request_uid, index_uid, text, total, milliseconds, key_uid, client)
                rows.append(row)
            if not rows:
                return
            try:
                self._write(rows)
                self._has_failed = False
            except Exception as failure:  # a full disk: searches work without their log
                if not self._has_failed:
                    logs.warn("the query log cannot be written; searches are not logged", failure=failure)
                self._has_failed = True

    def stop(self) -> None:
        """Pass on the rest, and end the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        self.flush()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            self._stopping.wait(PAUSE_S)
            self.flush()
