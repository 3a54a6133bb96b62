"""Hashes of the documents and settings of each index, to compare nodes; the index files differ between nodes.

Each hash belongs to the last task that changed the index; only hashes of the same task are comparable. After a change, when no
task waits, the node hashes all documents again, at most every PAUSE_S.
"""
from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from svcd.index.connections import open_reader
from svcd.instance.instance import Instance
from svcd.instance.unlisted_files import stored_outcomes

PAUSE_S = 1.0
_BYTES = 16
_MODULUS = 1 << 8 * _BYTES
_SETTINGS = "SELECT value FROM meta WHERE key IN ('settings', 'primary_key') ORDER BY key"


class ContentHashes:
    """The newest hash of each index: uid -> [last task, hash]."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._states: dict[str, tuple[str, int]] = {}
        self._hashes: dict[str, list[object]] = {}

    def all(self) -> dict[str, list[object]]:
        """Return the latest hashes; after a change of an index its previous one, until update()."""
        return dict(self._hashes)

    def update(self) -> None:
        """Hash the indexes that have changed."""
        rows, _ = self._instance.list_indexes(with_hidden=True)
        for row in rows:
            path = self._instance.index_path(row.uuid)
            try:
                found = _hash(path, self._states.get(row.uid))
            except sqlite3.Error:  # deleted meanwhile
                continue
            if found is not None:
                self._states[row.uid], self._hashes[row.uid] = found
        for uid in self._hashes.keys() - {row.uid for row in rows}:
            self._hashes.pop(uid)
            self._states.pop(uid, None)


def _hash(path: Path, known: tuple[str, int] | None) -> tuple[tuple[str, int], list[object]] | None:
    """Return the state (name of the file, last task) and the hash of an index; None if its state is `known`."""
    with closing(open_reader(path)) as reader:
        reader.execute("BEGIN")
        outcomes = stored_outcomes(reader)
        state = path.name, -1 if outcomes is None else outcomes.last
        if state == known:
            return None
        total = 0
        for document_id, text in reader.execute("SELECT document_id, json FROM documents"):
            digest = hashlib.blake2b(f"{document_id}\n{text}".encode(), digest_size=_BYTES).digest()
            total = (total + int.from_bytes(digest)) % _MODULUS  # in any order
        whole = hashlib.blake2b(f"{total}".encode(), digest_size=_BYTES)
        for (value,) in reader.execute(_SETTINGS):
            whole.update(value if isinstance(value, bytes) else str(value).encode())
        return state, [state[1], whole.hexdigest()]
