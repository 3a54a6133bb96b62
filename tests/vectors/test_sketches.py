"""What must hold of sketches and estimates:

1. Sums of bit planes are what counting slot by slot gives, whatever the planes and the number of blocks.
2. A sketch has the number of the step of each number, as defined (docs/vectors.md#sketches); only vectors with almost no length,
   or an infinite one, have one of zeros.
3. The estimate of a vector is the sum of its steps, weighted by the query; with fewer bits, of what these leave.
4. Estimates of quantized vectors are their distances.
5. A block of which regions were replaced answers as one that was made of them.
"""
from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from svcd.base.docids import DocIds
from svcd.vectors.sketches import (
    REGION, SLOTS, Estimates, Region, SketchBlock, SketchForm, SketchQuery, _weights, difference, largest, total, transposed,
    values,
)
from svcd.vectors.vector import quantized_bytes, vector_of
from tests.support.distances import quantized_distance

WIDTH = 40  # slots that are used here
PLANE = st.integers(0, (1 << WIDTH) - 1)
ADDENDS = st.lists(st.lists(PLANE, max_size=9), max_size=4)
ONES = (1 << SLOTS) - 1


def counted(addends: Sequence[Sequence[int]]) -> list[int]:
    return [sum((plane >> slot & 1) << digit for digit, planes in enumerate(addends) for plane in planes)
            for slot in range(WIDTH)]


def numbers(sums: Sequence[int]) -> list[int]:
    return [sum((plane >> slot & 1) << digit for digit, plane in enumerate(sums)) for slot in range(WIDTH)]


@given(ADDENDS, ADDENDS)
def test_sums_and_differences(left: list[list[int]], right: list[list[int]]) -> None:
    assert numbers(total(left)) == counted(left)
    sums, raised_by = difference(total(left), total(right), ONES)
    expected = [a - b + raised_by for a, b in zip(counted(left), counted(right))]
    assert numbers(sums) == expected
    slots, found = values(sums, (1 << WIDTH) - 1)
    assert (slots, found) == (list(range(WIDTH)), expected)


@given(st.lists(st.tuples(st.lists(PLANE, min_size=5, max_size=5), PLANE), max_size=3), st.integers(0, 130))
def test_largest_are_the_first_in_order(blocks: list[tuple[list[int], int]], count: int) -> None:
    order = sorted((-number, block, slot) for block, (sums, among) in enumerate(blocks)
                   for slot, number in enumerate(numbers(sums)) if among >> slot & 1)
    expected = [0] * len(blocks)
    for _, block, slot in order[:count]:
        expected[block] |= 1 << slot
    assert largest([sums for sums, _ in blocks], [among for _, among in blocks], count) == expected


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 10_000))
def test_rows_become_columns(width: int, eights: int, seed: int) -> None:
    chosen = random.Random(seed)
    rows = [bytes(width) if chosen.random() < 0.2 else chosen.randbytes(width) for _ in range(8 * eights)]
    columns = chosen.randint(0, width)
    expected = [sum((row[column] >> bit & 1) << place for place, row in enumerate(rows))
                for column in range(columns) for bit in range(8)]
    assert transposed(b"".join(rows), width, columns) == expected


SEED = st.integers(0, 10_000)
SIZE = st.sampled_from([1, 2, 8, 15, 16, 47, 48, 63, 64, 65, 95, 96, 100, 384, 4100])


def steps_of(form: SketchForm, sketch: bytes) -> list[int]:
    parts = [int.from_bytes(sketch[start:start + form.part_size], "little") for start in range(0, form.size, form.part_size)]
    return [sum((part >> place & 1) << form.bits - 1 - number for number, part in enumerate(parts))
            for place in range(form.dimensions)]


def random_vector(chosen: random.Random, size: int) -> array[float]:
    kind = chosen.random()
    if kind < 0.1:
        return vector_of([0.0] * size)
    if kind < 0.2:
        return vector_of([chosen.choice((0, 0, 0, 0, 50, -1e-3)) for _ in range(size)])
    return vector_of([chosen.gauss(0, 3) for _ in range(size)])


@settings(deadline=None)
@given(SIZE, SEED)
def test_sketches_are_the_numbers_of_steps(size: int, seed: int) -> None:
    chosen = random.Random(seed)
    form = SketchForm.of(size, False)
    vector = random_vector(chosen, size)
    length = math.hypot(*vector)
    if not length:
        assert form.sketch(vector) == bytes(form.size)
        return
    found = steps_of(form, form.sketch(vector))
    for number, step in zip(vector, found):
        exact = number * math.sqrt(size) / length / form.step + (1 << form.bits - 1)
        near = {math.floor(exact + shift) for shift in (-1e-3, 0, 1e-3)}
        assert step in {max(0, min((1 << form.bits) - 1, each)) for each in near}
    assert any(found)


@pytest.mark.parametrize("vector", [[1e-5, 0.0], [math.inf, 1.0], [math.nan, 1.0], [0.0, -0.0]])
def test_vectors_that_must_be_compared_exactly_have_no_sketch(vector: list[float]) -> None:
    form = SketchForm.of(2, False)
    assert form.sketch(vector_of(vector)) == bytes(form.size)
    assert not SketchQuery.is_comparable(vector)


def region(form: SketchForm, first: int, vectors: list[array[float]]) -> Region:
    sketch = form.sketch if form.step else quantized_bytes
    return Region(array("I", range(first, first + 2 * len(vectors), 2)), b"".join(map(sketch, vectors)))


@settings(deadline=None, max_examples=40)
@given(SIZE, st.booleans(), SEED, st.data())
def test_estimates_are_weighted_sums_of_steps(size: int, is_all: bool, seed: int, data: st.DataObject) -> None:
    chosen = random.Random(seed)
    form = SketchForm.of(size, False)
    bits = data.draw(st.integers(1, form.bits))
    regions = [[random_vector(chosen, size) for _ in range(chosen.randint(1, 9))] for _ in range(3)]
    query = vector_of([chosen.gauss(0, 1) for _ in range(size)])
    starts = [0, 100, 1000]
    block = SketchBlock.of(form, bits, [region(form, start, each) for start, each in zip(starts, regions)])
    weights = _weights(form, query)
    docids = {start + 2 * place: vector for start, each in zip(starts, regions) for place, vector in enumerate(each)}
    among = DocIds(list(docids)) if is_all else DocIds([docid for docid in docids if chosen.random() < 0.5] + [1, 5000])

    def product(weight: int, step: int) -> int:
        both_lowest = abs(weight) & step & 1 if bits == form.bits else 0
        return weight * (step >> form.bits - bits) - (both_lowest if weight > 0 else -both_lowest)

    expected = sorted((-sum(map(product, weights, steps_of(form, form.sketch(vector)))), docid)
                      for docid, vector in docids.items() if docid in among)
    others = DocIds([docid for docid in docids if docid not in among] + [50, 5000])
    sums = SketchQuery(form, bits, query)
    estimates = Estimates(sums, iter([block]), None) if is_all else Estimates(sums, iter([block]), among)
    assert Estimates(sums, iter([block]), None, others).best(1000) == estimates.best(1000)
    assert estimates.best(5) == [(-opposite, docid) for opposite, docid in expected[:5]]
    assert len(estimates.best(1000)) == len(expected)
    if bits == form.bits:
        assert estimates.special_docids == [docid for docid, vector in docids.items() if docid in among and not any(vector)]


@settings(deadline=None, max_examples=40)
@given(SIZE, SEED)
def test_estimates_of_quantized_vectors_are_distances(size: int, seed: int) -> None:
    chosen = random.Random(seed)
    form = SketchForm.of(size, True)
    vectors = [random_vector(chosen, size) for _ in range(20)]
    query = vector_of([chosen.gauss(0, 3) for _ in range(size)])
    block = SketchBlock.of(form, 1, [region(form, 3, vectors)])
    sums = SketchQuery(form, 1, query)
    found = [(sums.distance(estimate), docid) for estimate, docid in Estimates(sums, iter([block]), None).best(7)]
    expected = sorted((quantized_distance(vector, query), 3 + 2 * place) for place, vector in enumerate(vectors))
    assert found == expected[:7]


@settings(deadline=None, max_examples=20)
@given(SEED)
def test_replaced_regions(seed: int) -> None:
    chosen = random.Random(seed)
    form = SketchForm.of(20, False)

    def new(first: int) -> Region:
        return region(form, first, [random_vector(chosen, 20) for _ in range(chosen.choice((0, 1, 5, REGION)))])

    before = [new(10_000 * place) for place in range(3)]
    changed = {place: new(10_000 * place) for place in range(4) if place == 3 or chosen.random() < 0.5}
    after = [changed.get(place, each) for place, each in enumerate(before)] + [changed[3]]
    replaced = SketchBlock.of(form, form.bits, before).replaced(form, changed)
    made = SketchBlock.of(form, form.bits, after)
    assert (replaced.planes, replaced._docids, replaced.slots, replaced.special) == (
        made.planes, made._docids, made.slots, made.special)
