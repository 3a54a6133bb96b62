"""Declares what the interface has and svcd does not support yet: MISSING, a table that shrinks.

Its routes check key, query string, body, feature and path like all others, and then reject with a clear error, so that a
client first learns what is wrong with its own request (docs/http.md#not-supported-yet). Switching on a feature that has
no effect is logged.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from svcd.api.routes import Context, Fields, HandlerResult, Route
from svcd.base.errors import ApiError
from svcd.base.quantities import parse_size
from svcd.validation import (
    Field,
    anything,
    boolean,
    map_of,
    nullable,
    object_of,
    parsed,
    string,
)

_EXPORTS = "exports to another instance"


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


MISSING = (
    Missing(_EXPORTS, routes=(
        Route("POST", "/export", _rejecting_handler(_EXPORTS), "export", {}, "Export to another instance", "Export",
              body=_EXPORT_BODY),
    )),
)

ROUTES = tuple(replace(route, missing=row.what) for row in MISSING for route in row.routes)


def flags_without_effect(flags: Iterable[str]) -> Mapping[str, str]:
    """Those of the features that have no effect yet: flag -> what they need."""
    wanted = set(flags)
    return {flag: row.what for row in MISSING for flag in row.flags if flag in wanted}
