"""Pages of hits: shown at once where they are short, some at a time where they are long.

Knows how little of a long page has to be held until it is shown; refuses to know how hits are found and shown.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from svcd.engine.keyword import Found
from svcd.engine.long_texts import LongTexts
from svcd.engine.ranking.buckets import Hit, Ranking
from svcd.engine.reader import Reader
from svcd.engine.request import SearchQuery

T = TypeVar("T")

# Bytes of documents up to which a page is shown at once, and those that are shown together of a longer one.
AT_ONCE = 1 << 18
TOGETHER = 1 << 15
_MOST_TOGETHER = 256


class LongPage(Sequence[str]):
    """The JSON texts of hits, made each time they are asked for: best in their order, and once.

    expected_bytes: of all of them, as far as can be known. long_texts: the strings for which others stand in, in the
    portions.
    """

    def __init__(self, count: int, size: int, show: Callable[[int, int], Sequence[str]], long_texts: LongTexts) -> None:
        """size: bytes that a document usually has. show: the texts of the hits from one place to before another, and of
        no long text of the portion before anything is wanted any more."""
        self._count = count
        self._show = show
        self.long_texts = long_texts
        self._together = max(1, min(TOGETHER // size, _MOST_TOGETHER))
        self.expected_bytes = count * size

    def portions(self) -> Iterator[Sequence[str]]:
        """All of them, some at a time, with what stands in for long strings until the next are asked for."""
        for first in range(0, self._count, self._together):
            yield self._show(first, min(first + self._together, self._count))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for portion in self.portions():
            yield from map(self.long_texts.whole, portion)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        places = range(self._count)[place]
        if isinstance(places, int):
            return self.long_texts.whole(self._show(places, places + 1)[0])
        return [self[each] for each in places]


def is_long(count: int, size: Callable[[], int]) -> bool:
    """Is a page of so many hits too long to be shown at once? size: gives the bytes that one usually has."""
    return count > 1 and count * size() > AT_ONCE


def made(texts: Sequence[str], long_texts: LongTexts) -> Sequence[str]:
    """A page of texts that are there: a long one where others stand in for long strings."""
    if not long_texts:
        return texts
    return LongPage(len(texts), sum(map(long_texts.size, texts)) // len(texts), lambda first, end: texts[first:end], long_texts)


def paged(reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit], long_texts: LongTexts,
          show: Callable[[Found, Sequence[Hit]], Sequence[str]]) -> Sequence[str]:
    """The JSON texts of the hits of a page. show: makes those of some of them, the long strings being in long_texts."""
    if not is_long(len(hits), reader.average_document_size):
        return made(show(found, hits), long_texts)
    docids, within = array("I", (hit.docid for hit in hits)), without_hits(found)
    details = _details_of(query, hits)

    def shown(first: int, end: int) -> Sequence[str]:
        long_texts.forget()
        return show(within, [Hit(docids[place], details[place]) for place in range(first, end)])

    return LongPage(len(hits), reader.average_document_size(), shown, long_texts)


def without_hits(found: Found) -> Found:
    """What showing needs of it: the hits of a long list take 150 bytes each."""
    return found._replace(ranking=Ranking(0))


class Few(Generic[T]):
    """A list in which few values stand in many places."""

    def __init__(self, values: Sequence[T]) -> None:
        numbers: dict[T, int] = {}
        self._places = array("I", (numbers.setdefault(value, len(numbers)) for value in values))
        self._values = list(numbers)

    def __getitem__(self, place: int) -> T:
        return self._values[self._places[place]]


def _details_of(query: SearchQuery, hits: Sequence[Hit]) -> Few[Any]:
    """What the rules said of each hit, if that is shown."""
    is_shown = query.show_ranking_score or query.show_ranking_score_details
    return Few([hit.details if is_shown else () for hit in hits])
