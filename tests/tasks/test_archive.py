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
from svcd.instance.network import Network, Remote
from svcd.instance.rows import KeyRow
from svcd.instance.task_records import SUCCEEDED, Task
from svcd.instance.webhooks import Webhook
from svcd.tasks import archive, dump_lines
from svcd.tasks.batching import KINDS
from svcd.tasks.global_tasks import Folders, dump_uid
from svcd.tasks.indexing_client import IndexingProcessDied
from tests.support.archives import unpack
from tests.tasks.conftest import LocalWriter, TaskHarness

KEY = dump_lines.key_line(KeyRow("0" * 36, ["*"], ["*"], 0, 0, "all"))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TaskHarness]:
    harness = TaskHarness(tmp_path / "data", folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"))
    yield harness
    harness.instance.close()
    assert not harness.bugs


def dump(harness: TaskHarness) -> Task:
    return harness.do("dumpCreation", None, {"dumpUid": None}, keys=[KEY], instanceUid=harness.instance.uid)


def snapshot(harness: TaskHarness) -> Task:
    return harness.do("snapshotCreation", None)


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


def test_a_dump_has_everything(harness: TaskHarness, tmp_path: Path) -> None:
    harness.change({"stopWords": ["the"]})
    harness.add([{"id": 1, "title": "café\n\"x\""}, {"id": 2, "n": 1.0}])
    harness.do("indexCreation", "empty", {"primaryKey": "sku"}, primaryKey="sku")
    harness.run()
    harness.instance.update_features({"metrics": True})
    harness.instance.webhooks.create(Webhook("1" * 36, "http://here/", {"a": "b"}))
    harness.instance.webhooks.set_launch_webhook("http://launch/")
    network = Network("a", {"b": Remote("http://b/", "k")}, {"s": ["b"]}, "v")
    harness.instance.update_network(lambda before: network)
    harness.instance.chat_workspaces.put("a/b", {"apiKey": "sk-1"})
    task = dump(harness)
    harness.run()
    uid = harness.task(task).details["dumpUid"]
    path = only(tmp_path / "dumps")
    assert path.name == f"{uid}.dump"
    held = content(path)
    assert json.loads(held["metadata.json"]).items() >= {"dumpVersion": "V6", "dbVersion": "1.52.0"}.items()
    assert held["instance_uid.uuid"] == harness.instance.uid
    assert lines(held["keys.jsonl"]) == [KEY]
    assert json.loads(held["experimental-features.json"]) == {"metrics": True}
    assert json.loads(held["network.json"]) == network.as_json()
    assert json.loads(held["webhooks.json"]) == {"webhooks": {"1" * 36: {"url": "http://here/", "headers": {"a": "b"}}}}
    workspace = json.loads(held["chat-completions-settings/a%2Fb.json"])
    assert (workspace["source"], workspace["apiKey"], workspace["orgId"]) == ("openAi", "sk-1", None)
    assert workspace["prompts"]["system"]
    assert held["indexes/movies/documents.jsonl"] == '{"id":1,"title":"café\\n\\"x\\""}\n{"id":2,"n":1.0}\n'
    assert json.loads(held["indexes/empty/metadata.json"])["primaryKey"] == "sku"
    assert held["indexes/empty/documents.jsonl"] == ""
    settings = json.loads(held["indexes/movies/settings.json"])
    assert settings["stopWords"] == ["the"] and settings["rankingRules"] and "foreignKeys" not in settings
    assert settings["chat"]["documentTemplateMaxBytes"] == 400
    tasks, batches = lines(held["tasks/queue.jsonl"]), lines(held["batches/queue.jsonl"])
    assert [row["uid"] for row in tasks] == [0, 1, 2, 3]
    assert tasks[3]["status"] == SUCCEEDED and tasks[3]["details"] == {"Dump": {"dump_uid": uid}}
    assert tasks[3]["type"] == {"dumpCreation": {"keys": [KEY], "instance_uid": harness.instance.uid}}
    assert batches[-1]["uid"] == tasks[3]["batchUid"] and batches[-1]["details"] == {"dumpUid": uid}
    assert all(row["finishedAt"] for row in tasks + batches)


def test_documents_of_waiting_tasks_are_in_a_dump(harness: TaskHarness, tmp_path: Path) -> None:
    dump(harness)
    waiting = harness.add([{"id": 1}], may_create=False)
    harness.runner.step()
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
        harness: TaskHarness, tmp_path: Path, make: Any, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, kept = harness.add([{"id": 1}]), harness.add([{"id": 2}])
    make(harness)
    payloads = archive.waiting_payloads

    def then_canceled(connection: Any) -> Any:
        found = payloads(connection)
        monkeypatch.setattr(archive, "waiting_payloads", payloads)
        with harness.queue.finishing() as writer:
            harness.queue.store(writer, [replace(gone, status="canceled")])
        harness.queue.remove_payload(gone.payload)
        return found

    monkeypatch.setattr(archive, "waiting_payloads", then_canceled)
    harness.runner.step()
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
            unpack(tar, folder / "again")
        self.instance = Instance(folder / "again")

    def __enter__(self) -> Instance:
        return self.instance

    def __exit__(self, *_: object) -> None:
        self.instance.close()


def test_a_snapshot_is_a_data_folder(harness: TaskHarness, tmp_path: Path) -> None:
    harness.add([{"id": 1, "title": "kept"}])
    rule = harness.do("dsrUpdate", ".svc_dsr", {"rule": {}, "updatedRules": 1}, uid="a", update={})
    harness.run()
    first, second = snapshot(harness), snapshot(harness)
    waiting = harness.add([{"id": 2}])
    harness.runner.step()
    assert [harness.task(task).status for task in (first, second, waiting)] == [SUCCEEDED, SUCCEEDED, "enqueued"]
    assert harness.task(first).batch_uid == harness.task(second).batch_uid and harness.task(first).details is None
    assert only(tmp_path / "snapshots").name == "data.snapshot"
    with opened(tmp_path / "snapshots" / "data.snapshot", tmp_path) as copy:
        assert copy.uid == harness.instance.uid
        assert [task.uid for task in copy.queue.tasks_of(range(9))] == [0, rule.uid, waiting.uid]
        with copy.read(".svc_dsr") as reader:
            assert reader.docid_of("a") == 0
        assert (copy.queue.payload_folder / str(waiting.payload)).read_text() == '{"id": 2}\n'
        with copy.read("movies") as reader:
            assert list(reader.texts()) == ['{"id":1,"title":"kept"}'] and list(reader.terms.word_docids("kept")) == [0]


@pytest.mark.parametrize("make, folder", [(dump, "dumps"), (snapshot, "snapshots")])
def test_a_canceled_archive_leaves_no_file(harness: TaskHarness, tmp_path: Path, make: Any, folder: str) -> None:
    task = make(harness)

    def cancel_before_the_name() -> None:
        assert harness.runner.kill_batches([task.uid])

    harness.writer.run = running_then(harness, cancel_before_the_name)
    harness.runner.step()
    assert harness.task(task).status == "enqueued" and not list((tmp_path / folder).iterdir())


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
    """hanging() -> a harness whose runner has written a dump up to its name, the dump, and what hears of ended tasks."""
    ended: queue.Queue[Task] = queue.Queue()
    harness = TaskHarness(tmp_path / "data", Hanging, folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"),
                  on_batch=lambda batch, tasks: [ended.put(task) for task in tasks])
    writer = harness.writer
    task = dump(harness)
    harness.runner.start()
    assert writer.is_written.wait(10)
    yield harness, task, ended
    harness.runner.stop(0)
    harness.instance.close()
    assert not harness.bugs and not list((tmp_path / "dumps").iterdir())


def test_a_cancelation_ends_a_dump_at_once(hanging: Any) -> None:
    harness, task, ended = hanging
    cancelation = harness.do("taskCancelation", None, {"canceledTasks": None}, uids=[task.uid])
    assert {ended.get(timeout=10).uid, ended.get(timeout=10).uid} == {task.uid, cancelation.uid}
    assert harness.task(task).status == "canceled" and harness.task(task).canceled_by == cancelation.uid
    assert harness.task(cancelation).details == {"canceledTasks": 1}


def test_the_end_of_the_daemon_gives_a_dump_back(hanging: Any) -> None:
    harness, task, _ = hanging
    harness.runner.stop(0)
    assert harness.task(task).status == "enqueued" and harness.task(task).batch_uid is None


def running_then(harness: TaskHarness, after: Any) -> Any:
    run = harness.writer.run

    def both(request: Any, progress: Any) -> Any:
        answer = run(request, progress)
        after()
        harness.writer.run = run
        return answer

    return both


def test_an_archive_that_dies_fails_and_leaves_no_file(harness: TaskHarness, tmp_path: Path) -> None:
    task = dump(harness)

    def die() -> None:
        raise IndexingProcessDied("killed")

    harness.writer.run = running_then(harness, die)
    harness.runner.step()
    assert harness.task(task).error["code"] == "internal" and harness.task(task).details == {"dumpUid": None}
    assert not list((tmp_path / "dumps").iterdir())
    assert harness.bugs.pop() == "killed"


def test_a_snapshot_that_dies_in_a_copy_leaves_no_journal(
        harness: TaskHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: Path, target: Path) -> None:
        target.touch()
        target.with_name(f"{target.name}-journal").touch()
        raise IndexingProcessDied("killed")

    monkeypatch.setattr(archive, "copy_file", die)
    task = snapshot(harness)
    harness.runner.step()
    assert harness.task(task).error["code"] == "internal" and harness.bugs.pop() == "killed"
    assert not list((tmp_path / "snapshots").iterdir())


def test_a_folder_that_cant_be_written_fails_the_task(harness: TaskHarness, tmp_path: Path) -> None:
    (tmp_path / "dumps").write_text("in the way")
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "data.snapshot").mkdir()
    tasks = [dump(harness), snapshot(harness)]
    harness.run()
    for task in tasks:
        error = harness.task(task).error
        assert error["code"] == "io_error" and str(tmp_path) in error["message"]
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["data.snapshot"]


def test_a_failed_snapshot_leaves_the_earlier_one(
        harness: TaskHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(harness)
    harness.run()
    before = (tmp_path / "snapshots" / "data.snapshot").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "copy_file", full)
    task = snapshot(harness)
    harness.run()
    assert harness.task(task).error["code"] == "no_space_left_on_device"
    assert only(tmp_path / "snapshots").read_bytes() == before


def test_archives_wait_for_indexes_and_indexes_for_archives(harness: TaskHarness) -> None:
    runner = harness.runner
    harness.add([{"id": 1}], "first")
    assert runner.claim_next()  # claimed, not done
    late, task = harness.add([{"id": 1}], "second"), dump(harness)
    assert not runner.claim_next(), "an index that is written now would be read half"
    runner.run_claimed()
    assert runner.claim_next() and [list(batch.tasks) for batch in harness.queue.running()] == [[task.uid]]
    assert not runner.claim_next() and len(harness.queue.running()) == 1
    swap = harness.do("indexSwap", None, {"swaps": []}, swaps=[])
    assert not runner.claim_next()
    runner.run_claimed()
    harness.run()
    assert {harness.task(each).status for each in (late, task, swap)} == {SUCCEEDED}


def test_a_dump_is_named_by_its_beginning() -> None:
    assert dump_uid(1_795_160_270_843_999_999) == "20261120-073750843"
    assert dump_uid(1_795_160_270_000_000_000) == "20261120-073750000"


# svcd makes no tasks of these kinds.
NEVER_MADE = {"upgradeDatabase", "networkTopologyChange"}


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
    ("dsrUpdate", {"rule": {"active": None}, "updatedRules": 1}, {"uid": "a", "update": {"active": None}},
     {"dsrUpdate": {"createOrUpdate": {"rule_id": "a", "update": {"active": None}}}},
     {"DsrUpdate": {"createOrUpdate": {"rule_id": "a", "update": {"active": None}}}}),
    ("dsrUpdate", {"updatedRules": 1}, {"uid": "a"}, {"dsrUpdate": {"deletion": "a"}}, {"DsrUpdate": {"deletion": "a"}}),
    ("dsrClear", {"deletedDocuments": None}, {}, "dsrClear", {"ClearAll": {"deleted_documents": None}}),
    ("indexCompaction", {}, {}, {"indexCompaction": {"index_uid": "movies"}},
     {"IndexCompaction": {"index_uid": "movies", "pre_compaction_size": None, "post_compaction_size": None}}),
])
def test_a_task_is_written_in_the_words_of_the_format(
        kind: str, details: Any, content: Any, shown: Any, told: Any) -> None:
    line = dump_lines.task_line(Task(4, kind, "movies", "enqueued", 0, details=details, content=content))
    assert (line["type"], line["details"]) == (shown, told)
    assert list(line) == ["uid", "batchUid", "indexUid", "status", "type", "details", "enqueuedAt"]
