"""The search as the interface means it: each one a list merged from queries, even if from one alone.

Knows how many hits a page needs, how lists of hits are counted and cut (relevance.md 3.15, 10.1); refuses
to know how one query finds its documents, and how they are shown.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from svcd.bitsets import from_docids
from svcd.engine import steps
from svcd.engine.distinct import Apart
from svcd.engine.facets.distribution import facets_of
from svcd.engine.hits import shown, shows_matches
from svcd.engine.keyword import Found, find
from svcd.engine.long_texts import LongTexts
from svcd.engine.pages import paged
from svcd.engine.ranking.buckets import Hit, Wanted
from svcd.engine.reader import DocIds, Reader
from svcd.engine.request import Answer, Facets, Federation, IndexedQuery, SearchQuery
from svcd.errors import ApiError
from svcd.jsontext import loads

__all__ = ["Answer", "Federation", "IndexedQuery", "SearchQuery", "search"]

DEFAULT_CUTOFF_MS = 1500
# Of the time until the cut-off; 20 MB of text are written in a third of a second.
_FORMATTING_PERCENT = 75

# Given milliseconds, starts a clock and gives the question whether they are over.
Timer = Callable[[int], Callable[[], bool]]


@steps.within("execute local search")
def search(
    readers: Mapping[str, Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer
) -> Answer:
    """The hits of the wanted page.

    readers: by index uid, one for each index of the queries. Raises the codes of search parameters
    that an index refuses, the message beginning with the index, and invalid_search_facets.
    """
    (indexed,) = queries
    reader, query = readers[indexed.index_uid], indexed.query
    expired, is_late = timer(cutoff_ms(reader)), showing_timer(reader, timer)
    wanted = wanted_of(reader, query, federation, _is_order_alone(reader, query))
    found = found_in(indexed.index_uid, reader, query, wanted, expired)
    hits: Sequence[Hit] = found.ranking.hits
    rejected: Sequence[Hit] = ()
    if query.distinct is not None:
        hits, rejected = _apart(reader, query.distinct, hits)
    first, end = federation.window()
    long_texts = LongTexts()
    page = paged(reader, query, found, hits[first:end], long_texts,
                 lambda found, some: shown(reader, query, found, some, is_late, long_texts))
    counted = found.ranking.counted & ~from_docids([hit.docid for hit in rejected])
    return Answer(page, federation.pagination(counted.bit_count()), _facets(indexed.index_uid, reader, federation, counted))


def found_in(
    index_uid: str, reader: Reader, query: SearchQuery, wanted: Wanted, expired: Callable[[], bool]
) -> Found:
    """What one query finds; the index opens the message of what it refuses."""
    try:
        return find(reader, query, wanted, expired)
    except ApiError as error:
        raise error.inside(f"Index `{index_uid}`") from None


def cutoff_ms(reader: Reader) -> int:
    """After how many milliseconds a search of this index makes do with what it has."""
    cutoff = reader.settings.get("searchCutoffMs")
    return DEFAULT_CUTOFF_MS if cutoff is None else cutoff


def showing_timer(reader: Reader, timer: Timer) -> Callable[[], bool]:
    """Tells when the formatting of hits has to end: what was formatted is still to be written, as long as it may be."""
    return timer(cutoff_ms(reader) * _FORMATTING_PERCENT // 100)


def required_hits(reader: Reader, federation: Federation) -> int:
    """How many hits of an index the wanted page needs, as far as there may be so many."""
    most: int = reader.settings["pagination"]["maxTotalHits"]
    return min(federation.window()[1], most)


def wanted_of(reader: Reader, query: SearchQuery, federation: Federation, order_alone: bool = False) -> Wanted:
    """How much of the ranking of one query the wanted page needs."""
    most, required = reader.settings["pagination"]["maxTotalHits"], required_hits(reader, federation)
    threshold = query.ranking_score_threshold
    # The exact total of pages needs the score of every document, but never beyond `maxTotalHits`.
    to_the_end = federation.is_paged and threshold is not None and required < most
    return Wanted(required, threshold, to_the_end, order_alone, federation.is_paged)


def _facets(index_uid: str, reader: Reader, federation: Federation, counted: DocIds) -> dict[str, Facets]:
    """What the counted documents have under the fields asked for."""
    patterns = federation.facets.get(index_uid)
    return {} if patterns is None else {index_uid: facets_of(reader, patterns, counted)}


def _apart(reader: Reader, field: str, hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """The hits that share no value of a field as the documents have it, and the others (10.1)."""
    texts = reader.documents([hit.docid for hit in hits])
    apart = Apart(field)
    kept: list[Hit] = []
    rejected: list[Hit] = []
    for hit, text in zip(hits, texts):
        (kept if apart.takes(loads(text)) else rejected).append(hit)
    return kept, rejected


def _is_order_alone(reader: Reader, query: SearchQuery) -> bool:
    """Does nothing of the answer show what rules say of a document that is in its place already?

    Highlighting shows which words were derived for that; by attribute later buckets depend on it (3.6.3).
    """
    is_scored = query.show_ranking_score or query.show_ranking_score_details
    is_rejecting = query.ranking_score_threshold is not None
    is_by_attribute = reader.settings.get("proximityPrecision") == "byAttribute"
    return not (is_scored or is_rejecting or is_by_attribute or shows_matches(query))
