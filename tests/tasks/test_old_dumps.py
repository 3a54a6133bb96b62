"""Dumps of the versions 1 to 5 begin an instance as those of version 6 do.

1. Indexes have their documents, settings and primary key; what meant the same under another name means it still.
2. Tasks are told in the words of today, with the moments, counters and errors that they had.
3. What waited runs, but in version 1, where it is dropped.
4. Keys are kept; those without a uid get one.
"""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from svcd.base import quantities
from svcd.base.quantities import rfc3339
from svcd.tasks.global_tasks import Folders
from svcd.tasks.views import task_view
from tests.tasks.conftest import TaskHarness
from tests.tasks.test_archive_import import imported, packed

__all__ = ["imported"]

FIRST, SECOND, THIRD = (f"2021-09-08T08:00:0{second}Z" for second in (1, 2, 4))
META = {"settings": {"stopWords": ["the"], "rankingRules": ["words", "wordsPosition", "n:desc"]}, "primary_key": "id"}
DOCUMENTS = '{"id":1,"n":2.50}\n'
NO_CONTENT = "00000000-0000-0000-0000-000000000000"


def in_answers(moment: str) -> str:
    return moment.replace("Z", ".000000Z")


def lines(values: Sequence[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def views(harness: TaskHarness) -> list[dict[str, Any]]:
    return [task_view(task) for task in harness.queue.tasks_of(range(99))]


def check_index(harness: TaskHarness, created_at: str, rules: Sequence[str] = ("words", "n:desc")) -> None:
    with harness.instance.read("films") as reader:
        assert list(reader.texts()) == ['{"id":1,"n":2.5}']
        assert (reader.settings.resolved["stopWords"], reader.settings.resolved["rankingRules"]) == (["the"], list(rules))
    row = harness.instance.require_index("films")
    assert row.primary_key == "id"
    assert rfc3339(row.created_at) == created_at


def v5_addition(uuid: str, index: Mapping[str, Any]) -> dict[str, Any]:
    return {"DocumentAddition": {**index, "content_uuid": uuid, "merge_strategy": "UpdateDocuments",
                                 "primary_key": None, "documents_count": 1, "allow_index_creation": False}}


def test_version_5(tmp_path: Path, imported: Any) -> None:
    films = {"index_uid": "films"}
    done = [{"Created": FIRST}, {"Batched": {"timestamp": FIRST, "batch_id": 0}}, {"Processing": SECOND}]
    error = {"message": "no", "code": "invalid_filter", "type": "invalid_request", "link": "old"}
    harness = imported(packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": "V5"}, "instance-uid": "12345678-1234-4234-8234-123456789012",
        "keys": lines([{"uid": "11111111-1111-4111-8111-111111111111", "actions": ["search"], "indexes": ["films"],
                        "expires_at": None, "created_at": FIRST, "updated_at": FIRST, "name": "k"}]),
        "index_uuids/data.jsonl": lines([{"uid": "films", "index_meta": {"uuid": "u1", "creation_task_id": 0}}]),
        "indexes/u1/meta.json": META, "indexes/u1/documents.jsonl": DOCUMENTS,
        "updates/updates_files/c1": '{"id":1,"a":1}\n',
        "updates/data.jsonl": lines([
            {"id": 4, "content": {"Dump": {"uid": "d"}}, "events": done},
            {"id": 3, "content": v5_addition("c1", films), "events": done},
            {"id": 2, "content": {"SettingsUpdate": {**films, "settings": {"sortableAttributes": ["n"]},
                                                     "is_deletion": False, "allow_index_creation": True}},
             "events": [*done, {"Failed": {"error": error, "timestamp": THIRD}}]},
            {"id": 1, "content": {"DocumentDeletion": {**films, "deletion": {"Ids": ["9"]}}},
             "events": [*done, {"Succeeded": {"result": {"DocumentDeletion": {"deleted_documents": 0}},
                                              "timestamp": THIRD}}]},
            {"id": 0, "content": v5_addition(NO_CONTENT, films),
             "events": [*done, {"Succeeded": {"result": {"DocumentAddition": {"indexed_documents": 1}},
                                              "timestamp": THIRD}}]}])}))
    check_index(harness, FIRST)
    assert harness.instance.uid == "12345678-1234-4234-8234-123456789012"
    assert [row.name for row in harness.instance.keys.read()[1]] == ["k"]
    shown = views(harness)
    assert [row["status"] for row in shown] == ["succeeded", "succeeded", "failed", "enqueued", "enqueued"]
    assert shown[0] | {"details": {"receivedDocuments": 1, "indexedDocuments": 1}, "duration": "PT2S",
                       "enqueuedAt": in_answers(FIRST), "startedAt": in_answers(SECOND),
                       "finishedAt": in_answers(THIRD)} == shown[0]
    assert shown[1]["details"] == {"providedIds": 1, "deletedDocuments": 0, "originalFilter": None}
    told = shown[2]["error"]
    assert (told["code"], told["message"]) == ("invalid_settings_filterable_attributes", "no")
    assert shown[3]["startedAt"] is None and shown[3]["details"]["indexedDocuments"] is None
    harness.options["folders"] = Folders(tmp_path / "dumps")
    harness.restart()
    harness.run()
    assert {row["status"] for row in views(harness)[3:]} == {"succeeded"}
    assert harness.documents("films") == {0: {"id": 1, "n": 2.5, "a": 1}}


def test_version_4(tmp_path: Path, imported: Any) -> None:
    done = [{"Created": FIRST}, {"Processing": SECOND}]
    harness = imported(packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": "V4"},
        "keys": lines([{"id": [1] * 8, "actions": ["search", "dumps.get"], "indexes": ["*"], "expires_at": None,
                        "created_at": FIRST, "updated_at": FIRST, "description": "d"}]),
        "index_uuids/data.jsonl": lines([{"uid": "films", "index_meta": {"uuid": "u1", "creation_task_id": 0}}]),
        "indexes/u1/meta.json": META, "indexes/u1/documents.jsonl": DOCUMENTS,
        "updates/data.jsonl": lines([
            {"id": 1, "index_uid": "gone", "content": "IndexDeletion", "events": [
                *done, {"Succeded": {"result": {"ClearAll": {"deleted_documents": 4}}, "timestamp": THIRD}}]},
            {"id": 0, "index_uid": "films", "content": {"DocumentDeletion": "Clear"}, "events": [
                *done, {"Succeded": {"result": {"ClearAll": {"deleted_documents": 3}}, "timestamp": THIRD}}]}])}))
    check_index(harness, FIRST)
    ((key),) = harness.instance.keys.read()[1]
    assert (key.actions, key.description, len(key.uid)) == (["search"], "d", 36)
    assert [(row["type"], row["indexUid"], row["details"]) for row in views(harness)] == [
        ("documentDeletion", "films", {"deletedDocuments": 3}), ("indexDeletion", "gone", {"deletedDocuments": 4})]


META_V2 = {"settings": {**META["settings"], "filterableAttributes": {"n": "string"},
                        "rankingRules": ["words", "wordsPosition", "desc(n)"]}, "primary_key": "id"}


@pytest.mark.parametrize("version, folder, waiting, content, meta", [
    ("V3", "u1", "updates/updates_files/c1", '{"id":2}\n',
     lambda what: {"DocumentAddition": {"primary_key": None, "method": "ReplaceDocuments", "content_uuid": what}}),
    ("V2", "index-u1", "updates/update_files/update_c1", '[{"id":2}]',
     lambda what: {"type": "DocumentsAddition", "method": "ReplaceDocuments", "format": "Json", "primary_key": None}),
])
def test_versions_2_and_3(tmp_path: Path, imported: Any, version: str, folder: str, waiting: str, content: str,
                          meta: Any) -> None:
    settings = {"stopWords": ["the"]}
    harness = imported(packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": version}, waiting: content,
        "index_uuids/data.jsonl": lines([{"uuid": "u1", "uid": "films"}]),
        f"indexes/{folder}/meta.json": META_V2, f"indexes/{folder}/documents.jsonl": DOCUMENTS,
        "updates/data.jsonl": lines([{"uuid": "u1", "update": {"updateId": number, "enqueuedAt": FIRST, **update}}
                                     for number, update in enumerate([
            {"status": "processed", "success": {"DocumentsAddition": {"nb_documents": 7}}, "meta": meta(NO_CONTENT),
             "startedProcessingAt": SECOND, "processedAt": THIRD},
            {"status": "failed", "error": {"msg": "no", "code": "missing_parameter"}, "failedAt": THIRD,
             "startedProcessingAt": SECOND,
             "meta": {"Settings": settings} if version == "V3" else {"type": "Settings", **settings}},
            {"status": "aborted", "abortedAt": THIRD,
             "meta": {"DeleteDocuments": ["1"]} if version == "V3" else {"type": "DeleteDocuments", "ids": ["1"]}},
            {"status": "processing", "meta": meta("c1"), "content": "c1", "startedProcessingAt": SECOND},
            {"status": "enqueued", "meta": "ClearDocuments" if version == "V3" else {"type": "ClearDocuments"}},
        ])])}))
    check_index(harness, THIRD)
    with harness.instance.read("films") as reader:
        assert reader.settings.resolved["filterableAttributes"] == ["n"]
    shown = views(harness)
    assert [(row["uid"], row["status"]) for row in shown] == [
        (0, "succeeded"), (1, "failed"), (2, "failed"), (3, "enqueued"), (4, "enqueued")]
    assert shown[0]["details"] == {"receivedDocuments": 0, "indexedDocuments": 7} and shown[0]["duration"] == "PT2S"
    assert shown[1]["details"] == settings and shown[1]["error"]["code"] == "bad_request"
    assert shown[2]["error"]["code"] == "unretrievable_error_code" and "aborted" in shown[2]["error"]["message"]
    assert shown[2]["details"] == {"providedIds": 1, "deletedDocuments": 0, "originalFilter": None}
    assert shown[3]["details"] == {"receivedDocuments": 1, "indexedDocuments": None}
    harness.runner.step()
    assert views(harness)[4]["details"]["deletedDocuments"] is not None and harness.documents("films") == {}


def test_version_1(tmp_path: Path, imported: Any) -> None:
    nothing = {"ranking_rules": "Nothing", "synonyms": "Clear", "attributes_for_faceting": {"Update": ["n"]}}
    harness = imported(packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": "V1", "dbVersion": "0.20.0", "indexes": [
            {"name": "Films", "uid": "films", "createdAt": FIRST, "updatedAt": SECOND, "primaryKey": "id"}]},
        "films/settings.json": {"rankingRules": ["words", "wordsPosition", "desc(n)"], "stopWords": ["the"],
                                "attributesForFaceting": ["n"], "distinctAttribute": None},
        "films/documents.jsonl": DOCUMENTS,
        "films/updates.jsonl": lines([
            {"status": "processed", "updateId": 0, "type": {"name": "DocumentsAddition", "number": 7}, "duration": 1.5,
             "enqueuedAt": FIRST, "processedAt": THIRD},
            {"status": "processed", "updateId": 1, "type": {"name": "Settings", "settings": nothing}, "duration": 0,
             "enqueuedAt": FIRST, "processedAt": THIRD},
            {"status": "processed", "updateId": 2, "type": {"name": "Customs"}, "duration": 0,
             "enqueuedAt": FIRST, "processedAt": THIRD},
            {"status": "enqueued", "updateId": 3, "type": {"name": "ClearAll"}, "enqueuedAt": THIRD}])}))
    check_index(harness, FIRST)
    with harness.instance.read("films") as reader:
        assert reader.settings.resolved["filterableAttributes"] == reader.settings.resolved["sortableAttributes"] == ["n"]
    shown = views(harness)
    assert [(row["uid"], row["status"], row["duration"]) for row in shown] == [
        (0, "succeeded", "PT1.500S"), (1, "succeeded", "PT0S")]
    assert shown[0]["details"] == {"receivedDocuments": 0, "indexedDocuments": 7}
    assert shown[1]["details"] == {"synonyms": None, "filterableAttributes": ["n"], "sortableAttributes": ["n"]}


def version_1(tmp_path: Path, updates: Sequence[Mapping[str, Any]]) -> Path:
    ended = {"duration": 0, "enqueuedAt": FIRST, "processedAt": THIRD}
    return packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": "V1", "dbVersion": "0.20.0", "indexes": [
            {"name": "Films", "uid": "films", "createdAt": FIRST, "updatedAt": SECOND, "primaryKey": "id"}]},
        "films/settings.json": {}, "films/documents.jsonl": DOCUMENTS,
        "films/updates.jsonl": lines([{**update, "updateId": uid, **ended} for uid, update in enumerate(updates)])})


def test_ranking_rules_in_a_change_of_version_1_are_variants(tmp_path: Path, imported: Any) -> None:
    rules = ["Typo", "Words", {"Desc": "fame"}, "WordsPosition", "Exactness", {"Asc": "n"}]
    settings = {"stop_words": {"Update": ["the"]}, "ranking_rules": {"Update": rules}}
    change = {"status": "processed", "type": {"name": "Settings", "settings": settings}}
    (shown,) = views(imported(version_1(tmp_path, [change])))
    assert list(shown["details"].items()) == [
        ("rankingRules", ["typo", "words", "fame:desc", "exactness", "n:asc"]), ("stopWords", ["the"])]


def test_a_failure_of_version_1_has_its_error(tmp_path: Path, imported: Any) -> None:
    failed = {"status": "failed", "type": {"name": "DocumentsAddition", "number": 1}}
    harness = imported(version_1(tmp_path, [
        {**failed, "error": "no", "errorCode": "missing_primary_key", "errorType": "x"}, failed]))
    assert [(row["error"]["message"], row["error"]["code"]) for row in views(harness)] == [
        ("no", "index_primary_key_no_candidate_found"), ("", "unretrievable_error_code")]


def test_an_error_of_version_3_stands_among_the_members_of_its_update(tmp_path: Path, imported: Any) -> None:
    """Its code is the name that it had in the source of the reference engine."""
    update = {"status": "failed", "meta": "ClearDocuments", "enqueuedAt": FIRST, "startedProcessingAt": SECOND}
    harness = imported(packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": "V3"}, "index_uuids/data.jsonl": lines([{"uuid": "u1", "uid": "films"}]),
        "indexes/u1/meta.json": META, "indexes/u1/documents.jsonl": DOCUMENTS, "updates/data.jsonl": lines([
            {"uuid": "u1", "update": {**update, "updateId": 1, "failedAt": THIRD, "msg": "gone", "code": "IndexNotFound"}},
            {"uuid": "u1", "update": {**update, "updateId": 0, "failedAt": SECOND, "msg": "no", "code": "Filter"}}])}))
    assert [(row["error"]["message"], row["error"]["code"]) for row in views(harness)] == [
        ("gone", "index_not_found"), ("no", "invalid_settings_filterable_attributes")]
    check_index(harness, SECOND)


def test_an_index_without_a_task_is_as_old_as_its_import(tmp_path: Path, imported: Any) -> None:
    harness = imported(packed(tmp_path / "x.dump", {
        "metadata.json": {"dumpVersion": "V3"}, "index_uuids/data.jsonl": lines([{"uuid": "u1", "uid": "films"}]),
        "indexes/u1/meta.json": META, "indexes/u1/documents.jsonl": DOCUMENTS, "updates/data.jsonl": ""}))
    row = harness.instance.require_index("films")
    assert 0 <= row.updated_at - row.created_at < 60 * quantities.SECOND
