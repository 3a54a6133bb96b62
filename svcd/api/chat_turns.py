"""One turn of a chat on the wire: requests to the language model, its stream, events for the client, and the model's searches.

svcd.chat.turn decides the content of requests and events. After the status 200 all failures are events of the stream
(docs/chats.md#errors). A request needs the action `chatCompletions` to begin a turn, and `search` for each search in it. The
filter of a tenant token applies in addition to the filter of the model. Search rules, other instances, personalization and joined
documents are not used (docs/chats.md#rights-of-the-model).

Threads: a request thread runs the turn and waits for the model. "svcd-chat-watch", one for each turn, waits for the client to
leave and for svcd to stop; then it ends the connection to the model, which wakes the request thread.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from svcd.api import streaming
from svcd.api.context import Context
from svcd.api.filters import index_snapshot
from svcd.api.routes import HandlerResult, Text
from svcd.api.search_parameters import check_sort, query_of, with_joins_resolved
from svcd.api.search_services import SearchEmbedding
from svcd.api.streaming import EVENTS, StreamBody
from svcd.api.traffic import DEGRADED
from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.chat import sources
from svcd.chat.chunks import DONE, EventReader, EventTooLong
from svcd.chat.request import check_kind
from svcd.chat.turn import Call, Conversation, Found, SearchableIndex, Turn, search_tool, wanted_events
from svcd.chat.workspace import Complete, complete
from svcd.facets.distribution import frequent_values, selected_fields
from svcd.filters.evaluation import filter_docids
from svcd.http.message import media_type
from svcd.instance.data_folder import is_hidden
from svcd.remote import Failure, Undelivered
from svcd.schema.attributes import WILDCARD
from svcd.search.keyword import filtered_docids
from svcd.search.request import Federation, SearchResult
from svcd.search.search import search
from svcd.templates import Template, TemplateError, document_variables
from svcd.validation import Field, FieldError, nullable, object_of, string

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader as Reader

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
    events = wanted_events(body.get("tools", ()))
    logs.debug("a chat begins", workspace=workspace_uid, events=",".join(sorted(events)))
    ctx.services.streams.acquire()
    pieces = _pieces(ctx, workspace_uid, workspace, events)
    if ctx.services.usage is not None:
        ctx.services.usage.chat_began(body["model"], len(body["messages"]), (time.perf_counter() - started) * 1000)
    return HandlerResult(200, Text(StreamBody(pieces, ctx.services.streams.release), EVENTS), _HEADERS)


def _pieces(ctx: Context, workspace_uid: str, workspace: Complete, events: frozenset[str]) -> Generator[bytes]:
    """The stream of one turn: events, until the turn is over or the client has left."""
    yield b"retry: 10000\n\n"  # how long clients wait before they ask again; the first bytes of every stream
    with _Watch(ctx) as watch:
        pair = workspace_uid, ctx.body["model"]
        tool = search_tool(workspace, _searchable_indexes(ctx))
        function = tool["function"]
        logs.debug("the search tool of a chat", description=function["description"],
                   filter=function["parameters"]["properties"]["filter"]["description"])
        turn = Turn(Conversation(workspace, ctx.body, events, tool), partial(_run_call, ctx),
                    lambda usage: ctx.services.chats.count_tokens(pair, usage))
        while turn.has_next and not watch.is_over:
            for event in _round(ctx, workspace, turn, watch):
                if watch.is_over:
                    return
                yield streaming.event(dumps(event))
        if not watch.is_over:
            yield streaming.event(DONE)


def _round(ctx: Context, workspace: Complete, turn: Turn, watch: _Watch) -> Iterator[Any]:
    """Send one request to the model; yield the events for the client."""
    content = dumps(turn.request()).encode("utf-8", "replace")
    try:
        with ctx.services.client.stream(sources.url_of(workspace), sources.headers_of(workspace), content,
                                        redirects=_MOST_REDIRECTS, begun=watch.end_with_client) as answer:
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


# Searches of the model, with the rights of the request

MOST_VALUES = 10  # values of a field that the model is told
_ARGUMENTS = object_of({
    "index_uid": Field(string, required=True), "q": Field(nullable(string)), "filter": Field(nullable(string)),
}, is_open=True)


class _Rejected(Exception):
    """An error that the model can correct: the model gets the message, and the client gets no error."""


def _searchable_indexes(ctx: Context) -> list[SearchableIndex]:
    """The indexes that the bearer may search, in the order of their uids."""
    rows, _ = ctx.instance.list_indexes(is_allowed=ctx.permission.allows)
    found = []
    for row in rows:
        try:
            with ctx.instance.read(row.uid) as reader:
                found.append(SearchableIndex(row.uid, reader.settings.resolved["chat"]["description"],
                                             _frequent_values(ctx, row.uid, reader)))
        except ApiError as error:
            if error.code != "index_not_found":  # a task may have deleted it meanwhile
                raise
    return found


def _frequent_values(ctx: Context, index_uid: str, reader: Reader) -> Mapping[str, Sequence[str]]:
    names = selected_fields(reader.settings, reader.fields(), [WILDCARD])
    try:
        asked = with_joins_resolved(ctx, query_of(ctx, index_uid, {}, has_pins=False).indexed, reader)
        counted = filtered_docids(reader, asked.query)
    except ApiError:  # the filter of the token cannot be evaluated; a search will report it
        return dict.fromkeys(names, ())
    return frequent_values(reader, names, counted, MOST_VALUES)


def _run_call(ctx: Context, call: Call) -> Found:
    """Run a call of the search tool."""
    try:
        asked = _ARGUMENTS.decode(loads(call.arguments), "")
    except FieldError as fault:
        return Found(fault.message)
    except ValueError as fault:
        return Found(str(fault))
    logs.debug("a chat searches", index_uid=asked["index_uid"], q=asked.get("q"), filter=asked.get("filter"))
    try:
        found = _run_search(ctx, asked["index_uid"], asked.get("q") or "", asked.get("filter") or None)
    except _Rejected as reason:
        return Found(str(reason), [])
    except ApiError as error:
        failure = f"the search tool call failed with {error.message}"
        return Found(failure, error=sources.SourceError("response_error", str(error.status), error.message))
    ctx.services.chats.count_search()
    return found


def _run_search(ctx: Context, index_uid: str, q: str, condition: str | None) -> Found:
    """Run one search. Raises _Rejected, and the errors of a search route."""
    if is_hidden(index_uid):
        raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
    ctx.instance.require_index(index_uid)
    permission = ctx.services.keys.check("search", index_uid, ctx.request.headers.get("authorization"))
    ctx = replace(ctx, permission=permission, snapshot=None)
    with ctx.services.searches.slot(), index_snapshot(ctx, [index_uid]), ctx.read(index_uid) as reader:
        chat = reader.settings.resolved["chat"]
        parameters: Mapping[str, Any] = chat["searchParameters"]
        if not q.strip():  # without words there is no meaning to search for
            parameters = {name: value for name, value in parameters.items() if name != "hybrid"}
        if parameters.get("hybrid") is not None:
            from svcd.search.semantic import embedder_settings

            embedder_settings(reader, parameters["hybrid"]["embedder"], "invalid_search_embedder")
        result = _searched(ctx, index_uid, {**parameters, "q": q, "filter": condition}, reader)
        return Found("\n".join(_rendered(reader, result, chat["documentTemplate"])), list(result.hits))


def _searched(ctx: Context, index_uid: str, body: Mapping[str, Any], reader: Reader) -> SearchResult:
    try:
        asked = query_of(ctx, index_uid, body, has_pins=False).indexed
    except ApiError as error:
        raise error.inside(f"Index `{index_uid}`") from None
    check_sort(body)
    timer = ctx.timer()
    federation = Federation(limit=body.get("limit", Federation.limit))
    asked = with_joins_resolved(ctx, asked, reader)
    try:
        found = search({index_uid: reader}, [asked], federation, timer, SearchEmbedding(ctx.services.embedding, timer))
        if timer.has_run_out:
            ctx.services.traffic.count_search(DEGRADED)
        return found
    except ApiError as error:
        place = f"Index `{index_uid}`: "
        if not error.message.startswith(place):
            raise
        # The search itself rejects it, for example an attribute that is not filterable.
        reason = error.message.removeprefix(place)
        if asked.query.filter is not None:
            try:
                filter_docids(reader, asked.query.filter, "invalid_search_filter")
            except ApiError as fault:  # it names the place in the text of the model
                reason = fault.message
        raise _Rejected(reason) from None


def _rendered(reader: Reader, result: SearchResult, template_text: str) -> list[str]:
    """Render the template with the whole document of each hit. Raises template_rendering_error."""
    documents = map(loads, reader.documents([hit.docid for hit in result.ranked]))
    is_searchable = reader.settings.searchable.__contains__
    try:
        template = Template.parse(template_text)
        return [template.render(document_variables(document, is_searchable)) for document in documents]
    except TemplateError as error:
        raise ApiError("template_rendering_error", f"user error: missing field in document: {error.message}") from None
