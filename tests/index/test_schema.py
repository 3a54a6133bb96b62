"""What must hold of the formats of files:

1. A file of an older format is upgraded in place, step by step, and keeps all it had.
2. An upgrade that fails leaves the old file.
3. A format that changed nothing in a kind of file needs no step.
4. A file of a newer format is refused, and left as it is.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from svcd.index import schema

Steps = Mapping[int, schema.Step]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """A file of format 1 with a row in it, while svcd has come to format 3."""
    connection = sqlite3.connect(tmp_path / "file.sqlite", isolation_level=None)
    monkeypatch.setattr(schema, "FORMAT", 1)
    assert schema.prepare(connection, kind({}))
    connection.execute("INSERT INTO held VALUES (7)")
    monkeypatch.setattr(schema, "FORMAT", 3)
    yield connection
    connection.close()


def kind(steps: Steps) -> tuple[schema.Step, Steps]:
    return schema.statements("CREATE TABLE held (number INTEGER)"), steps


def tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]


def version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def test_an_older_file_is_upgraded_step_by_step(old: sqlite3.Connection) -> None:
    steps = {1: schema.statements("CREATE TABLE second (number INTEGER)"), 2: schema.statements("INSERT INTO second VALUES (2)")}
    assert schema.prepare(old, kind(steps)) and not schema.prepare(old, kind(steps))
    assert version(old) == 3 and tables(old) == ["held", "second"]
    assert old.execute("SELECT * FROM held").fetchall() == [(7,)]
    assert old.execute("SELECT * FROM second").fetchall() == [(2,)]


def test_an_upgrade_that_fails_leaves_the_old_file(old: sqlite3.Connection) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        schema.prepare(old, kind({1: schema.statements("CREATE TABLE second (number INTEGER)"), 2: fail}))
    assert version(old) == 1 and tables(old) == ["held"]


def test_a_format_that_changed_nothing_needs_no_step(old: sqlite3.Connection) -> None:
    assert schema.prepare(old, kind({}))
    assert version(old) == 3 and tables(old) == ["held"]


def test_a_newer_file_is_refused(old: sqlite3.Connection) -> None:
    old.execute("PRAGMA user_version = 4")
    with pytest.raises(schema.NewerFormat, match="has format 4; this svcd .* reads up to format 3"):
        schema.prepare(old, kind({}))
    assert version(old) == 4
