"""What webhooks are still to be told: a notice of each batch that ended, kept until every webhook has it.

A notice is written in the transaction that ends its batch: its lines as they are then, whatever happens to the
tasks later, in compressed parts, once for all webhooks; and a row for each webhook that is to have it. The row goes
when the notice was delivered, and with the last row goes the notice (triggers of svcd.index.schema). Numbers grow
in the order in which batches ended; each webhook is told in that order.

A webhook that cannot be reached is given up a notice at a time; what was given up is kept a while, to be looked at
and replayed. All together is bounded: beyond MOST_BYTES the oldest notices go. Knows nothing of how notices are
sent, and of what is in their lines.
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

from svcd.base import logs, times
from svcd.index.connections import ReadPool, write_transaction

# Bytes of lines in a part: what is held at once, and the most that compression sees together.
PART_BYTES = 64 << 10
MAX_BYTES = 1 << 30
# Of which so many stay when the oldest go, so that they go seldom.
TRIMMED_BYTES = MAX_BYTES // 10 * 9
GIVEN_UP_RETENTION = 7 * times.DAY
# What the rows of a notice take, about, besides its lines.
_ROW_BYTES = 200
# The lines of tasks repeat each other: the fastest level makes a tenth of them.
_LEVEL = 1
_MOST_ROWS = 1 << 62  # what SQLite can count
_COLUMNS = "n.number, n.batch_uid, n.tasks, n.length, n.ended_at, o.attempts, o.tried_at, o.reason, o.given_up_at"
_JOINED = "FROM outbox AS o JOIN notices AS n USING (number)"
_TRIED = "o.webhook = ? AND (o.attempts > 0 OR o.given_up_at IS NOT NULL)"


class NoticeRemoved(Exception):
    """The notice was taken away while it was being read: its webhook was deleted, or the outbox was full."""


@dataclass(frozen=True)
class Notice:
    """What one webhook is to be told of one batch. length: bytes of its lines; moments are nanoseconds.

    attempts, tried_at, reason: how often it was tried, when last, and why that failed; given_up_at: None while it
    is still to be delivered.
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
    """The notices of an instance. receivers: the uuids of the webhooks that are there now."""

    def __init__(self, path: Path, writer: sqlite3.Connection, lock: threading.RLock, readers: ReadPool,
                 receivers: Callable[[], Sequence[str]]) -> None:
        self._path = path
        self._writer = writer
        self._lock = lock  # guards _writer and _bytes
        self._readers = readers
        self._receivers = receivers
        self._bytes: int | None = None  # no less than is stored; None until the first notice asks

    # Fill

    def append(self, connection: sqlite3.Connection, batch_uid: int, ended_at: int, lines: Iterable[str]) -> None:
        """Inside finishing(): every webhook is to be told of a batch. The lines are not read when there is none."""
        receivers = self._receivers()
        if not receivers:
            return
        connection.execute("DELETE FROM outbox WHERE given_up_at < ?", (times.now() - GIVEN_UP_RETENTION,))
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
        self._make_room(connection, stored)

    def _make_room(self, connection: sqlite3.Connection, added: int) -> None:
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
        logs.error("the outbox of the webhooks is full, its oldest notices are lost", notices=gone)

    # Deliver

    def head(self, webhook: str) -> Notice | None:
        """What a webhook is to be told next, or None."""
        with self._reading() as connection:
            row = connection.execute(
                # By itself SQLite would go through all that was given up before.
                f"SELECT {_COLUMNS} FROM (SELECT * FROM outbox INDEXED BY outbox_waiting WHERE webhook = ? "
                "AND given_up_at IS NULL ORDER BY number LIMIT 1) AS o JOIN notices AS n USING (number)",
                (webhook,)).fetchone()
        return Notice(*row) if row else None

    def lines(self, notice: Notice) -> Iterator[bytes]:
        """The lines of a notice, a part at a time, and no reader is held in between. Raises NoticeGone."""
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
        """A webhook has a notice. What a power cut takes back of this is delivered twice, not lost."""
        with self._writing_soon() as connection:
            connection.execute("DELETE FROM outbox WHERE webhook = ? AND number = ?", (webhook, notice.number))

    def mark_failed(self, webhook: str, notice: Notice, reason: str, *, now: int, given_up_after: int) -> int:
        """A notice could not be delivered. Once it is as old as `given_up_after` (nanoseconds), it is given up, and
        with it all of the webhook that are as old; how many.
        """
        with self._writing_soon() as connection:
            connection.execute("UPDATE outbox SET attempts = attempts + 1, tried_at = ?, reason = ? "
                               "WHERE webhook = ? AND number = ?", (now, reason, webhook, notice.number))
            if notice.ended_at > now - given_up_after:
                return 0
            return connection.execute(
                "UPDATE outbox SET given_up_at = ?, reason = ? WHERE webhook = ? AND given_up_at IS NULL AND number IN "
                "(SELECT number FROM notices WHERE ended_at <= ?)",
                (now, reason, webhook, now - given_up_after)).rowcount

    def prune_unknown_webhooks(self) -> None:
        """What nobody will ever send goes: the webhook of launch options that were left out."""
        known = json.dumps(list(self._receivers()))
        with self._lock:
            if self._writer.execute("SELECT 1 FROM outbox LIMIT 1").fetchone():
                self._writer.execute("DELETE FROM outbox WHERE webhook NOT IN (SELECT value FROM json_each(?))",
                                     (known,))

    # What could not be delivered

    def failures(self, webhook: str, offset: int, limit: int) -> tuple[list[Notice], int]:
        """A page of what was given up or is being tried again, in order, and how many there are."""
        with self._reading() as connection:
            (total,) = connection.execute(f"SELECT count(*) FROM outbox AS o WHERE {_TRIED}", (webhook,)).fetchone()
            rows = connection.execute(f"SELECT {_COLUMNS} {_JOINED} WHERE {_TRIED} ORDER BY number LIMIT ? OFFSET ?",
                                      (webhook, min(limit, _MOST_ROWS), min(offset, _MOST_ROWS))).fetchall()
        return [Notice(*row) for row in rows], total

    def replay(self, webhook: str, batch_uids: Sequence[int] | None = None) -> int:
        """What was given up (of some batches) is to be delivered again, durably; how many notices."""
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
    def _writing_soon(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is not awaited on disk: tasks, which need the same file, wait for no receiver."""
        with self._lock:
            self._writer.execute("PRAGMA synchronous = NORMAL")
            try:
                with write_transaction(self._writer) as connection:
                    yield connection
            finally:
                self._writer.execute("PRAGMA synchronous = FULL")


def _parts(lines: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """Lines joined to parts of about PART_BYTES, each with the number of its lines."""
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
