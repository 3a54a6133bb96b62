"""The webhooks of an instance: up to 20 that are stored, and the one of the launch options, which is not.

Knows the rows, and that they are few: all of them are held, replaced as a whole by each change. Refuses to know
what a good URL or header is, and what is sent when (svcd.instance.outbox keeps that).
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
MAX_WEBHOOKS = 20  # and the one of the launch options
_TOO_MANY = ("Defining too many webhooks would crush the server. Please limit the number of webhooks to "
             f"{MAX_WEBHOOKS}. You may use a third-party proxy server to dispatch events to more than {MAX_WEBHOOKS} "
             "endpoints.")


@dataclass(frozen=True)
class Webhook:
    """One receiver. headers: name -> value, sent with each notice."""

    uuid: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_editable(self) -> bool:
        """False for the webhook of the launch options."""
        return self.uuid != LAUNCH_UUID


def merged_headers(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """One header a name, in whatever letter case: the last value counts, as it was spelled last; None removes it."""
    kept: dict[str, tuple[str, str]] = {}  # lower-case name -> name, value
    for layer in layers:
        for name, value in layer.items():
            kept.pop(name.lower(), None)
            if value is not None:
                kept[name.lower()] = (name, value)
    return dict(kept.values())


class Webhooks:
    """All webhooks, by uuid: the one of the launch options comes first."""

    def __init__(self, writer: sqlite3.Connection, lock: threading.RLock) -> None:
        self.on_change: Callable[[str], None] = lambda uuid: None  # called, outside the lock, when one changed
        self.before_removal: Callable[[], None] = lambda: None  # one is deleted on a full disk, too
        self._writer = writer
        self._lock = lock  # guards _writer, and the replacing of _rows
        # Rows of older versions may have a header twice.
        self._rows = {uuid: Webhook(uuid, url, merged_headers(json.loads(headers))) for uuid, url, headers in writer.execute(
            "SELECT uuid, url, headers FROM webhooks")}

    def set_launch_webhook(self, url: str | None, authorization: str | None = None) -> None:
        """The webhook of the launch options; without a URL there is none."""
        headers = {} if authorization is None else {"Authorization": authorization}
        with self._lock:
            others = {uuid: row for uuid, row in self._rows.items() if row.is_editable}
            self._rows = others if url is None else {**others, LAUNCH_UUID: Webhook(LAUNCH_UUID, url, headers)}

    def all(self) -> Sequence[Webhook]:
        """All of them, by uuid."""
        return sorted(self._rows.values(), key=lambda row: row.uuid)

    def get(self, uuid: str) -> Webhook | None:
        """One of them, or None."""
        return self._rows.get(uuid)

    def require(self, uuid: str) -> Webhook:
        """One of them; webhook_not_found when there is none."""
        row = self._rows.get(uuid)
        if row is None:
            raise ApiError("webhook_not_found", f"Webhook `{uuid}` not found.")
        return row

    def check_limit(self) -> None:
        """Raise invalid_webhooks when no further one may be created."""
        if sum(row.is_editable for row in self._rows.values()) >= MAX_WEBHOOKS:
            raise ApiError("invalid_webhooks", _TOO_MANY)

    def create(self, row: Webhook) -> None:
        """Store a new one, durably. Raises invalid_webhooks when there are too many."""
        with self._lock:
            self.check_limit()
            self._store(row)

    def update(self, uuid: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        """Replace one by what `change` makes of it, durably. Raises webhook_not_found."""
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
        """Forget one, and all that it was still to be told. Raises webhook_not_found."""
        self.before_removal()
        with self._lock:
            self.require(uuid)
            with write_transaction(self._writer) as connection:
                connection.execute("DELETE FROM webhooks WHERE uuid = ?", (uuid,))
                connection.execute("DELETE FROM outbox WHERE webhook = ?", (uuid,))
            self._rows = {each: row for each, row in self._rows.items() if each != uuid}
        self.on_change(uuid)
