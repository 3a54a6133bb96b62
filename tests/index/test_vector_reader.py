"""What must hold of the search for the nearest vectors:

1. When all candidates are refined it is exact: what comparing each vector gives, whatever the candidates, the limit, the number of
   vectors of a document, equal distances, vectors without direction, and whatever was written between searches.
2. Quantized vectors are found exactly, without refining any.
3. The sketches in the table are those of the vectors, after any history.
4. A reader in an old transaction finds what was there, and leaves what later ones have cached.
5. With the constants as they are, nearly all of the nearest are found; without and with numpy the same ones.
6. Planes that do not fit the cache have fewer bits, and the search still works.
"""
from __future__ import annotations

import random
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.index import schema, vector_reader, vector_writer
from svcd.index.read_transaction import Cache, ReadTransaction
from svcd.index.vector_reader import VectorReader
from svcd.index.vector_writer import StoredVectors, VectorWriter
from svcd.vectors import nearest
from svcd.vectors.sketches import SketchForm
from svcd.vectors.vector import cosine_distance, quantized_bytes, vector_of
from tests.support import open_connections
from tests.support.distances import quantized_distance

Entries = dict[int, list[array]]


class Index:
    """An index of vectors alone, with what it should hold."""

    def __init__(self, path: str, dimensions: int, is_quantized: bool) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        schema.prepare(self.connection, schema.INDEX)
        self.writer = VectorWriter(self.connection)
        self.writer.add_embedder("other", 3, False, ())
        self.writer.add_embedder("e", dimensions, is_quantized, ())
        self.writer.write("other", {1: StoredVectors([vector_of([1, 2, 3])])})
        self.dimensions, self.is_quantized = dimensions, is_quantized
        self.generation = 0
        self.held: Entries = {}
        self.cache = Cache(1 << 26)

    def write(self, batch: dict[int, list[array] | None]) -> None:
        self.connection.execute("BEGIN")
        self.writer.write("e", {docid: None if vectors is None else StoredVectors(vectors) for docid, vectors in batch.items()})
        self.writer.flush()
        self.generation += 1
        self.connection.execute("INSERT OR REPLACE INTO meta(key, value) VALUES ('generation', ?)", (self.generation,))
        self.connection.execute("COMMIT")
        self.held = {docid: vectors for docid, vectors in {**self.held, **batch}.items() if vectors}

    def reader(self) -> VectorReader:
        return VectorReader(ReadTransaction(self.connection, "u", self.generation, self.cache))

    def expected(self, query: array, candidates: DocIds, limit: int) -> list[tuple[float, int]]:
        distance = quantized_distance if self.is_quantized else cosine_distance
        found = sorted((distance(query, vector), docid) for docid, vectors in self.held.items() for vector in vectors
                       if docid in candidates)
        first: dict[int, float] = {}
        for apart, docid in found[:limit]:
            first.setdefault(docid, apart)
        return [(apart, docid) for docid, apart in first.items()]

    def check_sketches(self) -> None:
        form = SketchForm.of(self.dimensions, self.is_quantized)
        sketch = quantized_bytes if self.is_quantized else form.sketch
        rows = self.connection.execute("SELECT id, docids, sketches FROM vector_sketches WHERE id >> 40 = 1 ORDER BY id").fetchall()
        found: list[tuple[int, bytes]] = []
        for place, (key, docids, sketches) in enumerate(rows):
            listed = array("I", docids)
            assert len(listed) <= vector_writer.REGION and len(sketches) == len(listed) * form.size
            end = rows[place + 1][0] if place + 1 < len(rows) else 2 << 40
            assert all(key <= 1 << 40 | docid < end for docid in listed)
            found += [(docid, sketches[n * form.size:(n + 1) * form.size]) for n, docid in enumerate(listed)]
        assert found == [(docid, sketch(vector)) for docid, vectors in sorted(self.held.items()) for vector in vectors]


def random_vector(chosen: random.Random, size: int) -> array:
    kind = chosen.random()
    if kind < 0.05:
        return vector_of([0.0] * size)
    if kind < 0.3:  # of few directions, so that there are equal ones
        return vector_of([1.0 if place % 3 == chosen.randint(0, 1) else -1.0 for place in range(size)])
    scale = chosen.choice((1, 1, 1, 1e-6, 1e6, 1e25, 1e-25))
    return vector_of([chosen.gauss(0, scale) for _ in range(size)])


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_writer, "REGION", 8)
    monkeypatch.setattr(vector_writer, "_LEAST", 2)
    monkeypatch.setattr(vector_reader, "REGIONS", 4)
    monkeypatch.setattr(vector_reader, "_MOST_REPLACED", 2)
    monkeypatch.setattr(vector_reader, "MOST_EXCLUDED", 5)
    monkeypatch.setattr(vector_reader, "FEW", 3)
    monkeypatch.setattr(vector_reader, "FEW_WITH_NUMPY", 3)


@pytest.fixture(params=["plain", "numpy"])
def with_numpy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    if request.param == "numpy":
        pytest.importorskip("numpy")
    monkeypatch.setattr(vector_reader, "numpy", lambda: request.param == "numpy" or None)
    if request.param == "plain":
        monkeypatch.setattr(nearest, "numpy", lambda: None)
    yield request.param == "numpy"


@pytest.mark.parametrize("is_quantized", [False, True])
def test_the_nearest_after_any_history(is_quantized: bool, small_rows: None, with_numpy: bool,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_reader, "FIRST_COUNT", 10_000)

    @settings(deadline=None, max_examples=25)
    @given(st.sampled_from([1, 2, 3, 20, 64, 100]), st.integers(0, 10_000))
    def check(dimensions: int, seed: int) -> None:
        chosen = random.Random(seed)
        index = Index(":memory:", dimensions, is_quantized)
        for _ in range(chosen.randint(1, 6)):
            docids = [chosen.choice((chosen.randint(0, 60), len(index.held))) for _ in range(chosen.choice((1, 3, 40)))]
            index.write({docid: chosen.choice((None, [], *[[random_vector(chosen, dimensions) for _ in range(count)]
                                                           for count in (1, 1, 1, 1, 2, 5)])) for docid in docids})
            index.check_sketches()
            for _ in range(3):
                candidates = DocIds(range(100)) if chosen.random() < 0.4 else DocIds(chosen.sample(range(70), chosen.randint(0, 60)))
                query, limit = random_vector(chosen, dimensions), chosen.choice((0, 1, 3, 10, 1000))
                assert index.reader().nearest("e", query, candidates, limit) == index.expected(query, candidates, limit)
        index.connection.close()

    check()


def filled(path: str, is_quantized: bool = False, count: int = 3000, dimensions: int = 96) -> Index:
    chosen = random.Random(5)
    centres = [[chosen.gauss(0, 1) for _ in range(dimensions)] for _ in range(50)]
    index = Index(path, dimensions, is_quantized)
    index.write({docid: [vector_of([number + chosen.gauss(0, 1) for number in centres[docid % 50]])] for docid in range(count)})
    return index


@pytest.fixture(scope="module")
def large() -> Iterator[Index]:
    index = filled(":memory:")
    yield index
    index.connection.close()


def recall(index: Index, queries: Sequence[array], candidates: DocIds, limit: int) -> float:
    found = 0
    for query in queries:
        exact = {docid for _, docid in index.expected(query, candidates, limit)}
        hits = index.reader().nearest("e", query, candidates, limit)
        assert hits == sorted(hits) and len(hits) == limit
        assert all(apart == cosine_distance(query, index.held[docid][0]) for apart, docid in hits)
        found += len(exact & {docid for _, docid in hits})
    return found / limit / len(queries)


@pytest.mark.parametrize("share", [1, 3])
def test_nearly_all_of_the_nearest_are_found(large: Index, with_numpy: bool, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_reader, "FEW_WITH_NUMPY", vector_reader.FEW)
    candidates = DocIds(range(0, 3000, share))
    queries = [vector_of([number + 0.3 for number in large.held[docid][0]]) for docid in range(0, 3000, 300)]
    assert recall(large, queries, candidates, 10) >= 0.99


def test_planes_with_fewer_bits_when_memory_is_short(large: Index) -> None:
    whole, large.cache = large.cache, Cache(50_000)
    queries = [vector_of([number + 0.3 for number in large.held[docid][0]]) for docid in range(0, 3000, 300)]
    assert recall(large, queries, DocIds(range(3000)), 10) >= 0.9
    assert large.cache.bytes < 50_000
    large.cache = whole


def test_quantized_vectors_are_found_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(":memory:", True, 1500)
    open_connections.until_the_end_of_the_test(index.connection)
    monkeypatch.setattr(VectorReader, "_rows", None)
    for candidates in (DocIds(range(2000)), DocIds(range(0, 1500, 2))):
        for docid in range(0, 1500, 500):
            query = index.held[docid][0]
            assert index.reader().nearest("e", query, candidates, 20) == index.expected(query, candidates, 20)


def test_a_reader_in_an_old_transaction_finds_what_was_there(tmp_path: Path) -> None:
    index = filled(str(tmp_path / "index.sqlite"), True, 1200)
    open_connections.until_the_end_of_the_test(index.connection)
    query = index.held[7][0]
    everything = DocIds(range(5000))
    before = index.expected(query, everything, 5)
    old = sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)
    old.execute("BEGIN")
    reader = VectorReader(ReadTransaction(old, "u", index.generation, index.cache))
    assert reader.nearest("e", query, everything, 5) == before
    index.write({7: None, 1300: [query], **{docid: [query] for docid in range(4000, 4003)}})
    assert index.reader().nearest("e", query, everything, 5) == index.expected(query, everything, 5)
    again = VectorReader(ReadTransaction(old, "u", index.generation - 1, index.cache))
    assert again.nearest("e", query, everything, 5) == before
    assert index.reader().nearest("e", query, everything, 5) == index.expected(query, everything, 5)
    old.close()


def test_embedders_that_are_not_there_have_nothing() -> None:
    index = Index(":memory:", 2, False)
    open_connections.until_the_end_of_the_test(index.connection)
    reader = index.reader()
    assert reader.nearest("none", vector_of([1, 2]), DocIds([1]), 5) == []
    assert reader.nearest("e", vector_of([1, 2]), DocIds([1]), 5) == []
    assert list(reader.document_vectors([1], "none")) == [] and not reader.embedded_docids("none")
