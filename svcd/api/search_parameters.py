"""The parameters of a search: one row each, with checks and error codes, and the query that a body or a query string asks for."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.admission import Timer
from svcd.api.filters import allowed_filter, filter_of_query_string, resolve_joins, with_bearer_filter
from svcd.api.search_services import prompt_of
from svcd.base.errors import ApiError
from svcd.ranking.sort import SortError, parse_rule, split_rules
from svcd.schema.documents import checked_identifier
from svcd.schema.settings import FUSION_FIELDS, MATCHING_STRATEGIES, OWN_STRATEGIES, matching_strategy
from svcd.search.request import Hybrid, IndexedQuery, Reranking, SearchQuery
from svcd.validation import (
    ABSENT, Check, Field, Param, any_object, anything, array_of, boolean, bounds, nullable, number, object_of, parsed,
    positive_integer, query_strings as query, string, text_of,
)
from svcd.validation.names import LOCALES, PERSONALIZATION, feature_not_enabled, locale, parse_locale, require_feature

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.index.reader import IndexReader as Reader


class Parameter(NamedTuple):
    """One parameter of a search. Its error code and the field of the query have its name, in snake case.

    check: of its value in a body. param: of its text in a query string; several under their own names; None if only bodies have
    it. target: of SearchQuery (QUERY), or of Federation (PAGE); "" if the search reads it otherwise. code: end of the error code,
    if it is not the name. feature: the experimental feature that it needs. figure: its figure in the usage report
    (svcd.analytics).
    """

    check: Check
    param: Param | Mapping[str, Param] | None
    default: Any = ABSENT
    target: str = ""
    code: str = ""
    required: bool = False
    feature: str = ""
    figure: str = ""
    about: str = ""


QUERY, PAGE = "query", "page"
_STRATEGIES = [*MATCHING_STRATEGIES, *OWN_STRATEGIES]


def document_id(value: Any) -> str:
    """Check the identifier of a document that a search is about. Raises ValueError."""
    try:
        return checked_identifier(value)
    except ApiError as error:
        raise ValueError(error.message) from None


def unit_interval(name: str) -> tuple[Check, Param]:
    """The check and the parameter of a number from 0 to 1."""

    def unit(value: float) -> float:
        if 0.0 <= value <= 1.0:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a float between `0.0` and `1.0`.")

    return parsed(number, unit), Param(lambda text: unit(query.number(text)), schema={"type": "number"})


_COUNT = positive_integer, Param(query.positive_integer)
_MAY_COUNT = nullable(positive_integer), Param(query.positive_integer)
_TEXT = string, Param(query.text)
_NAMES = nullable(array_of(string, bound=bounds.NAMES)), Param.list_of(query.text, bound=bounds.NAMES)
_FLAG = boolean, Param(query.boolean)
_THRESHOLD, _THRESHOLD_PARAM = unit_interval("rankingScoreThreshold")
_RATIO, _RATIO_PARAM = unit_interval("semanticRatio")
_HYBRID = object_of({
    "semanticRatio": Field(_RATIO, "invalid_search_semantic_ratio", default=0.5),
    "embedder": Field(string, "invalid_search_embedder", required=True),
    **FUSION_FIELDS,
})
_HYBRID_PARAMS = {"hybridEmbedder": Param(query.text, "invalid_search_embedder"),
                  "hybridSemanticRatio": _RATIO_PARAM._replace(code="invalid_search_semantic_ratio")}
_PERSONALIZE_CODE = "invalid_search_personalize_user_context"
_PERSONALIZE = object_of({"userContext": Field(text_of(bounds.TEXT), _PERSONALIZE_CODE, required=True)})

PARAMETERS: Mapping[str, Parameter] = {  # in the order in which messages list them
    "q": Parameter(nullable(text_of(bounds.TEXT)), Param(query.text), target=QUERY,
                   about="The text to search; without it, all documents."),
    "offset": Parameter(*_COUNT, 0, PAGE, figure="pagination.max_offset"),
    "limit": Parameter(*_COUNT, 20, PAGE, figure="pagination.max_limit"),
    "page": Parameter(*_MAY_COUNT, target=PAGE, about="Page number, from 1."),
    "hitsPerPage": Parameter(*_MAY_COUNT, target=PAGE, figure="pagination.max_limit"),
    "attributesToRetrieve": Parameter(*_NAMES, target=QUERY, figure="formatting.max_attributes_to_retrieve"),
    "attributesToCrop": Parameter(*_NAMES, target=QUERY, figure="formatting.max_attributes_to_crop"),
    "cropLength": Parameter(*_COUNT, 10, QUERY, figure="formatting.crop_length"),
    "cropMarker": Parameter(*_TEXT, "…", QUERY, figure="formatting.crop_marker"),
    "attributesToHighlight": Parameter(*_NAMES, target=QUERY, figure="formatting.max_attributes_to_highlight"),
    "highlightPreTag": Parameter(*_TEXT, "<em>", QUERY, figure="formatting.highlight_pre_tag"),
    "highlightPostTag": Parameter(*_TEXT, "</em>", QUERY, figure="formatting.highlight_post_tag"),
    "showMatchesPosition": Parameter(*_FLAG, False, QUERY, figure="formatting.show_matches_position"),
    "filter": Parameter(anything, Param(query.text)),
    "sort": Parameter(nullable(array_of(string, bound=bounds.SORT)), Param(split_rules), target=QUERY),
    "distinct": Parameter(nullable(string), Param(query.text), target=QUERY, figure="distinct"),
    "facets": Parameter(*_NAMES, figure="facets.avg_facets_number"),
    # Without a default: that depends on the setting `defaultMatchingStrategy`.
    "matchingStrategy": Parameter(matching_strategy, Param(query.choice(*MATCHING_STRATEGIES, unlisted=OWN_STRATEGIES), schema={
        "type": "string", "enum": _STRATEGIES}), target=QUERY, figure="matching_strategy.most_used_strategy"),
    "attributesToSearchOn": Parameter(*_NAMES, target=QUERY, figure="attributes_to_search_on.total_number_of_uses"),
    "rankingScoreThreshold": Parameter(nullable(_THRESHOLD), _THRESHOLD_PARAM, target=QUERY,
                                       figure="scoring.ranking_score_threshold"),
    "locales": Parameter(nullable(array_of(locale, bound=bounds.NAMES)), Param.list_of(
        parse_locale, bound=bounds.NAMES, schema={"type": "string", "enum": list(LOCALES)}), target=QUERY),
    "hybrid": Parameter(nullable(_HYBRID), _HYBRID_PARAMS, code="hybrid_query"),
    "vector": Parameter(nullable(array_of(number, bound=bounds.VECTOR)), Param.list_of(query.number, bound=bounds.VECTOR),
                        target=QUERY, figure="vector.max_vector_size"),
    "retrieveVectors": Parameter(*_FLAG, False, QUERY, figure="vector.retrieve_vectors"),
    "media": Parameter(nullable(any_object), None, target=QUERY, feature="multimodal"),
    "personalize": Parameter(nullable(_PERSONALIZE), {"personalizeUserContext": Param(query.text, _PERSONALIZE_CODE)}),
    "useNetwork": Parameter(nullable(boolean), Param(query.boolean), feature="network",
                            figure="network.total_explicit_use_network"),
    "showRankingScore": Parameter(*_FLAG, False, QUERY, figure="scoring.show_ranking_score"),
    "showRankingScoreDetails": Parameter(*_FLAG, False, QUERY, figure="scoring.show_ranking_score_details"),
    "showPerformanceDetails": Parameter(*_FLAG, False),
}


def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def fields_of(prefix: str, parameters: Mapping[str, Parameter]) -> dict[str, Field]:
    """The members of a body with these parameters. prefix: of their error codes."""
    return {name: Field(row.check, prefix + (row.code or _snake_case(name)), row.required, default=row.default, about=row.about)
            for name, row in parameters.items()}


def params_of(prefix: str, parameters: Mapping[str, Parameter]) -> dict[str, Param]:
    """The same parameters in a query string."""
    params: dict[str, Param] = {}
    for name, row in parameters.items():
        if isinstance(row.param, Param):
            params[name] = row.param._replace(code=prefix + _snake_case(name), required=row.required, about=row.about,
                                              default=None if row.default is ABSENT else row.default)
        else:
            params.update(row.param or {})
    return params


FIELDS: Mapping[str, Field] = fields_of("invalid_search_", PARAMETERS)
PARAMS: Mapping[str, Param] = params_of("invalid_search_", PARAMETERS)
_GATED = {name: row.feature for name, row in PARAMETERS.items() if row.feature}
_QUERY_FIELDS = {name: _snake_case(name) for name, row in PARAMETERS.items() if row.target == QUERY}
PAGE_FIELDS = {name: _snake_case(name) for name, row in PARAMETERS.items() if row.target == PAGE}


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

    flags: returns the features; called only if one is needed, because this runs in every search. Raises feature_not_enabled.
    """
    for name, feature in _GATED.items():
        if body.get(name) is not None:  # even `false` needs the feature
            require_feature(flags(), feature, f"passing `{name}` in a search query")


# From parameters to a query


class BearerQuery(NamedTuple):
    """A query with the filter of its bearer. cache_key: identifies its answer for one state of the index."""

    indexed: IndexedQuery
    cache_key: str


def query_of(ctx: Context, index_uid: str, body: Mapping[str, Any], weight: float = 1.0, position: int | None = None,
             has_pins: bool = True) -> BearerQuery:
    """The query of a body. has_pins: whether search rules apply to it. Raises invalid_search_filter, invalid_api_key.

    Only here is the filter of a tenant token added to the filter of a search (docs/http.md#tenant-tokens).
    """
    bearer_filter, value = ctx.permission.search_filter(index_uid), body.get("filter")
    if bearer_filter is not None:
        value = with_bearer_filter(value, bearer_filter, "invalid_search_filter")
    condition = allowed_filter(value, "invalid_search_filter", ctx.services.data_folder.features)
    given = body.get("hybrid")
    hybrid = None if given is None else Hybrid(
        given["embedder"], given["semanticRatio"], given.get("fusion"), given.get("k", 60))
    members = {_QUERY_FIELDS[name]: value for name, value in body.items() if name in _QUERY_FIELDS and value is not None}
    query = SearchQuery(**members, filter=condition, hybrid=hybrid)
    # Bearers with other filters get other hits. repr() tells them apart, and is faster than JSON.
    cache_key = repr((body, bearer_filter))
    if has_pins and ctx.services.data_folder.is_enabled("dynamicSearchRules"):
        pinning = ctx.services.active_rules.of_query(index_uid)
        if pinning is not None:
            query, cache_key = query._replace(rules=pinning.rules), cache_key + pinning.cache_key
    return BearerQuery(IndexedQuery(index_uid, query, weight, position), cache_key)


def with_joins_resolved(ctx: Context, indexed: IndexedQuery, reader: Reader) -> IndexedQuery:
    """The query with every `_foreign` condition of its filter replaced by the matching values of this index."""
    condition = indexed.query.filter
    found = resolve_joins(ctx, condition, indexed.index_uid, reader)
    return indexed if found is condition else indexed._replace(query=indexed.query._replace(filter=found))


def page_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The members of Federation that say which hits are wanted; for absent ones it has defaults."""
    return {PAGE_FIELDS[name]: value for name, value in body.items() if name in PAGE_FIELDS and value is not None}


def personalized(ctx: Context, personalize: Mapping[str, str], texts: Iterable[str | None], timer: Timer,
                 readers: Mapping[str, Reader]) -> Reranking:
    """Return what orders the hits for the user whom `personalize` describes.

    texts: the `q` of all queries. readers: of the searched indexes, filled before the hits are ordered.
    """
    from svcd.search.search import cutoff_ms  # imported late, as in svcd.api.search

    is_legacy = bool(ctx.services.data_folder.features().get("legacySearch"))
    prompt = prompt_of(personalize["userContext"], [text for text in texts if text is not None], is_legacy)
    personalization = ctx.services.personalization

    def order(documents: Sequence[str]) -> Sequence[int]:
        if personalization is None:  # an error also without hits, but only after the search has run, as clients expect
            raise feature_not_enabled(PERSONALIZATION, "reranking search results")
        most_ms = max(map(cutoff_ms, readers.values()), default=0)
        return personalization.order(prompt, documents, timer, most_ms) if documents else ()

    return Reranking(order, shows_source=not is_legacy)
