"""Settings routes: all settings of an index, and each on a route of its own.

Every route is made from a row of SETTINGS. A write only enqueues a task; what depends on the stored settings is checked
when the task runs.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route, Value
from svcd.schema import settings
from svcd.schema.settings import Setting
from svcd.validation import nullable
from svcd.validation.features import require

_TAG = "Settings"
_PATH = "/indexes/{index_uid}/settings"
_READ, _WRITE = "settings.get", "settings.update"


def get(ctx: Context) -> HandlerResult:
    """All settings, except the settings of features that are off. Raises index_not_found."""
    with ctx.instance.read(ctx.index_uid) as reader:
        stored = reader.settings.resolved
    return HandlerResult(200, settings.as_shown(stored, ctx.instance.features()))


def update(ctx: Context) -> HandlerResult:
    """Enqueue a change of the settings in the body."""
    return _enqueue(ctx, ctx.body)


def reset(ctx: Context) -> HandlerResult:
    """Enqueue the reset of all settings, on an index that exists."""
    return _enqueue(ctx, settings.RESET_ALL, is_reset=True)


def _enqueue(ctx: Context, change: Mapping[str, Any], is_reset: bool = False) -> HandlerResult:
    """Enqueue a decoded change. Raises feature_not_enabled and the codes of settings.validate."""
    flags = ctx.instance.features()
    for flag, action in settings.features_used(change):
        require(flags, flag, action)
    settings.validate(change)
    content = {
        "settings": dict(change),
        "mayCreateIndex": not is_reset and ctx.permission.may_create_index,
        "reset": is_reset,
    }
    details = settings.changed_as_shown(change)
    task = ctx.queue.enqueue("settingsUpdate", ctx.index_uid, details=details, content=content)
    return HandlerResult(202, shapes.task_summary(task))


def _shape(setting: Setting) -> dict[str, Any]:
    """The schema of its value in answers: null only where that is the default."""
    return (nullable(setting.check) if setting.default is None else setting.check).describe()


def _routes_of(setting: Setting) -> tuple[Route, Route, Route]:
    """Read, write and reset of one setting."""
    path, name = f"{_PATH}/{setting.route}", setting.name

    def get_one(ctx: Context) -> HandlerResult:
        with ctx.instance.read(ctx.index_uid) as reader:
            return HandlerResult(200, setting.shown(reader.settings.resolved))

    def update_one(ctx: Context) -> HandlerResult:
        return _enqueue(ctx, {name: ctx.body})

    def reset_one(ctx: Context) -> HandlerResult:
        return _enqueue(ctx, {name: None}, is_reset=True)

    return (
        Route("GET", path, get_one, _READ, {200: _shape(setting)}, f"Read {name}", _TAG),
        Route(setting.method, path, update_one, _WRITE, {202: "TaskSummary"}, f"Change {name}", _TAG,
              body=Value(nullable(setting.check), setting.code)),
        Route("DELETE", path, reset_one, _WRITE, {202: "TaskSummary"}, f"Reset {name}", _TAG),
    )


_ALL: Mapping[str, Any] = {
    "type": "object",
    "properties": {setting.name: _shape(setting) for setting in settings.SETTINGS},
}

ROUTES: tuple[Route, ...] = (
    Route("GET", _PATH, get, _READ, {200: _ALL}, "Read all settings", _TAG),
    Route("PATCH", _PATH, update, _WRITE, {202: "TaskSummary"}, "Change some settings", _TAG,
          body=Fields(settings.FIELDS)),
    Route("DELETE", _PATH, reset, _WRITE, {202: "TaskSummary"}, "Reset all settings", _TAG),
    *(route for setting in settings.SETTINGS for route in _routes_of(setting)),
)
