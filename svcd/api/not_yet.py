"""Declares what the interface has and svcd does not support yet: MISSING, a table that shrinks.

Its routes check key, query string, body, feature and path like all others, and then reject with a clear error, so that a
client first learns what is wrong with its own request (docs/http.md#not-supported-yet). Switching on a feature that has
no effect is logged.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from svcd.api.routes import Context, Fields, HandlerResult, Route
from svcd.base.errors import ApiError
from svcd.base.quantities import parse_size
from svcd.validation import (
    Field,
    Param,
    any_object,
    anything,
    array_of,
    boolean,
    map_of,
    nullable,
    object_of,
    parsed,
    query_strings,
    string,
)

_NETWORK = ("network", "Using the /network route")
_CONTROL = ("network", "Using the /network/control route")

_NETWORKS = "networks of instances"
_EXPORTS = "exports to another instance"
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


# Search rules: their bodies are not checked yet

_ANY_OBJECT = Fields({}, is_open=True)
_METADATA = {"customMetadata": Param(query_strings.text, "invalid_index_custom_metadata", about="Free text kept on the task.")}


def _rules(method: str, path: str, action: str, summary: str, words: str = "Using the `/dynamic-search-rules` routes",
           **others: Any) -> Route:
    return Route(method, f"/dynamic-search-rules{path}", _rejecting_handler(_RULES), f"dynamicSearchRules.{action}", {}, summary,
                 "Search rules", feature=("dynamicSearchRules", words), **others)


_EXPERIMENTAL = "Experimental features"
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
    Missing(_RULES, ("dynamicSearchRules",), (
        _rules("POST", "", "get", "List search rules", "Calling the `POST /dynamic-search-rules` route",
               body=_ANY_OBJECT),
        _rules("DELETE", "", "delete", "Delete all search rules", query=_METADATA),
        _rules("GET", "/{uid}", "get", "Get a search rule",
               "Calling the `GET /dynamic-search-rules/{:ruleUid}` route"),
        _rules("PATCH", "/{uid}", "update", "Create or change a search rule", query=_METADATA, body=_ANY_OBJECT),
        _rules("DELETE", "/{uid}", "delete", "Delete a search rule", query=_METADATA),
    )),
)

ROUTES = tuple(replace(route, missing=row.what) for row in MISSING for route in row.routes)


def flags_without_effect(flags: Iterable[str]) -> Mapping[str, str]:
    """Those of the features that have no effect yet: flag -> what they need."""
    wanted = set(flags)
    return {flag: row.what for row in MISSING for flag in row.flags if flag in wanted}
