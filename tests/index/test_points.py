"""What must hold of points and shapes:

1. Every answer is the one worked out from all points: those that have one, nearest first, within a distance.
2. Equally near documents come by docid, at one point too, and near the antimeridian and the poles.
3. What a reader keeps is right after later writes.
4. After any history the answers are those of an index made at once; what was cleared or undone is gone.
5. Shapes are found by their boxes, sides included, whatever their size.
"""
from __future__ import annotations

import math
import random
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.geo.geometry import is_wide
from svcd.geo.sphere import Point, direction, distance
from svcd.index import geo_reader, geo_writer
from svcd.index.geo_writer import StoredShape
from svcd.index.read_transaction import Cache
from svcd.index.reader import IndexReader
from svcd.index.writer import NO_LOCATION, DocumentChange, DocumentLocation, IndexWriter
from tests.index.conftest import reading
from tests.support.sets import of_bits

POINT = st.tuples(st.sampled_from([-90.0, -45.0, 0.0, 0.00001, 48.85, 89.99, 90.0]) | st.floats(-90, 90),
                  st.sampled_from([-180.0, -179.99, 0.0, 2.35, 2.3501, 179.99, 180.0]) | st.floats(-180, 180))
DOCIDS = st.integers(0, 40) | st.sampled_from([511, 512, 5000])
HISTORY = st.lists(st.lists(st.tuples(DOCIDS, st.none() | POINT), min_size=1, max_size=40), max_size=4)
RADIUS = st.sampled_from([-1.0, 0.0, 1.0, 1e5, 1e7, 2.1e7]) | st.floats(0, 2.1e7)

Points = dict[int, Point]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some dozens of points are many."""
    monkeypatch.setattr(geo_reader, "MOST_BLOCK_POINTS", 3)
    monkeypatch.setattr(geo_writer, "REGION_POINTS", 6)


def write(writer: IndexWriter, points: dict[int, Point | None]) -> None:
    with writer.transaction():
        writer.write([DocumentChange(docid, f"d{docid}", "{}" if point else None, None, location=DocumentLocation(point))
                      for docid, point in points.items()])


def play(writer: IndexWriter, history: list[list[tuple[int, Any]]], held: Points | None = None) -> Points:
    held = {} if held is None else held
    for batch in history:
        write(writer, dict(batch))
        held.update(batch)
    for docid in [docid for docid, point in held.items() if point is None]:
        del held[docid]
    return held


def check(reader: IndexReader, held: Points, origin: Point, metres: float, candidates: DocIds) -> None:
    assert list(reader.geo.located_docids()) == sorted(held)
    assert dict(reader.geo.points([*held, 77_777])) == held
    place = direction(origin)

    def chord(docid: int) -> float:
        x, y, z = (a - b for a, b in zip(direction(held[docid]), place))
        return x * x + y * y + z * z  # not sum(), which rounds otherwise from Python 3.12 on

    for among in (candidates, reader.geo.located_docids()):
        expected = sorted((chord(docid), docid) for docid in held if docid in among)
        assert list(reader.geo.nearest(origin, among)) == [(docid, held[docid]) for _, docid in expected]
    assert list(reader.geo.docids_within(origin, metres)) == [
        docid for docid in sorted(held) if distance(origin, held[docid]) <= metres]


@settings(max_examples=25, deadline=None)
@given(HISTORY, POINT, RADIUS, st.integers(0, (1 << 60) - 1), st.integers(1, 3))
def test_answers_are_those_of_all_points(history, origin, metres, candidates, step) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        cache, held = Cache(1 << 24), {}
        for start in range(0, len(history), step):
            held = play(writer, history[start:start + step], held)
            with reading(path, cache) as reader:
                check(reader, held, origin, metres, of_bits(candidates))
        writer.close()


def test_a_thousand_points(writer: IndexWriter, tmp_path: Path) -> None:
    chance = random.Random(5)
    held = {docid: (math.degrees(math.asin(chance.uniform(-1, 1))), chance.uniform(-180, 180))
            for docid in range(1000)}
    for start in range(0, 1000, 250):
        write(writer, {docid: held[docid] for docid in range(start, start + 250)})
    with reading(tmp_path / "index.sqlite") as reader:
        for metres in (10.0, 3e5, 2e6, 8e6, 1.5e7):
            check(reader, held, (chance.uniform(-90, 90), chance.uniform(-180, 180)), metres, of_bits(chance.getrandbits(1000)))


def test_a_distance_is_within_itself(writer: IndexWriter, tmp_path: Path) -> None:
    """The circle goes exactly through a point: it belongs to it, one millimetre less and it does not."""
    chance = random.Random(6)
    held = {docid: (chance.gauss(0, 0.01), chance.gauss(0, 0.01)) for docid in range(200)}
    write(writer, held)
    with reading(tmp_path / "index.sqlite") as reader:
        for docid in range(0, 200, 7):
            metres = distance((0, 0), held[docid])
            assert docid in reader.geo.docids_within((0, 0), metres)
            assert docid not in reader.geo.docids_within((0, 0), metres - 0.001)


def test_many_documents_at_one_point_come_by_docid(writer: IndexWriter, tmp_path: Path) -> None:
    docids = [5, 1, 9, 700, 30, 8, 2, 513, 512, 511]
    write(writer, dict.fromkeys(docids, (0.0, 0.0)) | {6: (1.0, 1.0)})
    with reading(tmp_path / "index.sqlite") as reader:
        assert [docid for docid, _ in reader.geo.nearest((0, 0), reader.geo.located_docids())] == [*sorted(docids), 6]
        assert [docid for docid, _ in islice(reader.geo.nearest((3, 3), DocIds([6, 9, 5])), 2)] == [6, 5]


def test_what_was_undone_or_cleared_is_gone(writer: IndexWriter, tmp_path: Path) -> None:
    write(writer, {1: (1.0, 1.0), 2: (2.0, 2.0)})
    with writer.transaction():
        with pytest.raises(RuntimeError), writer.savepoint():
            writer.write_locations({docid: DocumentLocation((50.0, 50.0)) for docid in range(20)})
            raise RuntimeError
        writer.write_locations({1: NO_LOCATION})
    with reading(tmp_path / "index.sqlite") as reader:
        check(reader, {2: (2.0, 2.0)}, (0.0, 0.0), 1e6, DocIds([0, 1, 2]))
    with writer.transaction():
        writer.clear()
    with reading(tmp_path / "index.sqlite") as reader:
        check(reader, {}, (0.0, 0.0), 1e6, DocIds([0, 1, 2]))


DEGREES = st.sampled_from([0.0, 1.0, 45.0, 90.0]) | st.floats(-90, 90)
SIZE = st.sampled_from([0.0, 1e-14, 1e-9, 0.5, 1.0, 2.0, 180.0]) | st.floats(0, 200)
SIDES = st.tuples(DEGREES, DEGREES, SIZE, SIZE).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 9), st.none() | SIDES), max_size=3),
       st.lists(SIDES, min_size=1, max_size=5))
def test_shapes_are_found_by_their_boxes(history, asked) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        held: dict[int, Any] = {}
        for batch in history:
            with writer.transaction():
                writer.write_locations({docid: DocumentLocation(None, sides and StoredShape(sides, repr(sides).encode()))
                                     for docid, sides in batch.items()})
            held |= batch
        with reading(path) as reader:
            for south, west, north, east in asked:
                found = dict(reader.geo.geometries_meeting((south, west, north, east)))
                assert found == {
                    docid: sides for docid, sides in held.items() if sides
                    and sides[0] <= north and sides[1] <= east and sides[2] >= south and sides[3] >= west}
                assert all(reader.geo.geometry(docid) == repr(held[docid]).encode() for docid in found)
            assert dict(reader.geo.wide_geometries()) == {docid: sides for docid, sides in held.items() if sides and is_wide(sides)}
        writer.close()
