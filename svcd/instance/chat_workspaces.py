"""The chat workspaces on disk: uid -> stored settings (svcd.chat.workspace), with the key of the service in clear.

Changes are durable when a call returns. svcd.chat defines the members of the settings.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from svcd.base.errors import ApiError
from svcd.index.connections import ReadPool
from svcd.instance.rows import Row, RowWriter

_TABLE = "chat_workspaces"
Stored = dict[str, Any]
_MOST_ROWS = 2**63 - 1


class ChatWorkspaces:
    """All chat workspaces of an instance. Any thread may call its methods."""

    def __init__(self, path: str, readers: ReadPool, rows: RowWriter, before_removal: Callable[[], None]) -> None:
        """path: of instance.sqlite. before_removal: frees reserved disk space."""
        self._path = path
        self._readers = readers
        self._rows = rows
        self._before_removal = before_removal

    def page(self, offset: int, limit: int) -> tuple[list[str], int]:
        """Return a page of the uids in byte order, and their total."""
        with self._readers.transaction(self._path) as connection:
            (total,) = connection.execute("SELECT count(*) FROM chat_workspaces").fetchone()
            rows = connection.execute("SELECT uid FROM chat_workspaces ORDER BY uid LIMIT ? OFFSET ?",
                                      (min(limit, _MOST_ROWS), min(offset, _MOST_ROWS))).fetchall()
        return [uid for (uid,) in rows], total

    def all(self) -> dict[str, Stored]:
        """Return the stored settings of each workspace, by uid."""
        with self._readers.transaction(self._path) as connection:
            return {uid: json.loads(settings) for uid, settings in connection.execute(
                "SELECT uid, settings FROM chat_workspaces ORDER BY uid")}

    def get(self, uid: str) -> Stored | None:
        """Return the stored settings of a workspace, or None."""
        with self._readers.transaction(self._path) as connection:
            row = connection.execute("SELECT settings FROM chat_workspaces WHERE uid = ?", (uid,)).fetchone()
        return json.loads(row[0]) if row else None

    def require(self, uid: str) -> Stored:
        """Return the stored settings of a workspace. Raises chat_not_found."""
        stored = self.get(uid)
        if stored is None:
            raise ApiError("chat_not_found", f"Chat `{uid}` not found")
        return stored

    def update(self, uid: str, change: Callable[[Mapping[str, Any]], Stored]) -> Stored:
        """Replace the stored settings by `change(settings)`, which may raise; a new workspace starts with {}."""
        def changed(before: Row | None) -> Row:
            return {"settings": json.dumps(change(json.loads(before["settings"]) if before else {}))}

        before = self._rows.change(_TABLE, uid, changed)
        return dict(json.loads(changed(before)["settings"]))

    def put(self, uid: str, stored: Stored) -> None:
        """Store a workspace with the given settings."""
        self.update(uid, lambda before: stored)

    def delete(self, uid: str) -> bool:
        """Delete a workspace with its settings. Return whether it existed."""
        self._before_removal()
        return self._rows.change(_TABLE, uid, lambda before: None) is not None
