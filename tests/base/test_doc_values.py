"""What must hold of doc values:

1. For any set of documents they agree with one bitmap per value.
2. This holds with one value per document and with several; the size reported to caches includes the arrays.
3. Distinct documents are taken by docid, each unless it shares a value with one taken before.
"""
from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base import doc_values
from svcd.base.doc_values import DocValues
from svcd.base.docids import DocIds

SINGLE = st.lists(st.integers(0, 12).map(lambda value: {value}), min_size=1, max_size=60)
SEVERAL = st.lists(st.sets(st.integers(0, 12), max_size=3), min_size=1, max_size=60)


def column_of(documents: list[set[int]]) -> tuple[DocValues, list[list[int]]]:
    """A column, and for each of its values the documents; the documents of a value are what has the number."""
    values = sorted(set().union(*documents))
    sets = [[docid for docid, held in enumerate(documents) if value in held] for value in values]
    return DocValues([docid for docids in sets for docid in docids], list(map(len, sets))), sets


@pytest.mark.parametrize("dense", [0, 16, 1 << 20])
@pytest.mark.parametrize("thin", [0, 8, 1 << 20])
@given(documents=SINGLE | SEVERAL, mask=st.integers(0, (1 << 60) - 1), seed=st.sets(st.integers(0, 12)))
@settings(max_examples=40, deadline=None)
def test_it_says_what_sets_of_documents_say(
    dense: int, thin: int, documents: list[set[int]], mask: int, seed: set[int]
) -> None:
    column, sets = column_of(documents)
    among = DocIds([docid for docid, held in enumerate(documents) if held and mask >> docid & 1])
    listed = list(among)
    taken = bytearray(rank in seed for rank in range(column.size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doc_values, "_DENSE", dense)
        patch.setattr(doc_values, "_THIN", thin)
        counts = column.counts(among)
        pairs = list(column.pairs(among))
        sharing = column.sharing(taken, among)
        first = column.first_of_each(among, bytearray(taken))
    ranks = {docid: [rank for rank, docids in enumerate(sets) if docid in docids] for docid in listed}
    assert pairs == [(docid, rank) for docid in listed for rank in ranks[docid]]
    held = dict(counts) if hasattr(counts, "keys") else {rank: count for rank, count in enumerate(counts) if count}
    assert held == {rank: len(met) for rank, docids in enumerate(sets) if (met := set(docids) & set(listed))}
    assert list(sharing) == [docid for docid in listed if any(taken[rank] for rank in ranks[docid])]
    kept: list[int] = []
    gone = {rank for rank in range(column.size) if taken[rank]}
    for docid in listed:
        if gone.isdisjoint(ranks[docid]):
            kept.append(docid)
            gone.update(ranks[docid])
    assert list(first) == kept


def test_it_knows_its_values_and_a_document_of_each() -> None:
    column, _ = column_of([{5}, set(), {7, 5}, {6}])
    assert column.size == 3
    assert list(column.samples) == [0, 3, 2]
    assert [list(column.ranks_of(docid)) for docid in (0, 2, 3)] == [[0], [0, 2], [1]]
    assert not column.is_single


def test_it_says_what_it_takes() -> None:
    single, _ = column_of([{number} for number in range(300)])
    several, _ = column_of([{number, number + 1} for number in range(300)])
    assert single.is_single
    assert sys.getsizeof(single) > 300 * (2 + 4)
    assert sys.getsizeof(several) > 600 * 2 + 300 * (4 + 4)


def test_a_field_without_values_has_an_empty_one() -> None:
    column = DocValues([], [])
    assert column.size == 0
    assert not column.counts(DocIds())
    assert not column.first_of_each(DocIds(), bytearray())
