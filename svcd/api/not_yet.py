"""Declares what the interface has and svcd does not support yet: MISSING, a table that shrinks.

Its routes check key, query string, body, feature and path like all others, and then reject with a clear error, so that a
client first learns what is wrong with its own request (docs/http.md#not-supported-yet). Switching on a feature that has
no effect is logged.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from svcd.api.filters import allowed_filter, filter_of_query_string, has_joins
from svcd.api.routes import Context, Fields, HandlerResult, Route
from svcd.base.errors import ApiError
from svcd.base.quantities import parse_size
from svcd.schema.documents import checked_identifier
from svcd.validation import (
    Field,
    Param,
    any_object,
    anything,
    array_of,
    boolean,
    map_of,
    nullable,
    number,
    object_of,
    parsed,
    positive_integer,
    query_strings,
    string,
)

_NETWORK = ("network", "Using the /network route")
_CONTROL = ("network", "Using the /network/control route")

_NETWORKS = "networks of instances"
_EXPORTS = "exports to another instance"
_SIMILAR = "similar documents"
_CHATS = "chats"
_RULES = "search rules with pinned results"


@dataclass(frozen=True, slots=True)
class Missing:
    """A capability that is not supported yet. what: its name in messages, in lower case.

    flags: the features that have no effect without it. routes: those that reject for lack of it.
    """

    what: str
    flags: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()


def _rejecting_handler(what: str) -> Callable[[Context], HandlerResult]:
    """A handler that rejects every request."""

    def refuse(_ctx: Context) -> HandlerResult:
        raise ApiError("bad_request", f"This version of svcd does not have {what} yet.")

    return refuse


# Networks

_REMOTE = object_of({
    "url": Field(nullable(string), "invalid_network_url"),
    "searchApiKey": Field(nullable(string), "invalid_network_search_api_key"),
    "writeApiKey": Field(nullable(string), "invalid_network_write_api_key"),
})
_NAMES = nullable(array_of(string))
_SHARD = object_of({name: Field(_NAMES, "invalid_network_shards")
                    for name in ("remotes", "addRemotes", "removeRemotes")})
_REMOTES = Field(nullable(map_of(nullable(_REMOTE))), "invalid_network_remotes")
_SHARDS = Field(nullable(map_of(nullable(_SHARD))), "invalid_network_shards")
_NETWORK_BODY = Fields({  # in the order in which messages list them
    "remotes": _REMOTES,
    "shards": _SHARDS,
    "previousShards": _SHARDS,
    "self": Field(nullable(string), "invalid_network_self"),
    "leader": Field(nullable(string), "invalid_network_leader"),
    "previousRemotes": _REMOTES,
})
_CONTROL_BODY = Fields({"origin": Field(any_object, required=True), "message": Field(any_object, required=True)})


# Export

def _size(text: str) -> int:
    """Bytes."""
    try:
        return parse_size(text)
    except ValueError as fault:
        raise ValueError(f"`{text}` {fault}") from None


_EXPORT_BODY = Fields({
    "url": Field(string, "invalid_export_url", required=True, about="The instance that gets the documents."),
    "apiKey": Field(nullable(string), "invalid_export_api_key"),
    "payloadSize": Field(nullable(parsed(string, _size)), "invalid_export_payload_size",
                         about="Largest body sent, as `24 MiB`."),
    "indexes": Field(nullable(map_of(object_of({
        "filter": Field(anything, "invalid_export_index_filter"),
        "overrideSettings": Field(boolean, "invalid_export_index_override_settings"),
    }))), "invalid_export_indexes_patterns"),
})


# Similar documents

_FILTER_CODE = "invalid_similar_filter"


def _similar(ctx: Context, wanted: Mapping[str, Any]) -> HandlerResult:
    """Reject what is wrong in the order that clients expect; then everything else.

    Raises index_not_found, invalid_similar_filter, invalid_similar_embedder.
    """
    from svcd.filters.evaluation import filter_docids  # see svcd.api.filters

    with ctx.instance.read(ctx.index_uid) as reader:
        condition = allowed_filter(wanted.get("filter"), _FILTER_CODE, ctx.instance.features)
        name = wanted["embedder"]
        if name not in reader.settings.embedders:
            raise ApiError("invalid_similar_embedder", f"Cannot find embedder with name `{name}`.")
        if not has_joins(condition):
            filter_docids(reader, condition, _FILTER_CODE)
    raise ApiError("invalid_similar_embedder",
                   f"Embedder `{name}` embeds nothing: this version of svcd does not have {_SIMILAR} yet.")


def similar(ctx: Context) -> HandlerResult:
    """`POST /indexes/{index_uid}/similar`."""
    return _similar(ctx, ctx.body)


def similar_by_query_string(ctx: Context) -> HandlerResult:
    """`GET /indexes/{index_uid}/similar`."""
    return _similar(ctx, {**ctx.query, "filter": filter_of_query_string(ctx.query["filter"], _FILTER_CODE)})


def _document_id(value: Any) -> str:
    try:
        return checked_identifier(value)
    except ApiError as error:
        raise ValueError(error.message) from None


def _unit_score(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError("the value of `rankingScoreThreshold` is invalid, expected a float between `0.0` and `1.0`.")
    return value


_FLAGS = {
    "retrieveVectors": "invalid_similar_retrieve_vectors",
    "showRankingScore": "invalid_similar_show_ranking_score",
    "showRankingScoreDetails": "invalid_similar_show_ranking_score_details",
    "showPerformanceDetails": "invalid_similar_show_performance_details",
}
_SCORE_CODE = "invalid_similar_ranking_score_threshold"


def _flag_fields(*names: str) -> dict[str, Field]:
    return {name: Field(boolean, _FLAGS[name], default=False) for name in names}


def _flag_params(*names: str) -> dict[str, Param]:
    return {name: Param(query_strings.boolean, _FLAGS[name], default=False) for name in names}


_SHOW = ("showRankingScore", "showRankingScoreDetails", "showPerformanceDetails")
_SIMILAR_BODY = Fields({  # in the order in which messages list them
    "id": Field(parsed(anything, _document_id), "invalid_similar_id", required=True),
    "offset": Field(positive_integer, "invalid_similar_offset", default=0),
    "limit": Field(positive_integer, "invalid_similar_limit", default=20),
    "filter": Field(anything, _FILTER_CODE),
    "embedder": Field(string, "invalid_similar_embedder", required=True),
    "attributesToRetrieve": Field(nullable(array_of(string)), "invalid_similar_attributes_to_retrieve"),
    **_flag_fields("retrieveVectors", *_SHOW),
    "rankingScoreThreshold": Field(nullable(parsed(number, _unit_score)), _SCORE_CODE),
})
_SIMILAR_PARAMS = {  # in the order in which messages list them
    "id": Param(_document_id, "invalid_similar_id", required=True),
    "embedder": Param(query_strings.text, "invalid_similar_embedder", required=True),
    "offset": Param(query_strings.positive_integer, "invalid_similar_offset", default=0),
    "limit": Param(query_strings.positive_integer, "invalid_similar_limit", default=20),
    "attributesToRetrieve": Param.list_of(query_strings.text, "invalid_similar_attributes_to_retrieve"),
    **_flag_params("retrieveVectors"),
    "filter": Param(query_strings.text, _FILTER_CODE),
    **_flag_params(*_SHOW),
    "rankingScoreThreshold": Param(lambda text: _unit_score(query_strings.number(text)), _SCORE_CODE,
                                   schema={"type": "number"}),
}


# Chats and search rules: their bodies are not checked yet

_ANY_OBJECT = Fields({}, is_open=True)
_PAGE_PARAMS = {
    "offset": Param(query_strings.positive_integer, "invalid_index_offset", default=0, about="Workspaces to skip."),
    "limit": Param(query_strings.positive_integer, "invalid_index_limit", default=20, about="Workspaces to return."),
}
_METADATA = {"customMetadata": Param(query_strings.text, "invalid_index_custom_metadata", about="Free text kept on the task.")}


def _chats(method: str, path: str, action: str, summary: str, words: str, **others: Any) -> Route:
    """words: what the message of feature_not_enabled begins with."""
    return Route(method, f"/chats{path}", _rejecting_handler(_CHATS), action, {}, summary, "Chats",
                 feature=("chatCompletions", words), **others)


def _rules(method: str, path: str, action: str, summary: str, words: str = "Using the `/dynamic-search-rules` routes",
           **others: Any) -> Route:
    return Route(method, f"/dynamic-search-rules{path}", _rejecting_handler(_RULES), f"dynamicSearchRules.{action}", {}, summary,
                 "Search rules", feature=("dynamicSearchRules", words), **others)


_EXPERIMENTAL = "Experimental features"
_OF_SETTINGS = "using the /chats/settings route"
MISSING = (
    Missing(_NETWORKS, ("network",), (
        Route("GET", "/network", _rejecting_handler(_NETWORKS), "network.get", {}, "Get the network", _EXPERIMENTAL,
              feature=_NETWORK),
        Route("PATCH", "/network", _rejecting_handler(_NETWORKS), "network.update", {}, "Change the network", _EXPERIMENTAL,
              feature=_NETWORK, body=_NETWORK_BODY),
        Route("POST", "/network/control", _rejecting_handler(_NETWORKS), "network.update", {},
              "Receive a change of the network", _EXPERIMENTAL, feature=_CONTROL, body=_CONTROL_BODY),
    )),
    Missing(_EXPORTS, routes=(
        Route("POST", "/export", _rejecting_handler(_EXPORTS), "export", {}, "Export to another instance", "Export",
              body=_EXPORT_BODY),
    )),
    Missing(_SIMILAR, routes=(
        Route("GET", "/indexes/{index_uid}/similar", similar_by_query_string, "search", {},
              "Get similar documents by a query string", "Similar documents", query=_SIMILAR_PARAMS),
        Route("POST", "/indexes/{index_uid}/similar", similar, "search", {}, "Get similar documents",
              "Similar documents", body=_SIMILAR_BODY),
    )),
    Missing(_CHATS, ("chatCompletions",), (
        _chats("GET", "", "chats.get", "List chat workspaces", "listing the chats", query=_PAGE_PARAMS),
        _chats("GET", "/{workspace_uid}", "chats.get", "Get a chat workspace", "displaying a chat"),
        _chats("DELETE", "/{workspace_uid}", "chats.delete", "Delete a chat workspace", "deleting a chat"),
        _chats("GET", "/{workspace_uid}/settings", "chatsSettings.get", "Get the settings of a chat workspace",
               _OF_SETTINGS),
        _chats("PATCH", "/{workspace_uid}/settings", "chatsSettings.update", "Change the settings of a chat workspace",
               _OF_SETTINGS, body=_ANY_OBJECT),
        _chats("DELETE", "/{workspace_uid}/settings", "chatsSettings.update", "Reset the settings of a chat workspace",
               _OF_SETTINGS),
        # The only one that takes tenant tokens, whatever their filters.
        _chats("POST", "/{workspace_uid}/chat/completions", "chatCompletions", "Request a chat completion",
               "using the /chats chat completions route", body=_ANY_OBJECT, joins_rules=True),
    )),
    Missing(_RULES, ("dynamicSearchRules",), (
        _rules("POST", "", "get", "List search rules", "Calling the `POST /dynamic-search-rules` route",
               body=_ANY_OBJECT),
        _rules("DELETE", "", "delete", "Delete all search rules", query=_METADATA),
        _rules("GET", "/{uid}", "get", "Get a search rule",
               "Calling the `GET /dynamic-search-rules/{:ruleUid}` route"),
        _rules("PATCH", "/{uid}", "update", "Create or change a search rule", query=_METADATA, body=_ANY_OBJECT),
        _rules("DELETE", "/{uid}", "delete", "Delete a search rule", query=_METADATA),
    )),
    Missing("composite embedders", ("compositeEmbedders",)),
    Missing("searches with media", ("multimodal",)),
)

ROUTES = tuple(replace(route, missing=row.what) for row in MISSING for route in row.routes)


def flags_without_effect(flags: Iterable[str]) -> Mapping[str, str]:
    """Those of the features that have no effect yet: flag -> what they need."""
    wanted = set(flags)
    return {flag: row.what for row in MISSING for flag in row.flags if flag in wanted}
