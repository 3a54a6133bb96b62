"""Webhook routes: list, get, create, update, delete; failed deliveries and their replay.

Credentials are shown redacted. Delivery is described in docs/tasks-and-batches.md.
"""
from __future__ import annotations

import uuid as uuids
from collections.abc import Mapping
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.api.shapes import array, record, ref
from svcd.base.errors import ApiError
from svcd.base.quantities import rfc3339_micro
from svcd.instance.webhooks import LAUNCH_UUID, Webhook, merged_headers
from svcd.tasks.views import moment_text
from svcd.validation import Field, Param, map_of, nullable, query_strings, string
from svcd.validation.names import parse_uuid
from svcd.validation.urls import is_header_name, is_header_value, parse_web_url, redacted_headers, redacted_url

MAX_HEADERS = 200
_TAG = "Webhooks"


def path_uuid(text: str) -> str:
    """The webhook that a path names. Raises invalid_webhook_uuid."""
    try:
        return parse_uuid(text)
    except ValueError as fault:
        raise ApiError("invalid_webhook_uuid", f"Invalid UUID: {fault}") from None


def _view(webhook: Webhook) -> shapes.Json:
    return {"uuid": webhook.uuid, "isEditable": webhook.is_editable, "url": redacted_url(webhook.url),
            "headers": dict(sorted(redacted_headers(webhook.headers).items()))}


def _checked(webhook: Webhook) -> Webhook:
    """The webhook itself. Raises invalid_webhook_headers, invalid_webhook_url."""
    _refuse_many_headers(webhook.uuid, webhook.headers)
    for name, value in sorted(webhook.headers.items()):
        if not is_header_name(name):
            raise ApiError("invalid_webhook_headers", f"Invalid header name `{name}`: invalid HTTP header name")
        if not is_header_value(value):
            raise ApiError("invalid_webhook_headers", f"Invalid header value `{name}`: failed to parse header value")
    try:
        parse_web_url(webhook.url)
    except ValueError as fault:
        raise ApiError("invalid_webhook_url", f"Invalid URL `{redacted_url(webhook.url)}`: {fault}") from None
    return webhook


def _refuse_many_headers(webhook_uuid: str, headers: Mapping[str, Any]) -> None:
    if len(headers) > MAX_HEADERS:
        raise ApiError("invalid_webhook_headers",
                       f"Too many headers for the webhook `{webhook_uuid}`. Please limit the number of headers to "
                       f"{MAX_HEADERS}. Hint: To remove an already defined header set its value to `null`")


def _url(body: Mapping[str, Any], webhook_uuid: str, before: str | None = None) -> str:
    """The URL of a body, or the previous one if absent. Raises invalid_webhook_url for null."""
    url = body.get("url", before)
    if not url:
        raise ApiError("invalid_webhook_url", f"The URL for the webhook `{webhook_uuid}` is missing.")
    return url


def _headers(body: Mapping[str, Any], before: Mapping[str, str]) -> dict[str, str]:
    """The headers after an update: null removes one header, or all of them."""
    given = body.get("headers", {})
    return {} if given is None else merged_headers(before, given)


def _editable_uuid(ctx: Context) -> str:
    webhook_uuid = ctx.path["uuid"]
    if webhook_uuid == LAUNCH_UUID:
        raise ApiError("immutable_webhook", f"Webhook `{webhook_uuid}` is immutable. The webhook defined from the "
                                            "command line cannot be modified using the API.")
    return webhook_uuid


def list_webhooks(ctx: Context) -> HandlerResult:
    """All webhooks; the webhook of the launch options is first."""
    return HandlerResult(200, {"results": [_view(webhook) for webhook in ctx.instance.webhooks.all()]})


def get(ctx: Context) -> HandlerResult:
    """One webhook. Raises webhook_not_found."""
    return HandlerResult(200, _view(ctx.instance.webhooks.require(ctx.path["uuid"])))


def create(ctx: Context) -> HandlerResult:
    """Add a webhook. Raises invalid_webhooks when there are too many."""
    webhook_uuid = str(uuids.uuid4())
    _refuse_many_headers(webhook_uuid, ctx.body.get("headers") or {})
    ctx.instance.webhooks.check_limit()
    webhook = _checked(Webhook(webhook_uuid, _url(ctx.body, webhook_uuid), _headers(ctx.body, {})))
    ctx.instance.webhooks.create(webhook)
    return HandlerResult(201, _view(webhook))


def update(ctx: Context) -> HandlerResult:
    """Change URL or headers; absent members change nothing. Raises immutable_webhook, webhook_not_found."""
    def change(webhook: Webhook) -> Webhook:
        return _checked(webhook._replace(url=_url(ctx.body, webhook.uuid, webhook.url),
                                         headers=_headers(ctx.body, webhook.headers)))

    return HandlerResult(200, _view(ctx.instance.webhooks.update(_editable_uuid(ctx), change)))


def delete(ctx: Context) -> HandlerResult:
    """Remove a webhook and its pending deliveries. Raises immutable_webhook, webhook_not_found."""
    ctx.instance.webhooks.delete(_editable_uuid(ctx))
    return HandlerResult(204)


def list_failures(ctx: Context) -> HandlerResult:
    """A page of the failed deliveries of one webhook, oldest first. Raises webhook_not_found."""
    webhook = ctx.instance.webhooks.require(ctx.path["uuid"])
    offset, limit = ctx.query["offset"], ctx.query["limit"]
    notices, total = ctx.instance.outbox.failures(webhook.uuid, offset, limit)
    views = [{"batchUid": notice.batch_uid, "tasks": notice.tasks, "finishedAt": rfc3339_micro(notice.ended_at),
              "attempts": notice.attempts, "lastAttemptAt": moment_text(notice.tried_at), "reason": notice.reason,
              "givenUpAt": moment_text(notice.given_up_at)} for notice in notices]
    return HandlerResult(200, shapes.page(views, offset, limit, total))


def replay(ctx: Context) -> HandlerResult:
    """Deliver failed notifications again, for all or some batches. Raises webhook_not_found."""
    webhooks = ctx.instance.webhooks
    webhook = webhooks.require(ctx.path["uuid"])
    replayed = ctx.instance.outbox.replay(webhook.uuid, ctx.query["batchUids"])
    webhooks.on_change(webhook.uuid)
    return HandlerResult(202, {"replayed": replayed})


_BODY = Fields(
    {"url": Field(nullable(string), "invalid_webhook_url", about="Where finished tasks are sent: http or https."),
     "headers": Field(nullable(map_of(nullable(string))), "invalid_webhook_headers",
                      about="Sent with each request; null removes a header, or all of them.")},
    immutable={"uuid": "immutable_webhook_uuid", "isEditable": "immutable_webhook_is_editable"})
_FAILURES_PARAMS = {
    "offset": Param(query_strings.positive_integer, "bad_request", default=0, about="Results to leave out at the beginning."),
    "limit": Param(query_strings.positive_integer, "bad_request", default=20, about="Largest number of results."),
}
_BATCHES = Param.list_of(query_strings.positive_integer, "invalid_batch_uids", about="Batch uids; absent for all.")

ROUTES = (
    Route("GET", "/webhooks", list_webhooks, "webhooks.get", {200: record({"results": array(ref("Webhook"))})},
          "List webhooks", _TAG),
    Route("POST", "/webhooks", create, "webhooks.create", {201: "Webhook"}, "Create a webhook", _TAG, body=_BODY),
    Route("GET", "/webhooks/{uuid}", get, "webhooks.get", {200: "Webhook"}, "Get a webhook", _TAG),
    Route("PATCH", "/webhooks/{uuid}", update, "webhooks.update", {200: "Webhook"}, "Change a webhook", _TAG, body=_BODY),
    Route("DELETE", "/webhooks/{uuid}", delete, "webhooks.delete", {204: {}}, "Delete a webhook", _TAG),
    Route("GET", "/webhooks/{uuid}/failures", list_failures, "webhooks.get", {200: "WebhookFailurePage"},
          "List the failed deliveries of a webhook", _TAG, query=_FAILURES_PARAMS),
    Route("POST", "/webhooks/{uuid}/replay", replay, "webhooks.update", {202: record({"replayed": shapes.COUNT})},
          "Replay deliveries to a webhook that were given up", _TAG, query={"batchUids": _BATCHES}),
)
