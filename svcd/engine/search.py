"""The search as the interface means it: each one a list merged from queries, even if from one alone.

Knows how many hits a page needs, how lists of hits are counted, cut and shown (relevance.md 3.15,
10.1); refuses to know how one query finds its documents. Documents stay JSON texts unless parts of
them are asked for.
"""
from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from svcd.engine import attributes
from svcd.engine.formatting import FormatOptions, Formatter
from svcd.engine.keyword import Found, find
from svcd.engine.lexicon import lexicon_of
from svcd.engine.ranking import scores
from svcd.engine.ranking.buckets import Hit, Wanted
from svcd.engine.ranking.chain import is_separated
from svcd.engine.reader import Reader
from svcd.engine.request import Answer, Federation, IndexedQuery, SearchQuery
from svcd.errors import ApiError
from svcd.jsontext import dumps, loads

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
    hits = _shown(reader, indexed.query, found, found.ranking.hits[first:end])
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
    return not (is_scored or is_rejecting or is_by_attribute or _shows_matches(query))


def _shows_matches(query: SearchQuery) -> bool:
    shown = query.attributes_to_highlight or query.attributes_to_crop or query.show_matches_position
    return bool(shown)


# hits


def _shown(reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit]) -> list[str]:
    texts = reader.documents([hit.docid for hit in hits])
    formatted = _formatted(reader, query, found, texts)
    endings = _score_endings(reader, query, hits)
    return [_joined(text, ending) for text, ending in zip(formatted, endings)]


def _joined(text: str, ending: str) -> str:
    """An object with further members behind its own, all of it as text."""
    if not ending:
        return text
    return text[:-1] + ("" if text == "{}" else ",") + ending + "}"


def _formatted(reader: Reader, query: SearchQuery, found: Found, texts: Sequence[str]) -> Sequence[str]:
    if not _is_reshaped(reader, query):
        return texts
    formatter = _formatter(reader, query, found)
    return [_reshaped(formatter, text) for text in texts]


def _reshaped(formatter: Formatter, text: str) -> str:
    hit = formatter.hit(loads(text))
    extra = {"_formatted": hit.formatted, "_matchesPosition": hit.matches_position}
    return dumps({**hit.document, **{name: value for name, value in extra.items() if value is not None}})


def _is_reshaped(reader: Reader, query: SearchQuery) -> bool:
    """Is anything asked for but the whole document as it is stored?"""
    return bool(
        _shows_matches(query)
        or not attributes.is_everything(query.attributes_to_retrieve)
        or not attributes.is_everything(reader.settings["displayedAttributes"])
    )


def _formatter(reader: Reader, query: SearchQuery, found: Found) -> Formatter:
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
        displayed=settings["displayedAttributes"],
        analyzer=lexicon_of(settings).analyzer,
        locales_of=attributes.locales_test(settings.get("localizedAttributes")),
        words=found.matching_words(),
    )


def _score_endings(reader: Reader, query: SearchQuery, hits: Sequence[Hit]) -> list[str]:
    """The members of each hit that tell its score, as text; hits of one bucket share them."""
    if not query.show_ranking_score and not query.show_ranking_score_details:
        return [""] * len(hits)
    known: dict[tuple[scores.Detail, ...], str] = {}
    endings = []
    for hit in hits:
        if hit.details not in known:
            members = _score_members(reader, query, hit)
            known[hit.details] = dumps(members)[1:-1]
        endings.append(known[hit.details])
    return endings


def _score_members(reader: Reader, query: SearchQuery, hit: Hit) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if query.show_ranking_score:
        members["_rankingScore"] = scores.score(hit.details)
    if query.show_ranking_score_details:
        displayed = reader.settings["displayedAttributes"]
        members["_rankingScoreDetails"] = scores.shown(
            hit.details,
            is_separated(reader.settings["rankingRules"]),
            lambda field: not attributes.is_everything(displayed) and field not in displayed,
        )
    return members
