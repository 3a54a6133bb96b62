"""What must hold of sets of documents:

1. A set has the docids that it was made of, ascending and once each, however it was made.
2. Operators and methods give what those of Python's set give; none changes a set.
3. Equal sets are equal and have one hash, whatever they were made of.
4. What is stored comes back. Equal sets have the same bytes, also of both implementations.
5. The length tells how a set is stored: up to 8 docids take 4 bytes each; any other length is no multiple of 4.
6. Damaged bytes raise ValueError, in both implementations the same ones, or are those of some set.
7. Bytes in the portable roaring format of other programs are read: bitmaps, lists and runs.
8. A sparse set of large docids takes little memory, and a set is iterated over in little memory.

Each is checked on the implementation in plain Python and, where pyroaring is installed, on that, too.
"""
from __future__ import annotations

import importlib.util
import struct
import sys
import tracemalloc
from array import array
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base import docids as chosen, plain_bitmaps


def _loaded(plain: str) -> ModuleType:
    """Another copy of svcd.base.docids, made with SVCD_PLAIN_BITMAPS set to `plain`."""
    spec = importlib.util.find_spec("svcd.base.docids")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SVCD_PLAIN_BITMAPS", plain)
        spec.loader.exec_module(module)
    return module


PLAIN, COMPILED = _loaded("1"), _loaded("")
HAS_BOTH = COMPILED.DocIds is not PLAIN.DocIds
IMPLEMENTATIONS = [PLAIN, COMPILED] if HAS_BOTH else [PLAIN]
both = pytest.mark.parametrize("module", IMPLEMENTATIONS, ids=lambda module: module.IMPLEMENTATION)
needs_both = pytest.mark.skipif(not HAS_BOTH, reason="pyroaring is not installed: nothing to compare plain Python with")


# Its users get the same answers, but the same set may be stored in two ways.
keeps_no_runs = pytest.mark.skipif(COMPILED.IMPLEMENTATION.startswith("pyroaring 1.0."),
                                   reason="pyroaring 1.0 keeps runs of docids where a list has the same size")


# Sets as recipes, which make the same set with each implementation

Make = Callable[[type], Any]


def _docids() -> st.SearchStrategy[list[int]]:
    near = st.integers(0, 90)
    far = st.integers(0, 300_000) | st.integers(65_530, 65_540)
    return st.lists(near, max_size=60) | st.lists(far, max_size=40) | st.lists(st.integers(0, 2**32 - 1), max_size=10)


def _ranges() -> st.SearchStrategy[range]:
    starts = st.sampled_from([0, 1, 7, 65_000, 65_536, 131_072, 2**32 - 70_000])
    lengths = st.sampled_from([0, 1, 2, 3, 9, 300, 4095, 4096, 4097]) | st.sampled_from([0, 5000, 66_000, 9])
    return st.builds(lambda start, length, step: range(start, min(start + length * step, 2**32), step),
                     starts, lengths, st.sampled_from([1, 2, 31]))


_FORMS: list[Callable[[list[int]], Iterable[int]]] = [
    list, set, tuple, iter, lambda docids: array("I", docids), lambda docids: array("I", sorted(docids)), reversed]
_OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda left, right: left & right, lambda left, right: left | right, lambda left, right: left - right,
    lambda left, right: left ^ right]


class Recipe:
    """How a set is made: of docids, or of two sets and an operator."""

    def __init__(self, text: str, make: Make) -> None:
        self.text, self.make = text, make

    def __repr__(self) -> str:
        return self.text

    def as_set(self) -> set[int]:
        return self.make(set)  # type: ignore[no-any-return]


def _of_docids(docids: list[int], form: int) -> Recipe:
    return Recipe(f"{_FORMS[form]}({docids})", lambda kind: kind(_FORMS[form](docids)))


def _of_range(docids: range) -> Recipe:
    return Recipe(repr(docids), lambda kind: kind(docids))


def _of_two(left: Recipe, right: Recipe, operator: int) -> Recipe:
    return Recipe(f"({left} {'&|-^'[operator]} {right})", lambda kind: _OPERATORS[operator](left.make(kind), right.make(kind)))


RECIPES = st.recursive(
    st.builds(_of_docids, _docids(), st.integers(0, len(_FORMS) - 1)) | st.builds(_of_range, _ranges()),
    lambda smaller: st.builds(_of_two, smaller, smaller, st.integers(0, 3)), max_leaves=3)
quick = settings(max_examples=20, deadline=None)


def flipped(docids: Any, start: int, end: int) -> Any:
    """The set with each docid from `start` to `end` - 1 added or removed."""
    return docids ^ type(docids)(range(start, max(start, end)))


@both
@given(recipe=RECIPES)
@quick
def test_a_set_has_its_docids(module: ModuleType, recipe: Recipe) -> None:
    members = recipe.as_set()
    docids, expected = recipe.make(module.DocIds), sorted(members)
    assert list(docids) == expected
    assert docids.to_array() == array("I", expected)
    assert len(docids) == len(expected) and bool(docids) is bool(expected)
    assert all(docid in docids for docid in expected[::997])
    assert all((docid in docids) is (docid in members) for docid in (0, 5, 65_536, 2**32 - 1))


@both
@given(recipes=st.tuples(RECIPES, RECIPES, RECIPES))
@quick
def test_operators_are_those_of_set(module: ModuleType, recipes: tuple[Recipe, Recipe, Recipe]) -> None:
    left, right, third = (recipe.make(module.DocIds) for recipe in recipes)
    one, two, three = (recipe.as_set() for recipe in recipes)
    for operator in _OPERATORS:
        assert set(operator(left, right)) == operator(one, two)
    union = one | two | three
    assert set(left.union(right, third)) == union and module.DocIds.union(left, right, third) == left | right | third
    assert set(module.union_of([left, right, third])) == union
    assert (left.intersection_cardinality(right), len(left - right)) == (len(one & two), len(one - two))
    assert len(left | right) == len(one | two)
    assert left.intersect(right) == bool(one & two)
    assert left.issubset(right) == (left <= right) == (one <= two)
    assert (left & right).issubset(left) and right.issubset(left | right)
    before = left
    left |= right
    assert set(before) == one and set(right) == two and set(left) == one | two


@both
@given(recipe=RECIPES, count=st.integers(0, 70))
@quick
def test_the_ends_are_those_of_the_sorted_list(module: ModuleType, recipe: Recipe, count: int) -> None:
    docids, listed = recipe.make(module.DocIds), sorted(recipe.as_set())
    assert module.first(docids, count) == listed[:count]
    for smallest_or_largest, expected in ((docids.min, listed[:1]), (docids.max, listed[-1:])):
        if expected:
            assert smallest_or_largest() == expected[0]
        else:
            with pytest.raises(ValueError):
                smallest_or_largest()


@both
@given(recipe=RECIPES, offset=st.sampled_from([0, 1, 63, 65_536, 70_001, 2**31]))
@quick
def test_docids_are_flipped(module: ModuleType, recipe: Recipe, offset: int) -> None:
    docids, listed = recipe.make(module.DocIds), sorted(recipe.as_set())
    start, end = sorted((offset % 100_003, offset % 71))
    assert list(flipped(docids, start, end)) == sorted(set(listed) ^ set(range(start, end)))
    assert flipped(docids, end + 1, start) == docids


@both
@given(recipe=RECIPES)
@quick
def test_equal_sets_are_equal(module: ModuleType, recipe: Recipe) -> None:
    docids, same = recipe.make(module.DocIds), module.DocIds(sorted(recipe.as_set()))
    assert docids == same and hash(docids) == hash(same)
    assert module.DocIds(docids) == docids and hash(module.DocIds(docids)) == hash(docids)
    assert docids != flipped(docids, 3, 4) and docids != list(same)
    assert hash(docids - same) == hash(module.EMPTY) == hash(module.DocIds())
    few = module.DocIds([0, 7, 65_536])
    assert hash(docids.union(few, few)) == hash(docids | few)


@both
@given(recipe=RECIPES)
@quick
def test_what_is_stored_comes_back(module: ModuleType, recipe: Recipe) -> None:
    docids = recipe.make(module.DocIds)
    stored = module.to_bytes(docids)
    assert module.from_bytes(stored) == module.from_bytes(memoryview(stored)) == docids
    assert module.DocIds.deserialize(docids.serialize()) == docids
    if len(docids) <= 8:
        assert stored == struct.pack(f"<{len(docids)}I", *docids)
    else:
        assert len(stored) % 4


@both
@given(recipe=RECIPES)
@quick
def test_equal_sets_have_the_same_bytes(module: ModuleType, recipe: Recipe) -> None:
    docids = recipe.make(module.DocIds)
    stored, listed = module.to_bytes(docids), docids.to_array()
    shuffled = array("I", [*listed[1::2], *listed[::2]])
    moved = docids - module.DocIds(listed[-3:]) | module.DocIds(listed[-3:])
    for same in (listed, list(listed), shuffled, module.from_bytes(stored), moved, flipped(flipped(docids, 9, 66_000), 9, 66_000),
                 module.union_of([module.DocIds(listed[start::3]) for start in range(3)])):
        assert module.to_bytes(module.DocIds(same)) == stored
    assert PLAIN.to_bytes(PLAIN.DocIds(listed)) == stored


@both
@given(recipe=RECIPES)
@quick
def test_a_set_is_stored_container_by_container(module: ModuleType, recipe: Recipe) -> None:
    docids = recipe.make(module.DocIds)
    containers = module.containers_of(docids)
    assert module.bytes_of_containers(containers) == module.to_bytes(docids) if containers else not docids
    for high, container in containers:
        within = module.DocIds([docid for docid in docids if docid >> 16 == high])
        assert module.bytes_of_containers([(high, container)]) == module.to_bytes(within)
        moved = module.DocIds([docid & 0xFFFF | 5 << 16 for docid in within])
        assert module.bytes_of_containers([(5, container)]) == module.to_bytes(moved)


@keeps_no_runs
@both
@pytest.mark.parametrize("count", [1, 2, 4, 5, 40, 1000, 2046, 2047, 2048, 3000])
def test_lists_and_runs_of_the_same_size_have_the_same_bytes(module: ModuleType, count: int) -> None:
    """With 2 * count + 1 docids in `count` runs both take as much; a set that began as one long run still has runs then."""
    wanted = {docid for start in range(0, 10 * count, 10) for docid in (start, start + 1)} | {2}
    for docids in (wanted, wanted - {0}, wanted | {3}):
        top = max(docids) + 1
        listed, gaps = module.DocIds(docids), module.DocIds(set(range(top)) - docids)
        assert module.to_bytes(module.DocIds(range(top)) - gaps) == module.to_bytes(listed) == PLAIN.to_bytes(PLAIN.DocIds(docids))
        assert module.to_bytes(flipped(gaps, 0, top)) == module.to_bytes(listed)


@keeps_no_runs
@needs_both
@given(recipe=RECIPES, other=RECIPES)
@quick
def test_both_implementations_do_the_same(recipe: Recipe, other: Recipe) -> None:
    for operator in (lambda left, right: left, *_OPERATORS):
        compiled, plain = (operator(recipe.make(module.DocIds), other.make(module.DocIds)) for module in (COMPILED, PLAIN))
        assert list(compiled) == list(plain)
        assert COMPILED.to_bytes(compiled) == PLAIN.to_bytes(plain)
        assert COMPILED.DocIds(compiled.to_array()).serialize() == plain.serialize()
        assert list(PLAIN.DocIds.deserialize(compiled.serialize())) == list(COMPILED.DocIds.deserialize(plain.serialize())) == list(plain)


def _read(module: ModuleType, data: bytes) -> list[int] | None:
    try:
        return list(module.from_bytes(data))
    except ValueError:
        return None


SMALL_STORED = st.builds(lambda docids: PLAIN.to_bytes(PLAIN.DocIds(docids)), st.lists(st.integers(0, 200_000), max_size=40)
                         | st.builds(range, st.integers(0, 70_000), st.integers(60_000, 140_000)))


@given(stored=SMALL_STORED, changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4),
       cut=st.integers(0, 9), more=st.binary(max_size=5))
@settings(max_examples=100, deadline=None)
def test_damaged_bytes_are_refused_or_another_set(stored: bytes, changes: list[tuple[int, int]], cut: int, more: bytes) -> None:
    damaged = bytearray(stored[:len(stored) - cut] + more)
    for place, value in changes:
        if place < len(damaged):
            damaged[place] = value
    found = [_read(module, bytes(damaged)) for module in IMPLEMENTATIONS]
    assert found[0] == found[-1]
    if found[0] is not None:
        assert found[0] == sorted(set(found[0]))


@both
@given(data=st.binary(max_size=60) | st.builds(lambda head, tail: head + tail, st.sampled_from([
    b"\x3a\x30\x00\x00", b"\x3b\x30\x00\x00", b"\x3b\x30\xff\xff", b"\x3a\x30\x00\x00\x00\x00\x01\x00", b"\x3a\x30\x00\x00\xff\xff\xff\xff"]),
    st.binary(max_size=60)))
@settings(max_examples=100, deadline=None)
def test_any_bytes_end_in_a_set_or_an_error(module: ModuleType, data: bytes) -> None:
    for read in (_read, _read_roaring):
        read(module, data)


def _read_roaring(module: ModuleType, data: bytes) -> None:
    try:
        module.DocIds.deserialize(data or b"\0")
    except ValueError:
        pass


@both
@pytest.mark.parametrize("data", [
    b"\0", struct.pack("<II", 2, 1), struct.pack("<II", 1, 1), struct.pack("<9I", *range(9)),
    PLAIN.to_bytes(PLAIN.DocIds(range(0, 30, 3)))[:-1], PLAIN.to_bytes(PLAIN.DocIds(range(0, 30, 3))) + b"\0\0"])
def test_bytes_that_are_no_set_are_refused(module: ModuleType, data: bytes) -> None:
    with pytest.raises(ValueError):
        module.from_bytes(data)


@both
def test_bytes_of_other_programs_are_read(module: ModuleType) -> None:
    few = struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 10, 9)
    assert list(module.DocIds.deserialize(few)) == list(range(10, 20))
    head = struct.pack("<I", 12347 | 3 << 16) + bytes([0b1000])
    heads = b"".join(struct.pack("<HH", high, 0) for high in range(3)) + struct.pack("<HH", 3, 2)
    bodies = [struct.pack("<H", 7)] * 3 + [struct.pack("<HHH", 1, 0, 2)]
    many = head + heads + b"\0" * 16 + b"".join(bodies)
    assert list(module.DocIds.deserialize(many)) == [7, 65_543, 131_079, 196_608, 196_609, 196_610]
    bitmap = struct.pack("<IIHHI", 12346, 1, 2, 4999, 16) + b"\xff" * 625 + b"\0" * (8192 - 625)
    assert list(module.DocIds.deserialize(bitmap)) == list(range(131_072, 136_072))


@both
def test_docids_out_of_range_are_refused(module: ModuleType) -> None:
    for docids in ([-1], [2**32], range(-1, 3), [5, -1, *range(100)]):
        with pytest.raises(OverflowError):
            module.DocIds(docids)
    for wrong in (["a"], [5, None]):
        with pytest.raises(TypeError):
            module.DocIds(wrong)
    with pytest.raises(TypeError):
        module.DocIds([1]) & {1}


@both
def test_the_union_of_no_set_is_empty(module: ModuleType) -> None:
    assert module.union_of([]) == module.union_of(iter([module.EMPTY])) == module.EMPTY == module.DocIds()
    assert module.to_bytes(module.EMPTY) == b"" and module.from_bytes(b"") == module.EMPTY


@both
@given(recipe=st.builds(_of_docids, st.lists(st.integers(0, 200_000), max_size=40), st.just(0)) | st.builds(
    lambda start, end, step: _of_range(range(start, end, step)), st.integers(0, 5), st.integers(0, 140_000), st.integers(1, 40)))
@quick
def test_membership_bytes_say_who_is_in(module: ModuleType, recipe: Recipe) -> None:
    members = module.membership_bytes(recipe.make(module.DocIds))
    expected = recipe.as_set()
    assert {docid for docid, member in enumerate(members) if member} == expected
    assert set(members) <= {0, 1} and len(members) == max(expected, default=-1) + 1


@both
@given(values=st.binary(max_size=200), value=st.integers(0, 255), repeats=st.sampled_from([1, 3, 400]))
@quick
def test_places_of_a_byte(module: ModuleType, values: bytes, value: int, repeats: int) -> None:
    values *= repeats
    for wanted in {value, *values[:1]}:
        assert list(module.from_bytes_equal(values, wanted)) == [place for place, each in enumerate(values) if each == wanted]


@both
@pytest.mark.parametrize(("docids", "least", "most"), [
    ([], 0, 300), ([900_000], 60, 300), (range(0, 1_000_000, 2000), 2000, 8000), (range(0, 1_000_000, 2), 125_000, 150_000)])
def test_memory_is_in_proportion_to_docids(module: ModuleType, docids: Iterable[int], least: int, most: int) -> None:
    made = module.DocIds(docids)
    assert least <= module.memory_bytes(made) <= most
    wide = module.DocIds(range(1_000_000)) & made
    assert module.memory_bytes(module.DocIds(wide)) <= most


@both
def test_iteration_takes_little_memory(module: ModuleType) -> None:
    docids = module.DocIds(range(0, 400_000, 3))
    tracemalloc.start()
    try:
        assert sum(1 for _ in docids) == 133_334
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


def test_the_environment_chooses() -> None:
    assert PLAIN.DocIds is plain_bitmaps.DocIds and PLAIN.IMPLEMENTATION == "plain Python"
    assert chosen.DocIds in (PLAIN.DocIds, COMPILED.DocIds)
    assert (COMPILED.IMPLEMENTATION != "plain Python") is HAS_BOTH


@pytest.fixture
def old_pyroaring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("pyroaring")
    module.__version__ = "1.0.2"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyroaring", module)
    yield


def test_a_pyroaring_that_damaged_bytes_could_crash_is_not_used(old_pyroaring: None) -> None:
    assert _loaded("").DocIds is plain_bitmaps.DocIds
