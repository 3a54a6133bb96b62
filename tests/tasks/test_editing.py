"""What must hold of editing documents by a function:

1. All documents are edited, or none: a fault of the function, or of one document, fails the task and leaves no trace.
2. A document keeps its docid; one that stays as it is, is not written; one that becomes `()` is removed.
3. The primary key must stay; a document must stay an object.
4. Words, fields and the next free docids are as if the documents had been sent so.
5. A large index is edited in portions; the task can be stopped and begun again.
6. The task runs alone, counts what it did, and needs an index.
7. With a filter it is for the documents that meet it before the task begins, whatever the function does to them.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from svcd.index.writer import DocumentChange, IndexWriter
from svcd.instance.task_records import Task
from svcd.tasks.indexing import MemoryBudget
from tests.tasks.conftest import TaskHarness

FILMS = [{"id": n, "title": f"film {n}", "year": 1970 + n, "cast": {"b": "Weaver", "a": "Hurt"}} for n in range(6)]


class Stop(Exception):
    """The daemon is gone."""


def edit(harness: TaskHarness, function: str, context: Any = None, index_uid: str = "movies", wanted: Any = None) -> Task:
    details = {"deletedDocuments": None, "editedDocuments": None, "context": context, "function": function,
               "originalFilter": None if wanted is None else json.dumps(wanted)}
    return harness.do("documentEdition", index_uid, details, filter=wanted, context=context, function=function)


@pytest.fixture
def films(harness: TaskHarness) -> TaskHarness:
    harness.add(FILMS)
    harness.run()
    return harness


def test_documents_are_edited_removed_or_left(films: TaskHarness) -> None:
    function = "if doc.id % 3 == 0 { doc = () } " \
               "else if doc.id < context.max { doc.title.make_upper(); doc.fresh = [doc.id] }"
    task = edit(films, function, {"max": 5})
    films.run()
    assert films.task(task).error is None
    found = films.documents()
    assert list(found) == [1, 2, 4, 5]
    assert found[1] == {**FILMS[1], "title": "FILM 1", "fresh": [1]} and found[5] == FILMS[5]
    ended = films.task(task)
    assert (ended.status, ended.details["deletedDocuments"], ended.details["editedDocuments"]) == ("succeeded", 2, 3)
    assert not films.find("0") and films.find("film") == [1, 2, 4, 5]
    row = films.instance.require_index("movies")
    assert row.stats["documents"] == 4 and row.stats["fields"]["fresh"] == 3


def test_members_keep_the_order_of_fields(films: TaskHarness) -> None:
    edit(films, 'doc.aa = #{z: 1, b: 2}; doc.cast.c = "x"; let t = doc.remove("id"); doc.id = t')
    films.run()
    with films.instance.read("movies") as reader:
        text = reader.documents([0])[0]
    expected = {"id": 0, "title": "film 0", "year": 1970, "cast": {"a": "Hurt", "b": "Weaver", "c": "x"},
                "aa": {"b": 2, "z": 1}}
    assert text == json.dumps(expected, separators=(",", ":"))


def test_what_stays_is_not_written(films: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = IndexWriter.write

    def noting(self: IndexWriter, changes: list[DocumentChange], encoded: Any) -> None:
        written.extend(change.docid for change in changes)
        write(self, changes, encoded)

    monkeypatch.setattr(IndexWriter, "write", noting)
    task = edit(films, 'let c = doc.remove("cast"); doc.cast = c; if doc.id == 4 { doc.year = doc.year.to_float() }')
    films.run()
    assert written == [4] and films.task(task).details["editedDocuments"] == 1


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        ("if doc.id == 4 { doc.a = nope }", "edit_documents_by_function_error",
         "Document edition runtime error encountered while running the function: Variable not found: nope (line 1, "
         "position 26)"),
        ("if doc.id == 4 { doc = 7 } else { doc.a = 1 }", "edit_documents_by_function_error",
         "Document editions must keep documents as objects"),
        ("doc.id += 1", "edit_documents_by_function_error", "Document editions cannot modify a document's primary key"),
        ('doc.remove("id")', "missing_document_id", "Document doesn't have a `id` attribute"),
        ("doc.id = ()", "invalid_document_id", "Document identifier `null` is invalid"),
        ("loop { }", "edit_documents_by_function_error", "Too many operations (line 1, position 1)"),
        ("doc.a = ", "edit_documents_by_function_error",
         "Document edition runtime error encountered while compiling the function: Script is incomplete (line 1, "
         "position 9)"),
        ("doc.f = || 1", "edit_documents_by_function_error", "Fn (expecting a value that a document can hold)"),
    ],
)
def test_a_fault_fails_the_task_and_leaves_no_trace(films: TaskHarness, function: str, code: str, message: str) -> None:
    task = edit(films, function)
    after = films.add([{"id": 99}])
    films.run()
    ended = films.task(task)
    assert (ended.status, ended.error["code"]) == ("failed", code)
    assert ended.error["message"].startswith("Index `movies`: ") and message in ended.error["message"]
    assert (ended.details["deletedDocuments"], ended.details["editedDocuments"]) == (0, 0)
    assert list(films.documents().values()) == [*FILMS, {"id": 99}] and films.task(after).status == "succeeded"


def test_an_identifier_may_change_its_form(films: TaskHarness) -> None:
    edit(films, "doc.id = doc.id.to_string()")
    films.run()
    assert [each["id"] for each in films.documents().values()] == ["0", "1", "2", "3", "4", "5"]
    films.add([{"id": 3, "title": "again"}])
    films.run()
    assert films.documents()[3] == {"id": 3, "title": "again"}


def test_removed_documents_leave_their_docids(films: TaskHarness) -> None:
    edit(films, "if doc.id == 2 { doc = () }")
    films.run()
    films.add([{"id": "next"}])
    films.run()
    assert films.documents()[2] == {"id": "next"}


def test_a_large_index_is_edited_in_portions(tmp_path: Path) -> None:
    harness = TaskHarness(tmp_path / "data", budget=MemoryBudget(documents=2000))
    harness.add([{"id": n, "title": f"film {n}"} for n in range(900)])
    harness.run()
    task = edit(harness, "if doc.id % 2 == 0 { doc.title = `even ${doc.id}` } else if doc.id % 3 == 0 { doc = () }")
    harness.run()
    assert harness.task(task).details["editedDocuments"] == 450 and harness.task(task).details["deletedDocuments"] == 150
    assert len(harness.find("even")) == 450 and len(harness.find("film")) == 300
    failing = edit(harness, "if doc.id == 898 { doc.title[99] } doc.title = \"lost\"")
    harness.run()
    assert harness.task(failing).status == "failed" and not harness.find("lost")
    harness.instance.close()


def test_a_stop_after_the_commit_edits_no_document_twice(films: TaskHarness) -> None:
    def stop() -> None:
        raise Stop

    task = edit(films, "doc.n = (doc.n ?? 0) + 1")
    films.writer.after = stop
    films.runner.step()
    films.bugs.clear()
    assert films.task(task).status == "enqueued"
    films.restart()
    films.run()
    ended = films.task(task)
    assert (ended.status, ended.details["editedDocuments"], films.documents()[0]["n"]) == ("succeeded", 6, 1)


def test_the_batch_holds_one_task_and_shows_it(films: TaskHarness) -> None:
    first, second = edit(films, "doc.a = 1", {"b": 2}), edit(films, "doc.a = 2")
    films.run()
    batches = [films.queue.batch(films.task(task).batch_uid) for task in (first, second)]
    assert batches[0].details == {"deletedDocuments": 0, "editedDocuments": 6, "context": {"b": 2},
                                  "function": "doc.a = 1"}
    assert "of type `documentEdition` that cannot be batched" in batches[0].strategy
    steps = {"processing tasks > computing document changes", "processing tasks > indexing"}
    assert steps <= set(batches[0].stats["progressTrace"])
    assert films.documents()[0]["a"] == 2


def test_an_index_is_needed_and_may_be_empty(harness: TaskHarness) -> None:
    unknown = edit(harness, "doc.a = 1")
    harness.do("indexCreation", "empty", {"primaryKey": None})
    empty = edit(harness, "doc.a = 1", index_uid="empty")
    harness.run()
    assert harness.task(unknown).error["code"] == "index_not_found"
    assert (harness.task(empty).status, harness.task(empty).details["editedDocuments"]) == ("succeeded", 0)


def test_a_filter_chooses_the_documents(films: TaskHarness) -> None:
    films.change({"filterableAttributes": ["id", "year"]})
    task = edit(films, "doc.year += 1; if doc.id == 5 { doc = () }", wanted=["year > 1972", ["id != 4"]])
    films.run()
    assert [each["year"] for each in films.documents().values()] == [1970, 1971, 1972, 1974, 1974]
    ended = films.task(task).details
    assert (ended["editedDocuments"], ended["deletedDocuments"], ended["originalFilter"]) == (
        1, 1, '["year > 1972", ["id != 4"]]')
    none = edit(films, "doc.year = nope", wanted="year > 9999")
    films.run()
    assert (films.task(none).status, films.task(none).details["editedDocuments"]) == ("succeeded", 0)


def test_a_filter_on_what_is_not_filterable_fails_the_task(films: TaskHarness) -> None:
    task = edit(films, "doc.year = 0", wanted="year > 1972")
    films.run()
    error = films.task(task).error
    assert error["code"] == "invalid_document_filter"
    assert error["message"].startswith("Index `movies`: Attribute `year` is not")
    assert list(films.documents().values()) == FILMS
