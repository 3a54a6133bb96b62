"""How hits are shown: their documents as asked for, formatted parts and scores behind them.

Knows which members a hit gets, in which order (relevance.md 10.1); refuses to know how it was found and
which hits are on the page. Documents stay JSON texts unless parts of them are asked for.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcd.engine import attributes, steps
from svcd.engine.allowance import Allowance
from svcd.engine.formatting import FormatOptions, Formatter
from svcd.engine.geo.order import sorted_from, with_distance
from svcd.engine.keyword import Found
from svcd.engine.lexicon import lexicon_of
from svcd.engine.long_texts import LongTexts
from svcd.engine.ranking import scores
from svcd.engine.ranking.buckets import Hit
from svcd.engine.ranking.chain import is_separated
from svcd.engine.reader import Reader
from svcd.engine.request import SearchQuery
from svcd.jsontext import dumps, loads


def shown(
    reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit], expired: Callable[[], bool],
    long_texts: LongTexts, beside: Sequence[str] = ()
) -> Sequence[str]:
    """The JSON texts of some of the documents found.

    expired: tells whether the time of the search is over; long texts are formatted until then. long_texts: is given the
    strings for which others stand in.
    beside: for each hit the members that follow those of its document, as text; () for none at all.
    """
    steps.begin("format")
    texts: Sequence[str] = [long_texts.outline(text) for text in reader.documents_utf8([hit.docid for hit in hits])]
    members = [beside] if beside else []
    if _is_reshaped(reader, query):
        texts, formatted = _formatted(reader, query, found, texts, expired, long_texts)
        members.append(formatted)
    if origin := sorted_from(query.sort):
        texts = [with_distance(text, origin) for text in texts]
    if query.show_ranking_score or query.show_ranking_score_details:
        members.append(_scores(reader, query, hits))
    return [_joined(*parts) for parts in zip(texts, *members)] if members else texts


def shows_matches(query: SearchQuery) -> bool:
    """Is anything asked for that depends on which words were found?"""
    return bool(query.attributes_to_highlight or query.attributes_to_crop or query.show_matches_position)


def _joined(text: str, *members: str) -> str:
    """An object with further members behind its own, all of it as text."""
    return "{" + ",".join(filter(None, (text[1:-1], *members))) + "}"


def _formatted(
    reader: Reader, query: SearchQuery, found: Found, texts: Sequence[str], expired: Callable[[], bool],
    long_texts: LongTexts
) -> tuple[Sequence[str], Sequence[str]]:
    """The documents as asked for, and for each the members that show it formatted, as text."""
    formatter = _formatter(reader, query, found, expired, long_texts)
    documents, members = [], []
    for text in texts:
        hit = formatter.hit(loads(text))
        extra = {"_formatted": hit.formatted, "_matchesPosition": hit.matches_position}
        documents.append(text if formatter.retrieves_all else dumps(hit.document))
        members.append(dumps({name: value for name, value in extra.items() if value is not None})[1:-1])
    return documents, members


def _is_reshaped(reader: Reader, query: SearchQuery) -> bool:
    """Is anything asked for but the whole document as it is stored?"""
    return bool(
        shows_matches(query)
        or not attributes.is_everything(query.attributes_to_retrieve)
        or not attributes.is_everything(reader.settings["displayedAttributes"])
    )


def _formatter(
    reader: Reader, query: SearchQuery, found: Found, expired: Callable[[], bool], long_texts: LongTexts
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
        displayed=settings["displayedAttributes"],
        analyzer=lexicon_of(settings).analyzer,
        locales_of=attributes.locales_test(settings.get("localizedAttributes")),
        words=found.matching_words(),
        allowance=Allowance(expired),
        long_texts=long_texts,
    )


def _scores(reader: Reader, query: SearchQuery, hits: Sequence[Hit]) -> list[str]:
    """The members of each hit that tell its score, as text; hits of one bucket share them."""
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
        displayed = reader.settings["displayedAttributes"]
        members["_rankingScoreDetails"] = scores.shown(
            hit.details,
            is_separated(reader.settings["rankingRules"]),
            lambda field: not attributes.is_everything(displayed) and field not in displayed,
        )
    return members
