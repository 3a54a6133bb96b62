"""Documents sorted by the value of a field: by walking over the values, by doc values, or by looking into documents.

Which way is quickest depends on how many candidates and how many values there are: docs/storage.md#field-values.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from svcd.base.bitmaps import DocIds, from_docids, to_docids
from svcd.base.doc_values import DocValues
from svcd.index.value_rows import KINDS, NUMBER, Key, Value, value_key, value_of

if TYPE_CHECKING:
    from svcd.index.value_reader import ValueReader

# At most so many documents are sorted by looking into each of them.
_FEW_DOCUMENTS = 1000
# Values that are passed in the time that it takes to look into one document; entries of doc values that are read while
# one value is passed; values without a candidate that are passed in any case before another way is taken.
_VALUES_PER_DOCUMENT, _ENTRIES_PER_VALUE, _LEAST_PATIENCE = 2, 6, 1000
# With fewer candidates than the root of so many times the values, ranks are sooner collected than values walked over.
_FEW_TO_WALK = 500


def sort_buckets(reader: ValueReader, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value | None, DocIds]]:
    """The candidates by their value of a field: numbers, then texts, each in the order asked, then None for the rest."""
    if _is_few(reader, field, candidates.bit_count()):
        yield from _sorted_rows(reader, field, ascending, candidates)
        return
    for kind in KINDS:
        left = candidates & reader.kind_docids(field, kind)
        candidates &= ~left
        yield from _in_order(reader, field, kind, ascending, left)
    if candidates:
        yield None, candidates


def _in_order(reader: ValueReader, field: str, kind: type[Value], ascending: bool, left: DocIds
              ) -> Iterator[tuple[Value, DocIds]]:
    """Documents that all have a value of a kind: by walking over the values, or by doc values if that is quicker."""
    documents, passed = left.bit_count(), 0
    doc_values = reader.doc_values(field, kind, 0) if left and reader.few_values(field, kind) is None else None
    if doc_values is not None and documents * documents < _FEW_TO_WALK * doc_values.size:
        yield from _by_rank(reader, field, kind, ascending, left, doc_values)
        return
    patience = max(_LEAST_PATIENCE, min(documents * _VALUES_PER_DOCUMENT,
                                        reader.kind_docids(field, kind).bit_count() // _ENTRIES_PER_VALUE))
    values = reader.ordered_values(field, kind, ascending, left)
    while left:
        value, docids = next(values)
        passed += 1
        if docids and (bucket := left & docids):
            yield value, bucket
            left ^= bucket
            passed = 0
        elif passed > patience:  # the rest is far away, as when a filter on the same field leaves one end of it
            doc_values = reader.doc_values(field, kind, left.bit_count())
            yield from (_sorted_rows(reader, field, ascending, left, kind) if doc_values is None
                        else _by_rank(reader, field, kind, ascending, left, doc_values))
            return


def _by_rank(reader: ValueReader, field: str, kind: type[Value], ascending: bool, left: DocIds, doc_values: DocValues
             ) -> Iterator[tuple[Value, DocIds]]:
    """As _in_order: collect the ranks that the documents have, then take the documents of each."""
    is_present = bytearray(doc_values.size)
    for _, rank in doc_values.pairs(left):
        is_present[rank] = 1
    rank = is_present.find(1) if ascending else is_present.rfind(1)
    while left:
        value = _ranked_value(reader, field, kind, doc_values, rank)
        if bucket := left & reader.value_docids(field, value):
            yield value, bucket
            left ^= bucket
        rank = is_present.find(1, rank + 1) if ascending else is_present.rfind(1, 0, rank)


def _ranked_value(reader: ValueReader, field: str, kind: type[Value], doc_values: DocValues, rank: int) -> Value:
    def values_of(docid: int) -> list[Value]:
        ((_, values),) = reader.field_values(field, [docid])
        return [value for value in values if isinstance(value, kind)]

    value: Value = doc_values.value(rank, values_of)
    return value


def _is_few(reader: ValueReader, field: str, documents: int) -> bool:
    """Is it quicker to look into so many documents than to go through the values?"""
    few_values = [reader.few_values(field, kind) for kind in KINDS]
    values = sum(_FEW_DOCUMENTS if few is None else len(few) for few in few_values)
    return documents <= min(values // 2, _FEW_DOCUMENTS)


def _sorted_rows(reader: ValueReader, field: str, ascending: bool, candidates: DocIds, *of: type[Value]
                 ) -> Iterator[tuple[Any, DocIds]]:
    """As sort_buckets, by looking into each document. of: the only kind that counts; all kinds without it."""
    best = min if ascending else max
    grouped: dict[tuple[int, Key], list[int]] = {}
    without: list[int] = []
    for docid, values in reader.field_values(field, to_docids(candidates)):
        keys = [(KINDS[type(value)], value_key(value)) for value in values if not of or type(value) in of]
        numbers = [each for each in keys if each[0] == NUMBER]
        if keys:
            grouped.setdefault(best(numbers or keys), []).append(docid)
        else:
            without.append(docid)
    for kind in KINDS.values():
        for each in sorted((each for each in grouped if each[0] == kind), reverse=not ascending):
            yield value_of(each[1]), from_docids(grouped[each])
    if without:
        yield None, from_docids(without)
