"""What must hold of those who only read a data folder while a daemon has it.

1. They see every committed change of the list of indexes, without being told.
2. They write nothing: neither a file nor a row, and take no lock.
3. Features are as they were told; those that are told of a removal hold no file of the index any more.
4. Where processes share the number of changes, a state is read once between two changes, and an old one is never returned.
5. What is kept between searches may take more room the larger the indexes are that are read, within bounds, and twice as much while
   an index lacks its precomputed postings.
"""
from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.base.docids import DocIds, to_bytes
from svcd.base.errors import ApiError
from svcd.index.connections import open_writer
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.instance.data_folder import MIN_CACHE_BYTES, DataFolderReader, IndexRow
from svcd.instance.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def library(instance: Instance) -> Iterator[DataFolderReader]:
    opened = DataFolderReader(instance.path, {"metrics": True})
    yield opened
    opened.close()


def create(instance: Instance, index_uid: str, uuid: str) -> None:
    with closing(open_writer(instance.path / "instance.sqlite")) as connection:
        instance.create_index(connection, IndexRow(index_uid, uuid, 1, 1))


def test_it_sees_what_was_committed(instance: Instance, library: DataFolderReader) -> None:
    assert library.list_indexes() == ([], 0)
    create(instance, "films", "u1")
    assert library.require_index("films").uuid == "u1"
    with pytest.raises(ApiError, match="Index `books` not found"):
        library.require_index("books")


def test_a_state_is_read_once_between_changes(instance: Instance, library: DataFolderReader, monkeypatch: pytest.MonkeyPatch) -> None:
    with instance.changing():  # sharing begins while an index changes
        changes = memoryview(bytearray(8)).cast("q")
        instance.share_changes(changes)
        library.share_changes(changes)
        create(instance, "films", "u1")
        writer = IndexWriter(instance.index_path("u1"))
    statements: list[str] = []
    rows = library._readers.rows
    monkeypatch.setattr(library._readers, "rows", lambda path, text, values=(): statements.append(text) or rows(path, text, values))

    def generation() -> int:
        state = library.index_state("films")
        assert state is not None
        return int(state.state[1])

    before = generation()
    for number in range(3):
        statements.clear()
        assert generation() == before + number and not statements  # known
        with instance.changing():
            assert generation() == before + number
            with instance.changing(), writer.transaction():
                writer.register(["id"])
                writer.write([DocumentChange(number, str(number), f'{{"id":{number}}}', {"id": [str(number)]})])
            assert generation() == before + number + 1 and generation() == before + number + 1
        assert len(statements) == 6  # read each time while something changes
        assert generation() == before + number + 1 and len(statements) == 8
    writer.close()


def test_it_cannot_write(library: DataFolderReader) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly|read-only|query_only"):
        with library.read_instance() as connection:
            connection.execute("DELETE FROM indexes")


def test_it_needs_no_lock_and_leaves_no_file(instance: Instance) -> None:
    before = sorted(instance.path.rglob("*"))
    opened = DataFolderReader(instance.path)
    opened.list_indexes()
    opened.close()
    assert sorted(instance.path.rglob("*")) == before


def test_features_are_those_it_was_given(library: DataFolderReader) -> None:
    assert library.is_enabled("metrics") and not library.is_enabled("network")
    library.use_features({"network": True})
    assert library.features() == {"network": True}


def test_the_daemon_says_what_it_changes(instance: Instance) -> None:
    told: list[object] = []
    instance.on_features = lambda: told.append(instance.features())
    instance.on_removal = told.append
    instance.update_features({"network": True})
    instance.force_feature("metrics")
    instance.remove_file("u1")
    assert told == [{"network": True}, {"network": True, "metrics": True}, "u1"]


def test_what_is_forgotten_is_held_no_more(instance: Instance, library: DataFolderReader) -> None:
    create(instance, "films", "u1")
    path = instance.index_path("u1")
    sqlite3.connect(path).execute("CREATE TABLE meta(key, value)").connection.close()
    with library.read("films"):
        pass
    assert str(path) in _open_files()
    library.forget("u1")
    assert str(path) not in _open_files()


def test_larger_indexes_have_more_room_between_searches(
        instance: Instance, library: DataFolderReader, monkeypatch: pytest.MonkeyPatch) -> None:
    least, most = 8 << 10, 64 << 10
    monkeypatch.setattr("svcd.instance.data_folder.MIN_CACHE_BYTES", least)
    monkeypatch.setattr("svcd.instance.data_folder.MAX_CACHE_BYTES", most)
    rooms, bytes_of_all = [], 0
    for number, kib in enumerate([16, 800, 800]):
        create(instance, f"films{number}", f"u{number}")
        bytes_of_all += _fill(instance.index_path(f"u{number}"), kib << 10)
        with library.read(f"films{number}"):
            rooms.append(_kept(library))
            assert rooms[-1] == min(max(bytes_of_all // 20, least), most)
    assert rooms[0] == least < rooms[1] < rooms[2]
    for uuid in ("u0", "u1"):
        library.forget(uuid)
    size = _fill(instance.index_path("u2"), 2 << 20)
    with library.read("films2"):
        assert _kept(library) == most < size // 20
    size = _fill(instance.index_path("u2"), 3 << 20)
    with library.read("films2"):
        assert _kept(library) == size // 50 > most
        library.limit_cache(3 << 20)
        assert _kept(library) == 3 << 20 == 4 * library.answer_limit
        library.share_cache(3)
        assert _kept(library) == 1 << 20
        library.share_cache(1)
        library.limit_cache(None)
        assert _kept(library) == size // 50


def test_searches_have_twice_the_room_until_postings_are_precomputed(instance: Instance, library: DataFolderReader) -> None:
    create(instance, "films", "u1")
    rooms = []
    for build in ('[1, 5000, "collect", 9]', '[1, 5000, "done", 0]'):
        with closing(sqlite3.connect(instance.index_path("u1"))) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS meta(key PRIMARY KEY, value)")
            connection.executemany("REPLACE INTO meta VALUES (?, ?)", [("docids", to_bytes(DocIds(range(5000)))),
                                                                       ("materialized_build", build)])
        with library.read("films"):
            rooms.append(_kept(library))
    assert rooms == [2 * MIN_CACHE_BYTES, MIN_CACHE_BYTES]


def _kept(library: DataFolderReader) -> int:
    return library._cache.limit + library.answer_limit


def _fill(path: Path, size: int) -> int:
    """Make a file of more bytes; how many it has."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS meta(key, value)")
        connection.execute("INSERT INTO meta VALUES (NULL, zeroblob(?))", (size,))
    connection.close()
    return path.stat().st_size


def _open_files() -> set[str]:
    return {os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}
