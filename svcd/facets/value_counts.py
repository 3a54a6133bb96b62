"""The interface of counting strategies (how many candidates have each value of a field), and what counting costs.

Source: docs/filters-and-facets.md#counting-strategies.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from svcd.base.bitmaps import DocIds
from svcd.query.reader import Value

# The unit of all costs is one value of a scan: reading its set and intersecting it with the candidates, some 7 us in an
# index of 36,000 documents.
# Reading and counting the values of one document:
DOCUMENT_COST = 2
# At most so many candidates have their documents read, rather than that a field with many values is scanned.
FEW_CANDIDATES = 250
# At most so many have their documents read without a look at the field.
SURELY_FEW = 20
# The cost of a value grows by one for each so many documents of the index, and is this share if its set is cached.
DOCUMENTS_PER_COST = 60_000
CACHED_COST = 0.3


class ValueCount(NamedTuple):
    """A value and how many candidates have it.

    value: None where ValueCounts.value() must be asked. key: by which a strategy that knows all values at once
    identifies this one.
    """

    value: Value | None
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    key: int = -1


class ValueCounts(Protocol):
    """The values of one kind that the candidates have."""

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        """All values in ascending order, found lazily. most: how many will be read at most, roughly; None for all."""

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        """All values by descending count: for each count the values that have it, in descending order.

        most: how many will be read at most, roughly.
        """

    def value(self, entry: ValueCount) -> Value:
        """The value of an entry."""

    def first_docid(self, entry: ValueCount) -> int:
        """The smallest docid among the candidates that have the value."""

    def is_alone_in_group(self, entry: ValueCount, width: int) -> bool:
        """Do only the candidates that have this value have any value of its group?

        A group is `width` consecutive values of all values of the field.
        """

    def number_of_values(self) -> int:
        """How many values of this kind the field has in the whole index."""

    def extremes(self) -> tuple[Value, Value] | None:
        """The smallest and the largest value; None when there is none."""


def lowest_docid(docids: DocIds) -> int:
    """The smallest docid of a set that is not empty."""
    return (docids ^ (docids - 1)).bit_length() - 1


def cost_of_values(values: Sequence[Value], is_cached: bool, documents: int) -> float:
    """The cost of intersecting the sets of all values. is_cached: are the sets cached? documents: of the index."""
    return len(values) * (1 + documents / DOCUMENTS_PER_COST) * (CACHED_COST if is_cached else 1)
