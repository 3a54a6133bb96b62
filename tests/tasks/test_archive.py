"""What must hold of dumps and snapshots:

1. A dump has all indexes with their documents and settings, all tasks and batches, and the dump itself as succeeded.
2. Keys and instance uid are those of the request; webhooks and features those of the dump.
3. The documents of waiting tasks are in it, also when some are canceled while it is written.
4. A file gets its name when it is whole: canceled, stopped or failed, it leaves nothing.
5. No index is written meanwhile, and none that is being written is read; then all go on.
6. A snapshot is a data folder that opens, with all but the tasks that made it.
"""
from __future__ import annotations

import json
import queue
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from svcd.instance.instance import Instance
from svcd.instance.keys import KeyRow
from svcd.instance.task_records import SUCCEEDED, Task
from svcd.instance.webhooks import Webhook
from svcd.tasks import archive, dump_lines
from svcd.tasks.archive_tasks import Folders, dump_uid
from svcd.tasks.indexing_client import IndexingProcessDied
from svcd.tasks.kinds import KINDS
from tests.tasks.conftest import House, LocalWriter

KEY = dump_lines.key_line(KeyRow("0" * 36, ["*"], ["*"], 0, 0, "all"))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "data", folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"))
    yield house
    house.instance.close()
    assert not house.bugs


def dump(house: House) -> Task:
    return house.do("dumpCreation", None, {"dumpUid": None}, keys=[KEY], instanceUid=house.instance.uid)


def snapshot(house: House) -> Task:
    return house.do("snapshotCreation", None)


def content(path: Path) -> dict[str, str]:
    """Name of each entry -> its text; folders have none."""
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read().decode() for entry in tar if entry.isfile()}


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def lines(text: str) -> list[Any]:
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_dump_has_everything(house: House, tmp_path: Path) -> None:
    house.change({"stopWords": ["the"]})
    house.add([{"id": 1, "title": "café\n\"x\""}, {"id": 2, "n": 1.0}])
    house.do("indexCreation", "empty", {"primaryKey": "sku"}, primaryKey="sku")
    house.run()
    house.instance.update_features({"metrics": True})
    house.instance.webhooks.create(Webhook("1" * 36, "http://here/", {"a": "b"}))
    house.instance.webhooks.set_launch_webhook("http://launch/")
    task = dump(house)
    house.run()
    uid = house.task(task).details["dumpUid"]
    path = only(tmp_path / "dumps")
    assert path.name == f"{uid}.dump"
    held = content(path)
    assert json.loads(held["metadata.json"]).items() >= {"dumpVersion": "V6", "dbVersion": "1.52.0"}.items()
    assert held["instance_uid.uuid"] == house.instance.uid
    assert lines(held["keys.jsonl"]) == [KEY]
    assert json.loads(held["experimental-features.json"]) == {"metrics": True}
    assert json.loads(held["webhooks.json"]) == {"webhooks": {"1" * 36: {"url": "http://here/", "headers": {"a": "b"}}}}
    assert held["indexes/movies/documents.jsonl"] == '{"id":1,"title":"café\\n\\"x\\""}\n{"id":2,"n":1.0}\n'
    assert json.loads(held["indexes/empty/metadata.json"])["primaryKey"] == "sku"
    assert held["indexes/empty/documents.jsonl"] == ""
    settings = json.loads(held["indexes/movies/settings.json"])
    assert settings["stopWords"] == ["the"] and settings["rankingRules"] and "foreignKeys" not in settings
    tasks, batches = lines(held["tasks/queue.jsonl"]), lines(held["batches/queue.jsonl"])
    assert [row["uid"] for row in tasks] == [0, 1, 2, 3]
    assert tasks[3]["status"] == SUCCEEDED and tasks[3]["details"] == {"Dump": {"dump_uid": uid}}
    assert tasks[3]["type"] == {"dumpCreation": {"keys": [KEY], "instance_uid": house.instance.uid}}
    assert batches[-1]["uid"] == tasks[3]["batchUid"] and batches[-1]["details"] == {"dumpUid": uid}
    assert all(row["finishedAt"] for row in tasks + batches)


def test_documents_of_waiting_tasks_are_in_a_dump(house: House, tmp_path: Path) -> None:
    dump(house)
    waiting = house.add([{"id": 1}], may_create=False)
    house.runner.step()
    held = content(only(tmp_path / "dumps"))
    assert lines(held[f"tasks/update_files/{waiting.uid}.jsonl"]) == [{"id": 1}]
    assert lines(held["tasks/queue.jsonl"])[1] == {
        "uid": waiting.uid, "batchUid": None, "indexUid": "movies", "status": "enqueued",
        "type": {"documentImport": {"primary_key": None, "method": "ReplaceDocuments", "documents_count": 1,
                                    "allow_index_creation": True}},
        "details": {"DocumentAdditionOrUpdate": {"received_documents": 1, "indexed_documents": None}},
        "enqueuedAt": lines(held["tasks/queue.jsonl"])[1]["enqueuedAt"]}


@pytest.mark.parametrize("make, folder", [(dump, "dumps"), (snapshot, "snapshots")])
def test_what_is_canceled_meanwhile_is_written_as_canceled(
        house: House, tmp_path: Path, make: Any, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, kept = house.add([{"id": 1}]), house.add([{"id": 2}])
    make(house)
    payloads = archive._payloads

    def then_canceled(connection: Any) -> Any:
        found = payloads(connection)
        monkeypatch.setattr(archive, "_payloads", payloads)
        with house.queue.finishing() as writer:
            house.queue.store(writer, [replace(gone, status="canceled")])
        house.queue.remove_payload(gone.payload)
        return found

    monkeypatch.setattr(archive, "_payloads", then_canceled)
    house.runner.step()
    path = only(tmp_path / folder)
    with tarfile.open(path) as tar:
        names = [Path(name).name for name in tar.getnames()]
    if make is dump:
        assert [row["status"] for row in lines(content(path)["tasks/queue.jsonl"])][:2] == ["canceled", "enqueued"]
        assert f"{kept.uid}.jsonl" in names and f"{gone.uid}.jsonl" not in names
    else:
        assert kept.payload in names and gone.payload not in names
        with opened(path, tmp_path) as copy:
            assert [task.status for task in copy.queue.tasks_of([0, 1])] == ["canceled", "enqueued"]


class opened:
    """A snapshot unpacked as a data folder."""

    def __init__(self, path: Path, folder: Path) -> None:
        with tarfile.open(path) as tar:
            tar.extractall(folder / "again", filter="data")
        self.instance = Instance(folder / "again")

    def __enter__(self) -> Instance:
        return self.instance

    def __exit__(self, *_: object) -> None:
        self.instance.close()


def test_a_snapshot_is_a_data_folder(house: House, tmp_path: Path) -> None:
    house.add([{"id": 1, "title": "kept"}])
    house.run()
    first, second = snapshot(house), snapshot(house)
    waiting = house.add([{"id": 2}])
    house.runner.step()
    assert [house.task(task).status for task in (first, second, waiting)] == [SUCCEEDED, SUCCEEDED, "enqueued"]
    assert house.task(first).batch_uid == house.task(second).batch_uid and house.task(first).details is None
    assert only(tmp_path / "snapshots").name == "data.snapshot"
    with opened(tmp_path / "snapshots" / "data.snapshot", tmp_path) as copy:
        assert copy.uid == house.instance.uid
        assert [task.uid for task in copy.queue.tasks_of(range(9))] == [0, waiting.uid]
        assert (copy.queue.payload_folder / str(waiting.payload)).read_text() == '{"id": 2}\n'
        with copy.read("movies") as reader:
            assert list(reader.texts()) == ['{"id":1,"title":"kept"}'] and reader.terms.word_docids("kept") == 1


@pytest.mark.parametrize("make, folder", [(dump, "dumps"), (snapshot, "snapshots")])
def test_a_canceled_archive_leaves_no_file(house: House, tmp_path: Path, make: Any, folder: str) -> None:
    task = make(house)

    def cancel_before_the_name() -> None:
        (job,) = house.runner._busy.values()
        job.is_canceled = True

    house.writer.run = running_then(house, cancel_before_the_name)
    house.runner.step()
    assert house.task(task).status == "enqueued" and not list((tmp_path / folder).iterdir())


class Hanging(LocalWriter):
    """Writes all of an archive, and then does not come to an end until it is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written, self.is_killed = threading.Event(), threading.Event()

    def run(self, request: Any, progress: Any) -> Any:
        super().run(request, progress)
        self.is_written.set()
        self.is_killed.wait(10)
        raise IndexingProcessDied("killed")

    def kill(self) -> None:
        self.is_killed.set()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Any]:
    """hanging() -> a house whose runner has written a dump up to its name, the dump, and what hears of ended tasks."""
    ended: queue.Queue[Task] = queue.Queue()
    house = House(tmp_path / "data", folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"),
                  on_batch=lambda batch, tasks: [ended.put(task) for task in tasks])
    writer = house.runner._writers[0] = Hanging()
    house.runner._threads[1] = threading.Thread(target=house.runner._work, args=(writer,))
    task = dump(house)
    house.runner.start()
    assert writer.is_written.wait(10)
    yield house, task, ended
    house.runner.stop(0)
    house.instance.close()
    assert not house.bugs and not list((tmp_path / "dumps").iterdir())


def test_a_cancelation_ends_a_dump_at_once(hanging: Any) -> None:
    house, task, ended = hanging
    cancelation = house.do("taskCancelation", None, {"canceledTasks": None}, uids=[task.uid])
    assert {ended.get(timeout=10).uid, ended.get(timeout=10).uid} == {task.uid, cancelation.uid}
    assert house.task(task).status == "canceled" and house.task(task).canceled_by == cancelation.uid
    assert house.task(cancelation).details == {"canceledTasks": 1}


def test_the_end_of_the_daemon_gives_a_dump_back(hanging: Any) -> None:
    house, task, _ = hanging
    house.runner.stop(0)
    assert house.task(task).status == "enqueued" and house.task(task).batch_uid is None


def running_then(house: House, after: Any) -> Any:
    run = house.writer.run

    def both(request: Any, progress: Any) -> Any:
        answer = run(request, progress)
        after()
        house.writer.run = run
        return answer

    return both


def test_an_archive_that_dies_fails_and_leaves_no_file(house: House, tmp_path: Path) -> None:
    task = dump(house)

    def die() -> None:
        raise IndexingProcessDied("killed")

    house.writer.run = running_then(house, die)
    house.runner.step()
    assert house.task(task).error["code"] == "internal" and house.task(task).details == {"dumpUid": None}
    assert not list((tmp_path / "dumps").iterdir())
    assert house.bugs.pop() == "killed"


def test_a_folder_that_cant_be_written_fails_the_task(house: House, tmp_path: Path) -> None:
    (tmp_path / "dumps").write_text("in the way")
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "data.snapshot").mkdir()
    tasks = [dump(house), snapshot(house)]
    house.run()
    for task in tasks:
        error = house.task(task).error
        assert error["code"] == "io_error" and str(tmp_path) in error["message"]
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["data.snapshot"]


def test_a_failed_snapshot_leaves_the_earlier_one(
        house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(house)
    house.run()
    before = (tmp_path / "snapshots" / "data.snapshot").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "copy_file", full)
    task = snapshot(house)
    house.run()
    assert house.task(task).error["code"] == "no_space_left_on_device"
    assert only(tmp_path / "snapshots").read_bytes() == before


def test_archives_wait_for_indexes_and_indexes_for_archives(house: House) -> None:
    runner = house.runner
    house.add([{"id": 1}], "first")
    assert runner.claim_next()  # claimed, not done
    late, task = house.add([{"id": 1}], "second"), dump(house)
    assert not runner.claim_next(), "an index that begins now would be read half"
    runner._run_claimed_job(runner._jobs.pop(), house.writer)
    assert runner.claim_next() and [job.plan.tasks[0].uid for job in runner._jobs] == [task.uid]
    assert not runner.claim_next() and len(house.queue.running()) == 1
    swap = house.do("indexSwap", None, {"swaps": []}, swaps=[])
    assert not runner.claim_next()
    runner._run_claimed_job(runner._jobs.pop(), house.writer)
    house.run()
    assert {house.task(each).status for each in (late, task, swap)} == {SUCCEEDED}


def test_a_dump_is_named_by_its_beginning() -> None:
    assert dump_uid(1_795_160_270_843_999_999) == "20261120-073750843"
    assert dump_uid(1_795_160_270_000_000_000) == "20261120-073750000"


# svcd makes no tasks of these kinds.
NEVER_MADE = {"export", "upgradeDatabase", "networkTopologyChange", "dsrUpdate", "dsrClear"}


def test_every_kind_of_task_can_be_dumped() -> None:
    assert set(dump_lines.TYPES) == set(KINDS) - NEVER_MADE


@pytest.mark.parametrize("kind, details, content, shown, told", [
    ("documentDeletion", {"providedIds": 2, "deletedDocuments": None, "originalFilter": None}, {"ids": '["a", 7]'},
     {"documentDeletion": {"documents_ids": ["a", "7"]}},
     {"DocumentDeletion": {"provided_ids": 2, "deleted_documents": None}}),
    ("documentDeletion", {"deletedDocuments": 3}, {"all": True}, "documentClear",
     {"ClearAll": {"deleted_documents": 3}}),
    ("documentDeletion", {"providedIds": 0, "deletedDocuments": 1, "originalFilter": '"a = 1"'}, {"filter": "a = 1"},
     {"documentDeletionByFilter": {"filter": "a = 1"}},
     {"DocumentDeletionByFilter": {"original_filter": '"a = 1"', "deleted_documents": 1}}),
    ("taskCancelation", {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=0"}, {"uids": [0]},
     {"taskCancelation": {"query": "?uids=0", "tasks": [58, 48, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0]}},
     {"TaskCancelation": {"matched_tasks": 1, "canceled_tasks": None, "original_filter": "?uids=0"}}),
    ("settingsUpdate", {"embedders": {"a": {"apiKey": "XXX..."}}},
     {"settings": {"embedders": {"a": {"apiKey": "secret"}}}, "mayCreateIndex": False, "reset": False},
     {"settings": {"settings": {"embedders": {"a": {"apiKey": "secret"}}}, "is_deletion": False,
                   "allow_index_creation": False}},
     {"SettingsUpdate": {"settings": {"embedders": {"a": {"apiKey": "XXX..."}}}}}),
    ("indexCompaction", {}, {}, {"indexCompaction": {"index_uid": "movies"}},
     {"IndexCompaction": {"index_uid": "movies", "pre_compaction_size": None, "post_compaction_size": None}}),
])
def test_a_task_is_told_in_the_words_of_the_format(
        kind: str, details: Any, content: Any, shown: Any, told: Any) -> None:
    line = dump_lines.task_line(Task(4, kind, "movies", "enqueued", 0, details=details, content=content))
    assert (line["type"], line["details"]) == (shown, told)
    assert list(line) == ["uid", "batchUid", "indexUid", "status", "type", "details", "enqueuedAt"]
