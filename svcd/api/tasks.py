"""Task and batch routes: list, get, cancel, delete, documents of a task, compaction, waiting; dumps, snapshots and exports.

The filters of the query string are declared here; docs/tasks-and-batches.md says how tasks are stored and run.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import NDJSON, Fields, HandlerResult, Route, Text
from svcd.api.streaming import list_body
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.quantities import DAY, MICROSECOND, parse_date, parse_rfc3339, parse_size
from svcd.http.message import PORTION, Portions
from svcd.instance.queue import Queue, queue_snapshot
from svcd.instance.task_records import FINISHED, STATUSES, Page, TaskFilter
from svcd.tasks.batching import KINDS
from svcd.tasks.views import task_view
from svcd.validation import (
    Field, Param, anything, boolean, decode_query, map_of, nullable, object_of, parse_index_uid, parsed, positive_integer,
    query_strings, string,
)
from svcd.validation.messages import POSITIVE, STRING, invalid_value, name_list, wrong_type
from svcd.validation.names import parse_index_uid_pattern

STAR = "*"  # everything, in place of a date or of an element of a list
_LARGEST_UID = 2**32 - 1
# Times are stored as 64-bit nanoseconds, which end in the year 2262; later dates are clamped to it.
_FARTHEST = 2**63 - 1
_TAG = "Tasks and batches"
# Tasks or batches that are read together, and the usual bytes of one as text.
_PORTION = 50
_USUAL_BYTES = 400
_NO_RESULTS = '{"results":[],'


def _uid(text: str) -> int:
    """A task or batch uid: 0 to 2^32 - 1."""
    uid = query_strings.positive_integer(text)
    if uid > _LARGEST_UID:
        raise ValueError(f"could not parse `{text}` as a positive integer")
    return uid


def _name_parser(names: tuple[str, ...], noun: str, plural: str) -> Callable[[str], str]:
    """A parser that accepts one of these names, in any letter case."""
    by_lower_case = {name.lower(): name for name in names}
    accepted = name_list(names)

    def parse(text: str) -> str:
        try:
            return by_lower_case[text.lower()]
        except KeyError:
            raise ValueError(f"`{text}` is not a valid task {noun}. Available {plural} are {accepted}.") from None

    return parse


def _moment_parser(whole_day: int, of_micro: int = 0) -> Callable[[str], int | str]:
    """A parser of dates.

    whole_day: nanoseconds added to a bare date, which means midnight; of_micro: added to a date without nanoseconds.
    """

    def parse(text: str) -> int | str:
        if text == STAR:
            return STAR
        for parse_text, added in ((parse_rfc3339, 0), (parse_date, whole_day)):
            try:
                moment = parse_text(text) + added
                moment += 0 if moment % MICROSECOND else of_micro
                return max(-_FARTHEST, min(moment, _FARTHEST))
            except (ValueError, OverflowError):
                continue
        raise ValueError(f"`{text}` is an invalid date-time. It should follow the YYYY-MM-DD or RFC 3339 date-time format.")

    return parse


_status = _name_parser(STATUSES, "status", "statuses")
_kind = _name_parser(tuple(KINDS), "type", "types")
# A date without time is a whole day: `after` means after its end, and both bounds are exclusive. Answers truncate times
# to microseconds, and a task must not count as later than the time that it shows.
_after = _moment_parser(DAY, MICROSECOND - 1)
_before = _moment_parser(0)
_UID_SCHEMA = {"type": "integer", "minimum": 0, "maximum": _LARGEST_UID}


def _list_of(parse: Callable[[str], Any], code: str, **others: Any) -> Param:
    """A list parameter in which `*` at any position means everything; the other elements are still checked."""
    return Param.list_of(lambda text: STAR if text == STAR else parse(text), code, **others)


def _date(event: str) -> dict[str, Param]:
    """The two parameters that bound the time of an event."""
    return {f"{bound}{event}At": Param(parse, f"invalid_task_{bound}_{event.lower()}_at",
                                       about=f"Only {event.lower()} {bound} this date.")
            for bound, parse in (("after", _after), ("before", _before))}


_BY_UIDS = {"uids": _list_of(_uid, "invalid_task_uids", schema=_UID_SCHEMA, about="Task uids; `*` or absent for all.")}
_BY_BATCH_UIDS = {
    "batchUids": _list_of(_uid, "invalid_batch_uids", schema=_UID_SCHEMA, about="Batch uids; `*` or absent for all.")}
_FILTERS: Mapping[str, Param] = {
    "canceledBy": _list_of(_uid, "invalid_task_canceled_by", schema=_UID_SCHEMA, about="Uids of cancelation tasks."),
    "types": _list_of(_kind, "invalid_task_types", schema=shapes.SCHEMAS["Kind"], about="Task types, in any letter case."),
    "statuses": _list_of(_status, "invalid_task_statuses", schema=shapes.SCHEMAS["Status"],
                         about="Task statuses, in any letter case."),
    "indexUids": _list_of(parse_index_uid, "invalid_index_uid", about="Index uids; letter case counts."),
    **_date("Enqueued"), **_date("Started"), **_date("Finished"),
}
# The two orders are those in which messages list the parameters.
FILTER_PARAMS: Mapping[str, Param] = {**_BY_BATCH_UIDS, **_BY_UIDS, **_FILTERS}
_CHANGE_PARAMS: Mapping[str, Param] = {**_BY_UIDS, **_BY_BATCH_UIDS, **_FILTERS}
_LIST_PARAMS: Mapping[str, Param] = {
    "limit": Param(_uid, "invalid_task_limit", default=20, schema=_UID_SCHEMA, about="Largest number of results."),
    "from": Param(_uid, "invalid_task_from", schema=_UID_SCHEMA, about="Uid of the first result."),
    "reverse": Param(query_strings.boolean, "invalid_task_reverse", default=False, about="True lists the oldest first."),
    **FILTER_PARAMS,
}


def task_filter(values: Mapping[str, Any]) -> TaskFilter:
    """The filter of a decoded query string. An absent parameter and `*` both mean everything."""
    given = {}
    for name in FILTER_PARAMS:
        value = values.get(name)
        if not (value is None or value == STAR or isinstance(value, list) and STAR in value):
            given["kinds" if name == "types" else re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)] = value
    return TaskFilter(**given)


def _list_page(list_rows: Callable[..., Page[Any]], view: Callable[[Any], Any], ctx: Context) -> HandlerResult:
    """One page of the tasks or batches that the key may see, newest first unless reversed. Without a filter the total counts
    all."""
    values = ctx.query
    wanted, limit = task_filter(values), values["limit"]

    def portion(queue: Queue, most: int, from_uid: int | None) -> Page[Any]:
        return list_rows(queue, wanted, limit=most, from_uid=from_uid, reverse=values["reverse"],
                         is_allowed=ctx.permission.restriction)

    if limit > _PORTION:
        return _in_portions(ctx, portion, view, limit, values["from"])
    found = portion(ctx.queue, limit, values["from"])
    results = [view(row) for row in found.results]
    return HandlerResult(200, shapes.uid_page(results, found.total, limit, found.from_uid, found.next_uid))


def _in_portions(ctx: Context, portion: Callable[[Queue, int, int | None], Page[Any]], view: Callable[[Any], Any],
                 limit: int, from_uid: int | None) -> HandlerResult:
    """A long page, read in portions from one snapshot of the queue. A large page is read while it is sent."""
    with ExitStack() as held:
        queue = held.enter_context(queue_snapshot(ctx.queue))
        page = first = portion(queue, _PORTION, from_uid)

        def texts() -> Iterator[bytes]:
            nonlocal page
            left = limit
            while True:
                yield from (dumps(view(row)).encode() for row in page.results)
                left -= len(page.results)
                if page.next_uid is None or not left:
                    return
                page = portion(queue, min(left, _PORTION), page.next_uid)

        def suffix() -> bytes:
            members = shapes.uid_page([], first.total, limit, first.from_uid, page.next_uid)
            return f"],{dumps(members)[len(_NO_RESULTS):]}".encode()

        expected = min(limit, first.total) * _USUAL_BYTES
        body = list_body(_NO_RESULTS[:-2].encode(), texts(), suffix, expected=expected, limit=ctx.services.large_answers,
                         held=held)
    return HandlerResult(200, Text(body))


def path_uid(text: str, noun: str, code: str) -> int:
    """The uid in a path. Raises ApiError with the code if the text is not a uid."""
    try:
        return _uid(text)
    except ValueError:
        raise ApiError(code, f"{noun} uid `{text}` is invalid. It should only contain numeric characters.") from None


def _task_of(ctx: Context) -> Any:
    uid = ctx.path["task_id"]
    task = ctx.queue.task(uid)
    if task is None or not ctx.permission.allows(task.index_uid):
        raise ApiError("task_not_found", f"Task `{uid}` not found.")
    return task


def get_task(ctx: Context) -> HandlerResult:
    """One task. Raises task_not_found."""
    return HandlerResult(200, task_view(_task_of(ctx)))


def get_batch(ctx: Context) -> HandlerResult:
    """One batch. Raises batch_not_found."""
    uid = ctx.path["batch_id"]
    batch = ctx.queue.batch(uid, ctx.permission.restriction)
    if batch is None:
        raise ApiError("batch_not_found", f"Batch `{uid}` not found.")
    return HandlerResult(200, shapes.batch_view(batch))


def get_documents(ctx: Context) -> HandlerResult:
    """The stored documents of a task that is not finished. Raises task_not_found, task_file_not_found."""
    task = _task_of(ctx)
    is_waiting = task.kind == "documentAdditionOrUpdate" and task.status in ("enqueued", "processing")
    try:
        if is_waiting and task.payload is not None:
            file = (ctx.queue.payload_folder / task.payload).open("rb")  # now, to notice a missing file before the answer begins
            chunks = (chunk for chunk in iter(lambda: file.read(PORTION), b""))
            return HandlerResult(200, Text(Portions(chunks, file.close), NDJSON))
    except FileNotFoundError:  # the task finished meanwhile, which deletes its documents
        pass
    raise ApiError(
        "task_file_not_found",
        f"Task `{task.uid}` does not contain any documents. Only `documentAdditionOrUpdate` tasks "
        "with the statuses `enqueued` or `processing` contain documents",
    )


def _change(kind: str, counter: str, verb: str, ctx: Context) -> HandlerResult:
    """Enqueue a cancelation of unfinished tasks, or a deletion of finished ones, that match now and that the key may see.

    Raises missing_task_filters.
    """
    if all(value is None for value in ctx.query.values()):
        raise ApiError(
            "missing_task_filters",
            f"Query parameters to filter the tasks to {verb} are missing. Available query parameters are: "
            "`uids`, `indexUids`, `statuses`, `types`, `canceledBy`, `beforeEnqueuedAt`, `afterEnqueuedAt`, "
            "`beforeStartedAt`, `afterStartedAt`, `beforeFinishedAt`, `afterFinishedAt`.",
        )
    uids = ctx.queue.matching(task_filter(ctx.query), ctx.permission.restriction)
    details = {"matchedTasks": len(uids), counter: None, "originalFilter": f"?{without_write_params(ctx.request.query)}"}
    return shapes.enqueued(ctx, kind, None, details, {"uids": uids}, status=200)


def compact(ctx: Context) -> HandlerResult:
    """Return the free space of the task database to the file system, while no batch runs."""
    before, after = ctx.queue.compact()
    summary = {"preSize": shapes.size(before, "human"), "postSize": shapes.size(after, "human"), "status": "succeeded"}
    return HandlerResult(200, summary)


ROUTES = (
    Route("GET", "/tasks", partial(_list_page, Queue.list_tasks, task_view), "tasks.get", {200: "TaskPage"}, "List tasks", _TAG,
          query=_LIST_PARAMS),
    Route("DELETE", "/tasks", partial(_change, "taskDeletion", "deletedTasks", "delete"), "tasks.delete", {200: "TaskSummary"},
          "Delete finished tasks", _TAG, query=_CHANGE_PARAMS),
    Route("POST", "/tasks/cancel", partial(_change, "taskCancelation", "canceledTasks", "cancel"), "tasks.cancel",
          {200: "TaskSummary"}, "Cancel tasks", _TAG, query=_CHANGE_PARAMS),
    Route("POST", "/tasks/compact", compact, "tasks.compact", {200: "CompactionSummary"}, "Compact the task database", _TAG,
          feature=("taskQueueCompactionRoute", "Using the /tasks/compact route")),
    Route("GET", "/tasks/{task_id}", get_task, "tasks.get", {200: "Task"}, "Get a task", _TAG),
    Route("GET", "/tasks/{task_id}/documents", get_documents, "tasks.get", {200: {}}, "Get the documents of a waiting task", _TAG,
          answer_type=NDJSON, feature=("getTaskDocumentsRoute", "Getting the documents of an enqueued task")),
    Route("GET", "/batches", partial(_list_page, Queue.list_batches, shapes.batch_view), "tasks.get", {200: "BatchPage"},
          "List batches", _TAG, query=_LIST_PARAMS),
    Route("GET", "/batches/{batch_id}", get_batch, "tasks.get", {200: "Batch"}, "Get a batch", _TAG),
)


# `?wait=500ms`: answers a write with its finished task, if the task finishes in time (docs/http.md#waiting-for-tasks). Every
# write takes the parameter, so it is declared here and not in the table of each route. The thread waits for a wake-up pipe of the
# queue and for its client to leave at once, and reads the task when the pipe is set.

WAIT_NAME = "wait"
# A waiting request holds a thread and a connection, and few proxies wait longer than this.
MAX_S = 300
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m)", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of `500ms`, `1.5s`, `2m`. Raises ValueError for anything else, and for more than MAX_S."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"could not parse `{text}` as a duration, expected a number with a unit: `500ms`, `1.5s` or `2m`")
    seconds = float(match[1]) * _UNITS_S[match[2]]
    if seconds > MAX_S:
        raise ValueError(f"`{text}` is too long, expected at most `{MAX_S}s`")
    return seconds


WAIT = Param(parse_duration, about="Answer the finished task with 200 if it finishes within this duration "
                                   "(`500ms`, `1.5s`, `2m`), and the summary otherwise.")
# `?dryRun=true`: answers a write with what its task would do (svcd.tasks.dry_runs).
DRY_RUN_NAME = "dryRun"
WRITE_PARAMS = {WAIT_NAME: WAIT, DRY_RUN_NAME: Param(query_strings.boolean, default=False, about=(
    "True answers with what the task would do, and enqueues nothing."))}


def is_write(route: Route) -> bool:
    """Return whether a route answers with the summary of a task."""
    return "TaskSummary" in route.answers.values()


def extract_write_params(route: Route, query: str) -> tuple[str, float, bool]:
    """(the query string without WRITE_PARAMS, the seconds of `wait` or 0, `dryRun`). Raises bad_request."""
    if WAIT_NAME not in query and DRY_RUN_NAME not in query or not is_write(route):
        return query, 0.0, False
    own = [part for part in query.split("&") if part.partition("=")[0] in WRITE_PARAMS]
    decoded: Mapping[str, Any] = decode_query("&".join(own), WRITE_PARAMS)
    return without_write_params(query), decoded[WAIT_NAME] or 0.0, decoded[DRY_RUN_NAME]


def without_write_params(query: str) -> str:
    """The query string, still percent-encoded, without WRITE_PARAMS."""
    return "&".join(part for part in query.split("&") if part.partition("=")[0] not in WRITE_PARAMS)


def wait_for_task(ctx: Context, answer: HandlerResult, seconds: float) -> HandlerResult:
    """The finished task in place of its summary; the summary if time runs out or too many requests wait already."""
    limit = ctx.services.waiting_writes
    if not limit.try_acquire():
        return answer
    try:
        uid = answer.value["taskUid"]
        with ctx.queue.listeners.when_ended(uid) as wakeup:
            task = ctx.queue.task(uid)
            if (task is None or task.status not in FINISHED) and ctx.request.wait(wakeup, seconds):
                task = ctx.queue.task(uid)  # not out of time, and the client has not left
        return HandlerResult(200, task_view(task)) if task is not None and task.status in FINISHED else answer
    finally:
        limit.release()


# Dumps, snapshots and exports to another instance (docs/export.md): each request enqueues one


def create_dump(ctx: Context) -> HandlerResult:
    """Enqueue a dump. It gets the present keys and instance uid; the rest is read when the dump is written."""
    from svcd.tasks.dump_lines import key_line  # loads what reads dumps

    _, newest_first = ctx.instance.keys.read()
    content = {"keys": [key_line(row) for row in reversed(newest_first)], "instanceUid": ctx.instance.uid}
    return shapes.enqueued(ctx, "dumpCreation", None, {"dumpUid": None}, content)


def create_snapshot(ctx: Context) -> HandlerResult:
    """Enqueue a snapshot. One batch creates a single snapshot for all waiting tasks."""
    return shapes.enqueued(ctx, "snapshotCreation", None, None)

def export(ctx: Context) -> HandlerResult:
    """Enqueue an export. An unreachable target or a wrong filter fails the task, not this request."""
    from svcd.tasks import exports  # imported late: most instances export nothing

    body = ctx.body
    content = exports.task_content(body["url"], body.get("apiKey"), body.get("payloadSize"), body.get("indexes"))
    return shapes.enqueued(ctx, exports.KIND, None, exports.task_details(content), content, status=200)


class _Size(NamedTuple):
    """A number of bytes, or a text with a unit."""

    def decode(self, value: Any, location: str) -> Any:
        if isinstance(value, str):
            try:
                return parse_size(value)
            except ValueError as fault:
                raise invalid_value(f"`{value}` {fault}", location) from None
        if type(value) is int and value >= 0:
            return positive_integer.decode(value, location)
        raise wrong_type(value, (POSITIVE, STRING), location)

    def describe(self) -> dict[str, Any]:
        return {"oneOf": [positive_integer.describe(), {"type": "string"}]}


def _with_patterns(indexes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check that the names of a map are patterns of index uids. Return the map."""
    for pattern in indexes:
        try:
            parse_index_uid_pattern(pattern)
        except ValueError:
            key_type = "svc_types::index_uid_pattern::IndexUidPattern"
            raise ValueError(f'the key "{pattern}" could not be deserialized into the key type `{key_type}`') from None
    return indexes


_EXPORT_BODY = Fields({
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

ARCHIVE_ROUTES = (
    Route("POST", "/dumps", create_dump, "dumps.create", {202: "TaskSummary"}, "Create a dump", "Backups"),
    Route("POST", "/snapshots", create_snapshot, "snapshots.create", {202: "TaskSummary"}, "Create a snapshot", "Backups"),
    Route("POST", "/export", export, "export", {200: "TaskSummary"}, "Export to another instance", "Export", body=_EXPORT_BODY),
)
