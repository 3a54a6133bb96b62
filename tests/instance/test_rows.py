"""What must hold of changes of rows:

1. A change is computed from the row as it is, returns what it was, and is told to who follows; none that changes nothing.
2. All changes of one call are made, or none; an exception of `compute` leaves everything as it was.
3. With a log, a change that no longer fits is computed anew from what the row has become.
4. Rows that are replaced keep their place; the notices of a deleted webhook go with it; changes of keys are counted.

What must hold of stored keys.

5. What was added is read back whole, newest first; a uid is there once.
6. Each change, and nothing else, makes another revision, seen by every reader at once.
7. Default keys are made only where there is none.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from svcd.index import schema
from svcd.index.connections import open_writer, write_transaction
from svcd.instance import rows
from svcd.instance.data_folder import DataFolderReader
from svcd.instance.instance import Instance
from svcd.instance.rows import TABLES, KeyRow, Row, RowChange, RowWriter, always, read_row


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "instance.sqlite")) as made:
        schema.prepare(made, schema.INSTANCE)
        yield made


@pytest.fixture
def writer(connection: sqlite3.Connection) -> RowWriter:
    return RowWriter(connection, threading.RLock())


def counted(before: Row | None) -> Row:
    return {"enabled": 1 if before is None else before["enabled"] + 1}


def test_the_table_names_the_columns_of_the_schema(connection: sqlite3.Connection) -> None:
    for table, (key, columns) in TABLES.items():
        assert {key, *columns, "checksum"} == {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


# -- 1. One change


def test_1_a_change_is_computed_from_the_row(writer: RowWriter, connection: sqlite3.Connection) -> None:
    told: list[tuple[str, str]] = []
    writer.on_change = lambda table, key: told.append((table, key))
    assert [writer.change("features", "x", counted) for _ in range(3)] == [None, {"enabled": 1}, {"enabled": 2}]
    assert read_row(connection, "features", "x") == {"enabled": 3} and told == [("features", "x")] * 3
    assert writer.change("features", "x", lambda before: None) == {"enabled": 3}
    assert read_row(connection, "features", "x") is None


def test_1_what_changes_nothing_is_not_told(writer: RowWriter) -> None:
    writer.change("features", "x", always({"enabled": 1}))
    writer.on_change = lambda table, key: pytest.fail("told")
    assert writer.change("features", "x", always({"enabled": 1})) == {"enabled": 1}
    assert writer.change("features", "y", lambda before: None) is None


# -- 2. Several at once


def test_2_an_exception_leaves_everything_as_it_was(writer: RowWriter, connection: sqlite3.Connection) -> None:
    def refuse(before: Row | None) -> Row:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        writer.change_all([("features", "x", counted), ("features", "y", refuse)])
    assert read_row(connection, "features", "x") is None


def test_2_changes_fit_all_together_or_not_at_all(connection: sqlite3.Connection) -> None:
    x = RowChange("features", "x", None, {"enabled": 1})
    y = RowChange("features", "y", {"enabled": 5}, None)
    with write_transaction(connection):
        assert not rows.apply(connection, [x, y])
        assert read_row(connection, "features", "x") is None
        assert rows.apply(connection, [x])
        assert not rows.apply(connection, [x])  # it is no longer absent


# -- 3. Through a log


def test_3_a_change_that_no_longer_fits_is_computed_anew(writer: RowWriter, connection: sqlite3.Connection) -> None:
    sent: list[Sequence[RowChange]] = []

    def replicate(changes: Sequence[RowChange]) -> bool:
        sent.append(changes)
        with write_transaction(connection):
            if len(sent) == 1:  # another node was first
                rows.apply(connection, [RowChange("features", "x", None, {"enabled": 7})])
            return rows.apply(connection, changes)

    writer.replicate = replicate
    assert writer.change("features", "x", counted) == {"enabled": 7}
    assert [(change.before, change.after) for changes in sent for change in changes] == [
        (None, {"enabled": 1}), ({"enabled": 7}, {"enabled": 8})]
    assert read_row(connection, "features", "x") == {"enabled": 8}


def test_3_what_changes_nothing_is_not_sent(writer: RowWriter) -> None:
    writer.replicate = lambda changes: pytest.fail("sent")
    assert writer.change("features", "x", lambda before: None) is None


def test_3_only_the_rows_that_change_are_sent(writer: RowWriter) -> None:
    writer.change("features", "x", always({"enabled": 1}))
    sent: list[str] = []

    def replicate(changes: Sequence[RowChange]) -> bool:
        sent.extend(change.key for change in changes)
        return True

    writer.replicate = replicate
    writer.change_all([("features", "x", always({"enabled": 1})), ("features", "y", always({"enabled": 1}))])
    assert sent == ["y"]


# -- 4. Tables


def key(name: str) -> Row:
    return {"name": name, "description": None, "actions": "[]", "indexes": "[]", "expires_at": None, "created_at": 1,
            "updated_at": 1}


def test_4_a_row_that_is_replaced_keeps_its_place(writer: RowWriter, connection: sqlite3.Connection) -> None:
    for uid in ("b", "a", "c"):
        writer.change("keys", uid, always(key(uid)))
    writer.change("keys", "b", always(key("new")))
    assert connection.execute("SELECT uid, name FROM keys ORDER BY rowid").fetchall() == [("b", "new"), ("a", "a"), ("c", "c")]


def test_4_changes_of_keys_are_counted(writer: RowWriter, connection: sqlite3.Connection) -> None:
    def count() -> int:
        return sum(number for (number,) in connection.execute("SELECT number FROM revisions WHERE subject = 'keys'"))

    writer.change("features", "x", always({"enabled": 1}))
    before = count()
    writer.change("keys", "a", always(key("a")))
    writer.change("keys", "a", lambda row: None)
    assert count() == before + 2


def test_4_the_notices_of_a_deleted_webhook_go_with_it(writer: RowWriter, connection: sqlite3.Connection) -> None:
    for uuid in ("x", "y"):
        writer.change("webhooks", uuid, always({"url": "http://x.test", "headers": "{}"}))
        connection.execute("INSERT INTO outbox(webhook, number, attempts) VALUES (?, 1, 0)", (uuid,))
    writer.change("webhooks", "x", lambda row: None)
    assert connection.execute("SELECT webhook FROM outbox").fetchall() == [("y",)]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data")
    yield opened
    opened.close()


def row(uid: str, created_at: int = 1, **others: object) -> KeyRow:
    return KeyRow(uid, ["search", "*.get"], ["films", "b*"], created_at, created_at, **others)  # type: ignore[arg-type]


def test_a_key_is_read_back_whole(instance: Instance) -> None:
    kept = row("u1", name="né", description="for 'films'", expires_at=10**21)
    assert instance.keys.add(kept)
    assert instance.keys.get("u1") == kept and instance.keys.read()[1] == [kept]
    assert instance.keys.get("u2") is None


def test_a_uid_is_there_once(instance: Instance) -> None:
    assert instance.keys.add(row("u1"))
    revision = instance.keys.revision()
    assert not instance.keys.add(row("u1", name="another"))
    assert instance.keys.read() == (revision, [row("u1")])


def test_newest_first_and_of_the_same_moment_the_last(instance: Instance) -> None:
    for uid, created_at in (("b", 2), ("a", 2), ("c", 1), ("d", 3)):
        instance.keys.add(row(uid, created_at))
    assert [found.uid for found in instance.keys.read()[1]] == ["d", "a", "b", "c"]
    for offset, limit, uids in ((0, 2, ["d", "a"]), (3, 20, ["c"]), (4, 1, []), (0, 0, []), (2**64 - 1, 2**64 - 1, [])):
        found, total = instance.keys.page(offset, limit)
        assert ([one.uid for one in found], total) == (uids, 4)


def test_words_change_and_rights_do_not(instance: Instance) -> None:
    instance.keys.add(row("u1", name="old", description="kept"))
    assert instance.keys.update("u1", {"name": None}, 9) == instance.keys.get("u1")
    found = instance.keys.get("u1")
    assert found and (found.name, found.description, found.created_at, found.updated_at) == (None, "kept", 1, 9)
    assert instance.keys.update("none", {}, 9) is None


def test_every_change_is_a_revision_that_all_readers_see(instance: Instance) -> None:
    library = DataFolderReader(instance.path)
    seen = [library.keys.revision()]
    for change in (lambda: instance.keys.add(row("u1")), lambda: instance.keys.update("u1", {}, 2),
                   lambda: instance.keys.remove("u1"), lambda: instance.keys.add(row("u1"))):
        change()
        seen.append(library.keys.revision())
        assert library.keys.read() == instance.keys.read()
    assert len(set(seen)) == 5
    assert not instance.keys.remove("none") and not instance.keys.add(row("u1"))
    instance.queue.enqueue("indexCreation", "films", details=None)
    assert library.keys.revision() == seen[-1]
    library.close()


def test_defaults_are_for_the_empty_alone(instance: Instance) -> None:
    instance.keys.add_to_empty([row("first"), row("second")])
    assert [found.uid for found in instance.keys.read()[1]] == ["second", "first"]
    instance.keys.add_to_empty([row("third")])
    assert len(instance.keys.read()[1]) == 2
