"""The routes of chats: workspaces with their settings, and completions (docs/chats.md).

All that a completion needs is imported with the first one: svcd.api.chat_turns, svcd.chat.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Value
from svcd.api.shapes import page
from svcd.api.streaming import EVENTS
from svcd.base.errors import ApiError
from svcd.validation import Check, checked_index_uid

if TYPE_CHECKING:
    from svcd.instance.chat_workspaces import Stored

_TAG = "Chats"
_MOST_UID_BYTES = 511


class _LateCheck(NamedTuple):
    """A check whose module is imported at its first use: neither a start nor a search needs the checks of chats."""

    load: Callable[[], Check]

    def decode(self, value: Any, location: str) -> Any:
        return self.load().decode(value, location)

    def describe(self) -> dict[str, Any]:
        return self.load().describe()


def _change_check() -> Check:
    from svcd.chat.workspace import CHANGE

    return CHANGE


def _completion_check() -> Check:
    from svcd.chat.request import COMPLETION

    return COMPLETION


def _uid(ctx: Context) -> str:
    """The uid of the workspace in the path. Raises invalid_index_uid for a text that is too long."""
    uid: str = ctx.path["workspace_uid"]
    if len(uid.encode("utf-8", "surrogatepass")) > _MOST_UID_BYTES:
        return checked_index_uid(uid)
    return uid


def list_workspaces(ctx: Context) -> HandlerResult:
    """A page of the workspaces, in the order of their uids."""
    offset, limit = ctx.query["offset"], ctx.query["limit"]
    uids, total = ctx.instance.chat_workspaces.page(offset, limit)
    return HandlerResult(200, page([{"uid": uid} for uid in uids], offset, limit, total))


def get(ctx: Context) -> HandlerResult:
    """One workspace. Raises invalid_index_uid, chat_not_found."""
    uid = checked_index_uid(ctx.path["workspace_uid"])
    if ctx.instance.chat_workspaces.get(uid) is None:
        raise ApiError("chat_not_found", f"chat {uid} not found")
    return HandlerResult(200, {"uid": uid})


def delete(ctx: Context) -> HandlerResult:
    """Delete a workspace with its settings. Raises chat_not_found."""
    uid = _uid(ctx)
    if not ctx.instance.chat_workspaces.delete(uid):
        raise ApiError("chat_not_found", f"chat {uid} not found")
    return HandlerResult(204)


def get_settings(ctx: Context) -> HandlerResult:
    """The settings of a workspace. Raises chat_not_found."""
    return _shown(ctx.instance.chat_workspaces.require(_uid(ctx)))


def update_settings(ctx: Context) -> HandlerResult:
    """Change the settings of a workspace. A new uid creates the workspace. Raises bad_request."""
    from svcd.chat import workspace

    return _shown(ctx.instance.chat_workspaces.update(_uid(ctx), lambda stored: workspace.merged(stored, ctx.body)))


def reset_settings(ctx: Context) -> HandlerResult:
    """Reset all settings of a workspace to their defaults. Raises chat_not_found."""
    uid, workspaces = _uid(ctx), ctx.instance.chat_workspaces
    workspaces.require(uid)
    return _shown(workspaces.update(uid, lambda stored: {}))


def _shown(stored: Stored) -> HandlerResult:
    from svcd.chat import workspace

    return HandlerResult(200, workspace.shown(stored))


def complete(ctx: Context) -> HandlerResult:
    """Have a language model answer the last message, as a stream of events.

    Raises unimplemented_multi_choice_chat_completions, unimplemented_non_streaming_chat_completions, chat_not_found,
    unimplemented_external_function_calling, and a 503 when there are too many streams.
    """
    from svcd.api.chat_turns import begin

    return begin(ctx, _uid(ctx))


_WORKSPACES = "/chats"
_WORKSPACE = f"{_WORKSPACES}/{{workspace_uid}}"
_SETTINGS = f"{_WORKSPACE}/settings"


_OF_SETTINGS = ("chatCompletions", "using the /chats/settings route")
ROUTES = (
    Route("GET", _WORKSPACES, list_workspaces, "chats.get", {200: "ChatWorkspacePage"}, "List chat workspaces", _TAG,
          feature=("chatCompletions", "listing the chats"), query=shapes.page_params("invalid_index_", "Workspaces")),
    Route("GET", _WORKSPACE, get, "chats.get", {200: "ChatWorkspace"}, "Get a chat workspace", _TAG,
          feature=("chatCompletions", "displaying a chat")),
    Route("DELETE", _WORKSPACE, delete, "chats.delete", {204: {}}, "Delete a chat workspace", _TAG,
          feature=("chatCompletions", "deleting a chat")),
    Route("GET", _SETTINGS, get_settings, "chatsSettings.get", {200: "ChatWorkspaceSettings"},
          "Get the settings of a chat workspace", _TAG, feature=_OF_SETTINGS),
    Route("PATCH", _SETTINGS, update_settings, "chatsSettings.update", {200: "ChatWorkspaceSettings"},
          "Change the settings of a chat workspace", _TAG, feature=_OF_SETTINGS, body=Value(_LateCheck(_change_check))),
    Route("DELETE", _SETTINGS, reset_settings, "chatsSettings.update", {200: "ChatWorkspaceSettings"},
          "Reset the settings of a chat workspace", _TAG, feature=_OF_SETTINGS),
    # The only one that takes tenant tokens, whose filters each search applies.
    Route("POST", f"{_WORKSPACE}/chat/completions", complete, "chatCompletions", {200: shapes.STRING},
          "Request a chat completion", _TAG, feature=("chatCompletions", "using the /chats chat completions route"),
          body=Value(_LateCheck(_completion_check)), answer_type=EVENTS, joins_rules=True),
)
