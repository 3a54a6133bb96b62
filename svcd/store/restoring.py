"""What an instance held elsewhere, written into one that is new: tasks, batches, keys, features with what they were.

Each function is called inside Queue.finishing(). The instance is opened again before it is used: what it keeps in
memory was read before. Refuses to know where the rows come from.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from svcd.store.keys import KeyRow, insert_key
from svcd.store.records import Batch, Task


def add_tasks(connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Tasks with their uids; the payloads of those that wait lie in the folder of payloads already."""
    connection.executemany(
        "INSERT INTO tasks(uid, batch_uid, index_uid, status, kind, canceled_by, details, error, content, payload, "
        "payload_bytes, custom_metadata, enqueued_at, started_at, finished_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((task.uid, task.batch_uid, task.index_uid, task.status, task.kind, task.canceled_by, _text(task.details),
          _text(task.error), _text(task.content), task.payload, task.payload_bytes, task.custom_metadata,
          task.enqueued_at, task.started_at, task.finished_at) for task in tasks))


def add_batches(connection: sqlite3.Connection, batches: Iterable[Batch]) -> None:
    """Batches that ended, with their uids."""
    connection.executemany(
        "INSERT INTO batches(uid, details, stats, strategy, started_at, finished_at, earliest_enqueued_at, "
        "latest_enqueued_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ((batch.uid, _text(batch.details), _text(batch.stats), batch.strategy, batch.started_at, batch.finished_at,
          batch.earliest_enqueued_at, batch.latest_enqueued_at) for batch in batches))


def add_keys(connection: sqlite3.Connection, rows: Iterable[KeyRow]) -> None:
    """Keys, the oldest first."""
    for row in rows:
        insert_key(connection, row)


def add_features(connection: sqlite3.Connection, features: Mapping[str, bool | None]) -> None:
    """Features as they were switched; None for one that nobody ever switched, and that says so."""
    connection.executemany("INSERT OR REPLACE INTO features(name, enabled) VALUES (?, ?)", list(features.items()))


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
