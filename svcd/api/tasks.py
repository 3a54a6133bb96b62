"""Task and batch routes: list, get, cancel, delete, documents of a task, compaction; dumps and snapshots.

The filters of the query string are declared here; docs/tasks-and-batches.md says how tasks are stored and run.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from svcd.api import shapes, waiting
from svcd.api.context import Context
from svcd.api.routes import NDJSON, HandlerResult, Route, Text
from svcd.api.streaming import list_body
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.quantities import DAY, MICROSECOND, parse_date, parse_rfc3339
from svcd.http.message import PORTION, Portions
from svcd.instance.queue import Queue, queue_snapshot
from svcd.instance.task_records import STATUSES, Page, TaskFilter
from svcd.tasks.batching import KINDS
from svcd.tasks.dump_lines import key_line
from svcd.tasks.views import task_view
from svcd.validation import STAR, Param, parse_index_uid, query_strings
from svcd.validation.messages import name_list

# Dumps and snapshots: each request enqueues one

_ARCHIVES = "Backups"


def create_dump(ctx: Context) -> HandlerResult:
    """Enqueue a dump. It gets the present keys and instance uid; the rest is read when the dump is written."""
    _, newest_first = ctx.instance.keys.read()
    content = {"keys": [key_line(row) for row in reversed(newest_first)], "instanceUid": ctx.instance.uid}
    task = ctx.queue.enqueue("dumpCreation", None, details={"dumpUid": None}, content=content)
    return HandlerResult(202, shapes.task_summary(task))


def create_snapshot(ctx: Context) -> HandlerResult:
    """Enqueue a snapshot. One batch creates a single snapshot for all waiting tasks."""
    return HandlerResult(202, shapes.task_summary(ctx.queue.enqueue("snapshotCreation", None, details=None)))


ARCHIVE_ROUTES = (
    Route("POST", "/dumps", create_dump, "dumps.create", {202: "TaskSummary"}, "Create a dump", _ARCHIVES),
    Route("POST", "/snapshots", create_snapshot, "snapshots.create", {202: "TaskSummary"}, "Create a snapshot", _ARCHIVES),
)


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
        raise ValueError(
            f"`{text}` is an invalid date-time. It should follow the YYYY-MM-DD or RFC 3339 date-time format."
        )

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


@dataclass(frozen=True, slots=True)
class _Filter:
    """One filter: the field of TaskFilter it sets and the parameter it is read from."""

    field: str
    param: Param


def _uids(field: str, code: str, about: str) -> _Filter:
    return _Filter(field, _list_of(_uid, code, schema=_UID_SCHEMA, about=about))


def _date(field: str, code: str) -> _Filter:
    parse = _after if field.startswith("after") else _before
    bound, _, event = field.removesuffix("_at").partition("_")
    return _Filter(field, Param(parse, code, about=f"Only {event} {bound} this date."))


_BY_UIDS = {"uids": _uids("uids", "invalid_task_uids", "Task uids; `*` or absent for all.")}
_BY_BATCH_UIDS = {"batchUids": _uids("batch_uids", "invalid_batch_uids", "Batch uids; `*` or absent for all.")}
_FILTERS: Mapping[str, _Filter] = {
    "canceledBy": _uids("canceled_by", "invalid_task_canceled_by", "Uids of cancelation tasks."),
    "types": _Filter("kinds", _list_of(
        _kind, "invalid_task_types", schema=shapes.SCHEMAS["Kind"],
        about="Task types, in any letter case.")),
    "statuses": _Filter("statuses", _list_of(
        _status, "invalid_task_statuses", schema=shapes.SCHEMAS["Status"],
        about="Task statuses, in any letter case.")),
    "indexUids": _Filter("index_uids", _list_of(
        parse_index_uid, "invalid_index_uid", about="Index uids; letter case counts.")),
    "afterEnqueuedAt": _date("after_enqueued_at", "invalid_task_after_enqueued_at"),
    "beforeEnqueuedAt": _date("before_enqueued_at", "invalid_task_before_enqueued_at"),
    "afterStartedAt": _date("after_started_at", "invalid_task_after_started_at"),
    "beforeStartedAt": _date("before_started_at", "invalid_task_before_started_at"),
    "afterFinishedAt": _date("after_finished_at", "invalid_task_after_finished_at"),
    "beforeFinishedAt": _date("before_finished_at", "invalid_task_before_finished_at"),
}
# The two orders are those in which messages list the parameters.
_LIST_FILTERS = {**_BY_BATCH_UIDS, **_BY_UIDS, **_FILTERS}
_CHANGE_FILTERS = {**_BY_UIDS, **_BY_BATCH_UIDS, **_FILTERS}

FILTER_PARAMS: Mapping[str, Param] = {name: row.param for name, row in _LIST_FILTERS.items()}
_LIST_PARAMS: Mapping[str, Param] = {
    "limit": Param(_uid, "invalid_task_limit", default=20, schema=_UID_SCHEMA, about="Largest number of results."),
    "from": Param(_uid, "invalid_task_from", schema=_UID_SCHEMA, about="Uid of the first result."),
    "reverse": Param(query_strings.boolean, "invalid_task_reverse", default=False, about="True lists the oldest first."),
    **FILTER_PARAMS,
}
_CHANGE_PARAMS = {name: row.param for name, row in _CHANGE_FILTERS.items()}


def task_filter(values: Mapping[str, Any]) -> TaskFilter:
    """The filter of a decoded query string. An absent parameter and `*` both mean everything."""
    given = {}
    for name, row in _LIST_FILTERS.items():
        value = values.get(name)
        if not (value is None or value == STAR or isinstance(value, list) and STAR in value):
            given[row.field] = value
    return TaskFilter(**given)


def _list_page(ctx: Context, list_rows: Callable[..., Page[Any]], view: Callable[[Any], Any]) -> HandlerResult:
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


def list_tasks(ctx: Context) -> HandlerResult:
    """One page of the tasks that the key may see, newest first unless reversed. Without a filter the total counts all tasks."""
    return _list_page(ctx, Queue.list_tasks, task_view)


def list_batches(ctx: Context) -> HandlerResult:
    """One page of the batches that the key may see, newest first unless reversed."""
    return _list_page(ctx, Queue.list_batches, shapes.batch_view)


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


def _change(ctx: Context, kind: str, counter: str, verb: str) -> HandlerResult:
    """Enqueue a cancelation or deletion of the tasks that match now and that the key may see.

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
    details = {"matchedTasks": len(uids), counter: None,
               "originalFilter": f"?{waiting.without_wait(ctx.request.query)}"}
    return HandlerResult(200, shapes.task_summary(ctx.queue.enqueue(kind, None, details=details, content={"uids": uids})))


def cancel(ctx: Context) -> HandlerResult:
    """Cancel the matching tasks that are not finished."""
    return _change(ctx, "taskCancelation", "canceledTasks", "cancel")


def delete(ctx: Context) -> HandlerResult:
    """Remove the matching tasks that are finished."""
    return _change(ctx, "taskDeletion", "deletedTasks", "delete")


def compact(ctx: Context) -> HandlerResult:
    """Return the free space of the task database to the file system, while no batch runs."""
    before, after = ctx.queue.compact()
    summary = {"preSize": shapes.size(before, "human"), "postSize": shapes.size(after, "human"), "status": "succeeded"}
    return HandlerResult(200, summary)


ROUTES = (
    Route("GET", "/tasks", list_tasks, "tasks.get", {200: "TaskPage"}, "List tasks", _TAG, query=_LIST_PARAMS),
    Route("DELETE", "/tasks", delete, "tasks.delete", {200: "TaskSummary"}, "Delete finished tasks", _TAG,
          query=_CHANGE_PARAMS),
    Route("POST", "/tasks/cancel", cancel, "tasks.cancel", {200: "TaskSummary"}, "Cancel tasks", _TAG,
          query=_CHANGE_PARAMS),
    Route("POST", "/tasks/compact", compact, "tasks.compact", {200: "CompactionSummary"},
          "Compact the task database", _TAG, feature=("taskQueueCompactionRoute", "Using the /tasks/compact route")),
    Route("GET", "/tasks/{task_id}", get_task, "tasks.get", {200: "Task"}, "Get a task", _TAG),
    Route("GET", "/tasks/{task_id}/documents", get_documents, "tasks.get", {200: {}},
          "Get the documents of a waiting task", _TAG, answer_type=NDJSON,
          feature=("getTaskDocumentsRoute", "Getting the documents of an enqueued task")),
    Route("GET", "/batches", list_batches, "tasks.get", {200: "BatchPage"}, "List batches", _TAG, query=_LIST_PARAMS),
    Route("GET", "/batches/{batch_id}", get_batch, "tasks.get", {200: "Batch"}, "Get a batch", _TAG),
)
