"""Render pages of hits: the requested parts of documents, formatted parts and scores (docs/search.md#members-of-a-hit).

Documents stay JSON texts, and are not parsed unless parts of them are requested. A long page is rendered in portions while the
client reads it (docs/search.md#long-pages).
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from operator import attrgetter, contains
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
from svcd.search.request import FormattingBudget, Reranking, SearchQuery
from svcd.search.shown_vectors import VECTORS_MEMBER, average_bytes, with_or_without_vectors
from svcd.search.stored_strings import LONG_BYTES, LongStrings

# A page up to this size is rendered at once; a longer one in portions. Both in bytes of documents.
MAX_PAGE_BYTES = 1 << 18
PORTION_BYTES = 1 << 15
_MAX_PORTION_HITS = 256
_docid_of = attrgetter("docid")

T = TypeVar("T")


def render_hits(
    reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit], budget: FormattingBudget,
    long_strings: LongStrings, extra_members: Sequence[str] = ()
) -> Sequence[str]:
    """Return the JSON texts of hits.

    budget: for the page that contains the hits. long_strings: receives the strings of the hits that are replaced by
    placeholders. extra_members: for each hit, members to insert after the members of its document, as text; () for none.
    """
    tracing.begin("format")
    docids = list(map(_docid_of, hits))
    texts: Sequence[str] = [document.decode() if len(document) < LONG_BYTES else long_strings.extract(document)
                            for document in reader.documents_utf8(docids)]
    members = [extra_members] if extra_members else []
    retrieved, settings = query.attributes_to_retrieve, reader.settings
    retrieves_all = retrieved is None or WILDCARD in retrieved
    if not (retrieves_all and settings.is_everything_displayed) or shows_matches(query):
        budget.renew()
        texts, formatted = _formatted(reader, query, found, texts, budget, long_strings)
        members.append(formatted)
    if query.retrieve_vectors or any(map(contains, texts, repeat(VECTORS_MEMBER))):
        texts = with_or_without_vectors(reader, query.retrieve_vectors, docids, texts)
    if query.sort and (origin := sorted_from(query.sort)):
        texts = [with_distance(text, origin) for text in texts]
    if query.show_ranking_score or query.show_ranking_score_details:
        members.append(_scores(reader, query, hits))
    if not members:
        return texts
    return ["{" + ",".join(filter(None, (text[1:-1], *extra))) + "}" for text, *extra in zip(texts, *members)]


def shows_matches(query: SearchQuery) -> bool:
    """Return whether the answer depends on the words that matched (highlight, crop, match positions)."""
    return bool(query.attributes_to_highlight or query.attributes_to_crop or query.show_matches_position)



def _formatted(
    reader: Reader, query: SearchQuery, found: Found, texts: Sequence[str], budget: FormattingBudget,
    long_strings: LongStrings
) -> tuple[Sequence[str], Sequence[str]]:
    """Return (the requested parts of the documents, their `_formatted` and `_matchesPosition` members), as texts."""
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
    formatter = Formatter(
        options,
        fields=reader.fields(),
        displayed=settings.displayed_attributes,
        analyzer=settings.analyzer,
        locales_of=settings.locales_of,
        words=found.matching_words(),
        budget=budget,
        long_strings=long_strings,
    )
    documents, members = [], []
    for text in texts:
        hit = formatter.hit(loads(text))
        extra = {"_formatted": hit.formatted, "_matchesPosition": hit.matches_position}
        documents.append(text if formatter.retrieves_all else dumps(hit.document))
        members.append(dumps({name: value for name, value in extra.items() if value is not None})[1:-1])
    return documents, members


def _scores(reader: Reader, query: SearchQuery, hits: Sequence[Hit]) -> list[str]:
    """Return the score members of each hit, as text, computed once for hits with equal details."""
    settings = reader.settings
    known: dict[tuple[scores.Detail, ...], str] = {}
    for hit in hits:
        if hit.details in known:
            continue
        members: dict[str, Any] = {}
        if query.show_ranking_score:
            members["_rankingScore"] = scores.score(hit.details)
        if query.show_ranking_score_details:
            members["_rankingScoreDetails"] = scores.score_details(
                hit.details, is_attribute_split(settings.ranking_rules),
                lambda field: not settings.is_everything_displayed and field not in settings.displayed_attributes)
        known[hit.details] = dumps(members)[1:-1]
    return [known[hit.details] for hit in hits]


# Reranking (docs/personalization.md)


def reranked(
    hits: Sequence[T], window: tuple[int, int], reranking: Reranking, documents: Callable[[Sequence[T]], Sequence[str]]
) -> list[T]:
    """Return the hits up to the end of the page, with the hits of the page in the order for the user.

    window: (first, end) of the page. documents: makes the JSON texts of hits, as plain_documents().
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
    """Return the JSON texts of hits with extra_members, but without formatted parts and scores."""
    plain = replace(query, attributes_to_highlight=None, attributes_to_crop=None, show_matches_position=False,
                    show_ranking_score=False, show_ranking_score_details=False)
    long_strings = LongStrings()
    texts = render_hits(reader, plain, found, hits, FormattingBudget(), long_strings, extra_members)
    return list(map(long_strings.restored, texts))


def federation_member(index_uid: str, position: int, weighted_score: float) -> str:
    """Return the member `_federation`, as text: index, query and weighted score of a hit."""
    member = {"indexUid": index_uid, "queriesPosition": position, "weightedRankingScore": weighted_score}
    return dumps({"_federation": member})[1:-1]


# Long pages


class LongPage(Sequence[str]):
    """The JSON texts of hits, best first, rendered on access and not kept. Iterate over it once, in order.

    expected_bytes: an estimate of their total size. long_strings: the strings behind the placeholders in the portions.
    """

    def __init__(self, count: int, size: int, render: Callable[[int, int], Sequence[str]], long_strings: LongStrings) -> None:
        """size: average bytes of a document. render: (first, end) -> the JSON texts of these hits; it may drop the long
        strings of the previous portion."""
        self._count = count
        self._render = render
        self.long_strings = long_strings
        self._portion_hits = max(1, min(PORTION_BYTES // size, _MAX_PORTION_HITS))
        self.expected_bytes = count * size

    def portions(self) -> Iterator[Sequence[str]]:
        """Yield all texts, in portions of about PORTION_BYTES; their placeholders are valid until the next portion is taken."""
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


def average_hit_size(reader: Reader, query: SearchQuery) -> int:
    """Return about how many bytes a hit has."""
    return reader.average_document_size() + (average_bytes(reader) if query.retrieve_vectors else 0)


def page_of_texts(texts: Sequence[str], long_strings: LongStrings) -> Sequence[str]:
    """Return a page of rendered texts, as a LongPage if they contain placeholders for long strings."""
    if not long_strings:
        return texts
    size = sum(map(long_strings.size, texts)) // len(texts)
    return LongPage(len(texts), size, lambda first, end: texts[first:end], long_strings)


def paged(reader: Reader, query: SearchQuery, result: Found, hits: Sequence[Hit], budget: FormattingBudget) -> Sequence[str]:
    """Return the JSON texts of the hits of a page, as a LongPage if they are many or long. budget: for the page."""
    long_strings = LongStrings()
    size = average_hit_size(reader, query) if len(hits) > 1 else 0
    if len(hits) * size <= MAX_PAGE_BYTES:
        texts = render_hits(reader, query, result, hits, budget, long_strings)
        return page_of_texts(texts, long_strings) if long_strings else texts
    needs_details = query.show_ranking_score or query.show_ranking_score_details
    docids = array("I", (hit.docid for hit in hits))
    details = RepeatedValues([hit.details if needs_details else () for hit in hits])
    without_ranking = without_ranking_hits(result)

    def render_between(first: int, end: int) -> Sequence[str]:
        long_strings.clear()
        some = [Hit(docids[place], details[place]) for place in range(first, end)]
        return render_hits(reader, query, without_ranking, some, budget, long_strings)

    return LongPage(len(hits), size, render_between, long_strings)


def without_ranking_hits(result: Found) -> Found:
    """Return the result without its list of hits (150 bytes each), which rendering does not need."""
    return result._replace(ranking=Ranking(EMPTY))


class RepeatedValues(Generic[T]):
    """A compact list for few distinct values that repeat often: 4 bytes per element."""

    def __init__(self, values: Sequence[T]) -> None:
        numbers: dict[T, int] = {}
        self._numbers = array("I", (numbers.setdefault(value, len(numbers)) for value in values))
        self._values = list(numbers)

    def __getitem__(self, position: int) -> T:
        return self._values[self._numbers[position]]

