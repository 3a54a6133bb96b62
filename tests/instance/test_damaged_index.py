"""What must hold when reading an index fails:

1. With damage in its file the error is index_corrupted, which names the index, the fault and what to do; it is logged once, and noted.
2. With a sound file the error is a bug, and stays what it is.
3. Damage that was noted is forgotten by the next start.
4. Damage of instance.sqlite that no constraint of SQLite finds is found.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.base.errors import ApiError
from svcd.index import damage, schema
from tests.tasks.conftest import TaskHarness


def films(tmp_path: Path, statement: str | None) -> TaskHarness:
    """An instance with an index that was changed by a statement."""
    harness = TaskHarness(tmp_path / "data")
    harness.add([{"id": n, "title": f"star {n}"} for n in range(20)], "films")
    harness.run()
    harness.instance.close()
    if statement:
        with closing(sqlite3.connect(next((harness.path / "indexes").glob("*.sqlite")), isolation_level=None)) as connection:
            connection.execute(statement)
    harness.open()
    return harness


def test_an_error_over_a_damaged_file_is_index_corrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harness = films(tmp_path, "UPDATE meta SET value = x'010203' WHERE key = 'docids'")
    uuid = harness.instance.require_index("films").uuid
    for _ in range(2):
        with pytest.raises(ApiError, match=r"index `films` is damaged: .*svcd repair films") as told, harness.instance.read("films"):
            pass
        assert told.value.code == "index_corrupted" and told.value.status == 500
    assert harness.instance.damaged_indexes() == [uuid]
    assert capsys.readouterr().err.count("an index is damaged") == 1
    task = harness.add([{"id": 30}], "films")
    harness.run()
    assert harness.task(task).error["code"] == "index_corrupted" and not harness.bugs
    harness.restart()
    assert harness.instance.damaged_indexes() == []
    harness.do("indexDeletion", "films")
    harness.run()
    assert harness.instance.index("films") is None
    harness.instance.close()


def test_a_text_that_is_not_utf_8_is_damage_and_not_shown(tmp_path: Path) -> None:
    """Only a comparison with the documents would find it in a row without a checksum."""
    harness = TaskHarness(tmp_path / "data")
    harness.change({"sortableAttributes": ["title"]}, "films")
    harness.add([{"id": n, "title": f"secret {n}"} for n in range(20)], "films")
    harness.run()
    with closing(sqlite3.connect(next((harness.path / "indexes").glob("*.sqlite")), isolation_level=None)) as connection:
        connection.execute("UPDATE value_postings SET value = CAST(x'736563726574ff' AS TEXT) WHERE value = 'secret 7'")
        assert connection.execute("SELECT changes()").fetchone() == (1,)
    with pytest.raises(ApiError, match="not decode to UTF-8") as told, harness.instance.read("films") as reader:
        reader.values.few_values("title", str)
    assert told.value.code == "index_corrupted" and "secret" not in told.value.message
    harness.instance.close()


def test_a_message_of_sqlite_that_is_not_utf_8_is_damage(tmp_path: Path) -> None:
    """It cites the damaged statement of a table, and Python raises UnicodeDecodeError for it."""
    harness = films(tmp_path, None)
    path = harness.instance.index_path(harness.instance.require_index("films").uuid)
    harness.instance.close()
    content = path.read_bytes()
    assert b"CREATE TABLE value_groups" in content
    path.write_bytes(content.replace(b"CREATE TABLE value_groups", b"CREATE TABLE val\xb3e_groups"))
    harness.open()
    with pytest.raises(ApiError, match="malformed database schema") as told, harness.instance.read("films"):
        pass
    assert told.value.code == "index_corrupted"
    assert harness.instance.index_state("films") is None
    harness.do("indexDeletion", "films")
    harness.run()
    assert harness.instance.index("films") is None and not harness.bugs
    harness.instance.close()


def test_a_generator_that_finds_too_few_rows_may_have_met_damage(tmp_path: Path) -> None:
    """Python turns the StopIteration that leaves a generator into RuntimeError."""
    def rows() -> Iterator[int]:
        yield next(iter(()))

    for statement, expected in ((None, RuntimeError), ("UPDATE documents SET json = '{' WHERE docid = 3", ApiError)):
        harness = films(tmp_path / str(statement is None), statement)
        with pytest.raises(expected), harness.instance.read("films"):
            list(rows())
        harness.instance.close()


def test_a_bug_over_a_sound_file_stays_one(tmp_path: Path) -> None:
    harness = films(tmp_path, None)
    with pytest.raises(KeyError, match="bug"), harness.instance.read("films"):
        raise KeyError("bug")
    assert harness.instance.damaged_indexes() == []
    harness.instance.close()


def test_rows_on_the_page_of_the_table_without_constraints_are_found(tmp_path: Path) -> None:
    harness = films(tmp_path, None)
    path = harness.path / "instance.sqlite"
    harness.instance.close()
    assert damage.first_fault(path, schema.INSTANCE) is None
    with closing(sqlite3.connect(path)) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = path.read_bytes()
    pages = [content[at:at + size] for at in range(0, len(content), size)]
    left, right = roots["batches"] - 1, roots["sqlite_sequence"] - 1
    pages[left], pages[right] = pages[right], pages[left]
    path.write_bytes(b"".join(pages))
    assert damage.first_fault(path, schema.INSTANCE) == "sqlite_sequence has rows of another table"
