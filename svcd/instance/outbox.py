"""The outbox: a notice of each finished batch, stored until every webhook has received it.

A notice is written in the transaction that ends its batch: the task lines as they are at that moment, compressed in
parts, once for all webhooks; plus one row per webhook. The row is deleted after delivery, and with its last row the notice
(triggers in svcd.index.schema). Numbers grow in the order in which batches ended, which is the order of delivery.

Notices that a webhook did not accept for too long are marked as given up and kept for a while, for inspection and replay.
The total is bounded by MAX_BYTES: beyond it the oldest notices are deleted. Sending is svcd.remote.webhook_delivery.
See docs/tasks-and-batches.md#webhooks-and-outbox.
"""
from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from svcd.base import logs, quantities
from svcd.index.connections import ReadPool, write_transaction

# Bytes of lines in a part: what is held in memory at once, and compressed together.
PART_BYTES = 64 << 10
MAX_BYTES = 1 << 30
# How much is left when the oldest notices are deleted, so that this is rare.
TRIMMED_BYTES = MAX_BYTES // 10 * 9
GIVEN_UP_RETENTION = 7 * quantities.DAY
# Approximate bytes of the rows of a notice, besides its lines.
_ROW_BYTES = 200
# Task lines are repetitive: the fastest level compresses them to a tenth.
_LEVEL = 1
_MAX_ROWS = 1 << 62  # the largest LIMIT and OFFSET that SQLite takes
_COLUMNS = "n.number, n.batch_uid, n.tasks, n.length, n.ended_at, o.attempts, o.tried_at, o.reason, o.given_up_at"
_JOINED = "FROM outbox AS o JOIN notices AS n USING (number)"
_TRIED = "o.webhook = ? AND (o.attempts > 0 OR o.given_up_at IS NOT NULL)"


class NoticeRemoved(Exception):
    """The notice was deleted while it was read: its webhook was deleted, or the outbox was full."""


@dataclass(frozen=True)
class Notice:
    """One batch, to be delivered to one webhook. tasks: number of lines; length: their bytes; times in nanoseconds.

    attempts, tried_at, reason: number of failed attempts, time and reason of the last one. given_up_at: None while
    delivery is still attempted.
    """

    number: int
    batch_uid: int
    tasks: int
    length: int
    ended_at: int
    attempts: int = 0
    tried_at: int | None = None
    reason: str | None = None
    given_up_at: int | None = None


class Outbox:
    """The notices of an instance. receivers: returns the uuids of the present webhooks."""

    def __init__(self, path: Path, writer: sqlite3.Connection, lock: threading.RLock, readers: ReadPool,
                 receivers: Callable[[], Sequence[str]]) -> None:
        self._path = path
        self._writer = writer
        self._lock = lock  # guards _writer and _bytes
        self._readers = readers
        self._receivers = receivers
        self._bytes: int | None = None  # upper bound of what is stored; None until the first notice

    # Adding

    def append(self, connection: sqlite3.Connection, batch_uid: int, ended_at: int, lines: Iterable[str]) -> None:
        """Inside finishing(): add a notice for every webhook. Without webhooks `lines` is not read."""
        receivers = self._receivers()
        if not receivers:
            return
        connection.execute("DELETE FROM outbox WHERE given_up_at < ?", (quantities.now() - GIVEN_UP_RETENTION,))
        number = connection.execute("INSERT INTO notices(batch_uid, tasks, length, stored, ended_at) "
                                    "VALUES (?, 0, 0, 0, ?)", (batch_uid, ended_at)).lastrowid
        tasks = length = stored = 0
        for part, (count, text) in enumerate(_parts(lines)):
            packed = zlib.compress(text, _LEVEL)
            connection.execute("INSERT INTO notice_parts(number, part, lines) VALUES (?, ?, ?)", (number, part, packed))
            tasks, length, stored = tasks + count, length + len(text), stored + len(packed)
        stored += _ROW_BYTES * len(receivers)
        connection.execute("UPDATE notices SET tasks = ?, length = ?, stored = ? WHERE number = ?",
                           (tasks, length, stored, number))
        connection.executemany("INSERT INTO outbox(webhook, number) VALUES (?, ?)",
                               [(webhook, number) for webhook in receivers])
        self._trim(connection, stored)

    def _trim(self, connection: sqlite3.Connection, added: int) -> None:
        if self._bytes is not None and self._bytes + added <= MAX_BYTES:
            self._bytes += added
            return
        (self._bytes,) = connection.execute("SELECT coalesce(sum(stored), 0) FROM notices").fetchone()
        if self._bytes <= MAX_BYTES:
            return
        surplus, last, gone = self._bytes - TRIMMED_BYTES, -1, 0
        for number, stored in connection.execute("SELECT number, stored FROM notices ORDER BY number"):
            if surplus <= 0:
                break
            surplus, last, gone = surplus - stored, number, gone + 1
        connection.execute("DELETE FROM outbox WHERE number <= ?", (last,))
        self._bytes = TRIMMED_BYTES
        logs.error("the webhook outbox is full, its oldest notices were deleted", notices=gone)

    # Delivery

    def head(self, webhook: str) -> Notice | None:
        """The oldest notice that a webhook has not received, or None."""
        with self._reading() as connection:
            row = connection.execute(
                # Without INDEXED BY, SQLite would scan the rows that were given up.
                f"SELECT {_COLUMNS} FROM (SELECT * FROM outbox INDEXED BY outbox_waiting WHERE webhook = ? "
                "AND given_up_at IS NULL ORDER BY number LIMIT 1) AS o JOIN notices AS n USING (number)",
                (webhook,)).fetchone()
        return Notice(*row) if row else None

    def lines(self, notice: Notice) -> Iterator[bytes]:
        """The lines of a notice as bytes, part by part; no read transaction stays open in between. Raises NoticeRemoved."""
        part = sent = 0
        while sent < notice.length:
            with self._reading() as connection:
                row = connection.execute("SELECT lines FROM notice_parts WHERE number = ? AND part = ?",
                                         (notice.number, part)).fetchone()
            if row is None:
                raise NoticeRemoved(f"the notice of batch {notice.batch_uid}")
            text = zlib.decompress(row[0])
            part, sent = part + 1, sent + len(text)
            yield text

    def mark_delivered(self, webhook: str, notice: Notice) -> None:
        """Delete the row of a delivered notice. After a power cut the row may reappear: delivered twice, never lost."""
        with self._relaxed_transaction() as connection:
            connection.execute("DELETE FROM outbox WHERE webhook = ? AND number = ?", (webhook, notice.number))

    def mark_failed(self, webhook: str, notice: Notice, reason: str, *, now: int, given_up_after: int) -> int:
        """Note a failed attempt. A notice that is `given_up_after` nanoseconds old is given up.

        So are all others of the webhook that are as old; returns how many.
        """
        with self._relaxed_transaction() as connection:
            connection.execute("UPDATE outbox SET attempts = attempts + 1, tried_at = ?, reason = ? "
                               "WHERE webhook = ? AND number = ?", (now, reason, webhook, notice.number))
            if notice.ended_at > now - given_up_after:
                return 0
            return connection.execute(
                "UPDATE outbox SET given_up_at = ?, reason = ? WHERE webhook = ? AND given_up_at IS NULL AND number IN "
                "(SELECT number FROM notices WHERE ended_at <= ?)",
                (now, reason, webhook, now - given_up_after)).rowcount

    def prune_unknown_webhooks(self) -> None:
        """Delete rows of webhooks that no longer exist, such as one of earlier launch options."""
        known = json.dumps(list(self._receivers()))
        with self._lock:
            if self._writer.execute("SELECT 1 FROM outbox LIMIT 1").fetchone():
                self._writer.execute("DELETE FROM outbox WHERE webhook NOT IN (SELECT value FROM json_each(?))",
                                     (known,))

    # Undelivered notices

    def failures(self, webhook: str, offset: int, limit: int) -> tuple[list[Notice], int]:
        """A page of the notices that failed or were given up, oldest first, and their total."""
        with self._reading() as connection:
            (total,) = connection.execute(f"SELECT count(*) FROM outbox AS o WHERE {_TRIED}", (webhook,)).fetchone()
            rows = connection.execute(f"SELECT {_COLUMNS} {_JOINED} WHERE {_TRIED} ORDER BY number LIMIT ? OFFSET ?",
                                      (webhook, min(limit, _MAX_ROWS), min(offset, _MAX_ROWS))).fetchall()
        return [Notice(*row) for row in rows], total

    def replay(self, webhook: str, batch_uids: Sequence[int] | None = None) -> int:
        """Enqueue notices that were given up (all, or of some batches) again, durably; returns how many."""
        chosen, values = "", []
        if batch_uids is not None:
            chosen = "AND number IN (SELECT number FROM notices WHERE batch_uid IN (SELECT value FROM json_each(?)))"
            values = [json.dumps(list(batch_uids))]
        with self._lock, write_transaction(self._writer) as connection:
            return connection.execute("UPDATE outbox SET given_up_at = NULL WHERE webhook = ? "
                                      f"AND given_up_at IS NOT NULL {chosen}", (webhook, *values)).rowcount

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._readers.transaction(self._path) as connection:
            yield connection

    @contextmanager
    def _relaxed_transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction without sync: tasks, which use the same connection, must not wait for the disk on behalf of webhooks."""
        with self._lock:
            self._writer.execute("PRAGMA synchronous = NORMAL")
            try:
                with write_transaction(self._writer) as connection:
                    yield connection
            finally:
                self._writer.execute("PRAGMA synchronous = FULL")


def _parts(lines: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """Lines joined to parts of about PART_BYTES: (number of lines, bytes)."""
    count, size, kept = 0, 0, []
    for line in lines:
        text = line.encode("utf-8", "replace") + b"\n"
        kept.append(text)
        count, size = count + 1, size + len(text)
        if size >= PART_BYTES:
            yield count, b"".join(kept)
            count, size, kept = 0, 0, []
    if kept:
        yield count, b"".join(kept)
