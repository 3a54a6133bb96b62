"""`/logs/stream` and `/logs/stderr`: follow the log over HTTP, and change what is printed.

A log is streamed in three forms: `human` and `json` as on the console, `profile` with the duration of each event. One
client at a time can follow (docs/http.md#streams).

Threads: a thread that logs appends the event and goes on; the thread of the stream formats and sends it. A client that is
slower than the log loses events, and a line says how many.
"""
from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any

from svcd.api.context import NDJSON, Context, HandlerResult, Text
from svcd.api.metrics import resident_bytes
from svcd.api.routes import Route, Value
from svcd.api.streaming import HEADERS, StreamBody
from svcd.base import logs
from svcd.base import logs as targets
from svcd.base.errors import ApiError
from svcd.base.logs import Targets
from svcd.instance.task_changes import Listeners
from svcd.validation import Field, FieldError, boolean, object_of, one_of, parsed, string

_TAG = "Logs"
_PLAIN = "text/plain; charset=utf-8"
_HUMAN, _JSON, _PROFILE = _MODES = ("human", "json", "profile")
# Events kept for a slow client; further ones are dropped and counted.
_MAX_WAITING = 10_000
# Events written in one piece.
_MAX_TOGETHER = 500
_USUAL = targets.of_level(targets.INFO)
_CHECK_S = 60.0  # how often the key is checked while nothing is logged
_NANOSECONDS = {"ms": 1_000_000, "seconds": 1_000_000_000}  # field with the duration of an event: nanoseconds in its unit

_Write = Callable[[logs.Event], str]


class _Follower:
    """One client that follows the log."""

    def __init__(self, write: _Write, listeners: Listeners) -> None:
        """listeners: of the queue, which end all waiting when svcd stops."""
        self._write = write
        self._listeners = listeners
        self._wakeup = listeners.add(has_changes=False)
        self._waiting: deque[logs.Event] = deque()
        self._lost = 0
        self._is_over = False

    def receive_event(self, event: logs.Event) -> None:
        """Called by the thread that logs."""
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(event)
        else:
            self._lost += 1
        self._wakeup.set()

    def pieces(self, ctx: Context) -> Generator[bytes]:
        """Lines as they come, until the client leaves, its key expires, or a request ends the stream."""
        yield b""
        while not (self._is_over or self._listeners.is_closed) and _is_allowed(ctx):
            self._wakeup.clear()
            if lines := self._lines():
                yield "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
            elif not ctx.request.wait(self._wakeup, _CHECK_S):
                return

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while self._waiting and len(lines) < _MAX_TOGETHER:
            lines.append(self._write(self._waiting.popleft()))
        if self._lost and not self._waiting:
            lost, self._lost = self._lost, 0
            lines.append(self._write(logs.Event(
                time.time_ns(), logs.WARN, __name__, "the reader is slower than the log", {"lost": lost})))
        return lines

    def end(self) -> None:
        """Let the stream end; may be called by any thread."""
        self._is_over = True
        self._wakeup.set()

    def close(self) -> None:
        """The stream has ended."""
        logs.unfollow(self.receive_event)
        self._listeners.remove(self._wakeup)


class _ActiveFollower:
    """The one follower of this process, if any: the log belongs to the process, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._follower: _Follower | None = None

    def begin(self, wanted: Targets, follower: _Follower) -> None:
        """Raises bad_request when there is one already."""
        with self._lock:
            if not logs.follow(wanted, follower.receive_event):
                follower.close()
                raise ApiError("bad_request", "The `/logs/stream` route is currently in use by someone else.")
            self._follower = follower

    def end(self) -> None:
        """End the stream of the follower, if any."""
        with self._lock:
            if self._follower:
                self._follower.end()


_active = _ActiveFollower()


def _is_allowed(ctx: Context) -> bool:
    try:
        ctx.recheck_permission()
    except ApiError:
        return False
    return True


def _profiled(has_memory: bool) -> _Write:
    """A writer of lines with the end and the duration of each event in nanoseconds, and the resident memory if wanted."""

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
    mode = ctx.body["mode"]
    write = {_HUMAN: logs.as_text, _JSON: logs.as_json}.get(mode) or _profiled(ctx.body["profileMemory"])
    follower = _Follower(write, ctx.queue.listeners)
    _active.begin(ctx.body.get("target", _USUAL), follower)
    body = StreamBody(follower.pieces(ctx), follower.close)
    return HandlerResult(200, Text(body, _PLAIN if mode == _HUMAN else NDJSON), HEADERS)


def cancel(_ctx: Context) -> HandlerResult:
    """End the stream of the client that follows the log."""
    _active.end()
    return HandlerResult(204)


def update_stderr(ctx: Context) -> HandlerResult:
    """Change what is printed on stderr, in all processes, until the next start."""
    wanted = ctx.body.get("target", _USUAL)
    logs.set_targets(wanted)
    ctx.broadcast({"log": str(wanted)})
    return HandlerResult(204)


def _targets(text: str) -> Targets:
    if not text:
        raise ValueError("Empty string is not a valid target. If you want to get no logs use `OFF`. Usage: `info`, "
                         "`svc=info`, or you can write multiple filters in one target: "
                         "`index_scheduler=info,milli=trace`")
    return targets.parse(text)


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
_FEATURE = ("logsRoute", "Modifying logs through the `/logs/*` routes")

ROUTES = (
    Route("POST", "/logs/stream", stream, "metrics.get", {200: {"type": "string"}}, "Follow the log", _TAG,
          body=_STREAM_BODY, answer_type="text/plain", feature=_FEATURE),
    Route("DELETE", "/logs/stream", cancel, "metrics.get", {204: {}}, "End the stream of the log", _TAG,
          feature=_FEATURE),
    Route("POST", "/logs/stderr", update_stderr, "metrics.get", {204: {}}, "Change what is printed on stderr", _TAG,
          body=Value(object_of({"target": _TARGET})), feature=_FEATURE),
)
