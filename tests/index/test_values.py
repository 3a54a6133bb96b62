"""What must hold of the values of an index:

1. Every answer is the one worked out from the documents.
2. What a reader has cached is brought up to date after writes, and equals what it would read from the tables.
3. After any history the tables hold what they would if they had been made at once; nothing is left of what went.
4. What a savepoint undid was never there.
5. Numbers ascend by value, -0.0 before 0.0; texts by their bytes.
6. Values of a field may come and go without the others being touched.
7. Written documents are decoded once, however many sets they update.
8. Doc values have the ranks of what every document has; they are made once searches have spent what they cost.
9. How many rows a range, the first value of some documents or their order needs does not depend on the number of values.
10. A small write changes the groups of its own values alone.
"""
from __future__ import annotations

import math
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds, from_bytes, union_of
from svcd.index import bitmap_blocks, value_groups, value_reader, value_writer
from svcd.index.connections import open_reader
from svcd.index.read_transaction import Cache
from svcd.index.reader import IndexReader
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.schema.field_values import FieldValues, stored_form
from tests.support import open_connections

NUMBERS = [-math.inf, -2.5, -1.0, -0.0, 0.0, 1e-300, 1.0, 1.5, 2.0, 1e15, 1e300]
TEXTS = [" ", "\t", "a", "A", " a ", "ab", "b", "B\0", "É", "é", "z\U0001f600", "\ud7ff", "true"]
VALUE = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS)
HELD = st.tuples(st.lists(VALUE, max_size=4), st.booleans(), st.booleans()).map(lambda parts: held(*parts))
FIELDS = ["f", "g"]
DOCUMENT = st.dictionaries(st.sampled_from(FIELDS), HELD)
BLOCK = 1 << bitmap_blocks.BLOCK_BITS
DOCIDS = st.sampled_from([0, 1, 2, 7, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
HISTORY = st.lists(st.lists(st.tuples(DOCIDS, st.none() | DOCUMENT), min_size=1, max_size=6), max_size=5)

Documents = dict[int, dict[str, FieldValues]]


def held(values: list[float | str], is_null: bool = False, is_empty: bool = False) -> FieldValues:
    found = FieldValues({}, is_null, is_empty)
    for value in values:
        found.add(value)
    return found


def change(docid: int, after: dict[str, FieldValues] | None, before: dict[str, FieldValues] | None) -> DocumentChange:
    return DocumentChange(docid, f"d{docid}", None if after is None else "{}", {}, (), (), 0, after or {}, before or {})


def play(writer: IndexWriter, history: list[list[tuple[int, Any]]], documents: Documents | None = None) -> Documents:
    documents = {} if documents is None else documents
    for batch in history:
        with writer.transaction():
            for docid, after in batch:
                if after is not None or docid in documents:
                    writer.write([change(docid, after, documents.pop(docid, None))])
                if after is not None:
                    documents[docid] = after
    return documents


def reader_of(path: Path, cache: Cache | None = None) -> IndexReader:
    connection = open_connections.until_the_end_of_the_test(open_reader(path))
    connection.execute("BEGIN")
    return IndexReader(connection, "index", cache or Cache(1 << 20))


def key(value: float | str) -> tuple[bytes | float, float]:
    return (value.encode(), 0) if isinstance(value, str) else (value, math.copysign(1, value))


def naive_values(documents: Documents, field: str, kind: type) -> list[Any]:
    met = {key(value): value for document in documents.values() if field in document
           for value in document[field].each() if isinstance(value, kind)}
    return [met[each] for each in sorted(met)]


def naive(documents: Documents, field: str, is_in: Any) -> DocIds:
    return DocIds(sorted(docid for docid, document in documents.items() if field in document and is_in(document[field])))


def having(documents: Documents, field: str, value: float | str) -> DocIds:
    return naive(documents, field, lambda held: any(key(value) == key(each) and type(value) is type(each) for each in held.each()))


def naive_sorted(documents: Documents, field: str, ascending: bool) -> list[tuple[Any, DocIds]]:
    left, found = DocIds(sorted(documents)), []
    for kind in (float, str):
        for value in naive_values(documents, field, kind)[::1 if ascending else -1]:
            if bucket := having(documents, field, value) & left:
                found.append((value, bucket))
                left -= bucket
    return found + ([(None, left)] if left else [])


def shown(pairs: Any) -> list[tuple[str, list[int]]]:
    """Values with their sets, -0.0 told from 0.0."""
    return [(repr(value), list(docids)) for value, docids in pairs]


def check(reader: IndexReader, documents: Documents) -> None:
    """Every answer about every field."""
    everything = DocIds(sorted(documents))
    for field in (*FIELDS, "unknown"):
        assert reader.values.present_docids(field) == naive(documents, field, lambda held: True)
        texts = naive_values(documents, field, str)
        for part in {text[:2][-1:] for text in texts} | {"\0", "nowhere"}:
            assert reader.values.containing_docids(field, part) == naive(
                documents, field, lambda held, part=part: any(isinstance(each, str) and part in each for each in held.values))
        many = [*texts[::2], *naive_values(documents, field, float)[1:], "nowhere", 1e300]
        assert reader.values.values_docids(field, many) == DocIds(
            [docid for value in many for docid in having(documents, field, value)])
        assert reader.values.null_docids(field) == naive(documents, field, lambda held: held.is_null)
        assert reader.values.empty_docids(field) == naive(documents, field, lambda held: held.is_empty)
        for kind in (float, str):
            check_kind(reader, documents, field, kind)
        for docid, values in reader.values.field_values(field, sorted(documents)):
            expected = documents[docid].get(field, FieldValues()).each()
            assert sorted(map(repr, values)) == sorted(map(repr, expected))
        for ascending in (True, False):
            for candidates in (everything, DocIds(sorted(documents)[1::2])):
                ordered = [(value, docids & candidates) for value, docids in naive_sorted(documents, field, ascending)]
                assert shown(reader.values.sort_buckets(field, ascending, candidates)) == shown(
                    [each for each in ordered if each[1]])
    for docid, document in documents.items():
        for field, held in document.items():
            for value, spelling in held.values.items():
                assert spelling is None or reader.values.spelling(field, value, docid) == spelling
                assert spelling is None or reader.values.spellings(field).get(value, spelling) == spelling


def check_column(reader: IndexReader, documents: Documents, field: str, kind: type, sets: list[list[int]]) -> None:
    column = reader.values.doc_values(field, kind)
    assert column is not None and column.size == len(sets)
    assert list(column.samples) == [docids[0] for docids in sets]
    for docid in union_of(map(DocIds, sets)):
        assert list(column.ranks_of(docid)) == [rank for rank, docids in enumerate(sets) if docid in docids]


def check_kind(reader: IndexReader, documents: Documents, field: str, kind: type) -> None:
    values = naive_values(documents, field, kind)
    sets = [having(documents, field, value) for value in values]
    assert repr(list(reader.values.distinct_values(field, kind))) == repr(values)
    assert list(reader.values.value_counts(field, kind)) == list(map(len, sets))
    for ascending in (True, False):
        ordered = [each for each in reader.values.ordered_values(field, kind, ascending) if each[1]]
        assert shown(ordered) == shown(list(zip(values, sets))[::1 if ascending else -1])
        among = DocIds(sorted(documents)[::2])
        cut = [each for each in reader.values.ordered_values(field, kind, ascending, among) if each[1]]
        assert shown(cut) == shown([(value, docids & among) for value, docids in ordered if docids & among])
    assert reader.values.kind_docids(field, kind) == union_of(sets)
    check_column(reader, documents, field, kind, [list(docids) for docids in sets])
    bounds = NUMBERS if kind is float else [stored_form(text) for text in TEXTS]
    for value in bounds:
        assert reader.values.value_docids(field, value) == having(documents, field, value)
    for low, high in [(None, bounds[3]), (bounds[3], None), (bounds[1], bounds[7]), (bounds[4], bounds[4]), (bounds[7], bounds[1])]:
        for has_low, has_high in [(True, True), (False, True), (True, False), (False, False)]:
            expected = union_of(docids for value, docids in zip(values, sets)
                             if (low is None or key(low) < key(value) or (has_low and key(low) == key(value)))
                             and (high is None or key(value) < key(high) or (has_high and key(high) == key(value))))
            assert reader.values.range_docids(field, low, high, has_low, has_high) == expected


LIMITS = {
    "kept sets": {},
    "read sets": {"_FEW_VALUES": 1, "_FEW_DOCUMENTS": 0, "_FIRST_PAGE": 2},
    "groups read": {"_FEW_VALUES": 0, "_FEW_DOCUMENTS": 0, "_FEW_IN_GROUP": 0},
}


@pytest.fixture(params=LIMITS)
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LIMITS[request.param].items():
        monkeypatch.setattr(value_reader, name, value)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second value begins a group, every fourth one of the second level; sets have blocks from three documents on."""
    monkeypatch.setattr(value_groups, "_LEVEL_BITS", 1)
    monkeypatch.setattr(value_groups, "_FIRST_PAGE", 2)
    monkeypatch.setattr(value_groups, "_MOST_NOTED", 4)
    monkeypatch.setattr(value_groups, "_FEW_VALUES", 2)
    monkeypatch.setattr(bitmap_blocks, "MOST_IN_WHOLE", 2)


@pytest.mark.usefixtures("limits", "small_groups")
def test_answers_are_those_of_the_documents_and_are_carried_over_writes() -> None:
    @settings(max_examples=40, deadline=None)
    @given(HISTORY, HISTORY)
    def holds(history: Any, later: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "index.sqlite"
            writer, cache = IndexWriter(path), Cache(1 << 20)
            documents = play(writer, history)
            check(reader_of(path, cache), documents)
            for batch in later:
                play(writer, [batch], documents)
                check(reader_of(path, cache), documents)
            check(reader_of(path), documents)
            writer.close()
            open_connections.close_held()

    holds()


def tables(path: Path) -> list[Any]:
    connection = sqlite3.connect(path)
    rows = [connection.execute("SELECT name, kind, value, block, docids FROM value_postings JOIN fields USING (fid) "
                               "ORDER BY name, kind, value, block").fetchall()]
    rows.append(connection.execute("SELECT name, kind, level, first, block, docids FROM value_groups JOIN fields USING (fid) "
                                   "ORDER BY name, kind, level, first, block").fetchall())
    names = {str(fid): name for fid, name in connection.execute("SELECT fid, name FROM fields")}
    for docid, text in connection.execute("SELECT docid, field_values FROM document_values ORDER BY docid"):
        row = value_writer.rows_of(text)
        rows.append((docid, {names[str(fid)]: (sorted(map(repr, each.values.items())), each.has_both_zeros) for fid, each in row.items()}))
    connection.close()
    return rows


def naive_groups(path: Path) -> list[tuple[Any, ...]]:
    """The rows of value_groups as they follow from those of value_postings: (field, kind, level, first, documents)."""
    expected: dict[tuple[Any, ...], set[int]] = {}
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, kind, value, docids FROM value_postings JOIN fields USING (fid) WHERE kind > 0 "
                                  "ORDER BY name, kind, value, block").fetchall()
    for level in range(1, value_groups.LEVELS + 1):
        group: tuple[Any, ...] = ()
        for *of, value, docids in rows:
            if value_groups.level_of(value) >= level:
                group = (*of, level, value)
            if group[:2] == tuple(of):
                expected.setdefault(group, set()).update(from_bytes(docids))
    return sorted((*group, sorted(docids)) for group, docids in expected.items())


def stored_groups(path: Path) -> list[tuple[Any, ...]]:
    found: dict[tuple[Any, ...], list[tuple[int, DocIds]]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for *group, block, docids in connection.execute("SELECT name, kind, level, first, block, docids FROM value_groups "
                                                        "JOIN fields USING (fid)"):
            found.setdefault(tuple(group), []).append((block, from_bytes(docids)))
    for rows in found.values():  # those that a set of its size has
        assert sorted(rows) == list(bitmap_blocks.set_rows(union_of(docids for _, docids in rows)))
    return sorted((*group, list(union_of(docids for _, docids in rows))) for group, rows in found.items())


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("at_once", [True, False])
def test_tables_are_those_of_an_index_made_at_once(at_once: bool) -> None:
    @settings(max_examples=60, deadline=None)
    @given(HISTORY)
    def holds(history: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            grown, made = (IndexWriter(Path(folder) / name) for name in ("grown.sqlite", "made.sqlite"))
            documents = play(grown, history if at_once else [[each] for batch in history for each in batch])
            play(made, [list(documents.items())])
            grown.close()
            made.close()
            assert tables(Path(folder) / "grown.sqlite") == tables(Path(folder) / "made.sqlite")
            assert stored_groups(Path(folder) / "grown.sqlite") == naive_groups(Path(folder) / "grown.sqlite")

    holds()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.sqlite"


@pytest.fixture
def writer(path: Path) -> Any:
    writer = IndexWriter(path)
    yield writer
    writer.close()


def test_what_a_savepoint_undid_was_never_there(writer: IndexWriter, path: Path) -> None:
    first, second = {"f": held(["a"])}, {"f": held(["b"])}
    with writer.transaction():
        writer.write([change(1, first, None)])
        with pytest.raises(KeyError), writer.savepoint():
            writer.write([change(2, second, None)])
            raise KeyError
    check(reader_of(path), {1: first})


def test_clearing_leaves_no_values(writer: IndexWriter, path: Path) -> None:
    play(writer, [[(1, {"f": held(["a", 1.0])})]])
    with writer.transaction():
        writer.clear()
    check(reader_of(path), {})


def test_values_of_a_field_come_and_go_without_the_others(writer: IndexWriter, path: Path) -> None:
    documents = play(writer, [[(1, {"f": held(["a"]), "g": held([1.0])}), (2, {"f": held(["a"])})]])
    cache = Cache(1 << 20)
    check(reader_of(path, cache), documents)
    without = {docid: {name: each for name, each in document.items() if name != "f"} for docid, document in documents.items()}
    with writer.transaction():
        writer.drop_values(["f"])
        writer.write_values((docid, {}, document) for docid, document in without.items())
    check(reader_of(path, cache), without)
    with writer.transaction():
        writer.drop_values([])
        writer.write_values((docid, {"f": document["f"]}, document) for docid, document in documents.items())
    check(reader_of(path, cache), documents)


def test_a_range_over_very_many_values_and_blocks(writer: IndexWriter, path: Path) -> None:
    documents: Documents = {docid: {"f": held([float(docid)])} for docid in range(0, 3 * BLOCK, 61)}
    play(writer, [list(documents.items())])
    reader = reader_of(path)
    found = reader.values.range_docids("f", 1000.0, None)
    assert list(found) == [docid for docid in documents if docid >= 1000]
    assert [value for value, _ in zip(reader.values.ordered_values("f", float, False), range(100))][-1][0] == float(sorted(documents)[-100])


@pytest.fixture
def many(writer: IndexWriter, path: Path, monkeypatch: pytest.MonkeyPatch) -> Documents:
    """Documents with a number of their own, in no order of the numbers; groups have some 8 values, and so do groups of groups."""
    monkeypatch.setattr(value_groups, "_LEVEL_BITS", 3)
    documents: Documents = {docid: {"f": held([float(docid * 1237 % 2000)])} for docid in range(2000)}
    play(writer, [list(documents.items())])
    return documents


def groups_of(path: Path) -> dict[tuple[Any, ...], bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return {tuple(row): docids for *row, docids in connection.execute("SELECT kind, level, first, block, docids FROM value_groups")}


def test_a_range_of_thousands_of_values_is_some_dozens_of_rows(many: Documents, path: Path) -> None:
    for low, high in [(None, 1600), (400, None), (1, 1998), (0, 2000), (1000, 1800), (700, 712)]:
        keys = value_groups.KeyRange(*(None if bound is None else value_writer.value_key(float(bound)) for bound in (low, high)))
        with closing(sqlite3.connect(path)) as connection:
            groups = value_groups.ValueGroups(connection, 0, value_writer.NUMBER)
            assert len(groups._rows(value_groups.LEVELS, keys, False)) < 100
            found = groups.range_docids(keys)
        assert list(found) == [docid for docid, document in many.items() if any(
            (low or 0) <= value < (high or 2000) for value in document["f"].values)]


@pytest.mark.parametrize("ascending", [True, False])
def test_a_walk_passes_over_groups_without_the_documents(many: Documents, path: Path, ascending: bool) -> None:
    docids = DocIds([17, 1000, 1711])
    with closing(sqlite3.connect(path)) as connection:
        ranges = list(value_groups.ValueGroups(connection, 0, value_writer.NUMBER).ranges_of(docids, ascending))
    assert len(ranges) < 10
    assert union_of(found for _, found in ranges if found is not None) <= docids
    values = list(reader_of(path).values.ordered_values("f", float, ascending, docids))
    assert values == sorted(((float(docid * 1237 % 2000), DocIds([docid])) for docid in docids), reverse=not ascending,
                            key=lambda each: each[0])


def test_a_small_write_changes_the_groups_of_its_values_alone(many: Documents, writer: IndexWriter, path: Path) -> None:
    before = groups_of(path)
    play(writer, [[(17, {"f": held([1999.0])})]], many)
    changed = before.items() ^ groups_of(path).items()
    assert 0 < len({row for row, _ in changed}) <= 2 * value_groups.LEVELS
    assert stored_groups(path) == naive_groups(path)


def test_numbers_have_keys_that_ascend_with_them() -> None:
    ordered = sorted(NUMBERS, key=key)
    assert sorted(NUMBERS, key=value_writer.value_key) == ordered
    assert repr([value_writer.value_of(value_writer.value_key(value)) for value in ordered]) == repr(ordered)


@pytest.mark.parametrize("number", [1, 2, 4097, 8192])
def test_ranges_of_single_documents(writer: IndexWriter, path: Path, number: int) -> None:
    documents: Documents = {docid: {"f": held([float(docid)])} for docid in range(number)}
    play(writer, [list(documents.items())])
    assert reader_of(path).values.range_docids("f", 0.0, None) == DocIds(range(number))


def test_written_documents_are_looked_at_once_for_all_sets(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache, asked = tmp_path / "index.sqlite", Cache(1 << 20), list[str]()
    monkeypatch.setattr("svcd.index.value_writer.stored_form", lambda text: asked.append(text) or text)
    writer = IndexWriter(path)
    history = [[(docid, {"f": held([f"v{docid + step}"])}) for docid in range(50)] for step in range(2)]
    documents: Documents = {}
    with closing(open_reader(path)) as connection:
        for batch in history:
            play(writer, [batch], documents)
            asked.clear()
            reader = IndexReader(connection, "u", cache)
            for number in range(51):
                expected = [docid for docid, shown in documents.items() if f"v{number}" in shown["f"].values]
                assert list(reader.values.value_docids("f", f"v{number}")) == expected
    writer.close()
    assert len(asked) == len(documents)


@pytest.mark.parametrize("zeros", [(-0.0, 0.0), (0.0, -0.0)])
def test_a_zero_that_changes_its_sign_is_another_value(tmp_path: Path, zeros: tuple[float, float]) -> None:
    writer = IndexWriter(tmp_path / "index.sqlite")
    play(writer, [[(0, {"f": held([zero])})] for zero in zeros])
    writer.close()
    with closing(open_reader(tmp_path / "index.sqlite")) as connection:
        reader = IndexReader(connection, "u", Cache(1 << 20))
        assert [list(reader.values.value_docids("f", zero)) for zero in zeros] == [[], [0]]
        assert [math.copysign(1, zero) for _, found in reader.values.field_values("f", [0]) for zero in found] == [
            math.copysign(1, zeros[1])]


def test_a_column_is_made_when_as_much_was_spent_without_it(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path / "index.sqlite")
    play(writer, [[(docid, {"f": held([float(docid % 50)])}) for docid in range(240)]])
    cache = Cache(1 << 20)
    assert reader_of(tmp_path / "index.sqlite", cache).values.doc_values("f", float, 15) is None
    assert reader_of(tmp_path / "index.sqlite", cache).values.doc_values("f", float, 15) is not None
    assert reader_of(tmp_path / "index.sqlite", cache).values.doc_values("f", float, 0) is not None
    play(writer, [[(7, {"f": held([0.5])})]])
    reader = reader_of(tmp_path / "index.sqlite", cache)
    assert reader.values.doc_values("f", float, 15) is None
    column = reader.values.doc_values("f", float)
    assert column is not None and column.size == 51
    writer.close()
