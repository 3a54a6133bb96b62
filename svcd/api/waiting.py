"""`?wait=500ms`: the answer to a write is its finished task, if that is finished in time, and else its summary.

Every write takes the parameter, so it stands here and not in the table of each route. A thread waits for the bell
of the queue and for its client, and looks at the task once it has rung. Refuses to know what a write does.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context, HandlerResult
from svcd.api.routes import Route, Schema
from svcd.api.streaming import ConcurrencyLimit
from svcd.instance.task_records import FINISHED
from svcd.tasks.details import task_view
from svcd.validation import Param, decode_query

WAIT_NAME = "wait"
# What waits holds a thread and a connection, and few proxies wait longer than this.
MAX_S = 300
_SUMMARY, _TASK = "TaskSummary", "Task"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m)", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of `500ms`, `1.5s`, `2m`. Raises ValueError with what would be right."""
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
    """True for routes that answer the summary of a task."""
    return _SUMMARY in route.answers.values()


def answers_of(route: Route) -> Mapping[int, Schema]:
    """What a route answers, also to those who wait."""
    if not is_write(route):
        return route.answers
    finished: Schema = shapes.ref(_TASK)
    if route.answers.get(200) == _SUMMARY:
        finished = {"oneOf": [shapes.ref(_SUMMARY), finished]}
    return {**route.answers, 200: finished}


def extract_wait(route: Route, query: str) -> tuple[str, float]:
    """The query string without the parameter, and the seconds that it allows: 0 without it. Raises bad_request."""
    if WAIT_NAME not in query or not is_write(route):
        return query, 0.0
    own = [part for part in query.split("&") if _is_wait(part)]
    decoded: Mapping[str, Any] = decode_query("&".join(own), {WAIT_NAME: WAIT})
    return without_wait(query), decoded[WAIT_NAME] or 0.0


def without_wait(query: str) -> str:
    """The query string as it was sent, but for the parameter."""
    return "&".join(part for part in query.split("&") if not _is_wait(part))


def _is_wait(part: str) -> bool:
    return part.partition("=")[0] == WAIT_NAME


def wait_for_task(ctx: Context, answer: HandlerResult, seconds: float, places: ConcurrencyLimit) -> HandlerResult:
    """The finished task in place of its summary. Without a place, nobody waits: the summary is never wrong."""
    if not places.take():
        return answer
    try:
        uid = answer.value["taskUid"]
        with ctx.queue.listeners.of_end(uid) as bell:
            return _finished(ctx, uid) or _after(ctx, bell, seconds, uid) or answer
    finally:
        places.leave()


def _after(ctx: Context, bell: Any, seconds: float, uid: int) -> HandlerResult | None:
    """None when the time is over, or nobody is left who waits."""
    return _finished(ctx, uid) if ctx.request.wait(bell, seconds) else None


def _finished(ctx: Context, uid: int) -> HandlerResult | None:
    task = ctx.queue.task(uid)
    return HandlerResult(200, task_view(task)) if task is not None and task.status in FINISHED else None
