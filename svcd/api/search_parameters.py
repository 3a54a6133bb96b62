"""The parameters of a search: their declarations with checks and error codes, and the query that a body or a query string asks
for.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.admission import Timer
from svcd.api.filters import allowed_filter, filter_of_query_string, read_joined, resolve_joins, with_bearer_filter
from svcd.base.errors import ApiError
from svcd.ranking.sort import SortError, parse_rule, split_rules
from svcd.search.request import Hybrid, IndexedQuery, Reranking, SearchQuery
from svcd.validation import (
    Field, Param, any_object, anything, array_of, boolean, bounds, features, nullable, number, object_of, one_of, parsed,
    positive_integer, string, text_of,
)
from svcd.validation import query_strings as query
from svcd.validation.names import LOCALES, locale, parse_locale

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.index.reader import IndexReader as Reader

_STRATEGIES = ("last", "all", "frequency")


def unit_interval(name: str) -> Callable[[float], float]:
    """A function that checks that a number is from 0 to 1."""

    def check(value: float) -> float:
        if 0.0 <= value <= 1.0:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a float between `0.0` and `1.0`.")

    return check


def unit_parser(name: str) -> Callable[[str], float]:
    """A function that reads such a number from a query string."""
    check = unit_interval(name)
    return lambda text: check(query.number(text))


_NAMES = nullable(array_of(string, bound=bounds.NAMES))
_THRESHOLD = parsed(number, unit_interval("rankingScoreThreshold"))
_RATIO = parsed(number, unit_interval("semanticRatio"))
_HYBRID = object_of({
    "semanticRatio": Field(_RATIO, "invalid_search_semantic_ratio", default=0.5),
    "embedder": Field(string, "invalid_search_embedder", required=True),
})
PERSONALIZE = object_of({
    "userContext": Field(text_of(bounds.TEXT), "invalid_search_personalize_user_context", required=True),
})

FIELDS: Mapping[str, Field] = {  # in the order in which messages list them
    "q": Field(nullable(text_of(bounds.TEXT)), "invalid_search_q", about="The text to search; without it, all documents."),
    "offset": Field(positive_integer, "invalid_search_offset", default=0),
    "limit": Field(positive_integer, "invalid_search_limit", default=20),
    "page": Field(nullable(positive_integer), "invalid_search_page", about="Page number, from 1."),
    "hitsPerPage": Field(nullable(positive_integer), "invalid_search_hits_per_page"),
    "attributesToRetrieve": Field(_NAMES, "invalid_search_attributes_to_retrieve"),
    "attributesToCrop": Field(_NAMES, "invalid_search_attributes_to_crop"),
    "cropLength": Field(positive_integer, "invalid_search_crop_length", default=10),
    "cropMarker": Field(string, "invalid_search_crop_marker", default="…"),
    "attributesToHighlight": Field(_NAMES, "invalid_search_attributes_to_highlight"),
    "highlightPreTag": Field(string, "invalid_search_highlight_pre_tag", default="<em>"),
    "highlightPostTag": Field(string, "invalid_search_highlight_post_tag", default="</em>"),
    "showMatchesPosition": Field(boolean, "invalid_search_show_matches_position", default=False),
    "filter": Field(anything, "invalid_search_filter"),
    "sort": Field(nullable(array_of(string, bound=bounds.SORT)), "invalid_search_sort"),
    "distinct": Field(nullable(string), "invalid_search_distinct"),
    "facets": Field(_NAMES, "invalid_search_facets"),
    "matchingStrategy": Field(one_of(*_STRATEGIES), "invalid_search_matching_strategy", default="last"),
    "attributesToSearchOn": Field(_NAMES, "invalid_search_attributes_to_search_on"),
    "rankingScoreThreshold": Field(nullable(_THRESHOLD), "invalid_search_ranking_score_threshold"),
    "locales": Field(nullable(array_of(locale, bound=bounds.NAMES)), "invalid_search_locales"),
    "hybrid": Field(nullable(_HYBRID), "invalid_search_hybrid_query"),
    "vector": Field(nullable(array_of(number, bound=bounds.VECTOR)), "invalid_search_vector"),
    "retrieveVectors": Field(boolean, "invalid_search_retrieve_vectors", default=False),
    "media": Field(nullable(any_object), "invalid_search_media"),
    "personalize": Field(nullable(PERSONALIZE), "invalid_search_personalize"),
    "useNetwork": Field(nullable(boolean), "invalid_search_use_network"),
    "showRankingScore": Field(boolean, "invalid_search_show_ranking_score", default=False),
    "showRankingScoreDetails": Field(boolean, "invalid_search_show_ranking_score_details", default=False),
    "showPerformanceDetails": Field(boolean, "invalid_search_show_performance_details", default=False),
}


def _flag(code: str) -> Param:
    return Param(query.boolean, code, default=False)


def _texts(code: str) -> Param:
    return Param.list_of(query.text, code, bound=bounds.NAMES)


PARAMS: Mapping[str, Param] = {  # in the order in which messages list them
    "q": Param(query.text, "invalid_search_q"),
    "offset": Param(query.positive_integer, "invalid_search_offset", default=0),
    "limit": Param(query.positive_integer, "invalid_search_limit", default=20),
    "page": Param(query.positive_integer, "invalid_search_page"),
    "hitsPerPage": Param(query.positive_integer, "invalid_search_hits_per_page"),
    "attributesToRetrieve": _texts("invalid_search_attributes_to_retrieve"),
    "attributesToCrop": _texts("invalid_search_attributes_to_crop"),
    "cropLength": Param(query.positive_integer, "invalid_search_crop_length", default=10),
    "cropMarker": Param(query.text, "invalid_search_crop_marker", default="…"),
    "attributesToHighlight": _texts("invalid_search_attributes_to_highlight"),
    "highlightPreTag": Param(query.text, "invalid_search_highlight_pre_tag", default="<em>"),
    "highlightPostTag": Param(query.text, "invalid_search_highlight_post_tag", default="</em>"),
    "showMatchesPosition": _flag("invalid_search_show_matches_position"),
    "filter": Param(query.text, "invalid_search_filter"),
    "sort": Param(split_rules, "invalid_search_sort"),
    "distinct": Param(query.text, "invalid_search_distinct"),
    "facets": _texts("invalid_search_facets"),
    "matchingStrategy": Param(query.choice(*_STRATEGIES), "invalid_search_matching_strategy", default="last",
                              schema={"type": "string", "enum": list(_STRATEGIES)}),
    "attributesToSearchOn": _texts("invalid_search_attributes_to_search_on"),
    "rankingScoreThreshold": Param(unit_parser("rankingScoreThreshold"), "invalid_search_ranking_score_threshold",
                                   schema={"type": "number"}),
    "locales": Param.list_of(parse_locale, "invalid_search_locales", bound=bounds.NAMES,
                             schema={"type": "string", "enum": list(LOCALES)}),
    "hybridEmbedder": Param(query.text, "invalid_search_embedder"),
    "hybridSemanticRatio": Param(unit_parser("semanticRatio"), "invalid_search_semantic_ratio",
                                 schema={"type": "number"}),
    "vector": Param.list_of(query.number, "invalid_search_vector", bound=bounds.VECTOR),
    "retrieveVectors": _flag("invalid_search_retrieve_vectors"),
    "personalizeUserContext": Param(query.text, "invalid_search_personalize_user_context"),
    "useNetwork": Param(query.boolean, "invalid_search_use_network"),
    "showRankingScore": _flag("invalid_search_show_ranking_score"),
    "showRankingScoreDetails": _flag("invalid_search_show_ranking_score_details"),
    "showPerformanceDetails": _flag("invalid_search_show_performance_details"),
}

_GATED = {  # parameter: (feature that it needs, the words that open the refusal)
    "media": ("multimodal", "passing `media` in a search query"),
    "useNetwork": ("network", "passing `useNetwork` in a search query"),
}


def from_query_string(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a GET request under the names and in the forms of a body.

    Raises invalid_search_hybrid_query and missing_search_hybrid for halves of a hybrid search.
    """
    body = dict(values)
    embedder, ratio = body.pop("hybridEmbedder"), body.pop("hybridSemanticRatio")
    context = body.pop("personalizeUserContext")
    if embedder is None and ratio is not None:
        message = "`hybridEmbedder` is mandatory when `hybridSemanticRatio` is present"
        raise ApiError("invalid_search_hybrid_query", message)
    if embedder is None and body["vector"] is not None:
        raise ApiError("missing_search_hybrid", "`hybridEmbedder` is mandatory when `vector` is present")
    body["hybrid"] = None if embedder is None else {"embedder": embedder, "semanticRatio": 0.5 if ratio is None else ratio}
    body["personalize"] = None if context is None else {"userContext": context}
    body["filter"] = filter_of_query_string(body["filter"], "invalid_search_filter")
    return body


def check_sort(body: Mapping[str, Any]) -> None:
    """Raise invalid_search_sort for a malformed expression. The message names no index, yet a missing index comes first."""
    try:
        for rule in body.get("sort") or ():
            parse_rule(rule)
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None


def check_available(body: Mapping[str, Any], flags: Callable[[], Mapping[str, bool | None]]) -> None:
    """Reject parameters that need a feature that is off.

    flags: returns the features; called only if one is needed, because this runs in every search.
    Raises feature_not_enabled, or the code of the first such parameter.
    """
    for name, gate in _GATED.items():
        if body.get(name) is not None:  # even `false` needs the feature
            features.require(flags(), *gate)


# From parameters to a query

_QUERY_FIELDS = {  # parameter: field of SearchQuery
    "q": "q",
    "sort": "sort",
    "distinct": "distinct",
    "attributesToRetrieve": "attributes_to_retrieve",
    "attributesToCrop": "attributes_to_crop",
    "cropLength": "crop_length",
    "cropMarker": "crop_marker",
    "attributesToHighlight": "attributes_to_highlight",
    "highlightPreTag": "highlight_pre_tag",
    "highlightPostTag": "highlight_post_tag",
    "showMatchesPosition": "show_matches_position",
    "matchingStrategy": "matching_strategy",
    "attributesToSearchOn": "attributes_to_search_on",
    "rankingScoreThreshold": "ranking_score_threshold",
    "locales": "locales",
    "showRankingScore": "show_ranking_score",
    "showRankingScoreDetails": "show_ranking_score_details",
    "vector": "vector",
    "media": "media",
    "retrieveVectors": "retrieve_vectors",
}
_PAGE_FIELDS = {"offset": "offset", "limit": "limit", "page": "page", "hitsPerPage": "hits_per_page"}


def _renamed(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The given parameters under the names of the engine; for the others the engine has defaults."""
    return {field: body[name] for name, field in names.items() if body.get(name) is not None}


class BearerQuery(NamedTuple):
    """A query with the filter of its bearer. cache_key: identifies its answer for one state of the index."""

    indexed: IndexedQuery
    cache_key: str


def query_of(
    ctx: Context, index_uid: str, body: Mapping[str, Any], weight: float = 1.0, position: int | None = None,
    has_pins: bool = True
) -> BearerQuery:
    """The query of a body. has_pins: whether search rules apply to it. Raises invalid_search_filter, invalid_api_key.

    Only here is the filter of a tenant token added to the filter of a search (docs/http.md#tenant-tokens).
    """
    bearer_filter = ctx.permission.search_filter(index_uid)
    value = with_bearer_filter(body.get("filter"), bearer_filter, "invalid_search_filter")
    condition = allowed_filter(value, "invalid_search_filter", ctx.services.data_folder.features)
    given = body.get("hybrid")
    hybrid = None if given is None else Hybrid(given["embedder"], given["semanticRatio"])
    query = SearchQuery(**_renamed(body, _QUERY_FIELDS), filter=condition, hybrid=hybrid)
    # Bearers with other filters get other hits. repr() tells them apart, and is faster than JSON.
    cache_key = repr((body, bearer_filter))
    if has_pins and ctx.services.data_folder.is_enabled("dynamicSearchRules"):
        pinning = ctx.services.active_rules.of_query(index_uid)
        if pinning is not None:
            query, cache_key = replace(query, rules=pinning.rules), cache_key + pinning.cache_key
    return BearerQuery(IndexedQuery(index_uid, query, weight, position), cache_key)


def with_joins_resolved(ctx: Context, indexed: IndexedQuery, reader: Reader) -> IndexedQuery:
    """The query with every `_foreign` condition of its filter replaced by the matching values of this index."""
    condition = indexed.query.filter
    found = resolve_joins(condition, indexed.index_uid, reader, lambda other: read_joined(ctx, other))
    return indexed if found is condition else replace(indexed, query=replace(indexed.query, filter=found))


def page_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The members of Federation that say which hits are wanted."""
    return _renamed(body, _PAGE_FIELDS)


def personalized(ctx: Context, personalize: Mapping[str, str], texts: Iterable[str | None], timer: Timer,
                 readers: Mapping[str, Reader]) -> Reranking:
    """Return what orders the hits for the user whom `personalize` describes.

    texts: the `q` of all queries. readers: of the searched indexes, filled before the hits are ordered.
    """
    # Imported late: no other search needs them.
    from svcd.api.personalization import prompt_of
    from svcd.search.search import cutoff_ms

    is_legacy = bool(ctx.services.data_folder.features().get("legacySearch"))
    prompt = prompt_of(personalize["userContext"], [text for text in texts if text is not None], is_legacy)
    personalization = ctx.services.personalization

    def order(documents: Sequence[str]) -> Sequence[int]:
        if personalization is None:  # an error also without hits, but only after the search has run, as clients expect
            raise features.not_enabled(features.PERSONALIZATION, "reranking search results")
        most_ms = max(map(cutoff_ms, readers.values()), default=0)
        return personalization.order(prompt, documents, timer, most_ms) if documents else ()

    return Reranking(order, shows_source=not is_legacy)
