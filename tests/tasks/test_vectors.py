"""What must hold of the vectors of documents while tasks run:

1. After any history each document has the vectors that it was given last, or those that the embedder makes of it as it is.
2. Nothing is sent to an embedder that it has embedded before, in the same batch, before a kill, or in text that stays the same.
3. An error fails the tasks of the batch and leaves the index as it was.
4. A change of settings makes again what it affects and nothing else; vectors that users gave are never lost.
5. A dump brings back all vectors.
"""
from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.embedding import EmbeddingError
from svcd.filters.evaluation import filter_docids, read_filter
from svcd.index.connections import open_writer
from svcd.index.vector_reader import embedder_rows
from svcd.index.vector_writer import StoredVectors, VectorWriter
from svcd.ranking.bucket_sort import RankingLimits
from svcd.search.request import Hybrid, SearchQuery
from svcd.search.search import SimilarQuery, similar_documents
from svcd.search.semantic import QueryTarget, hybrid_search, semantic_search
from svcd.tasks import embedding
from svcd.tasks.archive_import import import_dump
from svcd.tasks.global_tasks import Folders
from tests.support.rebuilt import differences
from tests.support.verification import found_faults
from tests.tasks.conftest import LocalWriter, TaskHarness

REST = {"source": "rest", "url": "http://127.0.0.1:1", "request": "{{text}}", "response": "{{embedding}}", "dimensions": 2,
        "documentTemplate": "{{doc.t}}"}
MANUAL = {"source": "userProvided", "dimensions": 2}
FRAGMENTS = {**{name: value for name, value in REST.items() if name != "documentTemplate"}, "request": "{{fragment}}",
             "indexingFragments": {"a": {"value": "a {{doc.t}}"}, "b": {"value": {"b": "{{doc.u}}"}}},
             "searchFragments": {"q": {"value": "{{q}}"}}}


class Service:
    """Makes vectors of what it is sent. sent: all inputs; fail_after: raises `failure` instead of embedding further ones."""

    inputs_per_request, requests_at_once = 2, 1
    default_distribution = None

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.fail_after: int | None = None
        self.failure: BaseException = EmbeddingError("runtime error", "broken")
        self.length = 2

    def get(self, _settings: Mapping[str, Any], _dimensions: int | None = None) -> Service:
        return self

    def dimensions(self) -> int:
        return self.length

    def embed(self, inputs: Sequence[Any], counts: Any = None) -> list[array[float]]:
        if self.fail_after is not None and len(self.sent) + len(inputs) > self.fail_after:
            raise self.failure
        self.sent += inputs
        return [vector(each, self.length) for each in inputs]


def vector(given_input: Any, length: int = 2) -> array[float]:
    digest = hashlib.sha256(json.dumps(given_input).encode()).digest()
    return array("f", list(digest[:length]))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr(embedding, "_kept_embedders", lambda: made)
    return made


def shown(harness: TaskHarness, name: str = "e") -> dict[int, Any]:
    """docid -> its vectors and whether they are made again, of the documents with an entry."""
    with harness.instance.read("movies") as reader:
        found = dict(reader.vectors.document_vectors(list(reader.all_docids()), name))
    return {docid: ([each.tolist() for each in held.vectors], held.regenerate) for docid, held in found.items()}


def entries(harness: TaskHarness, name: str = "e") -> dict[int, StoredVectors]:
    """The rows of an embedder."""
    row = harness.instance.index("movies")
    assert row
    connection = open_writer(harness.instance.index_path(row.uuid))
    writer = VectorWriter(connection)
    found = {docid: held for part in writer.portions(name) for docid, held in part}
    connection.close()
    return found


def error(harness: TaskHarness, task: Any) -> Any:
    found = harness.task(task).error
    return found and (found["code"], found["message"])


def start(harness: TaskHarness, embedder: Mapping[str, Any] = REST, *documents: Mapping[str, Any]) -> None:
    harness.change({"embedders": {"e": dict(embedder)}})
    if documents:
        harness.add(documents)
    harness.run()


# Documents


def test_vectors_are_given_or_made(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x"}, {"id": 1, "t": "y", "_vectors": {"e": [1, 2]}},
          {"id": 2, "t": "z", "_vectors": {"e": {"regenerate": True, "embeddings": [[3, 4], [5, 6]]}}},
          {"id": 3, "t": "w", "_vectors": {"e": None}}, {"id": 4, "t": "v", "_vectors": {"e": {"regenerate": True}}})
    assert shown(harness) == {0: ([vector("x").tolist()], True), 1: ([[1, 2]], False), 2: ([[3, 4], [5, 6]], True), 3: ([], False),
                              4: ([vector("v").tolist()], True)}
    assert sorted(service.sent) == ["v", "x"]
    assert harness.documents()[1] == {"id": 1, "t": "y"}
    row = harness.instance.index("movies")
    assert row and (row.stats["embeddings"], row.stats["embeddedDocuments"]) == (5, 4)


def test_a_document_is_embedded_again_when_its_text_changes(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x", "u": 1}, {"id": 1, "t": "y", "_vectors": {"e": {"regenerate": True, "embeddings": [1, 2]}}},
          {"id": 2, "t": "z", "_vectors": {"e": [1, 2]}})
    service.sent.clear()
    harness.add([{"id": 0, "t": "x", "u": 2}, {"id": 1, "t": "y", "u": 2}, {"id": 2, "t": "other"}])
    harness.run()
    assert service.sent == []
    assert shown(harness)[1] == ([[1, 2]], True)
    harness.add([{"id": 0, "t": "new"}, {"id": 1, "t": "newer"}], method="update")
    harness.run()
    assert sorted(service.sent) == ["new", "newer"]
    assert shown(harness) == {0: ([vector("new").tolist()], True), 1: ([vector("newer").tolist()], True), 2: ([[1, 2]], False)}


def test_equal_texts_of_a_batch_are_sent_once(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, *({"id": number, "t": f"x{number % 2}"} for number in range(6)))
    assert sorted(service.sent) == ["x0", "x1"]


def test_vectors_that_are_to_stay_stay(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x"})
    harness.add([{"id": 0, "_vectors": {"e": {"regenerate": False}}}], method="update")
    harness.add([{"id": 0, "t": "other"}], method="update")
    harness.run()
    assert shown(harness) == {0: ([vector("x").tolist()], False)}
    harness.add([{"id": 0, "_vectors": {"e": {"regenerate": True}}}], method="update")
    harness.run()
    assert shown(harness) == {0: ([vector("other").tolist()], True)}


def test_a_document_that_comes_again_has_nothing_of_the_deleted_one(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x", "_vectors": {"e": [1, 2], "other": [5]}})
    harness.delete([0])
    harness.add([{"id": 0, "t": "x"}])
    harness.run()
    assert shown(harness) == {0: ([vector("x").tolist()], True)}
    assert harness.documents() == {0: {"id": 0, "t": "x"}}


def test_names_without_embedder_are_stored_with_the_document(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x", "_vectors": {"f": [5], "g": None}})
    assert harness.documents() == {0: {"id": 0, "t": "x", "_vectors": {"f": [5], "g": None}}}
    harness.add([{"id": 0, "_vectors": {"f": [6], "e": [1, 2]}}], method="update")
    harness.run()
    assert harness.documents() == {0: {"id": 0, "t": "x", "_vectors": {"f": [6], "g": None}}}
    assert shown(harness) == {0: ([[1, 2]], False)}


def test_fragments_that_cannot_be_rendered_give_no_vector(harness: TaskHarness, service: Service) -> None:
    start(harness, FRAGMENTS, {"id": 0, "t": "x"}, {"id": 1, "t": "y", "u": "z"}, {"id": 2})
    assert {docid: (held.vectors, held.fragments) for docid, held in entries(harness).items()} == {
        0: ([vector("a x")], b"\0"), 1: ([vector("a y"), vector({"b": "z"})], b"\0\1")}
    service.sent.clear()
    harness.add([{"id": 1, "u": "other"}, {"id": 2, "u": "z"}], method="update")
    harness.run()
    assert service.sent == [{"b": "other"}, {"b": "z"}]
    assert {docid: held.fragments for docid, held in entries(harness).items()} == {0: b"\0", 1: b"\0\1", 2: b"\1"}


CHUNKED = {**REST, "chunk": {"words": 4, "overlap": 1}}


def test_a_long_text_has_a_vector_for_each_passage(harness: TaskHarness, service: Service) -> None:
    start(harness, CHUNKED, {"id": 0, "t": "a b c d e f g"}, {"id": 1, "t": "x"}, {"id": 2, "t": "y", "_vectors": {"e": [[1, 2], [3, 4]]}})
    assert sorted(service.sent) == ["a b c d", "d e f g", "x"]
    made = {0: ([vector("a b c d").tolist(), vector("d e f g").tolist()], True), 1: ([vector("x").tolist()], True),
            2: ([[1, 2], [3, 4]], False)}
    assert shown(harness) == made
    service.sent.clear()
    harness.add([{"id": 0, "t": "a b c d e f new"}, {"id": 1, "t": "x", "u": 1}])
    harness.run()
    assert service.sent == ["d e f new"]
    harness.add([{"id": 0, "t": "a b c d"}])
    harness.run()
    assert service.sent == ["d e f new"]
    assert shown(harness) == {**made, 0: ([vector("a b c d").tolist()], True)}


def test_other_passages_are_embedded_when_the_setting_changes(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "a b c d e f g"}, {"id": 1, "t": "x"})
    service.sent.clear()
    harness.change({"embedders": {"e": {"chunk": {"words": 4, "overlap": 1}}}})
    harness.run()
    assert {"a b c d", "d e f g"} <= set(service.sent) <= {"a b c d", "d e f g", "x"}
    assert len(shown(harness)[0][0]) == 2
    service.sent.clear()
    harness.change({"embedders": {"e": {"chunk": {"words": 4, "overlap": 2}}}})
    harness.run()
    assert sorted(service.sent) == ["c d e f", "e f g"]
    harness.change({"embedders": {"e": {"chunk": None}}})
    harness.run()
    assert shown(harness) == {0: ([vector("a b c d e f g").tolist()], True), 1: ([vector("x").tolist()], True)}


def test_a_failure_fails_the_batch(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x"})
    service.fail_after = 0
    task, other = harness.add([{"id": 1, "t": "y"}]), harness.add([{"id": 2, "t": "z", "_vectors": {"e": [1, 2]}}])
    harness.run()
    message = "Index `movies`: While embedding documents for embedder `e`: runtime error: broken"
    assert error(harness, task) == error(harness, other) == ("vector_embedding_error", message)
    assert list(harness.documents()) == [0]


def test_a_template_that_cannot_be_rendered_names_the_document(harness: TaskHarness, service: Service) -> None:
    start(harness, REST, {"id": 0, "t": "x"})
    task = harness.add([{"id": 7, "u": "y"}])
    harness.run()
    code, message = error(harness, task)
    assert code == "vector_embedding_error"
    assert message.startswith("Index `movies`: missing field in document `7`: liquid: ")


def test_failures_that_are_passed_over_leave_documents_without_vectors(
        harness: TaskHarness, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    start(harness, REST)
    monkeypatch.setenv(embedding.FAILURE_MODES, "ignore_embedder_failures, ignore_document_template_failures")
    service.fail_after = 2
    task = harness.add([{"id": 0, "u": "no text"}, *({"id": number, "t": f"x{number}"} for number in range(1, 6))])
    harness.run()
    assert error(harness, task) is None and len(harness.documents()) == 6
    assert len(shown(harness)) == 2 == len(service.sent)
    service.fail_after = None
    harness.add([{"id": number, "t": f"x{number}"} for number in range(1, 6)])
    harness.run()
    assert len(shown(harness)) == 5 == len(service.sent)


def test_an_unknown_failure_mode_is_named(harness: TaskHarness, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    start(harness, REST)
    monkeypatch.setenv(embedding.FAILURE_MODES, "ignore_all")
    task = harness.add([{"id": 0, "t": "x"}])
    harness.run()
    code, message = error(harness, task)
    assert code == "vector_embedding_error" and "`ignore_all`" in message


@pytest.mark.parametrize("documents, others, hint", [
    ([{"id": 1}], "", "\n- Hint: opt-out for a document with `_vectors.e: null`"),
    ([{"id": 1}, {"id": 2}], " and at least 1 other document(s)", "\n- Hint: opt-out for a document with `_vectors.e: null`"),
    ([{"id": 1, "_vector": {"e": [1, 2]}}], "", "\n- Hint: try replacing `_vector` by `_vectors` in 1 document(s)."),
    ([{"id": 1, "_vectors": {"d": [1, 2]}}], "", "\n- Hint: try replacing `_vectors.d` by `_vectors.e` in 1 document(s)."),
])
def test_users_must_give_vectors(harness: TaskHarness, documents: Any, others: str, hint: str) -> None:
    start(harness, MANUAL)
    task = harness.add(documents)
    harness.run()
    assert error(harness, task) == (
        "vector_embedding_error", f"Index `movies`: While embedding documents for embedder `e`: no vectors provided for document `1`"
        f"{others}\n- Note: `e` has `source: userProvided`, so documents must provide embeddings as an array in `_vectors.e`.{hint}")


def test_wrong_vectors_fail_the_batch(harness: TaskHarness) -> None:
    start(harness, MANUAL)
    task = harness.add([{"id": 1, "_vectors": {"e": [1, 2, 3]}}])
    harness.run()
    assert error(harness, task) == (
        "invalid_vector_dimensions", "Index `movies`: Invalid vector dimensions in document with id `1` in `._vectors.e`.\n"
        "  - note: embedding #0 has dimensions 3\n  - note: embedder `e` requires 2")


# Properties

GIVEN = st.sampled_from([None, [], [1, 2], [[1, 2], [3, 4]], {"regenerate": True}, {"regenerate": False},
                         {"regenerate": True, "embeddings": [7, 8]}, {"regenerate": False, "embeddings": [[9, 9]]}])
DOCUMENT = st.fixed_dictionaries({"id": st.integers(0, 3), "t": st.sampled_from(["x", "y"])}, optional={
    "_vectors": st.fixed_dictionaries({}, optional={"e": GIVEN})})
STEP = st.one_of(
    st.tuples(st.sampled_from(["replace", "update"]), st.lists(DOCUMENT, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 3), min_size=1, max_size=2)), st.tuples(st.just("run"), st.just([])))


class Model:
    """What the vectors of documents must be: by identifier the text, the vectors, are they given?, are they made again?"""

    def __init__(self) -> None:
        self.documents: dict[int, tuple[str, list[list[float]], bool, bool]] = {}

    def put(self, document: Mapping[str, Any]) -> None:
        text, entry = document["t"], document.get("_vectors", {}).get("e", ...)
        made = [vector(text).tolist()]
        before = self.documents.get(document["id"])
        vectors, is_given, regenerate = (made, False, True) if before is None else before[1:]
        if isinstance(entry, dict):
            if "embeddings" in entry:
                vectors, is_given = _several(entry["embeddings"]), True
            elif entry["regenerate"]:
                vectors, is_given = made, False
            elif before is None:
                vectors = []
            regenerate = entry["regenerate"]
        elif entry is not ...:
            vectors, is_given, regenerate = _several(entry), True, False
        elif before is not None and regenerate and text != before[0]:
            vectors, is_given = made, False
        self.documents[document["id"]] = text, vectors, is_given, regenerate

    def shown(self) -> dict[int, Any]:
        return {number: (vectors, regenerate) for number, (_, vectors, _, regenerate) in self.documents.items()}


def _several(given_vectors: Any) -> list[list[float]]:
    if not given_vectors:
        return []
    return given_vectors if isinstance(given_vectors[0], list) else [given_vectors]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=8))
def test_after_any_history_vectors_are_the_given_or_the_made_ones(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any]]
) -> None:
    service, model = Service(), Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "_kept_embedders", lambda: service)
        harness = TaskHarness(tmp_path_factory.mktemp("data") / "data")
        start(harness, REST)
        for kind, content in history:
            if kind == "run":
                harness.run()
            elif kind == "delete":
                harness.delete(content)
                for number in content:
                    model.documents.pop(number, None)
            else:
                # A batch each: what a batch changes several times counts as one change.
                for document in content:
                    harness.add([document], method=kind)
                    harness.run()
                    model.put(document)
        harness.run()
        ids = {document["id"]: docid for docid, document in harness.documents().items()} if model.documents else {}
        assert {number: shown(harness).get(docid) for number, docid in ids.items()} == model.shown()
        harness.instance.close()
        assert not harness.bugs


# After a kill


def test_what_was_embedded_before_a_kill_is_not_sent_again(tmp_path: Path, service: Service) -> None:
    harness = TaskHarness(tmp_path / "data")
    start(harness)
    service.fail_after, service.failure = 6, SystemExit("killed")
    harness.add([{"id": number, "t": f"x{number}"} for number in range(10)])
    with pytest.raises(SystemExit):
        harness.run()
    assert len(service.sent) == 6
    service.fail_after = None
    harness.restart()
    harness.run()
    assert sorted(service.sent) == [f"x{number}" for number in range(10)]
    assert shown(harness) == {number: ([vector(f"x{number}").tolist()], True) for number in range(10)}
    assert not [*harness.path.glob("indexes/*-embeddings*")]
    harness.instance.close()


def test_what_a_failed_batch_has_embedded_is_not_sent_again(harness: TaskHarness, service: Service) -> None:
    start(harness)
    documents = [{"id": number, "t": f"x{number}"} for number in range(10)]
    service.fail_after = 4
    task = harness.add(documents)
    harness.run()
    assert error(harness, task)
    service.fail_after = None
    harness.add(documents)
    harness.run()
    assert sorted(service.sent) == [f"x{number}" for number in range(10)]


def test_a_deleted_index_leaves_no_embeddings(harness: TaskHarness, service: Service) -> None:
    start(harness)
    service.fail_after = 4
    harness.add([{"id": number, "t": f"x{number}"} for number in range(10)])
    harness.run()
    assert [*harness.path.glob("indexes/*-embeddings*")]
    harness.do("indexDeletion")
    harness.run()
    assert not [*harness.path.glob("indexes/*")]


# Settings


def change(harness: TaskHarness, service: Service, embedder: Any, **others: Any) -> Any:
    """What is sent when the settings change; or the error of the task."""
    service.sent.clear()
    task = harness.change({"embedders": {"e": embedder}, **others})
    harness.run()
    return error(harness, task) or service.sent


@pytest.fixture
def films(harness: TaskHarness, service: Service) -> TaskHarness:
    start(harness, REST, {"id": 0, "t": "x", "u": "p"}, {"id": 1, "t": "y", "u": "q", "_vectors": {"e": [1, 2]}},
          {"id": 2, "t": "z", "u": "z"})
    return harness


GIVEN_ONE = ([[1, 2]], False)


@pytest.mark.parametrize("members", [
    {"apiKey": "other"}, {"headers": {"a": "b"}}, {"distribution": {"mean": 0.5, "sigma": 0.5}}, {"documentTemplateMaxBytes": 100},
    {"documentTemplateMaxBytes": 1000}, {}, {"documentTemplate": "{{ doc.t }}"},
])
def test_changes_that_affect_no_vector_send_nothing(films: TaskHarness, service: Service, members: Any) -> None:
    before = shown(films)
    assert change(films, service, members) == []
    assert shown(films) == before


@pytest.mark.parametrize("members", [{"url": "http://127.0.0.1:2"}, {"request": {"a": "{{text}}"}}, {"response": {"b": "{{embedding}}"}}])
def test_changes_of_the_service_send_all_but_what_users_gave(films: TaskHarness, service: Service, members: Any) -> None:
    assert sorted(change(films, service, members)) == ["x", "z"]
    assert shown(films)[1] == GIVEN_ONE


def test_another_template_sends_the_texts_that_differ(films: TaskHarness, service: Service) -> None:
    assert change(films, service, {"documentTemplate": "{{doc.u}}"}) == ["p"]
    assert shown(films) == {0: ([vector("p").tolist()], True), 1: GIVEN_ONE, 2: ([vector("z").tolist()], True)}


def test_the_default_template_follows_the_searchable_attributes(harness: TaskHarness, service: Service) -> None:
    start(harness, {**REST, "documentTemplate": None}, {"id": 0, "t": "x", "u": "p"})
    assert service.sent == ["id: 0\nt: x\nu: p\n"]
    assert change(harness, service, {}, searchableAttributes=["u"]) == ["u: p\n"]
    assert change(harness, service, {}, searchableAttributes=["u", "v"]) == []


def test_fragments_come_change_and_go(harness: TaskHarness, service: Service) -> None:
    start(harness, FRAGMENTS, {"id": 0, "t": "x"}, {"id": 1, "t": "y", "u": "z"}, {"id": 2, "_vectors": {"e": [1, 2]}})
    assert change(harness, service, {"indexingFragments": {"c": {"value": "c {{doc.t}}"}}}) == ["c x", "c y"]
    assert {docid: held.fragments for docid, held in entries(harness).items()} == {0: b"\0\2", 1: b"\0\1\2", 2: None}
    assert change(harness, service, {"indexingFragments": {"a": None}}) == []
    assert {docid: held.fragments for docid, held in entries(harness).items()} == {0: b"\2", 1: b"\1\2", 2: None}
    assert change(harness, service, {"indexingFragments": {"b": {"value": "b {{doc.t}}"}}}) == ["b x", "b y"]
    assert [each.tolist() for each in entries(harness)[0].vectors] == [vector("b x").tolist(), vector("c x").tolist()]
    assert shown(harness)[2] == GIVEN_ONE


def test_a_new_embedder_embeds_every_document(films: TaskHarness, service: Service) -> None:
    service.sent.clear()
    films.change({"embedders": {"f": REST}})
    films.run()
    assert sorted(service.sent) == ["x", "y", "z"]


def test_a_removed_embedder_gives_back_what_users_gave(films: TaskHarness, service: Service) -> None:
    assert change(films, service, None) == []
    assert films.documents() == {0: {"id": 0, "t": "x", "u": "p"}, 2: {"id": 2, "t": "z", "u": "z"}, 1: {
        "id": 1, "t": "y", "u": "q", "_vectors": {"e": {"embeddings": [[1, 2]], "regenerate": False}}}}
    row = films.instance.index("movies")
    assert row and (row.stats["embeddings"], row.stats["embeddedDocuments"]) == (0, 0)
    assert sorted(change(films, service, REST)) == ["x", "z"]
    assert shown(films)[1] == GIVEN_ONE
    assert films.documents()[1] == {"id": 1, "t": "y", "u": "q"}


@pytest.mark.parametrize("others", [{"stopWords": ["x"]}, {"filterableAttributes": ["_geo"]}, {"searchableAttributes": ["u"]}])
def test_an_embedder_goes_with_a_change_of_other_settings(films: TaskHarness, service: Service, others: dict[str, Any]) -> None:
    assert change(films, service, None, **others) == []
    row = films.instance.index("movies")
    assert row and row.stats["embeddings"] == 0


# Vectors of a former length


MANUAL_FILMS = [{"id": 0, "t": "x", "_vectors": {"e": [1, 2, 3]}}, {"id": 1, "t": "y", "_vectors": {"e": [[1, 2, 4], [2, 3, 1]]}},
                {"id": 2, "t": "z", "_vectors": {"e": {"regenerate": True, "embeddings": [3, 2, 1]}}}, {"id": 3, "_vectors": {"e": None}}]
LONG = {0: ([[1, 2, 3]], False), 1: ([[1, 2, 4], [2, 3, 1]], False), 2: ([[3, 2, 1]], True), 3: ([], False)}
OTHERS = {
    "userProvided": MANUAL, "rest": REST, "openAi": {"source": "openAi", "documentTemplate": "{{doc.t}}", "dimensions": 2},
    "ollama": {"source": "ollama", "model": "m", "documentTemplate": "{{doc.t}}", "dimensions": 2},
}


def found(harness: TaskHarness, query: Sequence[float], name: str = "e") -> list[int]:
    """The docids that have a vector to compare with, nearest first."""
    with harness.instance.read("movies") as reader:
        return [docid for _, docid in reader.vectors.nearest(name, array("f", query), reader.all_docids(), 10)]


def figures(harness: TaskHarness) -> tuple[int, int, dict[str, int]]:
    row = harness.instance.index("movies")
    assert row
    return row.stats["embeddings"], row.stats["embeddedDocuments"], row.stats["outdatedEmbeddings"]


@pytest.fixture
def manual(harness: TaskHarness, service: Service) -> TaskHarness:
    start(harness, {"source": "userProvided", "dimensions": 3}, *MANUAL_FILMS)
    assert figures(harness) == (4, 3, {})
    return harness


@pytest.mark.parametrize("source", OTHERS)
def test_an_embedder_with_given_vectors_may_change(manual: TaskHarness, service: Service, source: str, tmp_path: Path,
                                                   capfd: pytest.CaptureFixture[str]) -> None:
    """Vectors of the old length stay and are not searched, until there are new ones or the old length comes back."""
    sent = change(manual, service, OTHERS[source])
    is_made = source != "userProvided"
    assert sent == (["z"] if is_made else [])
    assert shown(manual) == {**LONG, **({2: ([vector("z").tolist()], True)} if is_made else {})}
    assert found(manual, [1, 2]) == ([2] if is_made else [])
    assert figures(manual) == ((1, 1, {"e": 2}) if is_made else (0, 0, {"e": 3}))
    assert f"embedder=e dimensions=2 documents={2 if is_made else 3}" in capfd.readouterr().err
    row = manual.instance.index("movies")
    assert row and differences(manual.instance.index_path(row.uuid), tmp_path) == []
    assert change(manual, service, {"source": "userProvided", "dimensions": 3}) == [] if not is_made else True
    if not is_made:
        assert (shown(manual), figures(manual), found(manual, [3, 2, 1])) == (LONG, (4, 3, {}), [2, 1, 0])


def test_no_search_looks_at_vectors_of_a_former_length(manual: TaskHarness, service: Service) -> None:
    change(manual, service, MANUAL)
    manual.add([{"id": 7, "t": "x", "_vectors": {"e": [1, 1]}}])
    manual.run()
    with manual.instance.read("movies") as reader:
        assert similar_documents(reader, SimilarQuery(0, "e"), reader.all_docids()).hits == []
        assert [hit.docid for hit in similar_documents(reader, SimilarQuery(4, "e"), reader.all_docids()).hits] == []
        limits = RankingLimits(10)
        for hybrid in (Hybrid("e", 1.0), Hybrid("e", 0.5)):
            query = SearchQuery(q="x", vector=[1, 1], hybrid=hybrid)
            target = QueryTarget(reader, query, hybrid, pytest.fail)
            found_hits = (semantic_search(reader, query, target.get(True), limits, lambda: False) if hybrid.ratio == 1.0
                          else hybrid_search(reader, query, target, limits, lambda: False))
            hits = found_hits.ranking.hits
            assert hits[0].docid == 4 and {hit.docid for hit in hits} >= {0, 4}
        assert filter_docids(reader, read_filter("_vectors.e EXISTS", "c"), "c").to_array().tolist() == [4]
    assert found_faults(manual.path, True) == {"instance.sqlite": [], "index movies": []}


def test_new_vectors_replace_those_of_a_former_length(manual: TaskHarness, service: Service) -> None:
    change(manual, service, MANUAL)
    manual.add([{"id": 0, "title": "without"}, {"id": 1, "t": "y", "_vectors": {"e": [1, 2]}}, {"id": 3, "_vectors": {"e": [2, 2]}}])
    refused = manual.add([{"id": 5, "_vectors": {"e": [1, 2, 3]}}])
    manual.run()
    assert error(manual, refused)[0] == "invalid_vector_dimensions"
    manual.add([{"id": 0, "title": "without"}, {"id": 1, "t": "y", "_vectors": {"e": [1, 2]}}, {"id": 3, "_vectors": {"e": [2, 2]}}])
    manual.run()
    assert shown(manual) == {0: LONG[0], 1: ([[1, 2]], False), 2: LONG[2], 3: ([[2, 2]], False)}
    assert found(manual, [1, 2]) == [1, 3] and figures(manual) == (2, 2, {"e": 2})
    manual.delete([0, 2])
    manual.run()
    assert figures(manual) == (2, 2, {})


def test_an_embedder_that_makes_vectors_again_replaces_former_ones_when_asked(manual: TaskHarness, service: Service) -> None:
    change(manual, service, REST)
    service.sent.clear()
    manual.add([{"id": 0, "t": "new"}, {"id": 1, "t": "y", "_vectors": {"e": {"regenerate": True}}}], method="update")
    manual.run()
    assert service.sent == ["y"]
    assert shown(manual)[0] == LONG[0] and shown(manual)[1] == ([vector("y").tolist()], True)


def test_an_embedder_may_go_and_come_with_another_length(manual: TaskHarness, service: Service) -> None:
    change(manual, service, None)
    assert manual.documents()[0]["_vectors"]["e"] == {"embeddings": [[1, 2, 3]], "regenerate": False}
    manual.add([{"id": 3, "_vectors": {"e": [1, 1]}}])
    manual.run()
    assert change(manual, service, REST) == ["z"]
    assert shown(manual) == {**LONG, 2: ([vector("z").tolist()], True), 3: ([[1, 1]], False)}
    assert figures(manual) == (2, 2, {"e": 2})
    assert "_vectors" not in manual.documents()[0]


def test_quantizing_keeps_vectors_of_a_former_length(manual: TaskHarness, service: Service) -> None:
    change(manual, service, {**MANUAL, "binaryQuantized": True})
    assert shown(manual)[1] == ([[1, 1, 1], [1, 1, 1]], False) and found(manual, [1, 2]) == []
    change(manual, service, {"dimensions": 3})
    assert sorted(found(manual, [1, 2, 3])) == [0, 1, 2] and figures(manual) == (4, 3, {})


def test_vectors_of_different_lengths_fit_no_embedder(harness: TaskHarness, service: Service) -> None:
    harness.add([{"id": 1, "_vectors": {"e": [[1, 2, 3], [1, 2]]}}])
    task = harness.change({"embedders": {"e": MANUAL}})
    harness.run()
    assert error(harness, task)[0] == "invalid_vector_dimensions"


def test_a_dump_has_vectors_of_a_former_length(service: Service, tmp_path: Path) -> None:
    harness = TaskHarness(tmp_path / "data", folders=Folders(tmp_path / "dumps"))
    start(harness, {"source": "userProvided", "dimensions": 3}, *MANUAL_FILMS)
    change(harness, service, MANUAL)
    again = reimported(harness, tmp_path)
    assert (entries(again), figures(again), found(again, [1, 2])) == (entries(harness), (0, 0, {"e": 3}), [])
    change(again, service, {"dimensions": 3})
    assert (shown(again), found(again, [3, 2, 1])) == (LONG, [2, 1, 0])
    close(harness, again)


def test_quantizing_reduces_what_is_stored(films: TaskHarness, service: Service) -> None:
    assert change(films, service, {"binaryQuantized": True}) == []
    assert shown(films)[1] == ([[1, 1]], False)
    films.add([{"id": 5, "t": "w", "_vectors": {"e": [-1, 0.5]}}])
    films.run()
    assert shown(films)[3] == ([[0, 1]], False)


def test_documents_without_vectors_stop_an_embedder_of_users(harness: TaskHarness) -> None:
    harness.add([{"id": 0}, {"id": 1, "_vectors": {"e": [1, 2]}}])
    task = harness.change({"embedders": {"e": MANUAL}})
    harness.run()
    code, message = error(harness, task)
    assert code == "vector_embedding_error"
    assert "no vectors provided for document `0`\n" in message
    with harness.instance.read("movies") as reader:
        assert embedder_rows(reader.transaction.connection) == []
        assert json.loads(reader.document(1)) == {"id": 1, "_vectors": {"e": [1, 2]}}


def test_a_failure_leaves_settings_and_vectors_as_they_were(films: TaskHarness, service: Service) -> None:
    before = shown(films)
    service.fail_after = 0
    assert change(films, service, {"documentTemplate": "{{doc.u}}"})[0] == "vector_embedding_error"
    assert shown(films) == before
    with films.instance.read("movies") as reader:
        assert reader.settings.embedders["e"]["documentTemplate"] == "{{doc.t}}"


# Dumps


@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_dump_brings_back_all_vectors(service: Service, tmp_path: Path, is_quantized: bool) -> None:
    harness = TaskHarness(tmp_path / "data", folders=Folders(tmp_path / "dumps"))
    start(harness, {**REST, "binaryQuantized": is_quantized}, {"id": 0, "t": "x"},
          {"id": 1, "t": "y", "_vectors": {"e": [[0.1, -1e-30], [3e38, 1]], "f": [5]}}, {"id": 2, "t": "z", "_vectors": {"e": None}},
          {"id": 3, "t": "w", "_vectors": {"e": {"regenerate": False}}},
          {"id": 4, "t": "v", "_vectors": {"e": {"regenerate": False, "embeddings": [1, 2]}}})
    service.sent.clear()
    again = reimported(harness, tmp_path)
    assert service.sent == []
    assert again.documents() == harness.documents()
    expected = entries(harness)
    # That a user said nothing but that they are to stay is what a dump cannot tell from vectors that are given.
    expected[3] = expected[3]._replace(is_user_provided=True)
    assert entries(again) == expected
    close(harness, again)


def test_a_dump_keeps_the_vectors_of_fragments_as_they_are(service: Service, tmp_path: Path) -> None:
    harness = TaskHarness(tmp_path / "data", folders=Folders(tmp_path / "dumps"))
    start(harness, FRAGMENTS, {"id": 0, "t": "x", "u": "y"}, {"id": 1})
    service.sent.clear()
    again = reimported(harness, tmp_path)
    assert shown(again) == {0: (shown(harness)[0][0], False)}
    assert service.sent == []
    close(harness, again)


def reimported(harness: TaskHarness, folder: Path) -> TaskHarness:
    harness.do("dumpCreation", None, {"dumpUid": None}, keys=[], instanceUid=harness.instance.uid)
    harness.run()
    ((dump),) = (folder / "dumps").iterdir()
    import_dump(dump, folder / "new", make_writer=LocalWriter)
    return TaskHarness(folder / "new")


def close(*harnesses: TaskHarness) -> None:
    for harness in harnesses:
        harness.instance.close()
        assert not harness.bugs
