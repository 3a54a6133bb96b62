"""The webhooks of an instance: up to 20 stored ones, and that of the launch options, which is not stored.

All are held in memory, in a mapping that is replaced as a whole by each change. URLs and headers are checked in
svcd.api.webhooks; notices are kept in svcd.instance.outbox.
"""
from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from svcd.base.errors import ApiError
from svcd.index.connections import write_transaction

LAUNCH_UUID = "00000000-0000-0000-0000-000000000000"
MAX_WEBHOOKS = 20  # besides that of the launch options
_TOO_MANY = ("Defining too many webhooks would crush the server. Please limit the number of webhooks to "
             f"{MAX_WEBHOOKS}. You may use a third-party proxy server to dispatch events to more than {MAX_WEBHOOKS} "
             "endpoints.")


@dataclass(frozen=True)
class Webhook:
    """One receiver of notices. headers: name -> value, sent with each notice."""

    uuid: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_editable(self) -> bool:
        """False for the webhook of the launch options."""
        return self.uuid != LAUNCH_UUID


def merged_headers(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """Merge headers whose names are equal but for letter case; the last spelling and value win, None removes a header."""
    kept: dict[str, tuple[str, str]] = {}  # lower-case name -> name, value
    for layer in layers:
        for name, value in layer.items():
            kept.pop(name.lower(), None)
            if value is not None:
                kept[name.lower()] = (name, value)
    return dict(kept.values())


class Webhooks:
    """All webhooks. The uuid of that of the launch options sorts first."""

    def __init__(self, writer: sqlite3.Connection, lock: threading.RLock) -> None:
        self.on_change: Callable[[str], None] = lambda uuid: None  # called with its uuid, outside the lock, after a change
        self.before_removal: Callable[[], None] = lambda: None  # frees reserved disk space: deletions work on a full disk
        self._writer = writer
        self._lock = lock  # guards _writer, and the replacing of _rows
        # Rows of older versions may hold a header twice.
        self._rows = {uuid: Webhook(uuid, url, merged_headers(json.loads(headers))) for uuid, url, headers in writer.execute(
            "SELECT uuid, url, headers FROM webhooks")}

    def set_launch_webhook(self, url: str | None, authorization: str | None = None) -> None:
        """Set the webhook of the launch options; without a URL remove it."""
        headers = {} if authorization is None else {"Authorization": authorization}
        with self._lock:
            others = {uuid: row for uuid, row in self._rows.items() if row.is_editable}
            self._rows = others if url is None else {**others, LAUNCH_UUID: Webhook(LAUNCH_UUID, url, headers)}

    def all(self) -> Sequence[Webhook]:
        """All webhooks, ordered by uuid."""
        return sorted(self._rows.values(), key=lambda row: row.uuid)

    def get(self, uuid: str) -> Webhook | None:
        """One webhook, or None."""
        return self._rows.get(uuid)

    def require(self, uuid: str) -> Webhook:
        """One webhook. Raises webhook_not_found."""
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
        with self._lock:
            self.check_limit()
            self._store(row)

    def update(self, uuid: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        """Replace a webhook by `change(webhook)`, durably. Raises webhook_not_found."""
        with self._lock:
            changed = change(self.require(uuid))
            self._store(changed)
        self.on_change(uuid)
        return changed

    def _store(self, row: Webhook) -> None:
        with write_transaction(self._writer) as connection:
            connection.execute("INSERT OR REPLACE INTO webhooks(uuid, url, headers) VALUES (?, ?, ?)",
                               (row.uuid, row.url, json.dumps(dict(row.headers))))
        self._rows = {**self._rows, row.uuid: row}

    def delete(self, uuid: str) -> None:
        """Delete a webhook and its undelivered notices. Raises webhook_not_found."""
        self.before_removal()
        with self._lock:
            self.require(uuid)
            with write_transaction(self._writer) as connection:
                connection.execute("DELETE FROM webhooks WHERE uuid = ?", (uuid,))
                connection.execute("DELETE FROM outbox WHERE webhook = ?", (uuid,))
            self._rows = {each: row for each, row in self._rows.items() if each != uuid}
        self.on_change(uuid)
