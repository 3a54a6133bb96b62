"""The analysis of documents in a process of its own. What must hold:

1. An index is the same, row by row, whether its batches are analyzed there or by the indexing process, in portions of any size.
2. A task that fails in the middle leaves nothing, and what was sent for it is not taken for the documents of the next task.
3. A batch that fails leaves the file as it was.
4. When the process dies, the indexing process goes on alone.
5. The process is started for large batches only, and only with two threads; it ends with its batch.
6. When the indexing process is killed, the file is as it was, and the batch can be applied again.
"""
from __future__ import annotations

import marshal
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base import json_text
from svcd.index.encoded_document import EncodedDocuments
from svcd.schema.index_settings import IndexSettings
from svcd.tasks import documents as document_tasks, indexing
from svcd.tasks.analysis import Analysis, AnalysisProcess, AnalysisProcessDied, DocumentText
from svcd.tasks.indexing import IndexingTask, apply_batch
from svcd.tasks.indexing_client import IndexingProcess, IndexingProcessDied, MemoryBudget

SETTINGS = {"filterableAttributes": ["genre", "year", "_geo", "nested.a"], "sortableAttributes": ["year"],
            "stopWords": ["the"]}
BUDGET = MemoryBudget(documents=1 << 10)

WORDS = st.sampled_from(["The", "Sun", "sun.", "moon, star", "Éléphant", "naïve | co~te", "電影 館", "a\tb", "", "0"])
TEXT = st.lists(WORDS, max_size=6).map(" ".join)
VALUE = st.recursive(st.none() | st.booleans() | st.sampled_from([0.0, -0.0, 1e16, 1e-7, 2, -3, 10**18]) | TEXT,
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2), max_leaves=4)
FIELDS = ["title", "genre", "year", "nested", "nested.a", "late"]
DOCUMENT = st.dictionaries(st.sampled_from(FIELDS), VALUE)
IDENTIFIER = st.integers(0, 11)
ADDITION = st.tuples(st.sampled_from(["replace", "update"]), st.lists(st.tuples(IDENTIFIER, DOCUMENT), min_size=1, max_size=12))
DELETION = st.tuples(st.just("delete"), st.lists(IDENTIFIER, min_size=1, max_size=4))
BATCH = st.lists(ADDITION | ADDITION | DELETION, min_size=1, max_size=4)


class LocalAnalysis:
    """Stands in for the process: what is sent goes through the form of the pipe and is analyzed when it is asked for."""

    MOST_SENT = 2
    started: list[LocalAnalysis] = []
    answers: float = float("inf")  # the process dies after so many

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._analysis = Analysis(IndexSettings.of(stored))
        self._sent: deque[bytes] = deque()
        self.left = self.answers
        self.is_closed = False
        self.started.append(self)

    def send(self, texts: Sequence[DocumentText]) -> bool:
        self._sent.append(marshal.dumps(list(texts)))
        assert len(self._sent) <= self.MOST_SENT + 1
        return True

    def receive(self) -> EncodedDocuments:
        if not self.left:
            raise AnalysisProcessDied
        self.left -= 1
        found: EncodedDocuments = marshal.loads(marshal.dumps(self._analysis.encoded_texts(marshal.loads(self._sent.popleft()))))
        return found

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a few documents has several parts, and is large."""
    monkeypatch.setattr(document_tasks, "_WRITTEN_AT_ONCE", 3)
    monkeypatch.setattr(indexing, "ANALYZED_BESIDE", 1)
    monkeypatch.setattr(LocalAnalysis, "started", [])


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> type[LocalAnalysis]:
    monkeypatch.setattr(indexing, "AnalysisProcess", LocalAnalysis)
    return LocalAnalysis


@dataclass
class Index:
    """An index file, and the batches that it is given. threads: as --max-indexing-threads allows them."""

    folder: Path
    threads: int
    budget: MemoryBudget = BUDGET
    uids: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.path = self.folder / "index.sqlite"
        self.apply("indexCreation", [self.task("indexCreation", {"primaryKey": "id"})])
        self.apply("settings", [self.task("settingsUpdate", {"settings": SETTINGS})])

    def apply(self, shape: str, tasks: Sequence[IndexingTask]) -> list[Any]:
        answer = apply_batch(self.path, "films", shape, tasks, self.budget, threads=self.threads)
        return [outcome["error"] or outcome["details"] for outcome in answer["outcomes"]]

    def task(self, kind: str, content: Mapping[str, Any]) -> IndexingTask:
        return IndexingTask(next(self.uids), kind, content)

    def addition(self, documents: Sequence[Mapping[str, Any]], method: str = "replace") -> IndexingTask:
        task = self.task("documentAdditionOrUpdate", {"method": method})
        text = "\n".join(map(json_text.dumps, documents))
        path = self.folder / f"payload-{task.uid}"
        path.write_text(text)
        task.payload, task.payload_bytes = str(path), len(text.encode())
        return task

    def add(self, *additions: Sequence[Mapping[str, Any]]) -> list[Any]:
        return self.apply("documents", [self.addition(documents) for documents in additions])

    def rows(self) -> dict[str, list[Any]]:
        """All rows of all tables; of FTS5 the occurrences."""
        with closing(sqlite3.connect(self.path)) as connection:
            for table in ("terms", "term_positions"):
                connection.execute(f"CREATE VIRTUAL TABLE temp.v_{table} USING fts5vocab(main, {table}, instance)")
            tables = [name for (name,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
                      if not name.startswith(("terms", "term_positions", "vocabulary", "sqlite_"))]
            return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr)
                    for name in (*tables, "v_terms", "v_term_positions")}


def play(index: Index, batches: Sequence[Any]) -> list[Any]:
    outcomes = []
    for batch in batches:
        tasks = [index.task("documentDeletion", {"ids": content}) if method == "delete" else
                 index.addition([{"id": number, **document} for number, document in content], method)
                 for method, content in batch]
        outcomes.append(index.apply("documents", tasks))
    return outcomes


def films(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": n, "title": f"The film {n}, number {n % 7}. Sun", "genre": ["Drama", f"g{n % 3}"], "year": 1900 + n % 50,
             "_geo": {"lat": n % 90, "lng": -n % 90}} for n in range(first, first + count)]


@settings(max_examples=25, deadline=None)
@given(batches=st.lists(BATCH, min_size=1, max_size=2), limit=st.sampled_from([1, 200, 1 << 20]))
def test_tables_are_the_same_wherever_documents_are_analyzed(tmp_path_factory: pytest.TempPathFactory, batches: Any,
                                                             limit: int) -> None:
    folder = tmp_path_factory.mktemp("indexes")
    budget = MemoryBudget(documents=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "AnalysisProcess", LocalAnalysis)
        here, beside = Index(folder / "here", 1, budget), Index(folder / "beside", 2, budget)
        assert play(here, batches) == play(beside, batches)
    assert here.rows() == beside.rows()


def test_the_process_gives_the_same_tables(tmp_path: Path) -> None:
    here, beside = Index(tmp_path / "here", 1), Index(tmp_path / "beside", 2)
    for index in (here, beside):
        # The later ones have their members in another order than the fields have numbers, and new fields.
        index.add(films(20), [{"nested.a": "x y", "title": "Later", "id": n, "nested": {"a": "z"}, f"new{n}": n} for n in range(5, 30)])
        index.add(films(10, 15))
    assert here.rows() == beside.rows()


def test_a_failed_task_leaves_nothing_and_the_next_one_its_own(tmp_path: Path, local: type[LocalAnalysis]) -> None:
    bad = [*films(20, 100), {"id": "not an identifier!"}, *films(3, 200)]
    here, beside = Index(tmp_path / "here", 1), Index(tmp_path / "beside", 2)
    for index in (here, beside):
        first, failed, last = index.add(films(5), bad, films(40, 3))
        assert (first, last) == ({"indexedDocuments": 5}, {"indexedDocuments": 40})
        assert failed["code"] == "invalid_document_id"
    assert here.rows() == beside.rows()
    assert len(beside.rows()["documents"]) == 43


def test_a_failed_batch_leaves_the_file_as_it_was(tmp_path: Path, local: type[LocalAnalysis]) -> None:
    index = Index(tmp_path / "index", 2)
    index.add(films(10))
    before = index.rows()
    (error,) = index.add([*films(30, 5), {"id": 99, "_geo": "nowhere"}])
    assert error["code"] == "invalid_document_geo_field"
    assert index.rows() == before
    assert all(process.is_closed for process in local.started)


@pytest.mark.parametrize("answers", [0, 1, 4])
def test_without_the_process_the_indexing_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int,
                                                          local: type[LocalAnalysis]) -> None:
    monkeypatch.setattr(local, "answers", answers)
    here, beside = Index(tmp_path / "here", 1), Index(tmp_path / "beside", 2)
    assert here.add(films(40)) == beside.add(films(40))
    assert here.rows() == beside.rows()


def test_a_process_that_fails_has_died() -> None:
    with closing(AnalysisProcess(SETTINGS)) as process:
        process.send([("{}", 0, True)])
        process.send([("no JSON", 1, True)])
        assert process.receive() == ([(({}, ""), {})], {}, {})
        with pytest.raises(AnalysisProcessDied):
            process.receive()


def test_a_full_pipe_is_noticed() -> None:
    with closing(AnalysisProcess(SETTINGS)) as process:
        assert process.send([("{}", 0, True)])
        assert not process.send([(json_text.dumps({"title": "x" * (8 << 20)}), 1, True)])


@pytest.mark.parametrize("size", [1, 3 << 20])
def test_neither_process_waits_for_the_other_to_read(size: int) -> None:
    texts: list[DocumentText] = [(json_text.dumps({"title": "x" * size}), docid, True) for docid in range(2)]
    with closing(AnalysisProcess(SETTINGS)) as process:
        for _ in range(process.MOST_SENT):  # more than the pipes hold
            process.send(texts)
        expected = Analysis(IndexSettings.of(SETTINGS)).encoded_texts(texts)
        assert [process.receive() for _ in range(process.MOST_SENT)] == [expected] * process.MOST_SENT


def test_a_killed_process_has_died() -> None:
    with closing(AnalysisProcess(SETTINGS)) as process:
        process.send([("{}", 0, True)])
        process.receive()
        process._process.kill()
        for _ in range(2):
            process.send([(json_text.dumps({"title": "x" * (2 << 20)}), 1, True)])
        with pytest.raises(AnalysisProcessDied):
            process.receive()


def test_it_is_started_for_large_batches_with_two_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                          local: type[LocalAnalysis]) -> None:
    Index(tmp_path / "one", 1).add(films(10))
    assert not local.started
    index = Index(tmp_path / "two", 2)
    index.add(films(10))
    assert [process.is_closed for process in local.started] == [True]
    monkeypatch.setattr(indexing, "ANALYZED_BESIDE", 1 << 20)
    index.add(films(10))
    assert len(local.started) == 1


def test_after_a_kill_the_file_is_as_it_was(tmp_path: Path) -> None:
    index = Index(tmp_path / "index", 2)
    index.add(films(10))
    before = index.rows()
    large = [{**film, "text": "x" * 9000} for film in films(400)]  # enough for the process to be started
    task = index.addition(large)
    request = {"do": "batch", "path": str(index.path), "indexUid": "films", "shape": "documents", "budget": BUDGET._asdict(),
               "threads": 2, "tasks": [asdict(task)]}
    request["tasks"][0].pop("index_uid")
    process = IndexingProcess()
    with closing(process):
        with pytest.raises(IndexingProcessDied):
            process.run(request, lambda step, finished, total: process.kill() if finished else None)
        assert index.rows() == before
        answer = process.run(request, lambda *_: None)
    assert answer["outcomes"][0]["details"] == {"indexedDocuments": 400}
    assert len(index.rows()["documents"]) == 400


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"title": "Alien", "year": 1979}, {"title": "Alien", "year": 1980}, True),
        ({"title": "Alien"}, {"title": "Alien", "tags": ["a"]}, True),
        ({"title": "Alien"}, {"title": "Aliens"}, False),
        ({"title": 1}, {"title": True}, False),
        ({"title": 1}, {"title": 1.0}, False),
        ({"title": {"en": "a"}}, {"title": {"en": "a", "de": "b"}}, False),
        ({"title": ["a", "b"]}, {"title": ["b", "a"]}, False),
        ({"title": "a"}, {}, False),
    ],
)
def test_words_stay_where_searchable_attributes_do(before: dict[str, Any], after: dict[str, Any], expected: bool) -> None:
    assert Analysis(IndexSettings.of({"searchableAttributes": ["title"]})).has_same_words(before, after) is expected
