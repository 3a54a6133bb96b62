"""Index routes: list, get, create, update, delete, statistics, fields, compaction, swap; and the settings of an index."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import OF_BODY, Fields, HandlerResult, Route, Value
from svcd.base.errors import ApiError
from svcd.schema import settings as settings_table
from svcd.schema.attributes import WILDCARD, is_beneath, is_everything, is_reserved, matches
from svcd.schema.index_settings import IndexSettings
from svcd.schema.settings import Setting
from svcd.validation import (
    Field, Param, array_of, boolean, index_uid, nullable, object_of, positive_integer, query_strings, string,
)
from svcd.validation.messages import name_list
from svcd.validation.names import require_feature

if TYPE_CHECKING:
    from svcd.instance.data_folder import IndexRow

# The fields of an index with their settings

_SORT_RULE = re.compile(r"(?P<attribute>.+):(?P<order>asc|desc)", re.S)


def _any_covers(names: Iterable[str] | None, attribute: str) -> bool:
    """Return whether a plain name of a setting covers an attribute: `*`, the attribute itself, or one of its parents."""
    return any(name == WILDCARD or is_beneath(attribute, name) for name in names or ())


def _enabled(is_enabled: bool) -> dict[str, Any]:
    return {"enabled": is_enabled}


def _ranking_rule(settings: IndexSettings, attribute: str) -> dict[str, Any]:
    """The orders of the rules that sort by the attribute; without such a rule the member `order` is absent."""
    found = [_SORT_RULE.fullmatch(rule) for rule in settings.ranking_rules]
    orders = [match["order"] for match in found if match and match["attribute"] == attribute]
    return {"enabled": True, "order": orders} if orders else _enabled(False)


def _filterable(settings: IndexSettings, attribute: str) -> dict[str, Any]:
    rule = settings.filterable.rule(attribute)
    return {"enabled": rule is not None and rule.is_filterable, "sortBy": settings.faceting.order_of(attribute),
            "facetSearch": rule is not None and rule.facet_search, "equality": rule is not None and rule.equality,
            "comparison": rule is not None and rule.comparison}


_VIEWS: Mapping[str, Callable[[IndexSettings, str], dict[str, Any]]] = {  # member of the answer: its value
    "displayed": lambda settings, name: _enabled(is_everything(settings.displayed_attributes)
                                                 or _any_covers(settings.displayed_attributes, name)),
    "searchable": lambda settings, name: _enabled(not is_reserved(name) and (
        is_everything(names := settings.resolved["searchableAttributes"]) or _any_covers(names, name))),
    "sortable": lambda settings, name: _enabled(_any_covers(settings.sortable_attributes, name)),
    "distinct": lambda settings, name: _enabled(settings.distinct_attribute == name),
    "rankingRule": _ranking_rule,
    "filterable": _filterable,
    "localized": lambda settings, name: {"locales": list(settings.locales_of(name) or ())},
}


def field_view(settings: IndexSettings, attribute: str) -> dict[str, Any]:
    """The settings of one attribute, as the `Field` of an answer."""
    return {"name": attribute} | {member: view(settings, attribute) for member, view in _VIEWS.items()}


def list_fields(ctx: Context) -> HandlerResult:
    """One page of the fields of an index, by name. Raises index_not_found."""
    offset, limit, wanted = ctx.body["offset"], ctx.body["limit"], ctx.body.get("filter") or {}
    with ctx.instance.read(ctx.index_uid) as reader:
        views = [field_view(reader.settings, name) for name in sorted(reader.fields())]
    patterns = wanted.get("attributePatterns")
    if patterns is not None:
        views = [view for view in views if any(matches(view["name"], pattern) for pattern in patterns)]
    flags = {member: flag for member, flag in wanted.items() if member != "attributePatterns" and flag is not None}
    kept = [view for view in views if all(view[member]["enabled"] is flag for member, flag in flags.items())]
    return HandlerResult(200, shapes.page(kept[offset:offset + limit], offset, limit, len(kept)))


FIELDS_BODY = Fields({
    "offset": Field(positive_integer, "invalid_index_offset", default=0),
    "limit": Field(positive_integer, "invalid_index_limit", default=20),
    "filter": Field(nullable(object_of({
        "attributePatterns": Field(nullable(array_of(string)), "invalid_index_fields_filter_attribute_patterns"),
        **{name: Field(nullable(boolean), f"invalid_index_fields_filter_{code}") for name, code in (
            ("displayed", "displayed"), ("searchable", "searchable"), ("sortable", "sortable"), ("distinct", "distinct"),
            ("rankingRule", "ranking_rule"), ("filterable", "filterable"))},
    })), "invalid_index_fields_filter"),
})


_TAG = "Indexes"


def list_indexes(ctx: Context) -> HandlerResult:
    """One page of the indexes that the key may see, by uid."""
    offset, limit = ctx.query["offset"], ctx.query["limit"]
    rows, total = ctx.instance.list_indexes(offset, limit, ctx.permission.allows)
    return HandlerResult(200, shapes.page([shapes.index_view(row) for row in rows], offset, limit, total))


def get(ctx: Context) -> HandlerResult:
    """One index. Raises index_not_found."""
    return HandlerResult(200, shapes.index_view(ctx.instance.require_index(ctx.index_uid)))


def create(ctx: Context) -> HandlerResult:
    """Enqueue the creation of an index."""
    ctx.permission.require(ctx.body["uid"])
    primary_key = {"primaryKey": ctx.body.get("primaryKey")}
    return shapes.enqueued(ctx, "indexCreation", ctx.body["uid"], primary_key, primary_key)


def update(ctx: Context) -> HandlerResult:
    """Enqueue the change of the primary key; null succeeds and does not change the key."""
    primary_key = {"primaryKey": ctx.body.get("primaryKey")}
    return shapes.enqueued(ctx, "indexUpdate", ctx.index_uid, primary_key, primary_key)


def update_or_rename(ctx: Context) -> HandlerResult:
    """Enqueue a new name (--experimental-rename-by-patch), after the change of the primary key, if there is one.

    Two tasks: the key is in the file of the index, its name is not, and the second is the one that clients wait for.
    """
    uid = ctx.body.get("uid")
    if uid in (None, ctx.index_uid):
        return update(ctx)
    ctx.permission.require(uid)
    primary_key = ctx.body.get("primaryKey")
    if primary_key is not None:
        update(ctx)
    details = {"primaryKey": primary_key, "oldIndexUid": ctx.index_uid, "newIndexUid": uid}
    return shapes.enqueued(ctx, "indexUpdate", ctx.index_uid, details, {"primaryKey": primary_key, "newIndexUid": uid})


def delete(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of an index with its documents and settings."""
    return shapes.enqueued(ctx, "indexDeletion", ctx.index_uid, {"deletedDocuments": None}, {})


def compact(ctx: Context) -> HandlerResult:
    """Enqueue the compaction of the file of an index."""
    return shapes.enqueued(ctx, "indexCompaction", ctx.index_uid, {}, {})


def index_stats(ctx: Context, row: IndexRow, being_indexed: Collection[str | None]) -> dict[str, Any]:
    """The statistics of one index, as the query string asks; its file is opened only for the sizes of its tables.

    being_indexed: as indexes_at_work(). Raises index_not_found if the index was deleted meanwhile.
    """
    size_format, stats = ctx.query["sizeFormat"], row.stats
    count, raw_size = stats.get("documents", 0), stats.get("bytes", 0)
    view: dict[str, Any] = {
        "numberOfDocuments": count,
        "rawDocumentDbSize": shapes.size(raw_size, size_format),
        "avgDocumentSize": shapes.size(raw_size // count if count else 0, size_format),
        "isIndexing": row.uid in being_indexed,
    }
    if ctx.query["showInternalDatabaseSizes"]:
        with ctx.instance.read_file(row.uid, row.uuid) as reader:
            tables = reader.internal_database_sizes()
        view["internalDatabaseSizes"] = {name: shapes.size(size, size_format) for name, size in tables.items()}
    view |= {"numberOfEmbeddings": stats.get("embeddings", 0), "numberOfEmbeddedDocuments": stats.get("embeddedDocuments", 0)}
    if outdated := stats.get("outdatedEmbeddings"):  # of no other engine: shown where there are any
        view["outdatedEmbeddings"] = outdated
    view["fieldDistribution"] = dict(sorted(stats.get("fields", {}).items()))
    return view


def indexes_at_work(ctx: Context) -> Collection[str | None]:
    """The uids of the indexes that a task of a running batch names."""
    return {task.index_uid for running in ctx.queue.running() for task in list(running.tasks.values())}


def get_stats(ctx: Context) -> HandlerResult:
    """The statistics of one index. Raises index_not_found."""
    return HandlerResult(200, index_stats(ctx, ctx.instance.require_index(ctx.index_uid), indexes_at_work(ctx)))


def swap(ctx: Context) -> HandlerResult:
    """Enqueue the swap of pairs of indexes, all or none.

    Raises invalid_swap_indexes for a list that is not a pair, invalid_swap_duplicate_index_found for an
    index that is named twice in the body.
    """
    swaps = [{"indexes": pair["indexes"], "rename": bool(pair.get("rename"))} for pair in ctx.body]
    for pair in swaps:
        uids = pair["indexes"]
        if len(uids) != 2:
            listed = ", ".join(f'"{uid}"' for uid in uids)
            message = f"Two indexes must be given for each swap. The list `[{listed}]` contains {len(uids)} indexes."
            raise ApiError("invalid_swap_indexes", message)
        for uid in uids:
            ctx.permission.require(uid)
    counts = Counter(uid for pair in swaps for uid in pair["indexes"])
    if twice := sorted(uid for uid, count in counts.items() if count > 1):
        verb = "was" if len(twice) == 1 else "were"
        message = f"Indexes must be declared only once during a swap. {name_list(twice)} {verb} specified several times."
        raise ApiError("invalid_swap_duplicate_index_found", message)
    return shapes.enqueued(ctx, "indexSwap", None, {"swaps": swaps}, {"swaps": swaps})


_PRIMARY_KEY = Field(nullable(string), "invalid_index_primary_key",
                     about="The field that identifies a document; null to have it guessed.")
_CREATE_BODY = Fields({
    "uid": Field(index_uid, "invalid_index_uid", required=True, missing_code="missing_index_uid", about="The name of the index."),
    "primaryKey": _PRIMARY_KEY,
})
_UPDATE_BODY = Fields({
    "primaryKey": Field(nullable(string), "invalid_index_primary_key",
                        about="The field that identifies a document, for an index without one; null leaves the key as it is."),
}, immutable={"uid": "bad_request", "createdAt": "immutable_index_created_at", "updatedAt": "immutable_index_updated_at"})
_RENAME_BODY = replace(
    _UPDATE_BODY, fields={**_UPDATE_BODY.fields, "uid": Field(nullable(index_uid), "invalid_index_uid", about="Its new name.")},
    immutable={name: code for name, code in _UPDATE_BODY.immutable.items() if name != "uid"})
_SWAP_BODY = Value(array_of(object_of({
    "indexes": Field(array_of(index_uid), "invalid_swap_indexes", required=True,
                     missing_code="missing_swap_indexes", about="The two indexes to swap."),
    "rename": Field(boolean, "invalid_swap_rename",
                    about="True gives the first index the name of the second, which must not exist."),
})))
STATS_PARAMS = {
    "showInternalDatabaseSizes": Param(query_strings.boolean, "invalid_stats_show_internal_database_sizes", default=False,
                                       about="Adds the sizes of the internal tables."),
    "sizeFormat": Param(query_strings.choice("human", "raw"), "invalid_stats_size_format", default="raw",
                        schema={"type": "string", "enum": ["human", "raw"]}, about="Sizes in bytes, or as text with a unit."),
}

ROUTES = (
    Route("GET", "/indexes", list_indexes, "indexes.get", {200: "IndexPage"}, "List indexes", _TAG,
          query=shapes.page_params("invalid_index_", "Indexes")),
    Route("POST", "/indexes", create, "indexes.create", {202: "TaskSummary"}, "Create an index", _TAG, body=_CREATE_BODY),
    Route("GET", "/indexes/{index_uid}", get, "indexes.get", {200: "Index"}, "Get an index", _TAG),
    Route("PATCH", "/indexes/{index_uid}", update, "indexes.update", {202: "TaskSummary"},
          "Change the primary key of an index", _TAG, body=_UPDATE_BODY),
    Route("DELETE", "/indexes/{index_uid}", delete, "indexes.delete", {202: "TaskSummary"}, "Delete an index", _TAG),
    Route("GET", "/indexes/{index_uid}/stats", get_stats, "stats.get", {200: "IndexStats"},
          "Get statistics of an index", _TAG, query=STATS_PARAMS, etag=OF_BODY),
    Route("POST", "/indexes/{index_uid}/fields", list_fields, "fields.post", {200: "FieldPage"},
          "List the fields of an index", _TAG, body=FIELDS_BODY),
    Route("POST", "/indexes/{index_uid}/compact", compact, "indexes.compact", {202: "TaskSummary"}, "Compact an index", _TAG),
    Route("POST", "/swap-indexes", swap, "indexes.swap", {202: "TaskSummary"}, "Swap indexes", _TAG, body=_SWAP_BODY),
)


def with_renaming(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The routes, with a PATCH of an index that accepts a new uid."""
    return tuple(route._replace(run=update_or_rename, body=_RENAME_BODY) if route.run is update else route for route in routes)


# Settings: all of an index, and each on a route of its own, made from a row of SETTINGS. A write only enqueues a task, which
# checks what depends on the stored settings.

_SETTINGS = "/indexes/{index_uid}/settings"


def get_settings(ctx: Context) -> HandlerResult:
    """All settings, except the settings of features that are off. Raises index_not_found."""
    with ctx.instance.read(ctx.index_uid) as reader:
        stored = reader.settings.resolved
    return HandlerResult(200, settings_table.as_shown(stored, ctx.instance.features()))


def _change_settings(ctx: Context, change: Mapping[str, Any], is_reset: bool = False) -> HandlerResult:
    """Enqueue a decoded change, or a reset, which needs an index that exists.

    Raises feature_not_enabled and the codes of settings_table.validate.
    """
    flags = ctx.instance.features()
    for flag, action in settings_table.features_used(change):
        require_feature(flags, flag, action)
    settings_table.validate(change)
    content = {"settings": dict(change), "mayCreateIndex": not is_reset and ctx.permission.may_create_index, "reset": is_reset}
    return shapes.enqueued(ctx, "settingsUpdate", ctx.index_uid, settings_table.changed_as_shown(change), content)


def _shape(setting: Setting) -> dict[str, Any]:
    """The schema of its value in answers: null only where that is the default."""
    return (nullable(setting.check) if setting.default is None else setting.check).describe()


def _routes_of(setting: Setting) -> tuple[Route, Route, Route]:
    """Read, write and reset of one setting."""
    path, name = f"{_SETTINGS}/{setting.route}", setting.name

    def get_one(ctx: Context) -> HandlerResult:
        with ctx.instance.read(ctx.index_uid) as reader:
            return HandlerResult(200, setting.shown(reader.settings.resolved))

    return (
        Route("GET", path, get_one, "settings.get", {200: _shape(setting)}, f"Read {name}", "Settings", etag=OF_BODY),
        Route(setting.method, path, lambda ctx: _change_settings(ctx, {name: ctx.body}), "settings.update", {202: "TaskSummary"},
              f"Change {name}", "Settings", body=Value(nullable(setting.check), setting.code)),
        Route("DELETE", path, lambda ctx: _change_settings(ctx, {name: None}, is_reset=True), "settings.update",
              {202: "TaskSummary"}, f"Reset {name}", "Settings"),
    )


_ALL: Mapping[str, Any] = {"type": "object", "properties": {setting.name: _shape(setting) for setting in settings_table.SETTINGS}}

SETTINGS_ROUTES: tuple[Route, ...] = (
    Route("GET", _SETTINGS, get_settings, "settings.get", {200: _ALL}, "Read all settings", "Settings", etag=OF_BODY),
    Route("PATCH", _SETTINGS, lambda ctx: _change_settings(ctx, ctx.body), "settings.update", {202: "TaskSummary"},
          "Change some settings", "Settings", body=Fields(settings_table.FIELDS)),
    Route("DELETE", _SETTINGS, lambda ctx: _change_settings(ctx, settings_table.RESET_ALL, is_reset=True), "settings.update",
          {202: "TaskSummary"}, "Reset all settings", "Settings"),
    *(route for setting in settings_table.SETTINGS for route in _routes_of(setting)),
)
