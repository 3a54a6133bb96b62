"""A dump that a start names is imported into a new database, and otherwise refused or passed over as the options say.

1. A new database, absent or empty, begins with the dump.
2. A database that is there is never touched: the start is refused, or goes on with it.
3. A dump that is not there is refused, or the start goes on without it.
4. The companions mean nothing without a dump, and are refused then.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from svcd.cli import first_start
from svcd.cli.config import ConfigError, load
from svcd.tasks import importing


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    """Dump and folder of each import that is asked for."""
    made: list[tuple[Path, Path]] = []
    monkeypatch.setattr(importing, "import_dump", lambda path, folder, budget: made.append((path, folder)))
    return made


def start(folder: Path, **flags: Any) -> None:
    first_start.import_dump(load({"import_dump": str(folder / "x.dump"), "db_path": str(folder / "db"), **flags}, {}))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_new_database_begins_with_the_dump(tmp_path: Path, imports: Any, is_there: bool) -> None:
    (tmp_path / "x.dump").touch()
    if is_there:
        (tmp_path / "db").mkdir()
    for flags in ({}, {"ignore_missing_dump": True, "ignore_dump_if_db_exists": True}):
        start(tmp_path, **flags)
    assert imports == [(tmp_path / "x.dump", tmp_path / "db")] * 2


def test_a_database_that_is_there_is_kept(tmp_path: Path, imports: Any) -> None:
    (tmp_path / "x.dump").touch()
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "VERSION").touch()
    with pytest.raises(ConfigError, match="exists already.*--ignore-dump-if-db-exists"):
        start(tmp_path, ignore_missing_dump=True)
    start(tmp_path, ignore_dump_if_db_exists=True)
    assert imports == []


def test_a_dump_that_is_not_there_is_refused_or_passed_over(tmp_path: Path, imports: Any) -> None:
    with pytest.raises(ConfigError, match="there is no dump .*--ignore-missing-dump"):
        start(tmp_path, ignore_dump_if_db_exists=True)
    start(tmp_path, ignore_missing_dump=True)
    assert imports == []


@pytest.mark.parametrize("name", ["ignore_missing_dump", "ignore_dump_if_db_exists"])
def test_companions_need_a_dump(name: str) -> None:
    with pytest.raises(ConfigError, match="has no effect without a dump"):
        load({name: True}, {})
