"""Responses without an end: changes of tasks and batches, and the log, sent at once (docs/http.md#streams).

`GET /tasks/stream` and `/batches/stream` send each change of status to bearers that may see it. Such a stream is a
position in the order of changes: it sends the changes after it, moves on, and waits for the wake-up pipe of the queue. So
a slow client holds no memory, and one that returns with the last id it has seen misses nothing. Batches also send their
progress, without an id, as that describes the present only.

`POST /logs/stream` sends the log in one of three forms: `human` and `json` as on the console, `profile` with the duration
of each event. One client at a time can follow; POST /logs/stderr changes the targets that are printed. A client that is
slower than the log loses events, and a line says how many.

Threads: each stream holds a request thread, which formats and sends; a thread that logs only appends the event.
"""
from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from svcd.api import shapes, streaming
from svcd.api.context import Context
from svcd.api.metrics import resident_bytes
from svcd.api.routes import NDJSON, HandlerResult, Route, Text, Value
from svcd.api.streaming import EVENTS, HEADERS, LINES, StreamBody
from svcd.api.tasks import FILTER_PARAMS, task_filter
from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.logs import Targets
from svcd.instance.task_changes import Listeners, Position
from svcd.instance.task_records import Batch, TaskFilter
from svcd.tasks.views import batch_at, task_at, task_view
from svcd.validation import Field, FieldError, boolean, object_of, one_of, parsed, string

# Changes that are read and sent together: bounds the memory of one stream.
_PORTION = 200
_TAG = "Tasks and batches"
_LAST_SEEN = "Last-Event-ID"
LAST_SEEN_HEADER = {_LAST_SEEN: "The `id` of the last event that the client has received: the stream continues after it."}

# Events of the log kept for a slow client; further ones are dropped and counted.
MAX_WAITING_EVENTS = 10_000
# Events of the log written in one piece.
MAX_EVENTS_PER_PIECE = 500
_LOG_TAG = "Logs"
_HUMAN, _JSON, _PROFILE = _MODES = ("human", "json", "profile")
_USUAL = logs.of_level(logs.INFO)
_CHECK_S = 60.0  # how often the key is checked while nothing is logged
_NANOSECONDS = {"ms": 1_000_000, "seconds": 1_000_000_000}  # field with the duration of an event: nanoseconds in its unit

P = TypeVar("P")  # a position in an order of changes
ChangeEvent = tuple[Position | None, str]
_Write = Callable[[logs.Event], str]


class Source(Protocol[P]):
    """The events of a stream; each with the position after it, None for an event that describes the present only."""

    def after(self, since: P) -> tuple[P, list[tuple[P | None, str]]]:
        """(position, events) of the next portion after a position; the same position if nothing happened."""

    def progress(self) -> Iterator[tuple[P | None, str]]:
        """Events that describe the present, sent after all past changes."""


# Tasks and batches


class _Tasks:
    """The events of tasks."""

    def __init__(self, ctx: Context, wanted: TaskFilter) -> None:
        self._ctx = ctx
        self._wanted = wanted

    def after(self, since: Position) -> tuple[Position, list[ChangeEvent]]:
        """As in Source."""
        changes = self._ctx.queue.changes_of_tasks(since, _PORTION)
        seen = [(position, task_at(task, position.step)) for position, task in changes]
        events: list[ChangeEvent] = [(position, dumps(task_view(task))) for position, task in seen
                                     if self._wanted.is_met_by(task) and self._ctx.permission.allows(task.index_uid)]
        return (seen[-1][0] if seen else since), events

    def progress(self) -> Iterator[ChangeEvent]:
        """Tasks do not report progress."""
        return iter(())


class _Batches:
    """The events of batches."""

    def __init__(self, ctx: Context, wanted: TaskFilter) -> None:
        self._ctx = ctx
        self._wanted = wanted
        self._shown: dict[int, Any] = {}  # uid of a running batch -> the progress sent last

    def after(self, since: Position) -> tuple[Position, list[ChangeEvent]]:
        """As in Source."""
        changes = self._ctx.queue.changes_of_batches(since, _PORTION)
        seen = [(position, batch_at(batch, position.step)) for position, batch in changes]
        events: list[ChangeEvent] = []
        for position, batch in seen:
            if self._is_visible(batch):
                self._shown[batch.uid] = batch.progress
                events.append((position, dumps(shapes.batch_view(batch))))
        return (seen[-1][0] if seen else since), events

    def progress(self) -> Iterator[ChangeEvent]:
        """The progress of running batches that has changed since it was last sent."""
        running = {one.batch.uid: one.batch for one in self._ctx.queue.running()}
        self._shown = {uid: progress for uid, progress in self._shown.items() if uid in running}
        for uid, batch in running.items():
            seen = replace(batch)  # a copy, because the runner changes the batch
            if seen.progress is not None and seen.progress is not self._shown.get(uid) and self._is_visible(seen):
                self._shown[uid] = seen.progress
                yield None, dumps(shapes.batch_view(seen))

    def _is_visible(self, batch: Batch) -> bool:
        uids = batch.stats.get("indexUids") or (None,)
        wanted = self._wanted
        if not any(map(self._ctx.permission.allows, uids)):
            return False
        if wanted == TaskFilter():
            return True
        if wanted.batch_uids is not None and batch.uid not in wanted.batch_uids:
            return False
        # The list of batches would show it: one of its tasks matches the filter.
        page = self._ctx.queue.list_batches(wanted._replace(batch_uids=[batch.uid]), limit=1, from_uid=None, reverse=False)
        return bool(page.results)


def _stream(kind: type[_Tasks] | type[_Batches], ctx: Context) -> HandlerResult:
    """Send every change of a status, and of the progress of batches, until the client leaves, its key expires, or svcd stops.

    Raises bad_request. The stream begins after the last event that the client has seen, or with the present.
    """
    now = ctx.queue.current_position()
    since = min(last_seen(ctx, Position.parse) or now, now)
    wanted, accepted = task_filter(ctx.query), ctx.request.headers.get("accept") or ""
    has_lines = LINES in accepted and EVENTS not in accepted
    streams = ctx.services.streams
    streams.acquire()
    pieces = events_of(ctx, kind(ctx, wanted), since, has_lines)
    return HandlerResult(200, Text(StreamBody(pieces, streams.release), LINES if has_lines else EVENTS), HEADERS)


def last_seen(ctx: Context, parse: Callable[[str], P]) -> P | None:
    """The position after the last event that the client has received, if it says so. Raises bad_request."""
    given = ctx.request.headers.get(_LAST_SEEN)
    try:
        return parse(given) if given else None
    except ValueError as wrong:
        raise ApiError("bad_request", f"Invalid value in header `{_LAST_SEEN}`: {wrong}.") from None


def events_of(ctx: Context, source: Source[P], since: P, has_lines: bool) -> Generator[bytes]:
    """The pieces of a stream: an empty one that sends the head, then past changes, then new changes. has_lines: no SSE."""
    listeners = ctx.queue.listeners
    wakeup = listeners.add()
    try:
        # A client that loses the connection before the first event resumes from this id.
        yield b"" if has_lines else f"id: {since}\n\n".encode()
        while not listeners.is_closed and _is_allowed(ctx):
            wakeup.clear()
            before, (since, events) = since, source.after(since)
            events += source.progress() if since == before else ()  # progress is of the present: past changes first
            if events and has_lines:
                yield "".join(f"{text}\n" for _, text in events).encode()
            elif events:
                yield b"".join(streaming.event(text, position) for position, text in events)
            elif since == before:
                if not ctx.request.wait(wakeup, streaming.HEARTBEAT_S):  # the client has left
                    return
                if not wakeup.is_set:  # a heartbeat keeps proxies from closing the connection
                    yield b"\n" if has_lines else b":\n\n"
    finally:
        listeners.remove(wakeup)


def _is_allowed(ctx: Context) -> bool:
    """Check the key again: it may have expired, or its rights may have changed."""
    try:
        ctx.permission = ctx.recheck_permission()
    except ApiError:
        return False
    return True


_FEATURE = "tasksStreamingRoute"

ROUTES = (
    Route("GET", "/tasks/stream", partial(_stream, _Tasks), "tasks.get", {200: "Task"}, "Follow the changes of tasks", _TAG,
          query=FILTER_PARAMS, answer_type=EVENTS, feature=(_FEATURE, "calling the /tasks/stream route"),
          headers=LAST_SEEN_HEADER),
    Route("GET", "/batches/stream", partial(_stream, _Batches), "tasks.get", {200: "Batch"}, "Follow the changes of batches",
          _TAG, query=FILTER_PARAMS, answer_type=EVENTS, feature=(_FEATURE, "calling the /batches/stream route"),
          headers=LAST_SEEN_HEADER),
)


# The log


class _Follower:
    """One client that follows the log."""

    def __init__(self, write: _Write, listeners: Listeners, broadcast: Callable[[Mapping[str, Any]], None]) -> None:
        """listeners: of the queue; they end every wait when svcd stops. broadcast: sends a command to the other processes."""
        self._write = write
        self._broadcast = broadcast
        self._listeners = listeners
        self._wakeup = listeners.add(has_changes=False)
        self._waiting: deque[logs.Event] = deque()
        self._lost = 0
        self._is_over = False

    def begin(self, wanted: Targets) -> bool:
        """Follow the log of all processes. False if another client follows it."""
        if not logs.follow(wanted, self.receive_event):
            return False
        self._broadcast({"follow": str(wanted)})
        return True

    def receive_event(self, event: logs.Event) -> None:
        """Keep an event for the stream. The thread that logs calls this."""
        if len(self._waiting) < MAX_WAITING_EVENTS:
            self._waiting.append(event)
        else:
            self._lost += 1
        self._wakeup.set()

    def pieces(self, ctx: Context) -> Generator[bytes]:
        """New lines, until the client leaves, its key expires, or a request ends the stream."""
        yield b""
        while not (self._is_over or self._listeners.is_closed) and _is_allowed(ctx):
            self._wakeup.clear()
            lines: list[str] = []
            while self._waiting and len(lines) < MAX_EVENTS_PER_PIECE:
                lines.append(self._write(self._waiting.popleft()))
            if self._lost and not self._waiting:
                lost, self._lost = self._lost, 0
                lines.append(self._write(logs.Event(
                    time.time_ns(), logs.WARN, __name__, "the reader is slower than the log", {"lost": lost})))
            if lines:
                yield "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
            elif not ctx.request.wait(self._wakeup, _CHECK_S):
                return

    def end(self) -> None:
        """Let the stream end; may be called by any thread."""
        self._is_over = True
        self._wakeup.set()

    def close(self) -> None:
        """Stop following. Called when the stream has ended, or could not begin."""
        if logs.unfollow(self.receive_event):
            self._broadcast({"follow": ""})
        self._listeners.remove(self._wakeup)


# The follower of this process, if any: there is one log for each process. The lock guards its start and its end.
_active: _Follower | None = None
_active_lock = threading.Lock()


def _profiled(has_memory: bool) -> _Write:
    """Return a function that writes an event as a line with its end and duration in nanoseconds.

    has_memory: add the resident memory.
    """

    def write(event: logs.Event) -> str:
        fields = event.fields
        took = next((round(fields[name] * unit) for name, unit in _NANOSECONDS.items() if name in fields), 0)
        line: dict[str, Any] = {"name": event.name, "part": event.part, "end": event.moment, "took": took}
        if has_memory:
            line["resident"] = resident_bytes()
        return json.dumps({**line, "fields": fields}, default=str)

    return write


def stream(ctx: Context) -> HandlerResult:
    """Follow the log. Raises bad_request if another client follows it."""
    global _active
    mode = ctx.body["mode"]
    write = {_HUMAN: logs.as_text, _JSON: logs.as_json}.get(mode) or _profiled(ctx.body["profileMemory"])
    follower = _Follower(write, ctx.queue.listeners, ctx.services.broadcast)
    with _active_lock:
        if not follower.begin(ctx.body.get("target", _USUAL)):
            follower.close()
            raise ApiError("bad_request", "The `/logs/stream` route is currently in use by someone else.")
        _active = follower
    body = StreamBody(follower.pieces(ctx), follower.close)
    return HandlerResult(200, Text(body, "text/plain; charset=utf-8" if mode == _HUMAN else NDJSON), HEADERS)


def cancel(_ctx: Context) -> HandlerResult:
    """End the stream of the client that follows the log."""
    with _active_lock:
        if _active:
            _active.end()
    return HandlerResult(204)


def update_stderr(ctx: Context) -> HandlerResult:
    """Change the log targets printed on stderr, in all processes, until the next start."""
    wanted = ctx.body.get("target", _USUAL)
    logs.set_targets(wanted)
    ctx.services.broadcast({"log": str(wanted)})
    return HandlerResult(204)


def _targets(text: str) -> Targets:
    if not text:
        raise ValueError("Empty string is not a valid target. If you want to get no logs use `OFF`. Usage: `info`, "
                         "`svc=info`, or you can write multiple filters in one target: "
                         "`index_scheduler=info,milli=trace`")
    return logs.parse(text)


def _memory_only_profiled(body: Mapping[str, Any]) -> Mapping[str, Any]:
    if body["profileMemory"] and body["mode"] != _PROFILE:
        raise FieldError(  # an odd code, which clients of the interface expect
            "Invalid value: `profile_memory` can only be used while profiling code and is not compatible with the "
            f"{body['mode'].capitalize()} mode.", "invalid_settings_typo_tolerance")
    return body


_TARGET = Field(parsed(string, _targets),
                about="A level, or a comma list such as `svcd.http=off,svcd.tasks=debug`; by default `info`.")
_STREAM_BODY = Value(parsed(object_of({
    "target": _TARGET,
    "mode": Field(one_of(*_MODES), default=_HUMAN),
    "profileMemory": Field(boolean, default=False, about="Add the memory of the process, in the mode `profile` alone."),
}), _memory_only_profiled))
_LOG_FEATURE = ("logsRoute", "Modifying logs through the `/logs/*` routes")

LOG_ROUTES = (
    Route("POST", "/logs/stream", stream, "metrics.get", {200: {"type": "string"}}, "Follow the log", _LOG_TAG,
          body=_STREAM_BODY, answer_type="text/plain", feature=_LOG_FEATURE),
    Route("DELETE", "/logs/stream", cancel, "metrics.get", {204: {}}, "End the stream of the log", _LOG_TAG,
          feature=_LOG_FEATURE),
    Route("POST", "/logs/stderr", update_stderr, "metrics.get", {204: {}}, "Change the log targets printed on stderr", _LOG_TAG,
          body=Value(object_of({"target": _TARGET})), feature=_LOG_FEATURE),
)
