"""One turn of a chat: from the messages of a client to the end of the model's answer, over some rounds (docs/chats.md#a-turn).

A round is one request to the service. A turn says what to request (`request()`), is given each event of the answer
(`receive()`) and how the answer ended (`end_round()` or `fail()`), and yields what the client gets. It calls the search that it
was given, and has no other effect; who opens connections and sends bytes is not its concern.

    has_next ──request()──> receiving ──receive()──┐
       ▲                        ▲ └────────────────┘
       │                        │  usage alone, or [DONE]: is_receiving is False
       └──── end_round() ───────┘  with calls: another round; else, after MOST_ROUNDS, or by fail(): the turn is over
"""
from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base import logs
from svcd.chat import tools
from svcd.chat.chunks import CONTINUES, DONE, CallPart, Chunk, Usage, chunk_of, with_call
from svcd.chat.request import next_request
from svcd.chat.sources import SourceError, unreadable_chunk
from svcd.chat.tools import Call
from svcd.chat.workspace import Complete

MOST_ROUNDS = 20

Json = dict[str, Any]


class Found(NamedTuple):
    """The outcome of a search call. told: what the model is told. hits: JSON texts of the documents that the client may see,
    None when the search did not run. error: what the client is told of a failure."""

    told: str
    hits: Sequence[str] | None = None
    error: SourceError | None = None


class Conversation(NamedTuple):
    """What a turn begins with. body: the checked request; events: that the client asks for; search_tool: its declaration."""

    workspace: Complete
    body: Mapping[str, Any]
    events: frozenset[str]
    search_tool: Json


Search = Callable[[Call], Found]
NewId = Callable[[], str]


def _new_id() -> str:
    return str(uuids.uuid4())


class Turn:
    """The state of one turn. search: runs a call of the search tool; count: is given each number of tokens."""

    def __init__(self, begun: Conversation, search: Search, count: Callable[[Usage], None] = lambda usage: None,
                 new_id: NewId = _new_id) -> None:
        self.has_next = True
        self.is_receiving = False
        self._begun = begun
        self._search = search
        self._count = count
        self._new_id = new_id
        self._rounds = 0
        self._added: list[Json] = []  # messages since the client's
        self._calls = _Calls()
        self._last: Chunk | None = None  # of this round, the last one with a choice

    def request(self) -> Json:
        """The body of the next request."""
        self._rounds += 1
        self.is_receiving, self._last = True, None
        begun = self._begun
        return next_request(begun.workspace, begun.body, begun.search_tool, self._added)

    def receive(self, text: str) -> Iterator[Json]:
        """What the client gets for one event of the service; searches run between its elements."""
        if text == DONE:
            self.is_receiving = False
            return
        try:
            chunk = chunk_of(text)
        except ValueError as fault:
            logs.error("a chunk of a chat source cannot be read", fault=fault, chunk=text)
            yield from self.fail(unreadable_chunk(str(fault)))
            return
        if chunk.usage is not None:
            self._count(chunk.usage)
        if not chunk.has_choice:
            self.is_receiving = self._last is None  # some services report on filters before they begin
            return
        self._last = chunk
        if chunk.parts is not None:
            self._calls.add(chunk.parts)
        elif self._calls:
            yield from self._run_calls(chunk)
        else:
            yield chunk.shown

    def end_round(self) -> Iterator[Json]:
        """The service has said all of its answer. Nothing follows a failure."""
        if not self.has_next:
            return
        if self._calls and self._last is not None:
            yield from self._run_calls(self._last)
        wants_more = self._last is not None and self._last.reason == CONTINUES
        self.has_next = wants_more and self._rounds < MOST_ROUNDS

    def fail(self, error: SourceError) -> Iterator[Json]:
        """The service cannot answer, or has stopped: the turn is over."""
        self.has_next = self.is_receiving = False
        yield self._error(error)

    # Calls

    def _run_calls(self, chunk: Chunk) -> Iterator[Json]:
        """Run what was collected. chunk: has set it off."""
        calls = self._calls.taken()
        searches = [call for call in calls if call.name == tools.SEARCH]
        if not searches:  # a message without calls would be refused
            self._added += [tools.calls_message(calls), *(tools.told_message(call, _no_tool(call)) for call in calls)]
            return
        self._added.append(tools.calls_message(searches))
        for call in searches:
            yield from self._run(call, chunk)

    def _run(self, call: Call, chunk: Chunk) -> Iterator[Json]:
        yield from self._event(chunk, tools.PROGRESS, lambda: tools.progress(call))
        yield from self._event(chunk, tools.APPEND, lambda: tools.appended(tools.calls_message([call])))
        found = self._search(call)
        message = tools.told_message(call, found.told)
        self._added.append(message)
        hits = found.hits
        if hits is not None:
            yield from self._event(chunk, tools.SOURCES, lambda: tools.sources(call, hits))
        yield from self._event(chunk, tools.APPEND, lambda: tools.appended(message))
        if found.error is not None:
            yield self._error(found.error)

    def _event(self, chunk: Chunk, name: str, arguments: Callable[[], str]) -> Iterator[Json]:
        if name in self._begun.events:
            yield with_call(chunk, self._new_id(), name, arguments())

    def _error(self, error: SourceError) -> Json:
        return {"event_id": self._new_id(), "type": "error", "error": {
            "type": error.type, "code": error.code, "message": error.message, "param": error.param, "event_id": None}}


class _Calls:
    """Calls that arrive in parts; true when there are any."""

    def __init__(self) -> None:
        self._by_place: dict[int, Call] = {}

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def add(self, parts: Sequence[CallPart]) -> None:
        """Add the parts of one chunk, of which there may be none."""
        for part in parts:
            known = self._by_place.get(part.place)
            self._by_place[part.place] = Call(part.id, part.name, part.arguments) if known is None else \
                known._replace(arguments=known.arguments + part.arguments)

    def taken(self) -> list[Call]:
        """The calls in their order; collecting begins anew."""
        calls = [self._by_place[place] for place in sorted(self._by_place)]
        self._by_place = {}
        return calls


def _no_tool(call: Call) -> str:
    return f"There is no tool `{call.name}`: the only one is `{tools.SEARCH}`."
