"""Routes of the query log: click-throughs come in, counts of searches go out (docs/guide/query-log.md).

A key counts the searches on the indexes that it may see. A click counts for a search on the index of its path by the same key.
"""
from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.base import quantities
from svcd.base.errors import ApiError
from svcd.base.quantities import parse_date, parse_rfc3339, rfc3339_micro
from svcd.validation import Field, Param, bounded, nullable, parse_index_uid, parse_uuid, parsed, query_strings, string

if TYPE_CHECKING:
    from svcd.querylog.recorder import Recorder

_TAG = "Query log"
_MILLISECOND = quantities.SECOND // 1000
_DEFAULT_SPAN, _MOST_LISTED, _MOST_POSITION = 7 * quantities.DAY, 1000, 1_000_000
_FARTHEST = 4_000_000_000 * quantities.SECOND  # later times do not fit into the numbers of searches


def _log(ctx: Context) -> Recorder:
    recorder = ctx.services.query_log
    if recorder is None:
        raise ApiError("feature_not_enabled", "The query log is off. Start svcd with the option `--query-log SIZE`, for example "
                                              "`--query-log \"100 MiB\"`.")
    return recorder


def _request_uid(text: str) -> str:
    uid = parse_uuid(text)
    if uid[14] != "7" or uid[:2] > "03":  # later times do not fit into the numbers of searches, either
        raise ValueError(f"`{text}` is not the `requestUid` of a search")
    return uid


def _document_id(value: str) -> str:
    if not value:
        raise ValueError("a document id is not empty")
    return value


def note_click(ctx: Context) -> HandlerResult:
    """Note that somebody chose a hit. Raises feature_not_enabled."""
    from svcd.querylog.recorder import Click

    event = ctx.body
    _log(ctx).add([Click(quantities.now() // _MILLISECOND, event["requestUid"], ctx.index_uid, event["documentId"],
                         event.get("position"), ctx.permission.key_uid)])
    return HandlerResult(204)


def searches(ctx: Context) -> HandlerResult:
    """Count the searches of a span. Raises feature_not_enabled, bad_request for a span that ends before it begins."""
    from svcd.querylog import report
    from svcd.querylog.store import FILE

    _log(ctx).flush()
    now = quantities.now()
    end = now + _MILLISECOND if ctx.query["to"] is None else ctx.query["to"]
    begin = end - _DEFAULT_SPAN if ctx.query["from"] is None else ctx.query["from"]
    if begin >= end:
        raise ApiError("bad_request", "Query parameter `from` must be before `to`.")
    wanted, path, allows = ctx.query["indexUid"], ctx.services.data_folder.path / FILE, ctx.permission.allows
    try:
        counted = report.report(path, lambda uid: allows(uid) and wanted in (None, uid), begin // _MILLISECOND,
                                end // _MILLISECOND, ctx.query["limit"])
    except sqlite3.Error as failure:
        raise ApiError("io_error", f"The query log cannot be read: {failure}.") from None
    for step in counted["byTime"]:
        step["at"] = rfc3339_micro(step["at"] * _MILLISECOND)
    if not allows(None):  # a key of some indexes must not learn which other keys exist
        counted["byKey"] = None
    return HandlerResult(200, {"from": rfc3339_micro(begin), "to": rfc3339_micro(end), **counted})


def _moment(text: str) -> int:
    for parse in (parse_rfc3339, parse_date):
        try:
            return max(0, min(parse(text), _FARTHEST))
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"`{text}` is not a date: write 2026-12-31 or 2026-12-31T23:59:00Z")


def _limit(text: str) -> int:
    count = query_strings.positive_integer(text)
    if count > _MOST_LISTED:
        raise ValueError(f"at most {_MOST_LISTED} rows are listed")
    return count


_DATE: dict[str, Any] = {"type": "string", "format": "date-time"}
_FIGURES = {"searches": shapes.COUNT, "finished": shapes.COUNT, "withoutHits": shapes.COUNT, "latencyMs": shapes.record(
    {name: shapes.nullable(shapes.COUNT) for name in ("p50", "p95", "max")})}
_QUERIES = shapes.array(shapes.record({
    "indexUid": shapes.STRING, "query": shapes.STRING, "searches": shapes.COUNT, "finished": shapes.COUNT,
    "withoutHits": shapes.COUNT, "clicked": shapes.COUNT, "averageMs": {"type": "number"}}))
_ANSWER = shapes.record({
    "from": shapes.MOMENT, "to": shapes.MOMENT, **_FIGURES, "clicked": shapes.COUNT,
    "averageClickPosition": shapes.nullable({"type": "number"}),
    "byTime": shapes.array(shapes.record({"at": shapes.MOMENT, "searches": shapes.COUNT, "withoutHits": shapes.COUNT,
                                          "clicked": shapes.COUNT})),
    "byIndex": shapes.mapping(shapes.record(_FIGURES)),
    "byKey": shapes.nullable(shapes.array(shapes.record({"key": shapes.nullable(shapes.STRING), **_FIGURES}))),
    "queries": _QUERIES, "queriesWithoutHits": _QUERIES,
    "suggestions": shapes.array(shapes.record({"indexUid": shapes.STRING, "kind": shapes.STRING, "words": shapes.STRING,
                                               "instead": shapes.STRING, "count": shapes.COUNT})),
})

ROUTES = (
    Route("POST", "/indexes/{index_uid}/events", note_click, "search", {204: {}}, "Note that a hit was chosen", _TAG,
          body=Fields({
        "requestUid": Field(parsed(string, _request_uid), required=True, about="From the answer of the search."),
        "documentId": Field(parsed(string, _document_id), required=True, about="The hit; a number as a string."),
        "position": Field(nullable(bounded(_MOST_POSITION, 1)), about="Its place among the hits, from 1."),
    }), joins_rules=True),
    Route("GET", "/analytics/searches", searches, "stats.get", {200: _ANSWER}, "Count searches", _TAG, query={
        "indexUid": Param(parse_index_uid, about="Count searches on this index only."),
        "from": Param(_moment, schema=_DATE, about="First time, or day; by default a week before the end."),
        "to": Param(_moment, schema=_DATE, about="Time after the last search; by default now."),
        "limit": Param(_limit, default=20, about="Length of the lists of queries."),
    }),
)
