"""What must hold of the import of a snapshot:

1. A snapshot and its import change no answer, but for the task that made it; what waited runs after it.
2. A file that is not a complete snapshot of svcd is refused with a message, and leaves nothing.
3. Files that are damaged, empty, or of another program are refused before anything trusts them.
4. What a snapshot does not have stays out of the data folder.
"""
from __future__ import annotations

import io
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.index import schema
from svcd.index.schema import NewerFormat
from svcd.instance.network import Network, Remote
from svcd.tasks.archive_import import import_snapshot
from svcd.tasks.global_tasks import Folders
from svcd.tasks.unpacking import ArchiveRefused
from tests.tasks.conftest import TaskHarness
from tests.tasks.test_archive_import import packed, shown


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TaskHarness]:
    harness = TaskHarness(tmp_path / "old", folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"))
    yield harness
    harness.instance.close()
    assert not harness.bugs


def test_a_snapshot_and_its_import_change_no_answer(harness: TaskHarness, tmp_path: Path) -> None:
    harness.change({"stopWords": ["the"]})
    harness.instance.update_network(lambda before: Network("a", {"b": Remote("http://b/", "k")}, {"s": ("b",)}, "v"))
    harness.add([{"id": 1, "title": "café"}])
    harness.do("dsrUpdate", ".svc_dsr", {"rule": {"active": None}, "updatedRules": 1}, uid="b", update={"active": None})
    harness.run()
    harness.do("snapshotCreation", None)
    waiting = harness.add([{"id": 2}])
    harness.runner.step()
    (tmp_path / "new").mkdir()
    import_snapshot(tmp_path / "snapshots" / "old.snapshot", tmp_path / "new")
    again = TaskHarness(tmp_path / "new")
    try:
        assert again.instance.uid == harness.instance.uid
        before, after = shown(harness), shown(again)
        before["tasks"] = [task for task in before["tasks"] if task["type"] != "snapshotCreation"]
        before["batches"] = before["batches"][:-1]
        assert after == before
        assert again.task(waiting).status == "enqueued"
        again.run()
        assert again.task(waiting).status == "succeeded"
        assert list(again.documents()) == [0, 1]
    finally:
        again.instance.close()
    assert not again.bugs
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("entries, words", [
    ({"VERSION": "1.12.0", "tasks/data.mdb": "x"}, "of version `1.12.0`.*lacks the entry `instance.sqlite`.*--import-dump"),
    ({"metadata.json": {"dumpVersion": "V6"}}, "is not a snapshot of svcd: "),
    ({"instance.sqlite": "this is no database, but a text that is long enough" * 20}, "cannot be read"),
    ({"../outside": "x"}, "the snapshot has the entry `../outside`"),
])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, entries: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ArchiveRefused, match=words):
        import_snapshot(packed(tmp_path / "x.snapshot", entries), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["x.snapshot"]


def test_half_a_snapshot_is_refused(harness: TaskHarness, tmp_path: Path) -> None:
    harness.add([{"id": 1}])
    harness.do("snapshotCreation", None)
    harness.run()
    path = tmp_path / "snapshots" / "old.snapshot"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArchiveRefused, match="is not a whole snapshot"):
        import_snapshot(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_snapshot_without_the_file_of_an_index_is_refused(harness: TaskHarness, tmp_path: Path) -> None:
    harness.add([{"id": 1}])
    harness.run()
    row = harness.instance.list_indexes()[0][0]
    harness.instance.index_path(row.uuid).rename(tmp_path / "taken")
    harness.instance.close()
    with tarfile.open(tmp_path / "x.snapshot", "w:gz") as tar:
        tar.add(tmp_path / "old", ".")
    with pytest.raises(ArchiveRefused, match=f"lacks the file of the index `{row.uid}`"):
        import_snapshot(tmp_path / "x.snapshot", tmp_path / "new")


Files = dict[str, bytes]


@pytest.fixture
def files(harness: TaskHarness, tmp_path: Path) -> Files:
    """The entries of a good snapshot, of an index and a task that waits."""
    harness.add([{"id": 1, "title": "café"}])
    harness.run()
    harness.do("snapshotCreation", None)
    harness.add([{"id": 2}])
    harness.runner.step()
    with tarfile.open(tmp_path / "snapshots" / "old.snapshot") as tar:
        return {entry.name: content.read() for entry in tar if (content := tar.extractfile(entry))}


def refused(tmp_path: Path, files: Mapping[str, bytes]) -> str:
    """The words of the rejection of a snapshot; nothing stays."""
    before = set(tmp_path.iterdir())
    with pytest.raises((ArchiveRefused, NewerFormat)) as rejection:
        import_snapshot(made_of(tmp_path / "x.snapshot", files), tmp_path / "deep" / "er" / "new")
    assert set(tmp_path.iterdir()) - before == {tmp_path / "x.snapshot"}
    words = str(rejection.value)
    assert "Error" not in words and "\n" not in words and len(words) < 500 and ".import" not in words
    return words


def made_of(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def changed(tmp_path: Path, content: bytes, change: Callable[[sqlite3.Connection], Any]) -> bytes:
    """The file of SQLite after a change of it."""
    path = tmp_path / "changed.sqlite"
    path.write_bytes(content)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        schema.define_checksum(connection)
        change(connection)
    content = path.read_bytes()
    path.unlink()
    return content


def index_of(files: Files) -> str:
    return next(name for name in files if name.startswith("indexes/"))


@pytest.mark.parametrize("content", [b"", b"garbage" * 5000, b"SQLite format 3\0" + b"\xff" * 8192])
@pytest.mark.parametrize("place", ["indexes", "instance.sqlite"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, files: Files, place: str, content: bytes) -> None:
    name = index_of(files) if place == "indexes" else place
    words = refused(tmp_path, {**files, name: content})
    assert words.startswith(f"{name} of the snapshot is not a file of svcd") or "cannot be read: " in words


@pytest.mark.parametrize("place", ["indexes", "instance.sqlite"])
def test_a_damaged_page_is_refused(tmp_path: Path, files: Files, place: str) -> None:
    name = index_of(files) if place == "indexes" else place
    content = files[name]
    middle = len(content) // 2 // 8192 * 8192
    words = refused(tmp_path, {**files, name: content[:middle] + b"\xa5" * 8192 + content[middle + 8192:]})
    assert words.startswith(f"{name} of the snapshot is damaged") or "cannot be read: " in words


@pytest.mark.parametrize("change, words", [
    (["PRAGMA user_version = 0"], "is not a file of svcd"),
    (["PRAGMA user_version = 99"], "has format 99; this svcd"),
    (["DROP TABLE batches"], "`batches.checksum` is missing or different"),
    (["DROP TRIGGER tasks_checksum_insert", "DROP TRIGGER tasks_checksum_update", "ALTER TABLE tasks DROP COLUMN payload_bytes"], "`tasks.payload_bytes` is missing or different"),
    (["CREATE TRIGGER wipe AFTER INSERT ON tasks BEGIN DELETE FROM indexes; END"], "`wipe` is missing or different"),
    (["UPDATE indexes SET uuid = '../../x'"], "names a file of an index `../../x`"),
    (["UPDATE indexes SET stats = '{'"], "it is not JSON"),
    (["UPDATE indexes SET uid = 'a/b'"], "`a/b`"),
    (["UPDATE tasks SET details = 'x' WHERE uid = 0"], "has a task that svcd cannot read, with uid 0"),
    (["UPDATE tasks SET enqueued_at = 'now' WHERE uid = 0"], "has a task that svcd cannot read, with uid 0"),
    (["UPDATE tasks SET payload = '../../../etc/passwd' WHERE status = 'enqueued'"], "lacks the documents of the task"),
    (["UPDATE tasks SET payload = 'gone' WHERE status = 'enqueued'"], "lacks the documents of the task"),
    (["UPDATE batches SET stats = 'x'"], "has a batch that svcd cannot read"),
], ids=lambda value: value[0] if isinstance(value, list) else "")
def test_a_queue_that_svcd_did_not_write_is_refused(tmp_path: Path, files: Files, change: list[str], words: str) -> None:
    content = changed(tmp_path, files["instance.sqlite"], lambda file: [file.execute(each) for each in change])
    assert words in refused(tmp_path, {**files, "instance.sqlite": content})


@pytest.mark.parametrize("change, words", [
    ("DROP TABLE forward_index", "`forward_index.docid` is missing or different"),
    ("UPDATE meta SET value = '{' WHERE key = 'settings'", "it is not JSON"),
])
def test_an_index_that_svcd_did_not_write_is_refused(tmp_path: Path, files: Files, change: str, words: str) -> None:
    name = index_of(files)

    def apply(file: sqlite3.Connection) -> None:
        file.execute("INSERT OR IGNORE INTO meta(key, value) VALUES ('settings', '{}')")
        file.execute(change)

    assert words in refused(tmp_path, {**files, name: changed(tmp_path, files[name], apply)})


@pytest.mark.parametrize("name, text, words", [
    ("VERSION", "null", "VERSION of the snapshot is `null`, expected a version of svcd"),
    ("VERSION", "9" * 50_000, "VERSION of the snapshot is `9999"),
    ("VERSION", "", "VERSION of the snapshot is ``"),
    ("VERSION", "1.0.0\n\x1b[2J", "expected a version of svcd"),
    ("instance-uid", "me", "instance-uid of the snapshot is `me`, expected a UUID"),
    ("instance-uid", "1" * 50_000, "expected a UUID"),
])
def test_a_text_that_says_nothing_is_refused(tmp_path: Path, files: Files, name: str, text: str, words: str) -> None:
    assert words in refused(tmp_path, {**files, name: text.encode()})


def test_what_a_snapshot_does_not_have_stays_out(tmp_path: Path, files: Files) -> None:
    strange = ["LOCK", "instance.sqlite-shm", "indexes/x.sqlite", "indexes/deeper/x", "payloads/a b", "bin/sh", "notes.txt"]
    import_snapshot(made_of(tmp_path / "x.snapshot", {**files, **dict.fromkeys(strange, b"strange")}), tmp_path / "new")
    found = {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*") if path.is_file()}
    own = {"LOCK", "instance.sqlite-wal", "instance.sqlite-shm"}  # the log's files stay when the writer closes
    assert found - own == set(files)
    assert (tmp_path / "new" / "instance.sqlite-shm").read_bytes() != b"strange"
    assert (tmp_path / "new" / "LOCK").read_bytes() == b""
