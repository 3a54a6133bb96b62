"""Routes of the network: the other instances that searches may be sent to. See docs/network.md.

In the paid edition of the reference engine a leader distributes documents over shards. svcd does not support a leader, and
answers as the free edition does.
"""
from __future__ import annotations

from typing import Any

from svcd.api.answers import uuid7
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.base.errors import ApiError
from svcd.validation import Field, any_object, array_of, map_of, nullable, object_of, string

_TAG = "Experimental features"
_INSTEAD = "\n  - Note: svcd has remotes, shards without a leader, and searches with `useNetwork`."
_NO_LEADER = f"Svc Enterprise Edition is required to set `network.leader`{_INSTEAD}"
_NO_CONTROL = f"Svc Enterprise Edition is required to call this route{_INSTEAD}"
_PREVIOUS_REMOTES = ("Unexpected `previousRemotes` in network call.\n"
                     "  - Note: `previousRemote` is reserved for internal use.")


def get(ctx: Context) -> HandlerResult:
    """The network, with the keys of its remotes."""
    return HandlerResult(200, ctx.instance.network().as_json())


def update(ctx: Context) -> HandlerResult:
    """Merge a change into the network.

    Raises, in this order, requires_enterprise_edition, unexpected_network_previous_remotes, missing_network_url and
    invalid_network_url.
    """
    from svcd.instance.network import merged  # imported late: most instances are in no network

    change, version = ctx.body, uuid7()
    if change.get("leader") is not None:
        raise ApiError("requires_enterprise_edition", _NO_LEADER)
    if "previousRemotes" in change:
        raise ApiError("unexpected_network_previous_remotes", _PREVIOUS_REMOTES)
    network = ctx.instance.update_network(lambda network: merged(network, change, version))
    return HandlerResult(200, network.as_json())


def control(_ctx: Context) -> HandlerResult:
    """Messages of a leader, which there cannot be: requires_enterprise_edition."""
    raise ApiError("requires_enterprise_edition", _NO_CONTROL)


_REMOTE = object_of({
    "url": Field(nullable(string), "invalid_network_url", about="Its path and query are ignored."),
    "searchApiKey": Field(nullable(string), "invalid_network_search_api_key", about="The API key sent with searches."),
    "writeApiKey": Field(nullable(string), "invalid_network_write_api_key", about="Kept for tools that write to it."),
})
_REMOTES = Field(nullable(map_of(nullable(_REMOTE))), "invalid_network_remotes", about="null removes one, or all of them.")
_NAMES = Field(nullable(array_of(string)), "invalid_network_remotes")
_SHARD = object_of(dict.fromkeys(("remotes", "addRemotes", "removeRemotes"), _NAMES))
_SHARDS = Field(nullable(map_of(nullable(_SHARD))), "invalid_network_shards", about="null removes one, or all of them.")
_BODY = Fields({  # in the order in which messages list them
    "remotes": _REMOTES,
    "shards": _SHARDS,
    "previousShards": Field(_SHARDS.check, "invalid_network_shards", about="Ignored."),
    "self": Field(nullable(string), "invalid_network_self", about="The name of this instance."),
    "leader": Field(nullable(string), "invalid_network_leader", about="A text is refused."),
    "previousRemotes": Field(_REMOTES.check, "invalid_network_remotes", about="Refused."),
})
_CONTROL_BODY = Fields({"origin": Field(any_object, required=True), "message": Field(any_object, required=True)})
_FEATURE = ("network", "Using the /network route")


def _route(method: str, run: Any, action: str, summary: str, **others: Any) -> Route:
    return Route(method, "/network", run, action, {200: "Network"}, summary, _TAG, feature=_FEATURE, **others)


ROUTES = (
    _route("GET", get, "network.get", "Get the network"),
    _route("PATCH", update, "network.update", "Change the network", body=_BODY),
    Route("POST", "/network/control", control, "network.update", {200: {}}, "Receive a change of the network", _TAG,
          feature=("network", "Using the /network/control route"), body=_CONTROL_BODY),
)
