"""POST /export: enqueues an export of indexes to another instance (docs/export.md)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.base.quantities import parse_size
from svcd.validation import Field, anything, boolean, map_of, nullable, object_of, parsed, positive_integer, string
from svcd.validation.messages import POSITIVE, STRING, invalid_value, wrong_type
from svcd.validation.names import parse_index_uid_pattern

_PATTERN_TYPE = "svc_types::index_uid_pattern::IndexUidPattern"


def export(ctx: Context) -> HandlerResult:
    """Enqueue an export. An unreachable target or a wrong filter fails the task, not this request."""
    from svcd.tasks import exports  # imported late: most instances export nothing

    body = ctx.body
    content = exports.task_content(body["url"], body.get("apiKey"), body.get("payloadSize"), body.get("indexes"))
    task = ctx.queue.enqueue(exports.KIND, None, details=exports.task_details(content), content=content)
    return HandlerResult(200, shapes.task_summary(task))


@dataclass(frozen=True, eq=False, slots=True)
class _Size:
    """A number of bytes, or a text with a unit."""

    def decode(self, value: Any, location: str) -> int:
        if isinstance(value, str):
            try:
                return parse_size(value)
            except ValueError as fault:
                raise invalid_value(f"`{value}` {fault}", location) from None
        if type(value) is int and value >= 0:
            checked: int = positive_integer.decode(value, location)
            return checked
        raise wrong_type(value, (POSITIVE, STRING), location)

    def describe(self) -> dict[str, Any]:
        return {"oneOf": [positive_integer.describe(), {"type": "string"}]}


def _with_patterns(indexes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check that the names of a map are patterns of index uids. Return the map."""
    for pattern in indexes:
        try:
            parse_index_uid_pattern(pattern)
        except ValueError:
            raise ValueError(f'the key "{pattern}" could not be deserialized into the key type `{_PATTERN_TYPE}`') from None
    return indexes


_BODY = Fields({
    "url": Field(string, "invalid_export_url", default="", about="The instance that gets the documents."),
    "apiKey": Field(nullable(string), "invalid_export_api_key", about="Its API key."),
    "payloadSize": Field(nullable(_Size()), "invalid_export_payload_size",
                         about="Largest body sent, before compression: bytes, or a text as `24 MiB`."),
    "indexes": Field(nullable(parsed(map_of(object_of({
        "filter": Field(anything, about="The documents exported; absent or null for all."),
        "overrideSettings": Field(boolean, "invalid_export_index_override_settings",
                                  about="Whether an index that the target has already gets the settings, too."),
    })), _with_patterns)), about="Pattern of index uids -> how its indexes are exported; absent or null for all indexes."),
})

ROUTES = (
    Route("POST", "/export", export, "export", {200: "TaskSummary"}, "Export to another instance", "Export", body=_BODY),
)
