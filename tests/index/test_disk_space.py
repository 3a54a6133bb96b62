"""What must hold of the reserve of room, on a disk that a test invents, and of readers that find none."""
from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from svcd.base.errors import ApiError
from svcd.index import disk_space
from svcd.index.connections import FullDiskReader, ReadPool, open_reader, open_writer
from svcd.index.disk_space import LEAST_BYTES, LOW_BYTES, PART_BYTES, Reserve, is_disk_failure, lacks_room
from svcd.instance.instance import Instance
from svcd.instance.queue import SPACE_FREEING_KINDS
from tests.support.disk_errors import sqlite_error

GIB = 1 << 33


class Disk:
    """How much is left, and how large it is."""

    def __init__(self, free: int = GIB, whole: int = GIB) -> None:
        self.free, self.whole = free, whole

    def __call__(self, _folder: Path) -> tuple[int, int]:
        return self.free, self.whole


@pytest.mark.parametrize(("code", "free", "is_full"), [
    (sqlite3.SQLITE_FULL, LOW_BYTES, True),
    (sqlite3.SQLITE_IOERR_SHMSIZE, LOW_BYTES - 1, True),
    (sqlite3.SQLITE_IOERR_SHMSIZE, LOW_BYTES, False),  # the shared index of the log cannot grow, for EIO
    (sqlite3.SQLITE_IOERR_WRITE, 0, False)])
def test_a_disk_that_failed_is_told_from_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, free: int,
                                                    is_full: bool) -> None:
    monkeypatch.setattr(disk_space, "disk_bytes", Disk(free))
    error = sqlite_error(code)
    assert lacks_room(error, tmp_path) == is_full and (is_full or is_disk_failure(error))


@pytest.mark.parametrize(("code", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_full_disk_is_known_by_the_errors_of_the_system(tmp_path: Path, code: int, is_full: bool) -> None:
    error = OSError(code, os.strerror(code))
    assert lacks_room(error) == lacks_room(error, tmp_path) == is_full and (is_full or is_disk_failure(error))


def size(folder: Path) -> int:
    return (folder / "reserve").stat().st_size


def test_a_reserve_fits_the_largest_index_and_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "MOST_BYTES", 3 * LEAST_BYTES)
    reserve = Reserve(tmp_path, Disk())
    reserve.keep(0)
    assert size(tmp_path) == LEAST_BYTES
    reserve.fit(4 * LEAST_BYTES)
    assert size(tmp_path) == LEAST_BYTES
    reserve.fit(8 * LEAST_BYTES)
    assert size(tmp_path) == 2 * LEAST_BYTES
    reserve.fit(1 << 40)
    assert size(tmp_path) == disk_space.MOST_BYTES
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= disk_space.MOST_BYTES  # room that is taken, not a hole


def test_a_small_disk_has_a_small_reserve(tmp_path: Path) -> None:
    Reserve(tmp_path, Disk(16 << 20, 16 << 20)).keep(0)
    assert size(tmp_path) == 1 << 20


def test_a_disk_without_room_has_none_and_refuses_nothing(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, Disk(free=100))
    reserve.keep(0)
    assert not (tmp_path / "reserve").exists() and not reserve.give_up()
    reserve.refuse_growth()


def test_no_reserve_is_made_unless_asked_for(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, Disk())
    reserve.fit(GIB)
    reserve.restore()
    assert not (tmp_path / "reserve").exists()


def test_it_is_given_up_when_next_to_nothing_is_left_and_made_again_when_there_is(tmp_path: Path) -> None:
    disk = Disk()
    reserve = Reserve(tmp_path, disk)
    reserve.keep(0)
    reserve.make_way()
    assert not reserve.is_short
    disk.free = LOW_BYTES - 1
    reserve.make_way(LEAST_BYTES)
    assert reserve.is_short and size(tmp_path) == 0
    with pytest.raises(ApiError, match="only deletions") as refused:
        reserve.refuse_growth()
    assert refused.value.code == "no_space_left_on_device"
    disk.free = LEAST_BYTES + LOW_BYTES
    reserve.refuse_growth()
    assert not reserve.is_short and size(tmp_path) == LEAST_BYTES


def test_what_is_left_of_it_is_taken_back_at_once(tmp_path: Path) -> None:
    disk = Disk()
    reserve = Reserve(tmp_path, disk)
    reserve.keep(0)
    disk.free = 0
    with reserve.in_use():
        reserve.make_way()
        assert size(tmp_path) == LEAST_BYTES - PART_BYTES
        reserve.restore()
        assert size(tmp_path) == LEAST_BYTES - PART_BYTES
    reserve.restore()
    assert size(tmp_path) == LEAST_BYTES and reserve.is_short  # nothing else is free


def test_a_restart_knows_that_it_is_short(tmp_path: Path) -> None:
    disk = Disk(free=0)
    (tmp_path / "reserve").touch()
    reserve = Reserve(tmp_path, disk)
    reserve.keep(0)
    with pytest.raises(ApiError):
        reserve.refuse_growth()
    disk.free = GIB
    reserve.refuse_growth()


def test_while_it_is_short_only_what_frees_room_is_enqueued(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    disk = Disk()
    instance.reserve.disk = disk
    instance.keep_reserve()
    disk.free = 0
    for kind in sorted(SPACE_FREEING_KINDS):
        assert instance.queue.enqueue(kind, None, details=None).uid >= 0
    for kind in ("documentAdditionOrUpdate", "settingsUpdate", "indexCreation", "dumpCreation"):
        with pytest.raises(ApiError, match="only deletions"):
            instance.queue.enqueue(kind, None, details=None)
    assert instance.database_size() == sum(
        file.stat().st_size for file in tmp_path.rglob("*") if file.is_file() and file.name != "reserve")
    instance.close()


def test_a_task_that_frees_room_and_finds_none_is_tried_with_the_reserve(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the disk says that it has left: quotas are not seen there."""
    instance = Instance(tmp_path)
    instance.keep_reserve()
    queue, give_up, large = instance.queue, instance.reserve.give_up, {"text": "x" * 50_000}
    with queue.finishing() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")

    def free(*parts: int) -> bool:
        connection.execute(f"PRAGMA max_page_count = {pages + 100}")
        return give_up(*parts)

    monkeypatch.setattr(instance.reserve, "give_up", free)
    with pytest.raises(sqlite3.OperationalError):
        queue.enqueue("settingsUpdate", "movies", details=None, content=large)
    assert queue.enqueue("indexDeletion", "movies", details=None, content=large).uid == 0
    instance.close()


_READ = """
import resource, signal, sys
from pathlib import Path
from svcd.index.connections import FullDiskReader, ReadPool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
pool = ReadPool()
for turn in range(2):
    with pool.transaction(sys.argv[1]) as connection:
        print(type(connection) is FullDiskReader, connection.execute("SELECT count(*) FROM films").fetchone()[0])
"""


def test_a_reader_without_room_for_the_index_of_the_log_reads(tmp_path: Path) -> None:
    """A process that may write no file beyond 1 KB stands for a full disk."""
    path = tmp_path / "films.sqlite"
    writer = open_writer(path)
    writer.execute("CREATE TABLE films(title)")
    writer.execute("INSERT INTO films VALUES ('one')")
    writer.close()
    assert not list(tmp_path.glob("*-shm"))
    said = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parents[2])
    assert said.stdout.split("\n")[:2] == ["True 1", "True 1"], said.stderr


def test_a_reader_without_room_sees_what_is_written_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "films.sqlite"
    writer = open_writer(path)
    writer.execute("CREATE TABLE films(title)")
    writer.close()
    Path(f"{path}-shm").touch()
    reader = sqlite3.connect(f"{path.as_uri()}?mode=ro&readonly_shm=1", uri=True, factory=FullDiskReader, isolation_level=None)
    code = ("import sys; from pathlib import Path; from svcd.index.connections import open_writer\n"
            "open_writer(Path(sys.argv[1])).execute(\"INSERT INTO films VALUES ('one')\")")
    for count in range(3):
        assert reader.execute("SELECT count(*) FROM films").fetchone() == (count,)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM films").fetchone() == (count,)
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=Path(__file__).parents[2])
        assert reader.execute("SELECT count(*) FROM films").fetchone() == (count,)
        reader.execute("ROLLBACK")
    reader.close()


def test_a_makeshift_reader_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_writer(tmp_path / "films.sqlite")) as writer:
        writer.execute("CREATE TABLE films(title)")
    pool = ReadPool()
    monkeypatch.setattr("svcd.index.connections.open_reader", lambda path: sqlite3.connect(path, factory=FullDiskReader))
    with pool.transaction(tmp_path / "films.sqlite") as first:
        pass
    with pytest.raises(sqlite3.ProgrammingError):
        first.execute("SELECT 1")
    with closing(open_reader(tmp_path / "films.sqlite")) as reader:
        assert not isinstance(reader, FullDiskReader)
