"""The search as the interface means it: each one a list merged from queries, even if from one alone.

Knows how many hits a page needs, how lists of hits are counted and cut (relevance.md 3.15, 10.1); refuses
to know how one query finds its documents, and how they are shown.
"""
from __future__ import annotations

from typing import Callable, Mapping, Sequence

from svcd.engine.hits import shown, shows_matches
from svcd.engine.keyword import Found, find
from svcd.engine.ranking.buckets import Wanted
from svcd.engine.reader import Reader
from svcd.engine.request import Answer, Federation, IndexedQuery, SearchQuery
from svcd.errors import ApiError

__all__ = ["Answer", "Federation", "IndexedQuery", "SearchQuery", "search"]

DEFAULT_CUTOFF_MS = 1500

# Given milliseconds, starts a clock and gives the question whether they are over.
Timer = Callable[[int], Callable[[], bool]]


def search(
    readers: Mapping[str, Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer
) -> Answer:
    """The hits of the wanted page.

    readers: by index uid, one for each index of the queries. Raises the codes of search parameters
    that an index refuses, the message beginning with the index.
    """
    (indexed,) = queries
    reader = readers[indexed.index_uid]
    expired = timer(_cutoff_ms(reader))
    found = _of_index(indexed.index_uid, reader, indexed.query, federation, expired)
    first, end = federation.window()
    hits = shown(reader, indexed.query, found, found.ranking.hits[first:end])
    return Answer(hits, federation.pagination(found.ranking.counted.bit_count()))


def _of_index(
    index_uid: str, reader: Reader, query: SearchQuery, federation: Federation, expired: Callable[[], bool]
) -> Found:
    try:
        return find(reader, query, _wanted(reader, query, federation), expired)
    except ApiError as error:
        raise ApiError(error.code, f"Index `{index_uid}`: {error.message}") from None


def _cutoff_ms(reader: Reader) -> int:
    cutoff = reader.settings.get("searchCutoffMs")
    return DEFAULT_CUTOFF_MS if cutoff is None else cutoff


def _wanted(reader: Reader, query: SearchQuery, federation: Federation) -> Wanted:
    most = reader.settings["pagination"]["maxTotalHits"]
    required = min(federation.window()[1], most)
    threshold = query.ranking_score_threshold
    # The exact total of pages needs the score of every document, but never beyond `maxTotalHits`.
    to_the_end = federation.is_paged and threshold is not None and required < most
    return Wanted(required, threshold, to_the_end, _is_order_alone(reader, query))


def _is_order_alone(reader: Reader, query: SearchQuery) -> bool:
    """Does nothing of the answer show what rules say of a document that is in its place already?

    Highlighting shows which words were derived for that; by attribute later buckets depend on it (3.6.3).
    """
    is_scored = query.show_ranking_score or query.show_ranking_score_details
    is_rejecting = query.ranking_score_threshold is not None
    is_by_attribute = reader.settings.get("proximityPrecision") == "byAttribute"
    return not (is_scored or is_rejecting or is_by_attribute or shows_matches(query))
