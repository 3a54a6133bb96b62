"""How many of the candidates have each value of a field: the question, and which way to the answer is quickest.

Knows what ways there are (svcd.facets.by_document, walked) and what they cost; refuses to know orders and limits.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from svcd.base.bitmaps import DocIds
from svcd.query.reader import Value

# What follows is in values that are walked over, some 7 us each with 36,000 documents.
# To look into a document, and to count what it has:
DOCUMENT_COST = 2
# So few candidates are looked into rather than that a large field is walked.
FEW_CANDIDATES = 250
# So few are looked into before anything is asked of the field.
SURELY_FEW = 20
# To try a value costs so much more for each so many documents of the index, and so much less if its set is kept.
DOCUMENTS_PER_COST = 60_000
KEPT_COST = 0.3


class ValueCount(NamedTuple):
    """A value that so many candidates have; None where its Counting is to be asked for it.

    place: by which a Counting that knows all values at once tells them apart.
    """

    value: Value | None
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an entry
    place: int = -1


class ValueCounts(Protocol):
    """The values of one kind that the candidates have."""

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        """All of them in order, found as they are asked for. most: so many will hardly be exceeded; None for all."""

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        """All of them by count, the highest first; those of equal count together, descending.

        most: so many will hardly be exceeded.
        """

    def value(self, entry: ValueCount) -> Value:
        """The value of an entry."""

    def first(self, entry: ValueCount) -> int:
        """The smallest docid among the candidates that have the value."""

    def is_alone(self, entry: ValueCount, width: int) -> bool:
        """Does no other candidate have a value of the same group?

        Groups hold `width` consecutive values of all that the field has.
        """

    def values_of_field(self) -> int:
        """How many values the field has, in all documents of the index."""

    def extremes(self) -> tuple[Value, Value] | None:
        """The smallest and the largest value."""


def lowest_docid(docids: DocIds) -> int:
    """The smallest docid of a set that is not empty."""
    return (docids ^ (docids - 1)).bit_length() - 1


def cost_of_values(values: Sequence[Value], is_kept: bool, documents: int) -> float:
    """How long it takes to try all values. is_kept: are their sets at hand? documents: of the index."""
    return len(values) * (1 + documents / DOCUMENTS_PER_COST) * (KEPT_COST if is_kept else 1)
