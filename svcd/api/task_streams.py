"""`GET /tasks/stream` and `/batches/stream`: each change of status told as it happens, to those who may see it.

A stream is a position in the order of changes: it tells what lies behind, moves on, and sleeps until the bell of
the queue rings. So a slow client holds no memory, and one that comes back with the last id it has seen misses nothing,
however long it was away. Of a batch its progress is told, too, as it is at that moment, without an id.
Refuses to know where changes are kept. Source: tasks.md 7.
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
from svcd.tasks.details import batch_at, task_at, task_view

# Changes that are read, and sent, together.
_PORTION = 200
_TAG = "Tasks and batches"
_LAST_SEEN = "Last-Event-ID"
_HEADERS = {_LAST_SEEN: "The `id` of the last event that was seen: the stream goes on behind it."}

Told = tuple[Position | None, shapes.Json]


class _Tasks:
    """What is told of tasks."""

    def __init__(self, ctx: Context, wanted: TaskFilter) -> None:
        self._ctx = ctx
        self._wanted = wanted

    def behind(self, since: Position) -> tuple[Position, list[Told]]:
        """What happened behind a position, and how far that reaches: the same position when nothing did."""
        changes = self._ctx.queue.changes_of_tasks(since, _PORTION)
        seen = [(position, task_at(task, position.step)) for position, task in changes]
        told: list[Told] = [(position, task_view(task)) for position, task in seen
                            if self._wanted.is_met_by(task) and self._ctx.permission.allows(task.index_uid)]
        return (seen[-1][0] if seen else since), told

    def besides(self) -> Iterator[Told]:
        """Nothing else is told of tasks."""
        return iter(())


class _Batches:
    """What is told of batches."""

    def __init__(self, ctx: Context, wanted: TaskFilter) -> None:
        self._ctx = ctx
        self._wanted = wanted
        self._shown: dict[int, Any] = {}  # batch that runs -> the progress that was told last

    def behind(self, since: Position) -> tuple[Position, list[Told]]:
        """As for tasks."""
        changes = self._ctx.queue.changes_of_batches(since, _PORTION)
        seen = [(position, batch_at(batch, position.step)) for position, batch in changes]
        told: list[Told] = []
        for position, batch in seen:
            if self._is_told(batch):
                self._shown[batch.uid] = batch.progress
                told.append((position, shapes.batch_view(batch)))
        return (seen[-1][0] if seen else since), told

    def besides(self) -> Iterator[Told]:
        """The progress of those that run, where it has changed."""
        running = {one.batch.uid: one.batch for one in self._ctx.queue.running()}
        self._shown = {uid: progress for uid, progress in self._shown.items() if uid in running}
        for uid, batch in running.items():
            seen = replace(batch)  # it goes on while it is told
            if seen.progress is not None and seen.progress is not self._shown.get(uid) and self._is_told(seen):
                self._shown[uid] = seen.progress
                yield None, shapes.batch_view(seen)

    def _is_told(self, batch: Batch) -> bool:
        uids = batch.stats.get("indexUids") or (None,)
        return any(map(self._ctx.permission.allows, uids)) and self._is_wanted(batch.uid)

    def _is_wanted(self, uid: int) -> bool:
        """As the list of batches would show it: one of its tasks matches."""
        wanted = self._wanted
        if wanted == TaskFilter():
            return True
        if wanted.batch_uids is not None and uid not in wanted.batch_uids:
            return False
        page = self._ctx.queue.list_batches(replace(wanted, batch_uids=[uid]), limit=1, from_uid=None, reverse=False)
        return bool(page.results)


def _since(ctx: Context) -> Position:
    """Where a client has come to: behind the last event it has seen, or now. Raises bad_request."""
    last_seen = ctx.request.headers.get(_LAST_SEEN)
    present = ctx.queue.present()
    if not last_seen:
        return present
    try:
        return min(Position.parse(last_seen), present)
    except ValueError as wrong:
        raise ApiError("bad_request", f"Invalid value in header `Last-Event-ID`: {wrong}.") from None


def _stream(ctx: Context, kind: type[_Tasks] | type[_Batches]) -> HandlerResult:
    """Tell changes until the client leaves, its key ends, or svcd does."""
    since, wanted = _since(ctx), task_filter(ctx.query)
    accepted = ctx.request.headers.get("accept") or ""
    has_lines = LINES in accepted and EVENTS not in accepted
    ctx.streams.require()
    pieces = _Telling(ctx, kind(ctx, wanted), _as_lines if has_lines else _as_events)
    return HandlerResult(200, Text(StreamBody(pieces.behind(since), ctx.streams.leave), LINES if has_lines else EVENTS),
                  streaming.HEADERS)


class _Telling:
    """One stream, from its first byte to its last."""

    def __init__(self, ctx: Context, source: _Tasks | _Batches, written: Callable[[Sequence[Told]], bytes]) -> None:
        self._ctx = ctx
        self._source = source
        self._written = written

    def behind(self, since: Position) -> Generator[bytes]:
        """The pieces: first the head alone, then what happened, and what happens."""
        listeners = self._ctx.queue.listeners
        bell = listeners.add()
        try:
            yield b"" if self._written is _as_lines else streaming.first_event_id(since)
            while not listeners.is_over and self._is_allowed():
                bell.clear()
                before, (since, told) = since, self._source.behind(since)
                told += self._source.besides() if since == before else ()  # progress is of now: the past comes first
                if told:
                    yield self._written(told)
                elif since == before and not (yield from self._rest(bell)):
                    return
        finally:
            listeners.remove(bell)

    def _rest(self, bell: Any) -> Generator[bytes, None, bool]:
        """Wait for the bell, with a sign of life now and then; False when the client has left."""
        if not self._ctx.request.wait(bell, streaming.HEARTBEAT_S):
            return False
        if not bell.is_set:
            yield b"\n" if self._written is _as_lines else streaming.heartbeat()
        return True

    def _is_allowed(self) -> bool:
        """The key may have ended, or may see less."""
        try:
            self._ctx.permission = self._ctx.renewed()
        except ApiError:
            return False
        return True


def _as_events(told: Sequence[Told]) -> bytes:
    return b"".join(streaming.event(dumps(view), position) for position, view in told)


def _as_lines(told: Sequence[Told]) -> bytes:
    return "".join(f"{dumps(view)}\n" for _, view in told).encode()


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
