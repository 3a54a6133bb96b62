"""Rendering of hits: the requested parts of documents, formatted parts and scores (docs/search.md#members-of-a-hit).

Documents stay JSON texts, and are not parsed unless parts of them are requested.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcd.base import tracing
from svcd.base.json_text import dumps, loads
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit
from svcd.ranking.sort import sorted_from, with_distance
from svcd.schema import attributes
from svcd.search.formatting import FormatOptions, Formatter
from svcd.search.formatting_budget import FormattingBudget
from svcd.search.keyword import KeywordResult
from svcd.search.request import SearchQuery
from svcd.search.stored_strings import LongStrings


def render_hits(
    reader: Reader, query: SearchQuery, found: KeywordResult, hits: Sequence[Hit], expired: Callable[[], bool],
    long_strings: LongStrings, beside: Sequence[str] = ()
) -> Sequence[str]:
    """The JSON texts of hits.

    expired: is the time for formatting over? long_strings: receives the strings of the hits that are replaced by placeholders.
    beside: for each hit, members to insert after those of its document, as text; () for none.
    """
    tracing.begin("format")
    texts: Sequence[str] = [long_strings.outline(text) for text in reader.documents_utf8([hit.docid for hit in hits])]
    members = [beside] if beside else []
    if _is_reshaped(reader, query):
        texts, formatted = _formatted(reader, query, found, texts, expired, long_strings)
        members.append(formatted)
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
    reader: Reader, query: SearchQuery, found: KeywordResult, texts: Sequence[str], expired: Callable[[], bool],
    long_strings: LongStrings
) -> tuple[Sequence[str], Sequence[str]]:
    """(the requested parts of the documents, their `_formatted` and `_matchesPosition` members), as texts."""
    formatter = _formatter(reader, query, found, expired, long_strings)
    documents, members = [], []
    for text in texts:
        hit = formatter.hit(loads(text))
        extra = {"_formatted": hit.formatted, "_matchesPosition": hit.matches_position}
        documents.append(text if formatter.retrieves_all else dumps(hit.document))
        members.append(dumps({name: value for name, value in extra.items() if value is not None})[1:-1])
    return documents, members


def _is_reshaped(reader: Reader, query: SearchQuery) -> bool:
    """Is anything other than the whole stored document requested?"""
    return bool(
        shows_matches(query)
        or not attributes.is_everything(query.attributes_to_retrieve)
        or not attributes.is_everything(reader.settings.displayed_attributes)
    )


def _formatter(
    reader: Reader, query: SearchQuery, found: KeywordResult, expired: Callable[[], bool], long_strings: LongStrings
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
        allowance=FormattingBudget(expired),
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
        displayed = reader.settings.displayed_attributes
        members["_rankingScoreDetails"] = scores.score_details(
            hit.details,
            scores.is_separated(reader.settings.ranking_rules),
            lambda field: not attributes.is_everything(displayed) and field not in displayed,
        )
    return members
