"""What must hold when svcd is killed while it upgrades a data folder, or imports a dump or a snapshot:

1. An upgrade leaves each file in the old format or in the new one, with all that it had; the next start ends it.
2. An import has made the data folder as a whole, or not at all, and can be done again; then nothing of the first is left.
3. The folder that each format was first released with still opens, with everything in it.

A child process is killed at each statement of SQL and each change of a file name, one after the other; all of them in the long form.
"""
from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
import tarfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.index import schema
from svcd.index.connections import open_reader
from svcd.index.writer import IndexWriter
from svcd.instance.instance import Instance
from svcd.tasks.archive_import import import_dump, import_snapshot
from svcd.tasks.global_tasks import Folders
from tests.faults.make_format_folder import FILMS, KEY, file_of, fill
from tests.support.archives import unpack
from tests.support.verification import found_faults
from tests.tasks.conftest import LocalWriter, TaskHarness
from tests.tasks.test_archive_import import shown
from svcd.tasks import dump_lines

pytestmark = pytest.mark.slow

SHORT, ALL = 6, 100_000  # points of a kill
AGAIN = 10  # after one kill in so many the import is done again
_EVENTS = frozenset(("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "os.link", "os.truncate"))


# Killing a child process at a point of its work


def points(work: Callable[[], object], last: int | None = None) -> int:
    """Do some work in a child process. Returns how many statements and changes of files it had.

    last: the one at which it is killed, None to let it end.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            counted = _count(last)
            work()
            os.write(writing, str(counted()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert status == (0 if last is None else signal.SIGKILL) or said, status
    return int(said or last or 0)


def _count(last: int | None) -> Callable[[], int]:
    """From now on, count the points of this process, and kill it at one; the function that tells how many there were."""
    number = 0

    def point(*_: Any) -> None:
        nonlocal number
        number += 1
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event in _EVENTS and not (event == "open" and args[1] in ("r", "rb")):
            point()

    class Traced(sqlite3.Connection):
        """A connection whose statements are points."""

        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.set_trace_callback(point)

    connect = sqlite3.connect

    def traced(*args: Any, factory: type[sqlite3.Connection] = sqlite3.Connection, **named: Any) -> sqlite3.Connection:
        return connect(*args, factory=type("Traced", (Traced, factory), {}) if factory is not sqlite3.Connection else Traced, **named)

    sqlite3.connect = traced  # type: ignore[assignment]
    sys.addaudithook(audit)
    return lambda: number


def chosen(count: int, most: int, first: int) -> Sequence[int]:
    """About `most` of the points from 1 to `count`, evenly, and the last ones, where the new folder has its name."""
    step = max(1, count // most)
    return sorted({*range(1 + first % step, count + 1, step), count - 1, count})


# Imports


def _written(folder: Path) -> TaskHarness:
    """A folder with something of everything, whose last task waits."""
    harness = TaskHarness(folder / "old", folders=Folders(folder / "dumps", folder / "snapshots"))
    harness.do("snapshotCreation", None)
    harness.run()
    fill(harness)
    return harness


def _dump(harness: TaskHarness) -> Path:
    harness.do("dumpCreation", None, {"dumpUid": None}, keys=[dump_lines.key_line(KEY)], instanceUid=harness.instance.uid)
    harness.runner.step()
    (path,) = (harness.path.parent / "dumps").iterdir()
    return path


def _snapshot(harness: TaskHarness) -> Path:
    harness.do("snapshotCreation", None)
    harness.runner.step()
    (path,) = (harness.path.parent / "snapshots").iterdir()
    return path


def _import_dump(path: Path, folder: Path) -> None:
    import_dump(path, folder, make_writer=LocalWriter)


def _shown(folder: Path) -> dict[str, Any]:
    """What a folder shows before its waiting task has run, and its films after that."""
    harness = TaskHarness(folder)
    try:
        found = shown(harness)
        harness.run()
        return {**found, "films": sorted(each["id"] for each in harness.documents("films").values())}
    finally:
        harness.instance.close()


@pytest.mark.parametrize(("make", "read"), [(_dump, _import_dump), (_snapshot, import_snapshot)], ids=["dump", "snapshot"])
def test_a_killed_import_made_all_or_nothing(make: Callable[[TaskHarness], Path], read: Callable[[Path, Path], None], tmp_path: Path,
                                             seed: int, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    harness = _written(tmp_path)
    path, folder = make(harness), tmp_path / "new" / "data"
    harness.instance.close()
    count = points(lambda: read(path, folder))
    expected = _shown(folder)
    assert expected["films"] == [1, 2, 3, 4]
    ends = {"old": 0, "new": 0}
    for number, point in enumerate(chosen(count, amount(SHORT, ALL), seed)):
        shutil.rmtree(folder.parent)  # with what the import before has left
        points(lambda: read(path, folder), point)
        is_new = folder.exists()
        ends["new" if is_new else "old"] += 1
        if is_new:
            assert not any(folder.with_name(".data.import").glob("*"))
        elif not number % AGAIN:
            read(path, folder)
            assert [entry.name for entry in folder.parent.iterdir()] == ["data"]
        if folder.exists():
            assert _shown(folder) == expected
        folder.parent.mkdir(exist_ok=True)
    figure(f"import of a {make.__name__.strip('_')} killed at a statement or change of a file: neither old nor new", 0,
           f"of {sum(ends.values())} points ({ends['new']} new)", limit="none")


# Upgrades


def _second_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on svcd is at a format in which both kinds of file have changed."""
    def more(connection: sqlite3.Connection, table: str) -> None:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN more TEXT")
        connection.execute("CREATE TABLE fresh (number INTEGER PRIMARY KEY, text TEXT)")
        for number in range(5):
            connection.execute("INSERT INTO fresh VALUES (?, ?)", (number, "x" * 3000))
        connection.execute(f"UPDATE {table} SET more = (SELECT text FROM fresh WHERE number = 3)")
        connection.execute("DROP TABLE fresh")

    monkeypatch.setattr(schema, "FORMAT", schema.FORMAT + 1)
    for name, table in (("INSTANCE", "tasks"), ("INDEX", "documents")):
        create, steps = getattr(schema, name)
        monkeypatch.setattr(schema, name, (create, {**steps, schema.FORMAT - 1: lambda connection, table=table: more(connection, table)}))


def _formats(folder: Path) -> dict[str, int]:
    """The format of each file, by its name; that of instance.sqlite last. Asserts that it has the tables of it."""
    formats = {}
    for path in [*sorted(folder.glob("indexes/*.sqlite")), folder / "instance.sqlite"]:
        with closing(open_reader(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            (formats[path.name],) = connection.execute("PRAGMA user_version").fetchone()
            table = "tasks" if path.name == "instance.sqlite" else "documents"
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            assert ("more" in columns) == (formats[path.name] == schema.FORMAT)
            assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'fresh'").fetchall()
    return formats


def test_a_killed_upgrade_left_old_or_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int,
                                                amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    harness = _written(tmp_path)
    harness.instance.close()
    old, folder = harness.path, tmp_path / "data"
    expected = _copied(old, folder)
    _second_format(monkeypatch)
    shutil.rmtree(folder)
    shutil.copytree(old, folder)
    count = points(lambda: Instance(folder).close())
    assert set(_formats(folder).values()) == {schema.FORMAT}
    tried = mixed = 0
    for point in chosen(count, amount(SHORT, ALL), seed):
        shutil.rmtree(folder)
        shutil.copytree(old, folder)
        points(lambda: Instance(folder).close(), point)
        formats = [*_formats(folder).values()]
        assert formats[-1] < schema.FORMAT or set(formats) == {schema.FORMAT}  # the queue is the last
        assert _shown(folder) == expected
        assert set(_formats(folder).values()) == {schema.FORMAT}
        tried += 1
        mixed += len(set(formats)) > 1
    figure("upgrade killed at a statement or change of a file: files neither old nor new", 0,
           f"of {tried} points ({mixed} with files of both)", limit="none")


def _copied(old: Path, folder: Path) -> dict[str, Any]:
    """What a copy of a folder shows."""
    shutil.copytree(old, folder)
    return _shown(folder)


def test_a_damaged_index_does_not_keep_others_from_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = _written(tmp_path)
    uuid = harness.instance.require_index("films").uuid
    harness.instance.close()
    path = harness.instance.index_path(uuid)
    path.write_bytes(b"no database" * 2000)
    _second_format(monkeypatch)
    with closing(Instance(harness.path)) as instance:
        assert len(instance.list_indexes()[0]) == 2
        empty = instance.require_index("empty").uuid
    with closing(IndexWriter(harness.instance.index_path(empty))) as writer:
        assert writer.number_of_documents == 0


# Formats


@pytest.mark.parametrize("number", range(1, schema.FORMAT + 1))
def test_the_folder_of_every_format_opens(number: int, tmp_path: Path) -> None:
    with tarfile.open(file_of(number)) as archive:
        unpack(archive, tmp_path / "data")
    assert not any(found_faults(tmp_path / "data", is_full=True).values())
    harness = TaskHarness(tmp_path / "data")
    try:
        assert harness.instance.keys.read()[1] == [KEY]
        assert [webhook.uuid for webhook in harness.instance.webhooks.all()] == [KEY.uid]
        assert harness.instance.is_enabled("metrics") and harness.instance.network().self_name == "a"
        assert list(harness.instance.chat_workspaces.all()) == ["shop"]
        harness.run()
        films = {each["id"]: each for each in harness.documents("films").values()}
        assert {n: each["title"] for n, each in films.items()} == {1: "Metropolis", 2: "M", 3: "The Third Man", 4: "Vertigo"}
        assert len(films) == len(FILMS) + 1 and harness.find("metropolis", "films") == [0]
        assert harness.instance.require_index("films").stats["embeddings"] == 3
        assert harness.bugs == []
    finally:
        harness.instance.close()
    assert not any(found_faults(tmp_path / "data", is_full=True).values())
