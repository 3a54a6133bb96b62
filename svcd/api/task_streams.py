"""`GET /tasks/stream` and `/batches/stream`: sends each change of status to bearers that may see it.

A stream is a position in the order of changes: it sends the changes after it, moves on, and waits for the wake-up pipe of
the queue. So a slow client holds no memory, and one that returns with the last id it has seen misses nothing. Batches
also send their progress, without an id, as that describes the present only. See docs/http.md#streams.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from svcd.api import shapes, streaming
from svcd.api.context import Context, HandlerResult, Text
from svcd.api.routes import Route
from svcd.api.streaming import EVENTS, LINES, StreamBody
from svcd.api.tasks import FILTER_PARAMS, task_filter
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.instance.task_changes import Position
from svcd.instance.task_records import Batch, TaskFilter
from svcd.tasks.views import batch_at, task_at, task_view

# Changes that are read and sent together: bounds the memory of one stream.
_PORTION = 200
_TAG = "Tasks and batches"
_LAST_SEEN = "Last-Event-ID"
_HEADERS = {_LAST_SEEN: "The `id` of the last event that was seen: the stream goes on after it."}

ChangeEvent = tuple[Position | None, shapes.Json]


class _Tasks:
    """The events of tasks."""

    def __init__(self, ctx: Context, wanted: TaskFilter) -> None:
        self._ctx = ctx
        self._wanted = wanted

    def after(self, since: Position) -> tuple[Position, list[ChangeEvent]]:
        """(position, events) of the next portion after a position; the same position if nothing happened."""
        changes = self._ctx.queue.changes_of_tasks(since, _PORTION)
        seen = [(position, task_at(task, position.step)) for position, task in changes]
        events: list[ChangeEvent] = [(position, task_view(task)) for position, task in seen
                            if self._wanted.is_met_by(task) and self._ctx.permission.allows(task.index_uid)]
        return (seen[-1][0] if seen else since), events

    def progress(self) -> Iterator[ChangeEvent]:
        """Tasks have no progress."""
        return iter(())


class _Batches:
    """The events of batches."""

    def __init__(self, ctx: Context, wanted: TaskFilter) -> None:
        self._ctx = ctx
        self._wanted = wanted
        self._shown: dict[int, Any] = {}  # uid of a running batch -> the progress sent last

    def after(self, since: Position) -> tuple[Position, list[ChangeEvent]]:
        """As of _Tasks."""
        changes = self._ctx.queue.changes_of_batches(since, _PORTION)
        seen = [(position, batch_at(batch, position.step)) for position, batch in changes]
        events: list[ChangeEvent] = []
        for position, batch in seen:
            if self._is_visible(batch):
                self._shown[batch.uid] = batch.progress
                events.append((position, shapes.batch_view(batch)))
        return (seen[-1][0] if seen else since), events

    def progress(self) -> Iterator[ChangeEvent]:
        """The progress of running batches, where it has changed since it was sent last."""
        running = {one.batch.uid: one.batch for one in self._ctx.queue.running()}
        self._shown = {uid: progress for uid, progress in self._shown.items() if uid in running}
        for uid, batch in running.items():
            seen = replace(batch)  # a copy: the batch goes on meanwhile
            if seen.progress is not None and seen.progress is not self._shown.get(uid) and self._is_visible(seen):
                self._shown[uid] = seen.progress
                yield None, shapes.batch_view(seen)

    def _is_visible(self, batch: Batch) -> bool:
        uids = batch.stats.get("indexUids") or (None,)
        return any(map(self._ctx.permission.allows, uids)) and self._is_wanted(batch.uid)

    def _is_wanted(self, uid: int) -> bool:
        """True if the list of batches would show it: one of its tasks matches the filter."""
        wanted = self._wanted
        if wanted == TaskFilter():
            return True
        if wanted.batch_uids is not None and uid not in wanted.batch_uids:
            return False
        page = self._ctx.queue.list_batches(replace(wanted, batch_uids=[uid]), limit=1, from_uid=None, reverse=False)
        return bool(page.results)


def _since(ctx: Context) -> Position:
    """The position after the last event that the client has seen, or the present. Raises bad_request."""
    last_seen = ctx.request.headers.get(_LAST_SEEN)
    present = ctx.queue.current_position()
    if not last_seen:
        return present
    try:
        return min(Position.parse(last_seen), present)
    except ValueError as wrong:
        raise ApiError("bad_request", f"Invalid value in header `Last-Event-ID`: {wrong}.") from None


def _stream(ctx: Context, kind: type[_Tasks] | type[_Batches]) -> HandlerResult:
    """Send changes until the client leaves, its key expires, or svcd stops."""
    since, wanted = _since(ctx), task_filter(ctx.query)
    accepted = ctx.request.headers.get("accept") or ""
    has_lines = LINES in accepted and EVENTS not in accepted
    ctx.streams.acquire()
    pieces = _EventStream(ctx, kind(ctx, wanted), _as_lines if has_lines else _as_sse)
    return HandlerResult(200, Text(StreamBody(pieces.after(since), ctx.streams.release), LINES if has_lines else EVENTS),
                  streaming.HEADERS)


class _EventStream:
    """One stream, from its first byte to its last."""

    def __init__(self, ctx: Context, source: _Tasks | _Batches, written: Callable[[Sequence[ChangeEvent]], bytes]) -> None:
        self._ctx = ctx
        self._source = source
        self._written = written

    def after(self, since: Position) -> Generator[bytes]:
        """The pieces: an empty one that sends the head, then past changes, then those to come."""
        listeners = self._ctx.queue.listeners
        wakeup = listeners.add()
        try:
            yield b"" if self._written is _as_lines else streaming.first_event_id(since)
            while not listeners.is_closed and self._is_allowed():
                wakeup.clear()
                before, (since, events) = since, self._source.after(since)
                events += self._source.progress() if since == before else ()  # progress is of the present: past changes first
                if events:
                    yield self._written(events)
                elif since == before and not (yield from self._wait_for_change(wakeup)):
                    return
        finally:
            listeners.remove(wakeup)

    def _wait_for_change(self, wakeup: Any) -> Generator[bytes, None, bool]:
        """Wait for a change, sending a heartbeat now and then; False if the client has left."""
        if not self._ctx.request.wait(wakeup, streaming.HEARTBEAT_S):
            return False
        if not wakeup.is_set:
            yield b"\n" if self._written is _as_lines else streaming.heartbeat()
        return True

    def _is_allowed(self) -> bool:
        """Check the key again: it may have expired, or been replaced by one that may see less."""
        try:
            self._ctx.permission = self._ctx.recheck_permission()
        except ApiError:
            return False
        return True


def _as_sse(events: Sequence[ChangeEvent]) -> bytes:
    return b"".join(streaming.event(dumps(view), position) for position, view in events)


def _as_lines(events: Sequence[ChangeEvent]) -> bytes:
    return "".join(f"{dumps(view)}\n" for _, view in events).encode()


def stream_tasks(ctx: Context) -> HandlerResult:
    """Every change of status of a task."""
    return _stream(ctx, _Tasks)


def stream_batches(ctx: Context) -> HandlerResult:
    """Every change of status or progress of a batch."""
    return _stream(ctx, _Batches)


_FEATURE = "tasksStreamingRoute"
_EVENTS_SHAPE: Mapping[str, Any] = {"type": "string"}

ROUTES = (
    Route("GET", "/tasks/stream", stream_tasks, "tasks.get", {200: _EVENTS_SHAPE}, "Follow the changes of tasks", _TAG,
          query=FILTER_PARAMS, answer_type=EVENTS, feature=(_FEATURE, "calling the /tasks/stream route"),
          headers=_HEADERS),
    Route("GET", "/batches/stream", stream_batches, "tasks.get", {200: _EVENTS_SHAPE}, "Follow the changes of batches",
          _TAG, query=FILTER_PARAMS, answer_type=EVENTS, feature=(_FEATURE, "calling the /batches/stream route"),
          headers=_HEADERS),
)
