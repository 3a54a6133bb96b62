"""What must hold of `svcd repair`:

1. An index whose file is damaged has afterwards all documents, vectors and settings that could be read, and `svcd verify --full` finds
   nothing. What was lost is named, with status 1.
2. The damaged file is kept.
3. A folder that a daemon uses is refused.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.cli.main import COMMAND
from tests.support.verification import found_faults
from tests.tasks.conftest import TaskHarness

FILMS = [{"id": n, "title": f"star {n}", "year": 1900 + n, "_vectors": {"e": [n, 1.0, 0.5]}} for n in range(300)]
SETTINGS = {"filterableAttributes": ["year"], "embedders": {"e": {"source": "userProvided", "dimensions": 3}}}
Change = Callable[[Path], None]


def sql(statement: str) -> Change:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(statement)
    return change


def zeroed_root(table: str) -> Change:
    """Zero the first page of a table."""
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        content = bytearray(path.read_bytes())
        content[(page - 1) * 8192:page * 8192] = bytes(8192)
        path.write_bytes(content)
    return change


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    harness = TaskHarness(tmp_path / "data")
    harness.change(SETTINGS, "films")
    harness.add(FILMS, "films")
    harness.run()
    harness.instance.close()
    return harness.path


def file_of(folder: Path) -> Path:
    (path,) = (folder / "indexes").glob("*.sqlite")
    return path


def repaired(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = COMMAND.main(["repair", "films", "--folder", str(folder), "--json"], "svcd", standalone_mode=False)
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("damage, kept, words", [
    (zeroed_root("terms_data"), 300, None),
    (zeroed_root("value_postings"), 300, None),
    (sql("UPDATE forward_index SET words = 'x' WHERE docid = 3"), 300, None),
    (sql("DELETE FROM vector_postings"), 300, None),
    (sql("UPDATE documents SET json = replace(json, 'star', 'stur') WHERE docid = 17"), 299, "the row 17 of documents"),
    (sql("DELETE FROM documents WHERE docid > 290"), 291, "9 of 300 documents"),
    (sql("UPDATE meta SET value = '{' WHERE key = 'settings'"), 300, "'settings'"),
    (zeroed_root("fields"), 300, "the numbers of fields"),
    (zeroed_root("documents"), 0, "300 of 300 documents"),
])
def test_a_damaged_index_is_rebuilt(folder: Path, capsys: pytest.CaptureFixture[str], damage: Change, kept: int,
                                    words: str | None) -> None:
    damage(file_of(folder))
    assert any(found_faults(folder, is_full=True).values())
    status, said = repaired(folder, capsys)
    assert status == (0 if words is None else 1) and (words is None and said["lost"] == [] or words in str(said["lost"]))
    assert Path(said["damagedFile"]).exists() and Path(said["damagedFile"]).parent == folder / "damaged"
    faults = {name: each for name, each in found_faults(folder, is_full=True).items() if each}
    assert faults == {}
    harness = TaskHarness(folder)
    try:
        assert len(harness.documents("films")) == min(kept, 1000)
        harness.add([{"id": 1000, "title": "new star", "_vectors": {"e": [1, 2, 3]}}], "films")
        harness.run()
        assert not harness.bugs and len(harness.find("new", "films")) == 1
    finally:
        harness.instance.close()
    assert not any(found_faults(folder, is_full=True).values())


def test_a_folder_in_use_is_refused(folder: Path) -> None:
    harness = TaskHarness(folder)
    try:
        with pytest.raises(Exception, match="a daemon runs on .*: stop it, repair the index"):
            COMMAND.main(["repair", "films", "--folder", str(folder)], "svcd", standalone_mode=False)
    finally:
        harness.instance.close()
