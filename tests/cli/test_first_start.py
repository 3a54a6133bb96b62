"""Imports of dumps and snapshots at the start, and starts that fail. What must hold:

1. A new database, absent or empty, is made from the dump or snapshot.
2. An existing database is never touched: the start fails, or continues without the import.
3. If the dump or snapshot does not exist, the start fails, or continues without it.
4. The options about missing files and existing databases are rejected without an import.
5. A dump and a snapshot cannot both be imported.
6. A first start that fails removes what it made, and nothing that anybody could miss.
"""
from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.cli import daemon
from svcd.cli.config import ConfigError, load
from svcd.instance.instance import Instance
from svcd.tasks import archive_import
from svcd.tasks.unpacking import new_data_folder

each_noun = pytest.mark.parametrize("noun", ["dump", "snapshot"])


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, Path]]:
    """What, file and folder of each import that is asked for."""
    made: list[tuple[str, Path, Path]] = []
    monkeypatch.setattr(archive_import, "import_dump",
                        lambda path, folder, budget, threads, networks: made.append(("dump", path, folder)))
    monkeypatch.setattr(archive_import, "import_snapshot",
                        lambda path, folder: made.append(("snapshot", path, folder)))
    return made


def start(folder: Path, noun: str, **flags: Any) -> None:
    paths = {f"import_{noun}": str(folder / "file"), "db_path": str(folder / "db")}
    daemon.import_archive(load({"http_addr": "127.0.0.1:0", **paths, **flags}, {}))


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
    with pytest.raises(ConfigError, match=f"already exists.*--ignore-{noun}-if-db-exists"):
        start(tmp_path, noun, **{f"ignore_missing_{noun}": True})
    start(tmp_path, noun, **{f"ignore_{noun}_if_db_exists": True})
    assert imports == []


@each_noun
def test_a_missing_file_is_rejected_or_ignored(tmp_path: Path, imports: Any, noun: str) -> None:
    with pytest.raises(ConfigError, match=f"{noun} .* does not exist; .*--ignore-missing-{noun}"):
        start(tmp_path, noun, **{f"ignore_{noun}_if_db_exists": True})
    start(tmp_path, noun, **{f"ignore_missing_{noun}": True})
    assert imports == []


@each_noun
@pytest.mark.parametrize("name", ["ignore_missing_{}", "ignore_{}_if_db_exists"])
def test_options_about_an_import_need_one(name: str, noun: str) -> None:
    with pytest.raises(ConfigError, match=f"has no effect without a {noun}"):
        load({name.format(noun): True}, {})


def test_a_database_begins_with_one_of_them() -> None:
    with pytest.raises(ConfigError, match="^--import-snapshot: .* remove --import-dump"):
        load({"import_dump": "a", "import_snapshot": "b"}, {})


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_first_start_on_a_taken_address_leaves_nothing(tmp_path: Path, taken: str, is_there: bool) -> None:
    if is_there:
        (tmp_path / "db").mkdir()
    folder = tmp_path / "db" if is_there else tmp_path / "deep" / "er" / "db"
    with pytest.raises(OSError, match="cannot listen"):
        daemon.run(load({"db_path": str(folder), "http_addr": taken}, {}))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["db"] * is_there


def test_a_later_start_on_a_taken_address_keeps_what_is_there(tmp_path: Path, taken: str) -> None:
    Instance(tmp_path / "db").close()
    with pytest.raises(OSError, match="cannot listen"):
        daemon.run(load({"db_path": str(tmp_path / "db"), "http_addr": taken}, {}))
    assert (tmp_path / "db" / "instance.sqlite").exists()


@each_noun
def test_an_import_is_not_begun_on_a_taken_address(tmp_path: Path, imports: Any, taken: str, noun: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot listen"):
        start(tmp_path, noun, http_addr=taken)
    assert imports == []


def failing(folder: Path, begin: Callable[[], None]) -> None:
    with pytest.raises(RuntimeError), daemon.remove_on_failure(folder):
        begin()
        raise RuntimeError


def test_a_database_with_content_stays(tmp_path: Path) -> None:
    def fill() -> None:
        with closing(Instance(tmp_path / "db")) as instance:
            instance.update_features({"metrics": True})

    failing(tmp_path / "db", fill)
    assert (tmp_path / "db" / "instance.sqlite").exists()


def test_a_folder_that_another_svcd_uses_stays(tmp_path: Path) -> None:
    others: list[Instance] = []
    failing(tmp_path / "db", lambda: others.append(Instance(tmp_path / "db")))
    assert (tmp_path / "db" / "instance.sqlite").exists()
    others[0].close()


def test_an_empty_database_goes_with_the_folders_above(tmp_path: Path) -> None:
    failing(tmp_path / "a" / "db", lambda: Instance(tmp_path / "a" / "db").close())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_kept_stays(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), daemon.remove_on_failure(tmp_path / "db") as keep:
        Instance(tmp_path / "db").close()
        keep()
        raise RuntimeError
    assert (tmp_path / "db" / "instance.sqlite").exists()


def test_sigterm_ends_an_import_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()

    def import_one(_path: Path, folder: Path) -> None:
        with new_data_folder(folder):
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("not reached")

    monkeypatch.setattr(archive_import, "import_snapshot", import_one)
    with pytest.raises(SystemExit):
        start(tmp_path, "snapshot")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
