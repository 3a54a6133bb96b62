"""Readers of many files with few descriptors.

1. No more files are open than the pool may have, whatever number of them is read.
2. Who holds no reader waits for one to be given back; who holds one does not, so that no two wait for each other.
3. Without a descriptor left, idle readers are closed; where there is none, EMFILE is raised, and all is well afterwards.
4. A file that is not there is told at once.
5. The readers that many at once have left behind are closed; a few are kept.
6. A pool of another process opens the same files; one that is gone is no obstacle.
"""
from __future__ import annotations

import errno
import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from svcd.index import connections
from svcd.index.connections import ReadPool, open_writer

PATIENCE_S = 10


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number}.sqlite" for number in range(12)]
    for number, path in enumerate(found):
        writer = open_writer(path)
        writer.execute("CREATE TABLE numbers(number)")
        writer.execute("INSERT INTO numbers VALUES (?)", (number,))
        writer.close()
    return found


def number_in(pool: ReadPool, path: Path) -> int:
    with pool.transaction(path) as connection:
        return int(connection.execute("SELECT number FROM numbers").fetchone()[0])


def open_files(folder: Path) -> set[str]:
    """The databases in a folder that this process has open."""
    links = [Path(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if link.is_symlink()]
    return {name for name in names if name.startswith(str(folder)) and name.endswith(".sqlite")}


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Only so many more descriptors, for the length of a block."""
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)  # the lowest number that is free; there may be free ones above it, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    above = [number for number in map(int, os.listdir("/proc/self/fd")) if number > spare]
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + len([n for n in above if n < spare + count]) + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_more_files_are_open_than_may_be(paths: list[Path]) -> None:
    pool = ReadPool(most_open=3)
    for _ in range(2):
        for number, path in enumerate(paths):
            assert number_in(pool, path) == number
            assert len(open_files(path.parent)) <= 3
    pool.close()
    assert not open_files(paths[0].parent)


def test_who_holds_no_reader_waits_for_one(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAIT_S", PATIENCE_S)
    pool = ReadPool(most_open=1)
    got: list[int] = []
    with pool.transaction(paths[0]):
        thread = threading.Thread(target=lambda: got.append(number_in(pool, paths[1])))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive() and not got
    thread.join(PATIENCE_S)
    assert got == [1] and len(open_files(paths[0].parent)) == 1
    pool.close()


def test_who_holds_one_does_not_wait(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAIT_S", 1e6)
    monkeypatch.setattr(connections, "HOLDER_WAIT_S", 1e6)
    pool = ReadPool(most_open=2)
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(pool.transaction(path))
        assert len(open_files(paths[0].parent)) == len(paths)
    assert len(open_files(paths[0].parent)) <= 2
    pool.close()


def test_idle_readers_are_closed_for_want_of_descriptors(paths: list[Path]) -> None:
    pool = ReadPool()
    with descriptors_left(8):
        assert [number_in(pool, path) for path in paths] == list(range(len(paths)))
    pool.close()


def test_without_any_descriptor_it_is_logged_and_passes(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HOLDER_WAIT_S", 0.01)
    pool = ReadPool()
    with descriptors_left(8), ExitStack() as stack, pytest.raises(OSError) as failure:
        for path in paths:
            stack.enter_context(pool.transaction(path))
    assert failure.value.errno == errno.EMFILE
    assert [number_in(pool, path) for path in paths] == list(range(len(paths)))
    pool.close()


def test_spare_readers_are_closed(paths: list[Path]) -> None:
    pool = ReadPool()
    number_in(pool, paths[0])
    pool.close_spare()
    assert len(open_files(paths[0].parent)) == 1, "few are kept"
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(pool.transaction(path))
        pool.close_spare()
        assert len(open_files(paths[0].parent)) == len(paths), "those in use are not spare"
    pool.close_spare()
    assert not open_files(paths[0].parent)
    assert [number_in(pool, path) for path in paths] == list(range(len(paths)))
    pool.close()


def test_sqlite_gives_back_the_descriptors_of_readers_that_were_closed(paths: list[Path]) -> None:
    pool = ReadPool()
    number_in(pool, paths[0])
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        for _ in paths:  # of the same file, as large answers do it
            stack.enter_context(pool.transaction(paths[0])).close()
    pool.close_spare()
    assert len(os.listdir("/proc/self/fd")) <= before
    pool.close()


def test_an_absent_file_is_reported_at_once(tmp_path: Path) -> None:
    pool = ReadPool()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        pool.begin(tmp_path / "none.sqlite")


def test_another_pool_opens_the_same_files(paths: list[Path], tmp_path: Path) -> None:
    pool, other = ReadPool(), ReadPool()
    for path in paths[:3]:
        number_in(pool, path)
    number_in(pool, paths[0])
    pool.close_spare()
    used = pool.paths()
    assert used == [str(paths[number]) for number in (1, 2, 0)]
    pool.close()
    assert pool.paths() == [] and not open_files(tmp_path)
    paths[2].unlink()
    other.open(used)
    assert open_files(tmp_path) == {str(paths[1]), str(paths[0])} and other.paths() == [used[0], used[2]]
    other.close()
