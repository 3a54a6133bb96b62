"""A dump or snapshot that a start names is imported into a new database, and otherwise refused or passed over.

1. A new database, absent or empty, begins with it.
2. A database that is there is never touched: the start is refused, or goes on with it.
3. What is not there is refused, or the start goes on without it.
4. The companions mean nothing without it, and are refused then.
5. A database begins with one of them, not with both.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from svcd.cli import first_start
from svcd.cli.config import ConfigError, load
from svcd.tasks import importing, snapshot_import

each_noun = pytest.mark.parametrize("noun", ["dump", "snapshot"])


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, Path]]:
    """What, file and folder of each import that is asked for."""
    made: list[tuple[str, Path, Path]] = []
    monkeypatch.setattr(importing, "import_dump", lambda path, folder, budget: made.append(("dump", path, folder)))
    monkeypatch.setattr(snapshot_import, "import_snapshot",
                        lambda path, folder: made.append(("snapshot", path, folder)))
    return made


def start(folder: Path, noun: str, **flags: Any) -> None:
    first_start.begin(load({f"import_{noun}": str(folder / "file"), "db_path": str(folder / "db"), **flags}, {}))


@each_noun
@pytest.mark.parametrize("is_there", [True, False])
def test_a_new_database_begins_with_it(tmp_path: Path, imports: Any, is_there: bool, noun: str) -> None:
    (tmp_path / "file").touch()
    if is_there:
        (tmp_path / "db").mkdir()
    for flags in ({}, {f"ignore_missing_{noun}": True, f"ignore_{noun}_if_db_exists": True}):
        start(tmp_path, noun, **flags)
    assert imports == [(noun, tmp_path / "file", tmp_path / "db")] * 2


@each_noun
def test_a_database_that_is_there_is_kept(tmp_path: Path, imports: Any, noun: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "VERSION").touch()
    with pytest.raises(ConfigError, match=f"exists already.*--ignore-{noun}-if-db-exists"):
        start(tmp_path, noun, **{f"ignore_missing_{noun}": True})
    start(tmp_path, noun, **{f"ignore_{noun}_if_db_exists": True})
    assert imports == []


@each_noun
def test_what_is_not_there_is_refused_or_passed_over(tmp_path: Path, imports: Any, noun: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no {noun} .*--ignore-missing-{noun}"):
        start(tmp_path, noun, **{f"ignore_{noun}_if_db_exists": True})
    start(tmp_path, noun, **{f"ignore_missing_{noun}": True})
    assert imports == []


@each_noun
@pytest.mark.parametrize("name", ["ignore_missing_{}", "ignore_{}_if_db_exists"])
def test_companions_need_what_they_accompany(name: str, noun: str) -> None:
    with pytest.raises(ConfigError, match=f"has no effect without a {noun}"):
        load({name.format(noun): True}, {})


def test_a_database_begins_with_one_of_them() -> None:
    with pytest.raises(ConfigError, match="^--import-snapshot: .* leave out --import-dump"):
        load({"import_dump": "a", "import_snapshot": "b"}, {})
