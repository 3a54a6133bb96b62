"""One turn of a chat on the wire: send requests to the language model, read its stream, send events to the client.

svcd.chat.turn decides the content of requests and events. After the status 200 all failures are events of the stream
(docs/chats.md#errors).

Threads: a request thread runs the turn and waits for the model. "svcd-chat-watch", one for each turn, waits for the client to
leave and for svcd to stop; then it ends the connection to the model, which wakes the request thread.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from svcd.api import streaming
from svcd.api.chat_searches import ChatSearches
from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Text
from svcd.api.streaming import EVENTS, StreamBody
from svcd.base import logs
from svcd.base.json_text import dumps
from svcd.chat import sources, tools
from svcd.chat.chunks import DONE
from svcd.chat.event_stream import EventReader, EventTooLong
from svcd.chat.request import check_kind
from svcd.chat.turn import Conversation, Turn
from svcd.chat.workspace import Complete, complete
from svcd.http.message import media_type
from svcd.remote import Failure, Undelivered

# How long clients wait before they ask again; the first bytes of every stream.
_RETRY = b"retry: 10000\n\n"
_HEADERS = (("Cache-Control", "no-cache"), ("Content-Encoding", "identity"), ("X-Accel-Buffering", "no"))
_MOST_REDIRECTS = 10
_MOST_ERROR_BYTES = 1 << 20
_LOOK_S = 60.0
_FORBIDDEN = (Failure.FORBIDDEN_ADDRESS, Failure.FORBIDDEN_HOST)


def begin(ctx: Context, workspace_uid: str) -> HandlerResult:
    """The answer to a completion. Raises the errors listed in svcd.api.chats.complete."""
    started, body = time.perf_counter(), ctx.body
    check_kind(body)
    workspace = complete(ctx.instance.chat_workspaces.require(workspace_uid))
    events = tools.wanted_events(body.get("tools", ()))
    logs.debug("a chat begins", workspace=workspace_uid, events=",".join(sorted(events)))
    ctx.services.streams.acquire()
    pieces = _Stream(ctx, workspace_uid, workspace, events).pieces()
    if ctx.services.usage is not None:
        ctx.services.usage.chat_began(body["model"], len(body["messages"]), (time.perf_counter() - started) * 1000)
    return HandlerResult(200, Text(StreamBody(pieces, ctx.services.streams.release), EVENTS), _HEADERS)


class _Stream:
    """The stream of one turn, from its first byte to its last."""

    def __init__(self, ctx: Context, workspace_uid: str, workspace: Complete, events: frozenset[str]) -> None:
        self._ctx = ctx
        self._uid = workspace_uid
        self._workspace = workspace
        self._events = events

    def pieces(self) -> Generator[bytes]:
        """The events, until the turn is over or the client has left."""
        yield _RETRY
        with _Watch(self._ctx) as watch:
            searches, pair = ChatSearches(self._ctx), (self._uid, self._ctx.body["model"])
            search_tool = tools.search_tool(self._workspace, searches.indexes())
            function = search_tool["function"]
            logs.debug("the search tool of a chat", description=function["description"],
                       filter=function["parameters"]["properties"]["filter"]["description"])
            conversation = Conversation(self._workspace, self._ctx.body, self._events, search_tool)
            turn = Turn(conversation, searches, lambda usage: self._ctx.services.chats.count_tokens(pair, usage))
            while turn.has_next and not watch.is_over:
                for event in self._round(turn, watch):
                    if watch.is_over:
                        return
                    yield streaming.event(dumps(event))
            if not watch.is_over:
                yield streaming.event(DONE)

    def _round(self, turn: Turn, watch: _Watch) -> Iterator[Any]:
        """Send one request to the model; yield the events for the client."""
        workspace = self._workspace
        content = dumps(turn.request()).encode("utf-8", "replace")
        try:
            with self._ctx.services.client.stream(
                sources.url_of(workspace), sources.headers_of(workspace), content, redirects=_MOST_REDIRECTS,
                begun=watch.end_with_client,
            ) as answer:
                if answer.status == 200 and media_type(answer.headers.get("content-type", "")) == EVENTS:
                    yield from _received(turn, answer.read)
                else:
                    received = b""
                    while len(received) <= _MOST_ERROR_BYTES and (piece := answer.read()):
                        received += piece
                    yield from turn.fail(sources.error_of(workspace, received))
        except Undelivered as failure:
            reason = "Rejected IP" if failure.kind in _FORBIDDEN else f"error sending request: {failure}"
            yield from turn.fail(sources.transport_error(reason))
        except UnicodeDecodeError as fault:
            yield from turn.fail(sources.unreadable_text(str(fault)))
        except EventTooLong as fault:
            yield from turn.fail(sources.unreadable_chunk(str(fault)))
        yield from turn.end_round()


def _received(turn: Turn, read: Callable[[], bytes]) -> Iterator[Any]:
    reader = EventReader()
    while piece := read():
        for text in reader.feed(piece):
            yield from turn.receive(text)
            if not turn.is_receiving:
                return
    yield from turn.fail(sources.STREAM_ENDED)


class _Watch:
    """Ends the connection to the model when the client leaves or svcd stops. is_over: whether that has happened."""

    def __init__(self, ctx: Context) -> None:
        self.is_over = False
        self._request = ctx.request
        self._listeners = ctx.queue.listeners
        self._is_done = False
        self._abort: Callable[[], None] = lambda: None
        self._lock = threading.Lock()  # over is_over and _abort

    def __enter__(self) -> _Watch:
        self._wakeup = self._listeners.add(has_changes=False)
        self._thread = threading.Thread(target=self._run, name="svcd-chat-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done = True
        self._wakeup.set()
        self._thread.join()
        self._listeners.remove(self._wakeup)

    def end_with_client(self, abort: Callable[[], None]) -> None:
        """Remember how to end the call that now begins. abort: ends it."""
        with self._lock:
            self._abort = abort
            is_over = self.is_over
        if is_over:
            abort()

    def _run(self) -> None:
        while self._request.wait(self._wakeup, _LOOK_S):
            if self._wakeup.is_set:
                break
        if self._is_done:
            return
        with self._lock:
            self.is_over = True
            abort = self._abort
        abort()
