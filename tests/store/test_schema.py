"""What must hold when a folder is older than svcd: it is upgraded at the start, and then as good as a new one."""
from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from svcd.store import schema
from svcd.store.instance import Instance
from svcd.store.webhooks import Webhook


def _tables(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))


def test_format_1_gets_webhooks_and_their_outbox(tmp_path: Path) -> None:
    fresh = Instance(tmp_path / "data")
    task = fresh.queue.enqueue("indexSwap", None, details={"swaps": []}, content={"swaps": []})
    fresh.close()
    path = tmp_path / "data" / "instance.sqlite"
    whole = _tables(path)
    with closing(sqlite3.connect(path)) as connection:  # as format 1 was
        for table in ("notice_parts", "notices", "outbox", "webhooks", "keys", "revisions"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 1")
    assert _tables(path) < whole
    upgraded = Instance(tmp_path / "data")
    assert upgraded.queue.task(task.uid) is not None
    upgraded.webhooks.create(Webhook("a", "http://a.test"))
    upgraded.close()
    assert _tables(path) == whole
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.FORMAT,)


def test_an_index_of_an_older_format_is_the_same_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)) as connection:
        schema.prepare(connection, schema.INDEX)
        tables = connection.execute("SELECT sql FROM sqlite_master").fetchall()
        connection.execute("PRAGMA user_version = 1")
        assert schema.prepare(connection, schema.INDEX)
        assert connection.execute("SELECT sql FROM sqlite_master").fetchall() == tables
        assert not schema.prepare(connection, schema.INDEX)
