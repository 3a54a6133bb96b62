"""API key routes: list, get, create, rename, delete; and the default keys of a new instance.

Only the master key opens them (docs/http.md#authentication). Keys are checked in svcd.auth.keys.
"""
from __future__ import annotations

import uuid as uuids
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.auth.keys import ACTIONS, EVERY_INDEX, needs_every_index
from svcd.base import quantities
from svcd.base.errors import ApiError
from svcd.instance.rows import KeyRow
from svcd.validation import (
    Field, array_of, index_uid_pattern, nullable, one_of, parse_uuid, parsed, string, uuid,
)

_TAG = "Keys"

_DEFAULTS = (  # name, description, actions; the oldest first
    ("Default Chat API Key", "Use it to chat and search from the frontend", ("chatCompletions", "search")),
    ("Default Read-Only Admin API Key", "Use it to read information across the whole database. Caution! Do not expose "
     "this key on a public frontend", ("*.get", "keys.get")),
    ("Default Admin API Key", "Use it for anything that is not a search operation. Caution! Do not expose it on a "
     "public frontend", ("*",)),
    ("Default Search API Key", "Use it to search from the frontend", ("search",)),
)


def default_keys() -> list[KeyRow]:
    """The keys of a new instance, the oldest first, with new random uids in each call."""
    now = quantities.now()
    return [KeyRow(str(uuids.uuid4()), actions, (EVERY_INDEX,), now, now, name, description)
            for name, description, actions in _DEFAULTS]


def list_keys(ctx: Context) -> HandlerResult:
    """One page of the keys, newest first."""
    offset, limit = ctx.query["offset"], ctx.query["limit"]
    rows, total = ctx.instance.keys.page(offset, limit)
    return HandlerResult(200, shapes.page([_view(ctx, row) for row in rows], offset, limit, total))


def get(ctx: Context) -> HandlerResult:
    """One key, by its uid or its value. Raises api_key_not_found."""
    row = ctx.instance.keys.get(_uid(ctx))
    return HandlerResult(200, _view(ctx, row if row else _refuse_unknown(ctx)))


def create(ctx: Context) -> HandlerResult:
    """Create a key. Raises index_scoped_api_key_with_global_action, api_key_already_exists."""
    body, now = ctx.body, quantities.now()
    if body["indexes"] and EVERY_INDEX not in body["indexes"]:
        for action in body["actions"]:
            if needs_every_index(action):
                raise ApiError(
                    "index_scoped_api_key_with_global_action",
                    f'cannot create index-scoped API key with global action `"{action}"`\n  - Hint: remove action '
                    f'`"{action}"` from the action list, or remove `indexes` to make the key global')
    row = KeyRow(body.get("uid") or str(uuids.uuid4()), body["actions"], body["indexes"], now, now,
                 body.get("name"), body.get("description"), body["expiresAt"])
    if not ctx.instance.keys.add(row):
        raise ApiError("api_key_already_exists", f"`uid` field value `{row.uid}` is already an existing API key.")
    return HandlerResult(201, _view(ctx, row))


def update(ctx: Context) -> HandlerResult:
    """Change name and description; null removes the text, an absent member keeps it. Raises api_key_not_found."""
    row = ctx.instance.keys.update(_uid(ctx), ctx.body, quantities.now())
    return HandlerResult(200, _view(ctx, row if row else _refuse_unknown(ctx)))


def delete(ctx: Context) -> HandlerResult:
    """Delete a key; it and the tokens signed with it become invalid at once. Raises api_key_not_found."""
    if not ctx.instance.keys.remove(_uid(ctx)):
        _refuse_unknown(ctx)
    return HandlerResult(204)


def _uid(ctx: Context) -> str:
    """The uid of the key that the path names by its uid or its value. Raises api_key_not_found."""
    name = ctx.path["key"]
    try:
        return parse_uuid(name)
    except ValueError:
        return ctx.services.keys.uid_of(name) or _refuse_unknown(ctx)


def _refuse_unknown(ctx: Context) -> Any:
    raise ApiError("api_key_not_found", f"API key `{ctx.path['key']}` not found.")


def _view(ctx: Context, row: KeyRow) -> shapes.Json:
    return {
        "name": row.name, "description": row.description, "key": ctx.services.keys.value_of(row.uid), "uid": row.uid,
        "actions": list(row.actions), "indexes": list(row.indexes),
        # As the client gave it, so without the fraction that times of the daemon have.
        "expiresAt": None if row.expires_at is None else quantities.rfc3339(row.expires_at),
        "createdAt": quantities.rfc3339_micro(row.created_at), "updatedAt": quantities.rfc3339_micro(row.updated_at),
    }


def _future(text: str) -> int:
    """The nanoseconds of a date in the future. Raises ValueError for any other text."""
    try:
        moment = quantities.parse_utc(text)
    except ValueError:
        moment = 0
    if moment > quantities.now():
        return moment
    raise ValueError(
        f"`{text}` is not a valid date. It should follow the RFC 3339 format to represents a date or datetime in the "
        "future or specified as a null value. e.g. 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'.\n")


_WORDS = {
    "description": Field(nullable(string), "invalid_api_key_description", about="For people."),
    "name": Field(nullable(string), "invalid_api_key_name", about="For people."),
}
_CREATE_BODY = Fields(_WORDS | {
    "uid": Field(nullable(uuid), "invalid_api_key_uid", about="A UUID; random when absent."),
    "actions": Field(array_of(one_of(*ACTIONS)), "invalid_api_key_actions", required=True,
                     missing_code="missing_api_key_actions", about="The actions that the key permits."),
    "indexes": Field(array_of(index_uid_pattern), "invalid_api_key_indexes", required=True,
                     missing_code="missing_api_key_indexes", about="Where: index uids, `beginning*`, or `*`."),
    "expiresAt": Field(nullable(parsed(string, _future)), "invalid_api_key_expires_at", required=True,
                       missing_code="missing_api_key_expires_at", about="A date in the future; null is never."),
})
_UPDATE_BODY = Fields(_WORDS, immutable={
    "uid": "immutable_api_key_uid", "actions": "immutable_api_key_actions", "indexes": "immutable_api_key_indexes",
    "expiresAt": "immutable_api_key_expires_at", "createdAt": "immutable_api_key_created_at",
    "updatedAt": "immutable_api_key_updated_at",
})

ROUTES = (
    Route("GET", "/keys", list_keys, "keys.get", {200: "KeyPage"}, "List API keys", _TAG,
          query=shapes.page_params("invalid_api_key_", "Keys")),
    Route("POST", "/keys", create, "keys.create", {201: "Key"}, "Create an API key", _TAG, body=_CREATE_BODY),
    Route("GET", "/keys/{key}", get, "keys.get", {200: "Key"}, "Get an API key", _TAG),
    Route("PATCH", "/keys/{key}", update, "keys.update", {200: "Key"}, "Rename an API key", _TAG, body=_UPDATE_BODY),
    Route("DELETE", "/keys/{key}", delete, "keys.delete", {204: {}}, "Delete an API key", _TAG),
)
