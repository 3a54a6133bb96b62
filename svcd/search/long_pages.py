"""Long pages of hits, rendered in portions while the client reads them (docs/search.md#long-pages)."""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.search.keyword import KeywordResult
from svcd.search.request import SearchQuery
from svcd.search.stored_strings import LongStrings

T = TypeVar("T")

# A page up to this size is rendered at once; a longer one in portions. Both in bytes of documents.
MAX_PAGE_BYTES = 1 << 18
PORTION_BYTES = 1 << 15
_MAX_PORTION_HITS = 256


class LongPage(Sequence[str]):
    """The JSON texts of hits, best first, rendered on access and not kept. Iterate over it once, in order.

    expected_bytes: an estimate of their total size. long_strings: the strings that placeholders stand for, in the portions.
    """

    def __init__(self, count: int, size: int, render: Callable[[int, int], Sequence[str]], long_strings: LongStrings) -> None:
        """size: average bytes of a document. render: (first, end) -> the JSON texts of these hits; it may drop the long
        strings of the portion before."""
        self._count = count
        self._render = render
        self.long_strings = long_strings
        self._portion_hits = max(1, min(PORTION_BYTES // size, _MAX_PORTION_HITS))
        self.expected_bytes = count * size

    def portions(self) -> Iterator[Sequence[str]]:
        """All texts, in portions of about PORTION_BYTES; their placeholders are valid until the next portion is taken."""
        for first in range(0, self._count, self._portion_hits):
            yield self._render(first, min(first + self._portion_hits, self._count))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for portion in self.portions():
            yield from map(self.long_strings.whole, portion)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...

    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        positions = range(self._count)[position]
        if isinstance(positions, int):
            return self.long_strings.whole(self._render(positions, positions + 1)[0])
        return [self[each] for each in positions]


def is_long(count: int, size: Callable[[], int]) -> bool:
    """Is a page of `count` hits too long to be rendered at once? size: returns the average bytes of a document."""
    return count > 1 and count * size() > MAX_PAGE_BYTES


def page_of_texts(texts: Sequence[str], long_strings: LongStrings) -> Sequence[str]:
    """A page of rendered texts: a LongPage if placeholders stand for long strings in them."""
    if not long_strings:
        return texts
    size = sum(map(long_strings.size, texts)) // len(texts)
    return LongPage(len(texts), size, lambda first, end: texts[first:end], long_strings)


def paged(reader: Reader, query: SearchQuery, result: KeywordResult, hits: Sequence[Hit], long_strings: LongStrings,
          render: Callable[[KeywordResult, Sequence[Hit]], Sequence[str]]) -> Sequence[str]:
    """The JSON texts of the hits of a page, a LongPage if they are many or long.

    render: renders some of them, and puts their long strings into long_strings.
    """
    if not is_long(len(hits), reader.average_document_size):
        return page_of_texts(render(result, hits), long_strings)
    docids, without_ranking = array("I", (hit.docid for hit in hits)), without_ranking_hits(result)
    details = _details_of(query, hits)

    def render_between(first: int, end: int) -> Sequence[str]:
        long_strings.forget()
        return render(without_ranking, [Hit(docids[place], details[place]) for place in range(first, end)])

    return LongPage(len(hits), reader.average_document_size(), render_between, long_strings)


def without_ranking_hits(result: KeywordResult) -> KeywordResult:
    """The result without its list of hits (150 bytes each), which rendering does not need."""
    return result._replace(ranking=Ranking(0))


class RepeatedValues(Generic[T]):
    """A compact list for few distinct values that repeat often: 4 bytes per element."""

    def __init__(self, values: Sequence[T]) -> None:
        numbers: dict[T, int] = {}
        self._numbers = array("I", (numbers.setdefault(value, len(numbers)) for value in values))
        self._values = list(numbers)

    def __getitem__(self, position: int) -> T:
        return self._values[self._numbers[position]]


def _details_of(query: SearchQuery, hits: Sequence[Hit]) -> RepeatedValues[Any]:
    """The score details of each hit, () if they are not shown."""
    is_needed = query.show_ranking_score or query.show_ranking_score_details
    return RepeatedValues([hit.details if is_needed else () for hit in hits])
