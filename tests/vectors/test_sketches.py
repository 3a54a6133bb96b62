"""What must hold of sketches and estimates:

1. A sketch has the number of the step of each number, as defined (docs/vectors.md#sketches); only vectors with almost no length,
   or an infinite one, have one of zeros.
2. The estimate of a vector is the sum of its steps, weighted by the query; with fewer bits, of what these leave.
3. Estimates of quantized vectors are their distances.
4. A block of which regions were replaced answers as one that was made of them.
"""
from __future__ import annotations

import math
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.vectors.sketches import REGION, Estimates, Region, SketchBlock, SketchForm, SketchQuery, _weights
from svcd.vectors.vector import quantized_bytes, vector_of
from tests.support.distances import quantized_distance

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
