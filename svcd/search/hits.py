"""Renders pages of hits: the requested parts of documents, formatted parts and scores (docs/search.md#members-of-a-hit).

Documents stay JSON texts, and are not parsed unless parts of them are requested. A long page is rendered in portions while the
client reads it (docs/search.md#long-pages).
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from svcd.base import tracing
from svcd.base.docids import EMPTY
from svcd.base.json_text import dumps, loads
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.ranking.sort import sorted_from, with_distance
from svcd.schema.attributes import WILDCARD
from svcd.schema.ranking_rules import is_attribute_split
from svcd.search.formatting import FormatOptions, Formatter
from svcd.search.keyword import Found
from svcd.search.matches import FormattingBudget
from svcd.search.request import Reranking, SearchQuery
from svcd.search.shown_vectors import VECTORS_MEMBER, average_bytes, with_or_without_vectors
from svcd.search.stored_strings import LONG_BYTES, LongStrings

# A page up to this size is rendered at once; a longer one in portions. Both in bytes of documents.
MAX_PAGE_BYTES = 1 << 18
PORTION_BYTES = 1 << 15
_MAX_PORTION_HITS = 256

T = TypeVar("T")


def render_hits(
    reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit], budget: FormattingBudget,
    long_strings: LongStrings, extra_members: Sequence[str] = ()
) -> Sequence[str]:
    """The JSON texts of hits.

    budget: of the page that the hits are on, or are a portion of. long_strings: receives the strings of the hits that are
    replaced by placeholders. extra_members: for each hit, members to insert after those of its document, as text; () for none.
    """
    tracing.begin("format")
    texts: Sequence[str] = [document.decode() if len(document) < LONG_BYTES else long_strings.extract(document)
                            for document in reader.documents_utf8([hit.docid for hit in hits])]
    members = [extra_members] if extra_members else []
    if _is_reshaped(reader, query):
        budget.renew()
        texts, formatted = _formatted(reader, query, found, texts, budget, long_strings)
        members.append(formatted)
    if query.retrieve_vectors or [text for text in texts if VECTORS_MEMBER in text]:
        texts = with_or_without_vectors(reader, query.retrieve_vectors, [hit.docid for hit in hits], texts)
    if query.sort and (origin := sorted_from(query.sort)):
        texts = [with_distance(text, origin) for text in texts]
    if query.show_ranking_score or query.show_ranking_score_details:
        members.append(_scores(reader, query, hits))
    return [_joined(*parts) for parts in zip(texts, *members)] if members else texts


def shows_matches(query: SearchQuery) -> bool:
    """Does the answer depend on which words matched (highlight, crop, match positions)?"""
    return bool(query.attributes_to_highlight or query.attributes_to_crop or query.show_matches_position)


def _joined(text: str, *members: str) -> str:
    """The text of an object with further members appended."""
    return "{" + ",".join(filter(None, (text[1:-1], *members))) + "}"


def _formatted(
    reader: Reader, query: SearchQuery, found: Found, texts: Sequence[str], budget: FormattingBudget,
    long_strings: LongStrings
) -> tuple[Sequence[str], Sequence[str]]:
    """(the requested parts of the documents, their `_formatted` and `_matchesPosition` members), as texts."""
    formatter = _formatter(reader, query, found, budget, long_strings)
    documents, members = [], []
    for text in texts:
        hit = formatter.hit(loads(text))
        extra = {"_formatted": hit.formatted, "_matchesPosition": hit.matches_position}
        documents.append(text if formatter.retrieves_all else dumps(hit.document))
        members.append(dumps({name: value for name, value in extra.items() if value is not None})[1:-1])
    return documents, members


def _is_reshaped(reader: Reader, query: SearchQuery) -> bool:
    """Is anything other than the whole stored document requested?"""
    retrieved = query.attributes_to_retrieve
    retrieves_all = retrieved is None or WILDCARD in retrieved
    return not (retrieves_all and reader.settings.is_everything_displayed) or shows_matches(query)


def _formatter(
    reader: Reader, query: SearchQuery, found: Found, budget: FormattingBudget, long_strings: LongStrings
) -> Formatter:
    options = FormatOptions(
        attributes_to_retrieve=query.attributes_to_retrieve,
        attributes_to_highlight=query.attributes_to_highlight,
        attributes_to_crop=query.attributes_to_crop,
        crop_length=query.crop_length,
        crop_marker=query.crop_marker,
        highlight_pre_tag=query.highlight_pre_tag,
        highlight_post_tag=query.highlight_post_tag,
        show_matches_position=query.show_matches_position,
        locales=query.locales,
    )
    settings = reader.settings
    return Formatter(
        options,
        fields=reader.fields(),
        displayed=settings.displayed_attributes,
        analyzer=settings.analyzer,
        locales_of=settings.locales_of,
        words=found.matching_words(),
        budget=budget,
        long_strings=long_strings,
    )


def _scores(reader: Reader, query: SearchQuery, hits: Sequence[Hit]) -> list[str]:
    """The score members of each hit, as text; computed once for hits with equal details."""
    known: dict[tuple[scores.Detail, ...], str] = {}
    for hit in hits:
        if hit.details not in known:
            known[hit.details] = dumps(_score_members(reader, query, hit))[1:-1]
    return [known[hit.details] for hit in hits]


def _score_members(reader: Reader, query: SearchQuery, hit: Hit) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if query.show_ranking_score:
        members["_rankingScore"] = scores.score(hit.details)
    if query.show_ranking_score_details:
        settings = reader.settings
        members["_rankingScoreDetails"] = scores.score_details(
            hit.details,
            is_attribute_split(settings.ranking_rules),
            lambda field: not settings.is_everything_displayed and field not in settings.displayed_attributes,
        )
    return members


# Reranking (docs/personalization.md)


def reranked(
    hits: Sequence[T], window: tuple[int, int], reranking: Reranking, documents: Callable[[Sequence[T]], Sequence[str]]
) -> list[T]:
    """The hits to the end of the page, those of the page in the order for its user. window: of the page, (first, end).

    documents: makes the JSON texts of hits, as plain_documents().
    """
    first, end = window
    page = hits[first:end]
    with tracing.span("merge results"), tracing.span("personalization"):
        with tracing.recording(None):
            texts = documents(page)
        return [*hits[:first], *(page[position] for position in reranking.order(texts))]


def plain_documents(
    reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit], extra_members: Sequence[str] = ()
) -> list[str]:
    """The JSON texts of hits without what a search adds to their documents (formatted parts, scores), but with extra_members."""
    plain = replace(query, attributes_to_highlight=None, attributes_to_crop=None, show_matches_position=False,
                    show_ranking_score=False, show_ranking_score_details=False)
    long_strings = LongStrings()
    texts = render_hits(reader, plain, found, hits, FormattingBudget(), long_strings, extra_members)
    return list(map(long_strings.restored, texts))


def federation_member(index_uid: str, position: int, weighted_score: float) -> str:
    """The member `_federation`, as text: index, query and weighted score of a hit."""
    member = {"indexUid": index_uid, "queriesPosition": position, "weightedRankingScore": weighted_score}
    return dumps({"_federation": member})[1:-1]


# Long pages


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
            yield from map(self.long_strings.restored, portion)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...

    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        positions = range(self._count)[position]
        if isinstance(positions, int):
            return self.long_strings.restored(self._render(positions, positions + 1)[0])
        return [self[each] for each in positions]


def is_long(count: int, size: Callable[[], int]) -> bool:
    """Is a page of `count` hits too long to be rendered at once? size: returns the average bytes of a document."""
    return count > 1 and count * size() > MAX_PAGE_BYTES


def average_hit_size(reader: Reader, query: SearchQuery) -> int:
    """About how many bytes a hit has."""
    return reader.average_document_size() + (average_bytes(reader) if query.retrieve_vectors else 0)


def page_of_texts(texts: Sequence[str], long_strings: LongStrings) -> Sequence[str]:
    """A page of rendered texts: a LongPage if placeholders stand for long strings in them."""
    if not long_strings:
        return texts
    size = sum(map(long_strings.size, texts)) // len(texts)
    return LongPage(len(texts), size, lambda first, end: texts[first:end], long_strings)


def paged(reader: Reader, query: SearchQuery, result: Found, hits: Sequence[Hit], long_strings: LongStrings,
          render: Callable[[Found, Sequence[Hit]], Sequence[str]]) -> Sequence[str]:
    """The JSON texts of the hits of a page, a LongPage if they are many or long.

    render: renders some of them, and puts their long strings into long_strings.
    """
    if not is_long(len(hits), lambda: average_hit_size(reader, query)):
        return page_of_texts(render(result, hits), long_strings)
    docids, without_ranking = array("I", (hit.docid for hit in hits)), without_ranking_hits(result)
    details = _details_of(query, hits)

    def render_between(first: int, end: int) -> Sequence[str]:
        long_strings.clear()
        return render(without_ranking, [Hit(docids[place], details[place]) for place in range(first, end)])

    return LongPage(len(hits), average_hit_size(reader, query), render_between, long_strings)


def without_ranking_hits(result: Found) -> Found:
    """The result without its list of hits (150 bytes each), which rendering does not need."""
    return result._replace(ranking=Ranking(EMPTY))


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
