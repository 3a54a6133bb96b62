"""The webhooks of an instance, and the outbox: a notice of each finished batch, stored until every webhook has received it.

Up to 20 webhooks are stored; the webhook of the launch options is not. All webhooks are in memory, in a mapping that each change
replaces as a whole. svcd.api.webhooks checks URLs and headers.

A notice is written in the transaction that ends its batch: the task lines of that moment, compressed in parts, once for all
webhooks; plus one row per webhook. The row is deleted after delivery, and the notice with its last row (triggers in
svcd.index.schema). Numbers grow in the order in which batches ended, which is the order of delivery.

A notice that a webhook did not accept for too long is marked as given up and kept for a while, for inspection and replay. When
all notices exceed MAX_OUTBOX_BYTES, the oldest are deleted. svcd.remote.webhook_delivery sends them.
See docs/tasks-and-batches.md#webhooks-and-outbox.
"""
from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from svcd.base import logs, quantities
from svcd.base.errors import ApiError
from svcd.index.connections import ReadPool, write_transaction
from svcd.instance.rows import Row, RowWriter, read_row

_TABLE = "webhooks"
LAUNCH_UUID = "00000000-0000-0000-0000-000000000000"
MAX_WEBHOOKS = 20  # besides the webhook of the launch options
_TOO_MANY = ("Defining too many webhooks would crush the server. Please limit the number of webhooks to "
             f"{MAX_WEBHOOKS}. You may use a third-party proxy server to dispatch events to more than {MAX_WEBHOOKS} "
             "endpoints.")

# Bytes of lines in a part, which is held in memory and compressed as a whole.
PART_BYTES = 64 << 10
MAX_OUTBOX_BYTES = 1 << 30
# Bytes that stay when the oldest notices are deleted, so that deletion is rare.
TRIMMED_BYTES = MAX_OUTBOX_BYTES // 10 * 9
GIVEN_UP_RETENTION = 7 * quantities.DAY
# Approximate bytes of the rows of a notice, besides its lines.
_ROW_BYTES = 200
# Task lines are repetitive: the fastest level compresses them to a tenth.
_LEVEL = 1
_MAX_ROWS = 1 << 62  # the largest LIMIT and OFFSET that SQLite takes
_COLUMNS = "n.number, n.batch_uid, n.tasks, n.length, n.ended_at, o.attempts, o.tried_at, o.reason, o.given_up_at"
_JOINED = "FROM outbox AS o JOIN notices AS n USING (number)"
_TRIED = "o.webhook = ? AND (o.attempts > 0 OR o.given_up_at IS NOT NULL)"


class Webhook(NamedTuple):
    """One receiver of notices. headers: name -> value, sent with each notice."""

    uuid: str
    url: str
    headers: Mapping[str, str] = {}

    @property
    def is_editable(self) -> bool:
        """Whether the interface may change the webhook: not the webhook of the launch options."""
        return self.uuid != LAUNCH_UUID


def merged_headers(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """Merge headers, ignoring the case of names; the last spelling and value win, None removes a header."""
    kept: dict[str, tuple[str, str]] = {}  # lower-case name -> name, value
    for layer in layers:
        for name, value in layer.items():
            kept.pop(name.lower(), None)
            if value is not None:
                kept[name.lower()] = (name, value)
    return dict(kept.values())


class Webhooks:
    """All webhooks. The uuid of the webhook of the launch options sorts first."""

    def __init__(self, writer: sqlite3.Connection, lock: threading.RLock, stored: RowWriter) -> None:
        """writer: reads stored webhooks, under the lock."""
        self.on_change: Callable[[str], None] = lambda uuid: None  # called with its uuid, outside the lock, after a change
        self.before_removal: Callable[[], None] = lambda: None  # frees reserved disk space: deletions work on a full disk
        self._writer = writer
        self._lock = lock  # guards _writer, and the replacing of _rows
        self._stored = stored
        self._rows: dict[str, Webhook] = {}
        for (uuid,) in writer.execute("SELECT uuid FROM webhooks").fetchall():
            self.reload(uuid)

    def set_launch_webhook(self, url: str | None, authorization: str | None = None) -> None:
        """Set the webhook of the launch options, or remove it (no URL)."""
        headers = {} if authorization is None else {"Authorization": authorization}
        with self._lock:
            others = {uuid: row for uuid, row in self._rows.items() if row.is_editable}
            self._rows = others if url is None else {**others, LAUNCH_UUID: Webhook(LAUNCH_UUID, url, headers)}

    def all(self) -> Sequence[Webhook]:
        """Return all webhooks, ordered by uuid."""
        return sorted(self._rows.values(), key=lambda row: row.uuid)

    def get(self, uuid: str) -> Webhook | None:
        """Return a webhook, or None."""
        return self._rows.get(uuid)

    def require(self, uuid: str) -> Webhook:
        """Return a webhook. Raises webhook_not_found."""
        row = self._rows.get(uuid)
        if row is None:
            raise ApiError("webhook_not_found", f"Webhook `{uuid}` not found.")
        return row

    def check_limit(self) -> None:
        """Raise invalid_webhooks when 20 are stored."""
        if sum(row.is_editable for row in self._rows.values()) >= MAX_WEBHOOKS:
            raise ApiError("invalid_webhooks", _TOO_MANY)

    def create(self, row: Webhook) -> None:
        """Store a new webhook, durably. Raises invalid_webhooks when 20 are stored."""
        def added(before: Row | None) -> Row:
            self.check_limit()
            return _as_row(row)

        self._stored.change(_TABLE, row.uuid, added)

    def update(self, uuid: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        """Replace a webhook by `change(webhook)`, durably. Raises webhook_not_found."""
        def changed(before: Row | None) -> Row:
            return _as_row(change(self.require(uuid) if before is None else _from_row(uuid, before)))

        before = self._stored.change(_TABLE, uuid, changed)
        return _from_row(uuid, changed(before))

    def delete(self, uuid: str) -> None:
        """Delete a webhook and its undelivered notices. Raises webhook_not_found."""
        self.before_removal()
        self.require(uuid)
        self._stored.change(_TABLE, uuid, lambda before: None)

    def reload(self, uuid: str) -> None:
        """Read a stored webhook again, after a change."""
        with self._lock:
            row = read_row(self._writer, _TABLE, uuid)
            others = {each: kept for each, kept in self._rows.items() if each != uuid}
            self._rows = others if row is None else {**others, uuid: _from_row(uuid, row)}
        self.on_change(uuid)


def _as_row(webhook: Webhook) -> Row:
    return {"url": webhook.url, "headers": json.dumps(dict(webhook.headers))}


def _from_row(uuid: str, row: Row) -> Webhook:
    # Rows of older versions may hold a header twice.
    return Webhook(uuid, row["url"], merged_headers(json.loads(row["headers"])))


# The outbox


class NoticeRemoved(Exception):
    """The notice was deleted while it was being read: its webhook was deleted, or the outbox was full."""


class Notice(NamedTuple):
    """A finished batch, to be delivered to one webhook. tasks: number of lines; length: their bytes; times in nanoseconds.

    attempts, tried_at, reason: number of failed attempts; time and reason of the last failure. given_up_at: None while delivery
    is still attempted.
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
    """The notices of an instance. receivers: returns the uuids of the existing webhooks."""

    def __init__(self, path: Path, writer: sqlite3.Connection, lock: threading.RLock, readers: ReadPool,
                 receivers: Callable[[], Sequence[str]]) -> None:
        # Records in the log of a cluster that a webhook has received the notice of a batch; None on a single node.
        self.replicate: Callable[[str, int], None] | None = None
        self._path = path
        self._writer = writer
        self._lock = lock  # guards _writer and _bytes
        self._readers = readers
        self._receivers = receivers
        self._bytes: int | None = None  # upper bound of the stored bytes; None until the first notice

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
        connection.executemany("INSERT INTO outbox(webhook, number) VALUES (?, ?)", [(webhook, number) for webhook in receivers])
        self._trim(connection, stored)

    def _trim(self, connection: sqlite3.Connection, added: int) -> None:
        if self._bytes is not None and self._bytes + added <= MAX_OUTBOX_BYTES:
            self._bytes += added
            return
        (self._bytes,) = connection.execute("SELECT coalesce(sum(stored), 0) FROM notices").fetchone()
        if self._bytes <= MAX_OUTBOX_BYTES:
            return
        surplus, last, gone = self._bytes - TRIMMED_BYTES, -1, 0
        for number, stored in connection.execute("SELECT number, stored FROM notices ORDER BY number"):
            if surplus <= 0:
                break
            surplus, last, gone = surplus - stored, number, gone + 1
        connection.execute("DELETE FROM outbox WHERE number <= ?", (last,))
        self._bytes = TRIMMED_BYTES
        logs.error("the webhook outbox is full, its oldest notices were deleted", notices=gone)

    def head(self, webhook: str) -> Notice | None:
        """Return the oldest notice that a webhook has not received, or None."""
        with self._readers.transaction(self._path) as connection:
            row = connection.execute(
                # Without INDEXED BY, SQLite would scan the rows of notices that were given up.
                f"SELECT {_COLUMNS} FROM (SELECT * FROM outbox INDEXED BY outbox_waiting WHERE webhook = ? "
                "AND given_up_at IS NULL ORDER BY number LIMIT 1) AS o JOIN notices AS n USING (number)",
                (webhook,)).fetchone()
        return Notice(*row) if row else None

    def lines(self, notice: Notice) -> Iterator[bytes]:
        """Yield the lines of a notice as bytes, part by part, with one read transaction for each. Raises NoticeRemoved."""
        part = sent = 0
        while sent < notice.length:
            with self._readers.transaction(self._path) as connection:
                row = connection.execute("SELECT lines FROM notice_parts WHERE number = ? AND part = ?",
                                         (notice.number, part)).fetchone()
            if row is None:
                raise NoticeRemoved(f"the notice of batch {notice.batch_uid}")
            text = zlib.decompress(row[0])
            part, sent = part + 1, sent + len(text)
            yield text

    def mark_delivered(self, webhook: str, notice: Notice) -> None:
        """Delete the row of a delivered notice. After a power cut the row may reappear: the notice is sent twice, never lost."""
        if self.replicate is not None:
            self.replicate(webhook, notice.batch_uid)
            return
        with self._relaxed_transaction() as connection:
            connection.execute("DELETE FROM outbox WHERE webhook = ? AND number = ?", (webhook, notice.number))

    def remove_delivered(self, connection: sqlite3.Connection, webhook: str, batch_uid: int) -> None:
        """Inside a transaction: do the same by batch uid, because the number of a notice differs between nodes."""
        connection.execute("DELETE FROM outbox WHERE webhook = ? AND number IN (SELECT number FROM notices WHERE batch_uid = ?)",
                           (webhook, batch_uid))

    def mark_failed(self, webhook: str, notice: Notice, reason: str, *, now: int, given_up_after: int) -> int:
        """Record a failed attempt. Give up the notice when it is `given_up_after` nanoseconds old.

        All notices of the webhook that are as old are given up with it; returns their number.
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
        """Delete rows of webhooks that no longer exist, such as the webhook of earlier launch options."""
        known = json.dumps(list(self._receivers()))
        with self._lock:
            if self._writer.execute("SELECT 1 FROM outbox LIMIT 1").fetchone():
                self._writer.execute("DELETE FROM outbox WHERE webhook NOT IN (SELECT value FROM json_each(?))", (known,))

    def failures(self, webhook: str, offset: int, limit: int) -> tuple[list[Notice], int]:
        """Return a page of the notices that failed or were given up, oldest first, and their total."""
        with self._readers.transaction(self._path) as connection:
            (total,) = connection.execute(f"SELECT count(*) FROM outbox AS o WHERE {_TRIED}", (webhook,)).fetchone()
            rows = connection.execute(f"SELECT {_COLUMNS} {_JOINED} WHERE {_TRIED} ORDER BY number LIMIT ? OFFSET ?",
                                      (webhook, min(limit, _MAX_ROWS), min(offset, _MAX_ROWS))).fetchall()
        return [Notice(*row) for row in rows], total

    def replay(self, webhook: str, batch_uids: Sequence[int] | None = None) -> int:
        """Enqueue given-up notices again (all, or those of some batches), durably. Return their number."""
        chosen, values = "", []
        if batch_uids is not None:
            chosen = "AND number IN (SELECT number FROM notices WHERE batch_uid IN (SELECT value FROM json_each(?)))"
            values = [json.dumps(list(batch_uids))]
        with self._lock, write_transaction(self._writer) as connection:
            return connection.execute("UPDATE outbox SET given_up_at = NULL WHERE webhook = ? "
                                      f"AND given_up_at IS NOT NULL {chosen}", (webhook, *values)).rowcount

    @contextmanager
    def _relaxed_transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction without sync: tasks use the same connection, and must not wait for the disk because of webhooks."""
        with self._lock:
            self._writer.execute("PRAGMA synchronous = NORMAL")
            try:
                with write_transaction(self._writer) as connection:
                    yield connection
            finally:
                self._writer.execute("PRAGMA synchronous = FULL")


def _parts(lines: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """Join lines to parts of about PART_BYTES; yield (number of lines, bytes)."""
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
