"""What must hold of dry runs:

1. The counts of a dry run are those of the task that runs next: documents, words, values, vectors, calls of a service, details.
2. What the task would refuse, the dry run refuses with the same error.
3. A dry run changes no file, and enqueues nothing.
4. Only what is stale is made again; a setting without work costs nothing.
5. Rates follow the batches that end, within bounds.
6. The work of changed documents follows from the postings that they touch.
"""
from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.index.dry_writer import PostingSample
from svcd.index.writer import IndexWriter
from svcd.instance.rates import DEFAULTS, OVERHEAD_S, Rates
from svcd.instance.task_records import Task
from svcd.tasks import embedding
from svcd.tasks.analysis import Analysis
from svcd.tasks.dry_runs import DryRuns
from svcd.tasks.indexing_client import MemoryBudget
from tests.tasks.conftest import LocalWriter, TaskHarness
from tests.tasks.test_vectors import MANUAL, REST, Service

BUDGET = MemoryBudget(documents=600)  # several portions


class Counted:
    """What a batch does, seen from outside: counts of the analysis and of the service, and the documents before and after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, service: Service) -> None:
        self.words = 0
        self._service, self._sent, self._calls = service, len(service.sent), service.calls
        encoded, positions = Analysis.encoded, Analysis.positions

        def count_encoded(analysis: Analysis, documents: Any) -> Any:
            given = list(documents)
            self.words += sum(1 for document, _, has_other_words in given if has_other_words and document)
            before = self.words
            found = encoded(analysis, given)
            self.words = before  # without the calls inside
            return found

        def count_positions(analysis: Analysis, document: Any) -> Any:
            self.words += 1
            return positions(analysis, document)

        monkeypatch.setattr(Analysis, "encoded", count_encoded)
        monkeypatch.setattr(Analysis, "positions", count_positions)

    @property
    def vectors(self) -> tuple[int, int]:
        return len(self._service.sent) - self._sent, self._service.calls - self._calls


class CallCounter(Service):
    """calls: requests with up to inputs_per_request inputs."""

    calls, known_dimensions = 0, 2

    def embed(self, inputs: Sequence[Any], counts: Any = None) -> Any:
        self.calls += -(-len(inputs) // self.inputs_per_request)
        return super().embed(inputs, counts)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> CallCounter:
    made = CallCounter()
    monkeypatch.setattr(embedding, "_kept_embedders", lambda: made)
    return made


def stored(harness: TaskHarness) -> dict[str, str]:
    row = harness.instance.index("movies")
    if row is None:
        return {}
    with closing(sqlite3.connect(harness.instance.index_path(row.uuid))) as connection:
        return dict(connection.execute("SELECT document_id, json FROM documents"))


def dry_run(harness: TaskHarness, task: Task) -> dict[str, Any]:
    """The dry run of a task, which leaves every file as it is."""
    runs = DryRuns(harness.instance, BUDGET, [], 1, LocalWriter)  # type: ignore[arg-type]
    row = harness.instance.index("movies")
    file = row and harness.instance.index_path(row.uuid)
    before = file and file.read_bytes()
    tasks = len(harness.queue.tasks_of(range(1000)))
    with_content = harness.queue.task(task.uid, with_content=True)
    assert with_content
    found = runs.answer(replace(with_content, uid=-1))
    assert before == (file and file.read_bytes()) and len(harness.queue.tasks_of(range(1000))) == tasks
    return found


def compare(harness: TaskHarness, service: CallCounter, task: Task) -> dict[str, Any]:
    """Compare the dry run of an enqueued task with what the task does; return the dry run."""
    found, before = dry_run(harness, task), stored(harness)
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch, service)
        harness.run()
    after, ended = stored(harness), harness.task(task)
    assert (found["status"], found["error"], found["details"]) == (ended.status, ended.error, ended.details or {})
    if ended.status == "succeeded":
        documents = Counter(found["documents"])
        changed = sum(1 for key in before.keys() & after.keys() if before[key] != after[key])
        assert documents["added"] == len(after.keys() - before.keys()) and documents["deleted"] == len(before.keys() - after.keys())
        assert documents["rewritten"] + documents["replaced"] >= changed  # documents with new vectors are written, too
        assert found["madeAgain"]["words"] == counted.words
        assert (sum(each["made"] for each in found["vectors"].values()),
                sum(each["calls"] for each in found["vectors"].values())) == counted.vectors
    return found


@pytest.fixture
def films(tmp_path: Path) -> Any:
    harness = TaskHarness(tmp_path / "data", budget=BUDGET)
    harness.add([{"id": n, "t": f"film {n % 7}", "u": n, "genre": "abc"[n % 3]} for n in range(40)])
    harness.run()
    yield harness
    harness.instance.close()
    assert not harness.bugs


def test_a_setting_tells_what_it_makes_again(films: TaskHarness, service: CallCounter) -> None:
    def again(change: dict[str, Any]) -> dict[str, Any]:
        return {part: count for part, count in compare(films, service, films.change(change))["madeAgain"].items() if count}

    assert again({"stopWords": ["film"]}) == {"words": 40}
    assert again({"stopWords": ["film"]}) == {}
    assert again({"synonyms": {"a": ["b"]}, "infixSearch": ["t"], "stemming": ["eng"]}) == {}
    assert again({"filterableAttributes": ["genre", "u"]}) == {"values": 40}
    assert again({"filterableAttributes": ["u"], "sortableAttributes": ["genre"]}) == {}
    assert again({"filterableAttributes": ["_geo"]}) == {"values": 40, "locations": 40}
    assert again({"defaultMatchingStrategy": "bm25"}) == {"wordCounts": 40}
    assert again({"searchableAttributes": ["t"], "cjk": "bigrams"}) == {"words": 40}


def test_a_setting_shows_its_values_before_and_after_without_secrets(films: TaskHarness) -> None:
    found = dry_run(films, films.change({"stopWords": ["b", "a"], "prefixSearch": "indexingTime"}))
    assert found["settings"] == {"stopWords": {"from": [], "to": ["a", "b"]}}
    found = dry_run(films, films.change({"embedders": {"e": {**REST, "apiKey": "secret-of-some-length"}}}))
    assert "secret-of-some-length" not in str(found["settings"]) and found["settings"]["embedders"]["to"]["e"]["apiKey"]


def test_a_setting_that_would_be_rejected_is_rejected(films: TaskHarness, service: CallCounter) -> None:
    films.add([{"id": 1, "_geo": "nowhere"}])
    films.run()
    found = compare(films, service, films.change({"filterableAttributes": ["_geo"]}))
    assert found["error"]["code"] == "invalid_document_geo_field" and found["madeAgain"]["words"] == 0
    assert compare(films, service, films.change({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 20}}}))["status"] == "failed"


def test_embedders_tell_their_vectors_and_calls(films: TaskHarness, service: CallCounter) -> None:
    def vectors(change: dict[str, Any] | None) -> Any:
        return compare(films, service, films.change({"embedders": change}))["vectors"]

    assert vectors({"e": REST}) == {"e": {"made": 7, "calls": 4, "removed": 0}}  # equal texts are sent once in a portion
    assert vectors({"e": {**REST, "documentTemplate": "{{doc.t}}"}}) == {}
    assert vectors({"e": {**REST, "documentTemplate": "{{doc.u}}"}}) == {"e": {"made": 40, "calls": 20, "removed": 0}}
    assert vectors({"e": {**REST, "documentTemplate": "{{doc.u}}{% if doc.u == 3 %}!{% endif %}"}})["e"]["made"] == 1
    assert vectors({"e": None}) == {"e": {"made": 0, "calls": 0, "removed": 40}}
    assert vectors({"m": MANUAL}) == {}


def test_documents_tell_what_they_change(films: TaskHarness, service: CallCounter) -> None:
    films.change({"searchableAttributes": ["t"], "embedders": {"e": REST}})
    films.run()
    same = list(films.documents().values())
    assert compare(films, service, films.add(same))["documents"] == {
        "added": 0, "replaced": 0, "rewritten": 0, "deleted": 0, "unchanged": 40}
    found = compare(films, service, films.add([{**same[0], "u": 77}, {**same[1], "t": "another"}, {"id": 99, "t": "new"}, *same[2:]]))
    assert found["documents"] == {"added": 1, "replaced": 2, "rewritten": 0, "deleted": 0, "unchanged": 38}
    assert found["madeAgain"]["words"] == 2 and found["vectors"]["e"]["made"] == 2
    assert compare(films, service, films.add([{"id": 1, "new": 5}], method="update"))["madeAgain"]["words"] == 0
    assert compare(films, service, films.add([{"id": 100}], may_create=False))["documents"]["unchanged"] == 1
    assert compare(films, service, films.add([{"id": 5}, {"id": "a b"}]))["error"]["code"] == "invalid_document_id"
    assert compare(films, service, films.add([{"x": 1}], key="x"))["error"]["code"] == "index_primary_key_already_exists"


def test_a_document_that_comes_twice_counts_once(films: TaskHarness, service: CallCounter) -> None:
    """In one payload of several portions, whose later ones read what the earlier ones wrote."""
    films.add([{"id": n, "t": "x", "_vectors": {"m": [1, 2]}} for n in range(40)])
    films.run()
    films.change({"embedders": {"e": REST, "m": MANUAL}})
    films.run()
    twice = [{"id": n % 45, "t": f"y{n % 45}", "_vectors": {"m": [1, n]}} for n in range(90)]
    found = compare(films, service, films.add(twice))
    assert found["vectors"]["e"]["made"] == 45 and found["details"]["indexedDocuments"] == 45
    assert found["documents"] == {"added": 5, "replaced": 40, "rewritten": 0, "deleted": 0, "unchanged": 0}
    equal = [{"id": 300 + n, "t": "abc"[n % 3] * 20, "_vectors": {"m": [1, n]}} for n in range(60)]  # sent once in all portions
    assert compare(films, service, films.add(equal))["vectors"]["e"] == {"made": 3, "calls": 2, "removed": 0}
    twice = [{"id": 200 + n % 30, "t": f"z{n % 30}", "_vectors": {"m": [1, 2]}} if n < 30 else {"id": 200 + n % 30} for n in range(60)]
    assert compare(films, service, films.add(twice, method="update"))["documents"]["added"] == 30


def test_deletions_tell_what_they_delete(films: TaskHarness, service: CallCounter) -> None:
    films.change({"filterableAttributes": ["u"]})
    films.run()
    assert compare(films, service, films.delete(["1", "2", "1", "nobody"]))["documents"]["deleted"] == 2
    by_filter = films.do("documentDeletion", details={"deletedDocuments": None, "originalFilter": ""}, filter="u > 35")
    assert compare(films, service, by_filter)["documents"]["deleted"] == 4
    wrong = films.do("documentDeletion", details={"deletedDocuments": None}, filter="genre = a")
    assert compare(films, service, wrong)["error"]["code"] == "invalid_document_filter"
    assert compare(films, service, films.clear())["documents"]["deleted"] == 34
    assert compare(films, service, films.clear("nowhere"))["error"]["code"] == "index_not_found"


def test_edits_tell_what_they_edit(films: TaskHarness, service: CallCounter) -> None:
    films.change({"filterableAttributes": ["u"], "embedders": {"e": REST}})
    films.run()
    edit = films.do("documentEdition", details={"deletedDocuments": None, "editedDocuments": None},
                    function="if doc.u == 3 { doc = () } else if doc.u < 5 { doc.t = `edited ${doc.u}` }", filter="u < 9")
    found = compare(films, service, edit)
    assert found["documents"] == {"added": 0, "replaced": 4, "rewritten": 0, "deleted": 1, "unchanged": 0}
    assert found["vectors"]["e"] == {"made": 4, "calls": 2, "removed": 0}


def test_swaps_renames_and_indexes(films: TaskHarness, service: CallCounter) -> None:
    films.do("indexCreation", "books", {"primaryKey": None})
    films.run()
    swap = films.do("indexSwap", None, {}, swaps=[{"indexes": ["movies", "books"]}])
    assert dry_run(films, swap)["status"] == "succeeded" and len(films.documents()) == 40
    films.run()
    assert films.documents() == {}
    films.do("indexSwap", None, {}, swaps=[{"indexes": ["movies", "books"]}])
    films.run()
    wrong = films.do("indexSwap", None, {}, swaps=[{"indexes": ["movies", "nobody"]}])
    assert compare(films, service, wrong)["error"]["code"] == "index_not_found"
    rename = {"primaryKey": None, "newIndexUid": "books"}
    assert compare(films, service, films.do("indexUpdate", "movies", {}, **rename))["error"]["code"] == "index_already_exists"
    assert compare(films, service, films.do("indexCreation", "books", {"primaryKey": None}))["status"] == "failed"
    assert compare(films, service, films.do("indexUpdate", "movies", {"primaryKey": "x"}, primaryKey="x"))["status"] == "failed"
    deletion = films.do("indexDeletion", "movies", {"deletedDocuments": None})
    assert compare(films, service, deletion)["documents"]["deleted"] == 40


def test_an_index_that_does_not_exist_is_one_of_no_documents(tmp_path: Path, service: CallCounter) -> None:
    harness = TaskHarness(tmp_path / "data", budget=BUDGET)
    found = compare(harness, service, harness.add([{"id": n, "t": str(n)} for n in range(30)]))
    assert found["documents"]["added"] == 30 and found["bytesOnDisk"] > 0
    harness.instance.close()


documents = st.lists(st.builds(
    lambda key, text, number, vector: {"id": key, **({"t": text} if text else {}), "u": number, **({"_vectors": vector} if vector else {})},
    st.integers(0, 12), st.sampled_from(["", "a", "b", "a b"]), st.integers(0, 3),
    st.sampled_from([None, None, {"m": [1, 2]}, {"e": [3, 4]}, {"m": None, "other": [1]}, {"e": {"regenerate": True}}])), max_size=20)
changes: st.SearchStrategy[Callable[[TaskHarness], Task]] = st.one_of(
    st.builds(lambda docs, method: lambda harness: harness.add(docs, method=method), documents, st.sampled_from(["replace", "update"])),
    st.builds(lambda ids: lambda harness: harness.delete(ids), st.lists(st.integers(0, 14).map(str), max_size=6)),
    st.builds(lambda change: lambda harness: harness.change(change), st.sampled_from([
        {"embedders": {"e": REST}}, {"embedders": {"e": {**REST, "documentTemplate": "{{doc.u}}"}}}, {"embedders": {"e": None}},
        {"embedders": {"m": MANUAL}}, {"embedders": {"m": None}}, {"embedders": {"e": {**REST, "model": "other"}}},
        {"searchableAttributes": ["t"]}, {"searchableAttributes": None}, {"filterableAttributes": ["u"]}, {"stopWords": ["a"]}])))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=st.lists(changes, min_size=2, max_size=6))
def test_any_history_is_counted(tmp_path_factory: pytest.TempPathFactory, service: CallCounter, history: Any) -> None:
    harness = TaskHarness(tmp_path_factory.mktemp("history") / "data", budget=BUDGET)
    try:
        harness.add([{"id": n, "t": "start", "u": n} for n in range(4)], key="id")
        harness.run()
        for change in history:
            compare(harness, service, change(harness))
        assert not harness.bugs
    finally:
        harness.instance.close()


@pytest.mark.parametrize("is_spread", [True, False], ids=["spread", "together"])
def test_the_rows_of_postings_that_changes_touch_are_estimated_from_a_sample(is_spread: bool) -> None:
    """Oracle: the rows of all documents, which share values by a law of Zipf, and have one of their own each."""
    random, sample, rows = Random(33), PostingSample(), set()
    for n in range(20_000):
        docid = n * 40 if is_spread else n
        own = {(docid >> 16, int(random.paretovariate(0.7))) for _ in range(4)} | {(-1, docid)}
        rows |= own
        if sample.takes(docid):
            sample.add(docid, own)
        if n in (0, 100, 999, 5000, 19_999):
            assert sample.total(n + 1) == pytest.approx(len(rows), rel=0 if n < 999 else 0.25)
    assert PostingSample().total(0) == 0


def test_the_rows_of_postings_are_those_that_the_batch_writes(films: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    films.change({"searchableAttributes": ["t"], "filterableAttributes": ["genre", "u"]})
    films.run()
    stated, written = [], []
    monkeypatch.setattr(Rates, "seconds", lambda rates, uid, work, *_: stated.append(work.get("postings")) or 1.0)
    close = IndexWriter.close
    monkeypatch.setattr(IndexWriter, "close", lambda writer: (written.append(writer.work["postings"]), close(writer)))
    for change in (lambda: films.add([{"id": n, "t": f"film {n % 7}", "u": n + 1, "genre": "abc"[n % 3]} for n in range(9)]),
                   lambda: films.add([{"id": 3, "genre": "d"}, {"id": 4, "u": "two"}], method="update"),
                   lambda: films.delete(["1", "2", "30"])):
        dry_run(films, change())
        films.run()
    assert stated == [found for found in written if found] and len(stated) == 3


def test_rates_follow_the_batches_that_end() -> None:
    rates, work = Rates(), {"characters": 10_000_000, "added": 100}
    for _ in range(5):
        rates.learn("films", work, 20.0, 0, 0.0)
    assert rates.seconds("films", work, {}) == pytest.approx(20 + OVERHEAD_S, rel=0.05)
    rates.learn("films", {"characters": 10}, 0.1, 0, 0.0)  # too short to tell
    rates.learn("films", {}, 5.0, 100, 4.0)
    vectors = {"e": {"made": 50, "calls": 5}}
    assert rates.seconds("films", {}, vectors) == pytest.approx(2 + OVERHEAD_S)
    rates.learn("films", {"located": 1}, 1e9, 0, 0.0)
    assert rates.seconds("films", {"located": 1}, {}) <= OVERHEAD_S + 30 * DEFAULTS["located"] * 1.01
