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
from svcd.validation import (
    Field,
    Param,
    any_object,
    array_of,
    map_of,
    nullable,
    object_of,
    query_strings,
    string,
)

_NETWORK = ("network", "Using the /network route")
_CONTROL = ("network", "Using the /network/control route")

_NETWORKS = "networks of instances"
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
)

ROUTES = tuple(replace(route, missing=row.what) for row in MISSING for route in row.routes)


def flags_without_effect(flags: Iterable[str]) -> Mapping[str, str]:
    """Those of the features that have no effect yet: flag -> what they need."""
    wanted = set(flags)
    return {flag: row.what for row in MISSING for flag in row.flags if flag in wanted}
