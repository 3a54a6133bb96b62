"""What must hold of the import of a dump:

1. A dump and its import change no answer: documents, settings, tasks, batches, keys, webhooks, features, uids.
2. What waited runs after it, in order, and new uids follow the largest one.
3. Dates of creation are kept, those of the last change are of the import.
4. A file that is not a complete dump is refused with a message, and leaves nothing.
5. Nothing is written outside the new folder, whatever the names of entries are.
6. Whatever stands in a dump, it is imported or refused in words of svcd.
"""
from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from svcd.base import quantities
from svcd.chat import workspace
from svcd.instance.network import Network, Remote
from svcd.instance.rows import KeyRow
from svcd.instance.task_records import Task, TaskFilter
from svcd.instance.webhooks import Webhook
from svcd.tasks import dump_lines
from svcd.tasks.archive_import import import_dump
from svcd.tasks.global_tasks import Folders
from svcd.tasks.indexing_client import IndexingProcessCrashed
from svcd.tasks.unpacking import ArchiveRefused
from svcd.tasks.views import task_view
from tests.tasks.conftest import LocalWriter, TaskHarness

KEY = KeyRow("11111111-1111-4111-8111-111111111111", ["search"], ["mov*"], 5, 6, "n", None, 4_102_444_800_000_000_000)
MOMENT = "2026-01-01T00:00:00Z"
LEAST = {
    "metadata.json": {"dumpVersion": "V6", "dbVersion": "1.13.0", "dumpDate": MOMENT},
    "keys.jsonl": "", "tasks/queue.jsonl": "", "indexes/films/documents.jsonl": '{"id":1}\n',
    "indexes/films/metadata.json": {"uid": "films", "primaryKey": "id", "createdAt": MOMENT, "updatedAt": MOMENT},
    "indexes/films/settings.json": {"stopWords": ["the"], "rankingRules": None},
}


def packed(path: Path, entries: Mapping[str, Any]) -> Path:
    """A dump of these entries: texts as they are, other values as JSON; None leaves one out."""
    with tarfile.open(path, "w:gz") as tar:
        for name, value in entries.items():
            if value is not None:
                content = (value if isinstance(value, str) else json.dumps(value)).encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def imported(tmp_path: Path) -> Any:
    """imported(dump) -> the harness in the folder that a dump became."""
    harnesses: list[TaskHarness] = []

    def imported(path: Path) -> TaskHarness:
        import_dump(path, tmp_path / "new", make_writer=LocalWriter)
        harnesses.append(TaskHarness(tmp_path / "new"))
        return harnesses[0]

    yield imported
    for harness in harnesses:
        harness.instance.close()
        assert not harness.bugs


def shown(harness: TaskHarness) -> dict[str, Any]:
    """What clients see of an instance, but for the dump itself and the moment of the last change."""
    rows, _ = harness.instance.list_indexes(with_hidden=True)
    tasks = harness.queue.list_tasks(TaskFilter(), 99, None, True).results
    batches = harness.queue.list_batches(TaskFilter(), 99, None, True).results
    answer: dict[str, Any] = {
        "indexes": [(row.uid, row.created_at, row.primary_key, row.stats["documents"], row.stats["fields"])
                    for row in rows],
        "tasks": [task_view(task) for task in tasks if task.kind != "dumpCreation"],
        "batches": [(one.uid, one.details, one.strategy, one.started_at, one.finished_at, one.earliest_enqueued_at,
                     one.latest_enqueued_at, one.stats) for one in batches if "dumpUid" not in one.details],
        "keys": harness.instance.keys.read()[1], "webhooks": list(harness.instance.webhooks.all()),
        "features": {name for name in harness.instance.features() if harness.instance.is_enabled(name)},
        "network": harness.instance.network(), "uid": harness.instance.uid,
        "chats": {uid: workspace.complete(stored) for uid, stored in harness.instance.chat_workspaces.all().items()},
    }
    for row in rows:
        with harness.instance.read(row.uid) as reader:
            answer[row.uid] = reader.settings.resolved, list(reader.texts()), reader.terms.word_docids("kept")
    return answer


def test_a_dump_and_its_import_change_no_answer(tmp_path: Path, imported: Any) -> None:
    harness = TaskHarness(tmp_path / "data", folders=Folders(tmp_path / "dumps"))
    harness.instance.keys.add(KEY)
    harness.instance.webhooks.create(Webhook(KEY.uid, "http://here/", {"a": "b"}))
    harness.instance.update_features({"metrics": True})
    harness.instance.update_network(lambda before: Network("a", {"b": Remote("http://b/", "k", "w")}, {"s": ("b", "c")}, "v"))
    for name in ("a/b", "x" * 511):
        harness.instance.chat_workspaces.put(name, {"apiKey": "k", "prompts": {"system": "S"}})
    harness.change({"filterableAttributes": ["n"], "typoTolerance": {"enabled": False}})
    harness.add([{"id": 1, "n": 2.0, "title": "kept"}, {"id": "b"}])
    harness.add([{"id": 3}], "other", key="id")
    harness.do("indexCreation", "empty", {"primaryKey": None}, primaryKey=None)
    harness.run()
    harness.delete([3], "other")
    harness.do("documentDeletion", details={"providedIds": 0, "deletedDocuments": None, "originalFilter": '"n = 9"'},
             filter="n = 9")
    harness.do("indexSwap", None, {"swaps": [{"indexes": ["movies", "other"], "rename": False}]},
             swaps=[{"indexes": ["movies", "other"], "rename": False}])
    harness.add([{"no": "key"}], "empty")
    harness.do("indexCompaction", "other", {})
    harness.clear("nowhere")
    rule = {"description": "kept", "conditions": {"filter": {"values": {"n": [1, None]}}}, "actions": []}
    harness.do("dsrUpdate", ".svc_dsr", {"rule": rule, "updatedRules": 1}, uid="a", update=rule)
    harness.do("dsrUpdate", ".svc_dsr", {"rule": {"active": None}, "updatedRules": 1}, uid="b", update={"active": None})
    harness.do("dsrUpdate", ".svc_dsr", {"updatedRules": 1}, uid="b")
    harness.run()
    assert [rule["uid"] for rule in harness.documents(".svc_dsr").values()] == ["a"]
    gone = harness.add([{"id": 7}])
    harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=9"},
             uids=[gone.uid])
    harness.run()
    harness.do("dumpCreation", None, {"dumpUid": None}, keys=[dump_lines.key_line(KEY)],
             instanceUid=harness.instance.uid)
    before_import = quantities.now()
    harness.runner.step()
    before = shown(harness)
    harness.instance.close()
    ((dump),) = (tmp_path / "dumps").iterdir()
    again = imported(dump)
    before["network"] = replace(before["network"], self_name=None)  # the new instance is to get a name of its own
    assert shown(again) == before
    assert all(row.updated_at > before_import for row in again.instance.list_indexes()[0])


def test_what_waited_runs_after_the_import(tmp_path: Path, imported: Any) -> None:
    harness = TaskHarness(tmp_path / "data", folders=Folders(tmp_path / "dumps"))
    harness.add([{"id": 1}])
    harness.run()
    harness.do("dumpCreation", None, {"dumpUid": None}, keys=[], instanceUid=harness.instance.uid)
    harness.add([{"id": 1, "a": 1}, {"id": 2}])
    harness.add([{"id": 1, "b": 1}], method="update")
    harness.delete([2])
    harness.runner.step()
    harness.instance.close()
    ((dump),) = (tmp_path / "dumps").iterdir()
    again = imported(dump)
    assert again.documents() == {0: {"id": 1}}
    again.run()
    assert again.documents() == {0: {"id": 1, "a": 1, "b": 1}}
    assert [task.status for task in again.queue.tasks_of(range(9))] == ["succeeded"] * 5
    assert again.clear().uid == 5


def test_the_least_that_a_dump_may_have(tmp_path: Path, imported: Any) -> None:
    entries = {f"./{name}": value for name, value in LEAST.items()}
    harness = imported(packed(tmp_path / "x.dump", {**entries, "./indexes/films/._documents.jsonl": "\0", "._x": "\0"}))
    assert harness.documents("films") == {0: {"id": 1}}
    assert harness.instance.features() == {"legacySearch": None} and not harness.instance.is_enabled("legacySearch")
    row = harness.instance.require_index("films")
    assert quantities.rfc3339(row.created_at) == MOMENT


@pytest.mark.parametrize("name, taken", [(".svc_dsr", [".svc_dsr"]), (".other_dsr", [".svc_dsr"]), (".svc_x", [])])
def test_of_hidden_indexes_only_that_of_the_search_rules_is_taken(tmp_path: Path, imported: Any, name: str, taken: list[str]) -> None:
    hidden = {entry.replace("films", name): value for entry, value in LEAST.items() if "films" in entry}
    harness = imported(packed(tmp_path / "x.dump", {**LEAST, **hidden}))
    assert [row.uid for row in harness.instance.list_indexes()[0]] == ["films"]
    assert [row.uid for row in harness.instance.list_indexes(with_hidden=True)[0]] == [*taken, "films"]


@pytest.mark.parametrize("changes, words", [
    ({"metadata.json": {"dumpVersion": "V7"}}, "version `V7`, expected V1 to V6"),
    ({"metadata.json": None}, "no version, expected V1 to V6"),
    ({"metadata.json": {"dumpVersion": "V1"}}, "not a valid dump of version V1: 'indexes' is missing"),
    ({"metadata.json": "{"}, "metadata.json of the dump is not JSON"),
    ({"keys.jsonl": '{"uid":"a"}\n'}, "keys.jsonl of the dump, line 1: 'actions' is missing"),
    ({"keys.jsonl": json.dumps({**dump_lines.key_line(KEY), "actions": ["fly"]}) + "\n"},
     "the action `fly` is unknown"),
    ({"tasks/queue.jsonl": "\n\n"}, "tasks/queue.jsonl of the dump, line 1"),
    ({"indexes/films/settings.json": {"stopWrods": []}}, "Unknown field `stopWrods`"),
    ({"indexes/films/settings.json": {"stopWords": 1}},
     "indexes/films of the dump: Invalid value type at `.stopWords`"),
    ({"indexes/films/settings.json": None}, "no entry `indexes/films/settings.json`"),
    ({"indexes/films/documents.jsonl": '{"no":1}\n'}, "doesn't have a `id` attribute"),
    ({"/etc/x": "a"}, "the entry `/etc/x`"),
    ({"a/../../x": "a"}, "the entry `a/../../x`"),
])
def test_what_is_no_dump_is_refused(tmp_path: Path, changes: Mapping[str, Any], words: str) -> None:
    refuse(tmp_path, packed(tmp_path / "x.dump", {**LEAST, **changes}), words)


def refuse(folder: Path, path: Path, words: str) -> None:
    with pytest.raises(ArchiveRefused) as refused:
        import_dump(path, folder / "new", make_writer=LocalWriter)
    assert words in str(refused.value)
    assert [each.name for each in folder.iterdir()] == [path.name]


TASK = {"uid": 0, "batchUid": 0, "indexUid": "films", "status": "succeeded", "enqueuedAt": MOMENT, "startedAt": MOMENT,
        "finishedAt": MOMENT, "type": {"documentImport": {"method": "ReplaceDocuments"}},
        "details": {"DocumentAdditionOrUpdate": {"received_documents": 1, "indexed_documents": 1}}}
BATCH = {"uid": 0, "details": {}, "stats": {}, "startedAt": MOMENT, "finishedAt": MOMENT}


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.mark.parametrize("changes, words", [
    ({"metadata.json": "null"}, "metadata.json of the dump is null, expected an object"),
    ({"metadata.json": {"dumpVersion": None}}, "the dump has no version"),
    ({"metadata.json": {"dumpVersion": ["V6"]}}, "the dump has no version"),
    ({"metadata.json": '{"dumpVersion": ' + "9" * 50_000 + "}"}, "metadata.json of the dump is not JSON"),
    ({"metadata.json": {"dumpVersion": "9" * 50_000}}, "the dump has the version `999"),
    ({"metadata.json": "[" * 50_000}, "metadata.json of the dump is not JSON: it is nested too deeply"),
    ({"metadata.json/x": "", "metadata.json": None}, "`metadata.json` of the dump is not a file"),
    ({"instance_uid.uuid": "nobody"}, "instance_uid.uuid of the dump: 'nobody' is not a UUID"),
    ({"instance_uid.uuid": "1" * 5000}, "`instance_uid.uuid` of the dump is not a file of 100 bytes"),
    ({"webhooks.json": []}, "webhooks.json of the dump is [], expected an object"),
    ({"webhooks.json": {"webhooks": {KEY.uid: {"url": 5}}}}, "webhooks.json of the dump: `url` cannot be 5"),
    ({"webhooks.json": {"webhooks": {"x": {"url": "u"}}}}, "webhooks.json of the dump: 'x' is not a UUID"),
    ({"webhooks.json": {"webhooks": [1]}}, "webhooks.json of the dump: it does not have the expected form"),
    ({"network.json": {"remotes": {"b": {}}}}, "network.json of the dump: Missing field `url` inside `.remotes.b`"),
    ({"network.json": {"shards": {"s": {"remotes": [1]}}}}, "network.json of the dump: Invalid value type at `.shards.s.remotes[0]`"),
    ({"chat-completions-settings/w.json": {}}, "`chat-completions-settings/w.json` of the dump: 'source' is missing or unknown"),
    ({"chat-completions-settings/w.json": {"source": "x"}}, "of the dump: Unknown value `x` at `.source`"),
    ({"chat-completions-settings/w.json": []}, "chat-completions-settings/w.json of the dump is [], expected an object"),
    ({"experimental-features.json": "7"}, "experimental-features.json of the dump is 7, expected an object"),
    ({"keys.jsonl": lines({**dump_lines.key_line(KEY), "actions": "*"})}, "line 1: `actions` cannot be '*'"),
    ({"keys.jsonl": lines(*[dump_lines.key_line(KEY)] * 2)}, "two indexes, tasks, batches or keys of the same uid"),
    ({"tasks/queue.jsonl": lines(TASK, TASK)}, "two indexes, tasks, batches or keys of the same uid"),
    ({"tasks/queue.jsonl": lines(5)}, "tasks/queue.jsonl of the dump, line 1: 5 is not an object"),
    ({"tasks/queue.jsonl": lines({**TASK, "uid": "../../x"})}, "line 1: `uid` cannot be '../../x'"),
    ({"tasks/queue.jsonl": lines({**TASK, "uid": 2**64})}, "line 1: `uid` cannot be 18446744073709551616"),
    ({"tasks/queue.jsonl": lines({**TASK, "status": "lost"})}, "line 1: `status` cannot be 'lost'"),
    ({"tasks/queue.jsonl": lines({**TASK, "enqueuedAt": "now"})}, "line 1: 'now' is not a date and time"),
    ({"tasks/queue.jsonl": lines({**TASK, "enqueuedAt": "0001-01-01T00:00:00Z"})}, "between the years 1678 and 2262"),
    ({"tasks/queue.jsonl": lines({**TASK, "type": "fly"})}, "line 1: 'fly' is missing or unknown"),
    ({"tasks/queue.jsonl": lines({**TASK, "type": {}})}, "line 1: it does not have the expected form"),
    ({"tasks/queue.jsonl": lines({**TASK, "customMetadata": "\ud800"})}, "x.dump is not a dump that svcd can read"),
    ({"batches/queue.jsonl": lines({**BATCH, "stats": []})}, "batches/queue.jsonl of the dump, line 1: `stats` cannot be []"),
    ({"indexes/films/documents.jsonl": None}, "the dump has no entry `indexes/films/documents.jsonl`"),
    ({"indexes/films/documents.jsonl": '{"id":1}\ngarbage\n'},
     "indexes/films/documents.jsonl of the dump, line 2: it is not JSON at line 1"),
    ({"indexes/films/documents.jsonl": '{"id":1}\n7\n'}, "indexes/films/documents.jsonl of the dump, line 2: 7 is not an object"),
    ({"indexes/films/metadata.json": [1]}, "indexes/films/metadata.json of the dump is [1], expected an object"),
    ({"indexes/films/metadata.json": {**LEAST["indexes/films/metadata.json"], "primaryKey": 5}},
     "indexes/films of the dump: `primaryKey` cannot be 5"),
    ({"indexes/films/metadata.json": {**LEAST["indexes/films/metadata.json"], "uid": None}}, "indexes/films of the dump: "),
    ({name.replace("films", "again"): value for name, value in LEAST.items() if "films" in name},
     "two indexes, tasks, batches or keys of the same uid"),
    *[({"metadata.json": {"dumpVersion": version}, name: "[" * 50_000}, f"the dump is not a valid dump of version {version}")
      for version, name in (("V1", "metadata.json"), ("V2", "index_uuids/data.jsonl"), ("V3", "updates/data.jsonl"),
                            ("V4", "keys"), ("V5", "updates/data.jsonl")) if version != "V1"],
    *[({"metadata.json": {"dumpVersion": version}, "index_uuids/data.jsonl": lines(
        {"uid": "films", "uuid": "../../../x", "index_meta": {"uuid": "../../../x"}})}, "'../../../x' is not a uid")
      for version in ("V2", "V3", "V4", "V5")],
    ({"metadata.json": {"dumpVersion": "V5"}, "index_uuids/data.jsonl": lines(
        {"uid": "films", "index_meta": {"uuid": KEY.uid}})}, f"`indexes/{KEY.uid}/meta.json` is missing"),
    ({"metadata.json": {"dumpVersion": "V5"}, "updates/data.jsonl": lines(
        {"id": 0, "content": {}, "events": [{"Created": MOMENT}]})}, "an object is empty"),
    ({"metadata.json": {"dumpVersion": "V1", "indexes": [{"uid": "../../x"}]}}, "'../../x' is not a uid"),
    ({"metadata.json": {"dumpVersion": "V1", "indexes": 5}}, "it does not have the expected form"),
])
def test_what_only_looks_like_a_dump_is_rejected_with_a_clear_error(tmp_path: Path, changes: Mapping[str, Any], words: str) -> None:
    path = packed(tmp_path / "x.dump", {**LEAST, **changes})
    with pytest.raises(ArchiveRefused) as refused:
        import_dump(path, tmp_path / "deep" / "new", make_writer=CrashingWriter)
    told = str(refused.value)
    assert words in told
    assert "Error" not in told and "\n" not in told and len(told) < 500
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


class CrashingWriter(LocalWriter):
    """Tells of exceptions as the indexing process does."""

    def run(self, request: dict[str, Any], progress: Callable[[str, int, int], None]) -> dict[str, Any]:
        try:
            return super().run(request, progress)
        except Exception:
            raise IndexingProcessCrashed("Traceback (most recent call last):\nValueError: x") from None


def test_an_old_dump_moves_no_file_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text("kept")
    task = {"id": 0, "events": [{"Created": MOMENT}], "content": {"DocumentAddition": {
        "index_uid": "films", "content_uuid": str(tmp_path / "secret.jsonl"), "merge_strategy": "ReplaceDocuments",
        "primary_key": None, "documents_count": 1, "allow_index_creation": True}}}
    path = packed(tmp_path / "x.dump", {"metadata.json": {"dumpVersion": "V5"}, "updates/data.jsonl": lines(task)})
    with pytest.raises(ArchiveRefused, match="is not a uid"):
        import_dump(path, tmp_path / "new", make_writer=LocalWriter)
    assert (tmp_path / "secret.jsonl").read_text() == "kept"


def test_any_change_of_a_dump_is_imported_or_refused_with_a_clear_error(tmp_path: Path) -> None:
    """Every value of every line, exchanged for some of other types."""
    others: list[Any] = [None, -1, "x", [], 2.5, {}, [[]], {"a": {}}]
    whole = {"keys.jsonl": dump_lines.key_line(KEY), "tasks/queue.jsonl": TASK, "batches/queue.jsonl": BATCH,
             "metadata.json": LEAST["metadata.json"], "webhooks.json": {"webhooks": {KEY.uid: {"url": "http://a.test"}}}}
    plain = {name: value for name, value in LEAST.items() if "films" not in name}
    for name, value in whole.items():
        for place, member in enumerate([*value, *value]):
            other = others[place % len(others)]
            path = packed(tmp_path / "x.dump", {**plain, name: lines({**value, member: other})})
            try:
                import_dump(path, tmp_path / "new", make_writer=CrashingWriter)
            except ArchiveRefused as refused:
                assert "Error" not in str(refused)
            else:
                TaskHarness(tmp_path / "new").instance.close()
                shutil.rmtree(tmp_path / "new")


def test_missing_documents_are_reported(tmp_path: Path) -> None:
    task = Task(0, "documentAdditionOrUpdate", "films", "enqueued", 0, details={"receivedDocuments": 1},
                content={"method": "replace"})
    line = json.dumps(dump_lines.task_line(task)) + "\n"
    refuse(tmp_path, packed(tmp_path / "x.dump", {**LEAST, "tasks/queue.jsonl": line}), "Corrupted dump.")


def test_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.dump"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("metadata.json")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    refuse(tmp_path, path, "the entry `metadata.json`")


@pytest.mark.parametrize("cut", [lambda content: b"", lambda content: b"no archive at all",
                                 lambda content: content[:len(content) // 2]])
def test_half_a_file_is_refused(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    path = packed(tmp_path / "x.dump", LEAST)
    path.write_bytes(cut(path.read_bytes()))
    refuse(tmp_path, path, "dump")


@pytest.mark.parametrize("line, kind, details", [
    ({"type": {"upgradeDatabase": {"from": [1, 12, 0]}},
      "details": {"UpgradeDatabase": {"from": [1, 12, 0], "to": [1, 13, 0]}}}, "upgradeDatabase",
     {"upgradeFrom": "v1.12.0", "upgradeTo": "v1.13.0"}),
    ({"type": {"export": {"url": "u"}}, "details": {"Export": {"url": "u", "api_key": None, "payload_size": None,
                                                               "indexes": {}}}}, "export", {"url": "u", "indexes": {}}),
    ({"type": {"indexUpdate": {"primary_key": "id"}}, "details": {"IndexInfo": {
        "primary_key": "id", "new_index_uid": None, "old_index_uid": None}}}, "indexUpdate", {"primaryKey": "id"}),
    ({"type": {"indexUpdate": {"primary_key": None, "uid": "films"}}, "details": {"IndexInfo": {
        "primary_key": None, "new_index_uid": "films", "old_index_uid": "movies"}}}, "indexUpdate",
     {"primaryKey": None, "newIndexUid": "films", "oldIndexUid": "movies"}),
    ({"type": "documentClear", "details": {"ClearAll": {"deleted_documents": None}}}, "documentDeletion",
     {"deletedDocuments": None}),
])
def test_kinds_of_the_reference_are_read(line: Mapping[str, Any], kind: str, details: Any) -> None:
    task = dump_lines.task_of({"uid": 1, "indexUid": None, "status": "succeeded", "enqueuedAt": MOMENT, **line})
    assert (task.kind, task.details) == (kind, details)


def test_tasks_that_svcd_cant_run_are_canceled() -> None:
    task = dump_lines.task_of({"uid": 1, "indexUid": None, "status": "enqueued", "enqueuedAt": MOMENT,
                               "type": {"networkTopologyChange": {}}})
    assert task.status == "canceled"


@pytest.mark.parametrize("kind, content, details", [
    ({"dsrUpdate": {"createOrUpdate": {"rule_id": "a", "update": {"active": None}}}}, {"uid": "a", "update": {"active": None}},
     {"rule": {"active": None}, "updatedRules": 1}),
    ({"dsrUpdate": {"deletion": "a"}}, {"uid": "a"}, {"updatedRules": 1}),
])
def test_changes_of_search_rules_are_read(kind: Any, content: Any, details: Any) -> None:
    task = dump_lines.task_of({"uid": 1, "indexUid": ".other_dsr", "status": "enqueued", "enqueuedAt": MOMENT, "type": kind,
                               "details": {"DsrUpdate": kind["dsrUpdate"]}})
    assert (task.index_uid, task.status, task.content, task.details) == (".svc_dsr", "enqueued", content, details)
