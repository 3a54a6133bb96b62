"""`?wait=500ms`: answers a write with its finished task, if the task finishes in time (docs/http.md#waiting-for-tasks).

Every write takes the parameter, so it is declared here and not in the table of each route. The thread waits for a
wake-up pipe of the queue and for its client to leave at once, and reads the task when the pipe is set.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Schema
from svcd.instance.task_records import FINISHED
from svcd.tasks.views import task_view
from svcd.validation import Param, decode_query

WAIT_NAME = "wait"
# A waiting request holds a thread and a connection, and few proxies wait longer than this.
MAX_S = 300
_SUMMARY, _TASK = "TaskSummary", "Task"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m)", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of `500ms`, `1.5s`, `2m`. Raises ValueError for anything else, and for more than MAX_S."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"could not parse `{text}` as a duration, expected a number with a unit: "
                         "`500ms`, `1.5s` or `2m`")
    seconds = float(match[1]) * _UNITS_S[match[2]]
    if seconds > MAX_S:
        raise ValueError(f"`{text}` is too long, expected at most `{MAX_S}s`")
    return seconds


WAIT = Param(parse_duration, about="Answer the finished task with 200 if it finishes within this duration "
                                   "(`500ms`, `1.5s`, `2m`), and the summary otherwise.")


def is_write(route: Route) -> bool:
    """Return whether a route answers with the summary of a task."""
    return _SUMMARY in route.answers.values()


def answers_of(route: Route) -> Mapping[int, Schema]:
    """The answers of a route, including the finished task that a waiting request gets."""
    if not is_write(route):
        return route.answers
    finished: Schema = shapes.ref(_TASK)
    if route.answers.get(200) == _SUMMARY:
        finished = {"oneOf": [shapes.ref(_SUMMARY), finished]}
    return {**route.answers, 200: finished}


def extract_wait(route: Route, query: str) -> tuple[str, float]:
    """(the query string without `wait`, its seconds, or 0 if it is absent). Raises bad_request."""
    if WAIT_NAME not in query or not is_write(route):
        return query, 0.0
    own = [part for part in query.split("&") if _is_wait(part)]
    decoded: Mapping[str, Any] = decode_query("&".join(own), {WAIT_NAME: WAIT})
    return without_wait(query), decoded[WAIT_NAME] or 0.0


def without_wait(query: str) -> str:
    """The query string, still percent-encoded, without `wait`."""
    return "&".join(part for part in query.split("&") if not _is_wait(part))


def _is_wait(part: str) -> bool:
    return part.partition("=")[0] == WAIT_NAME


def wait_for_task(ctx: Context, answer: HandlerResult, seconds: float) -> HandlerResult:
    """The finished task in place of its summary; the summary if time runs out or too many requests wait already."""
    limit = ctx.services.waiting_writes
    if not limit.try_acquire():
        return answer
    try:
        uid = answer.value["taskUid"]
        with ctx.queue.listeners.when_ended(uid) as wakeup:
            found = _finished(ctx, uid)
            if found is None and ctx.request.wait(wakeup, seconds):  # not out of time, and the client has not left
                found = _finished(ctx, uid)
            return found or answer
    finally:
        limit.release()


def _finished(ctx: Context, uid: int) -> HandlerResult | None:
    task = ctx.queue.task(uid)
    return HandlerResult(200, task_view(task)) if task is not None and task.status in FINISHED else None
