"""One turn of a chat: from the messages of a client to the end of the model's answer, over some rounds (docs/chats.md#a-turn).

A round is one request to the service. A turn builds the request (`request()`), takes each event of the reply (`receive()`) and
its end (`end_round()` or `fail()`), and yields the chunks for the client. Its only effect is to call the search function; the
caller opens connections and sends bytes.

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
    """The outcome of a search call. told: the message for the model. hits: JSON texts of the documents that the client may see,
    None if the search did not run. error: the error for the client."""

    told: str
    hits: Sequence[str] | None = None
    error: SourceError | None = None


class Conversation(NamedTuple):
    """The input of a turn. body: the checked request; events: requested by the client; search_tool: its declaration."""

    workspace: Complete
    body: Mapping[str, Any]
    events: frozenset[str]
    search_tool: Json


Search = Callable[[Call], Found]
NewId = Callable[[], str]


def _new_id() -> str:
    return str(uuids.uuid4())


class Turn:
    """The state of a turn. search: runs a call of the search tool; count: called with each usage that the service reports."""

    def __init__(self, begun: Conversation, search: Search, count: Callable[[Usage], None] = lambda usage: None,
                 new_id: NewId = _new_id) -> None:
        self.has_next = True
        self.is_receiving = False
        self._begun = begun
        self._search = search
        self._count = count
        self._new_id = new_id
        self._rounds = 0
        self._added: list[Json] = []  # messages after the client's messages
        self._calls = _Calls()
        self._last: Chunk | None = None  # the last chunk of this round with a choice

    def request(self) -> Json:
        """Return the body of the next request."""
        self._rounds += 1
        self.is_receiving, self._last = True, None
        begun = self._begun
        return next_request(begun.workspace, begun.body, begun.search_tool, self._added)

    def receive(self, text: str) -> Iterator[Json]:
        """Take an event of the service, and yield the chunks for the client; searches run between them."""
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
        """End a round after the whole reply of the service; does nothing after a failure."""
        if not self.has_next:
            return
        if self._calls and self._last is not None:
            yield from self._run_calls(self._last)
        wants_more = self._last is not None and self._last.reason == CONTINUES
        self.has_next = wants_more and self._rounds < MOST_ROUNDS

    def fail(self, error: SourceError) -> Iterator[Json]:
        """End the turn, because the service cannot reply or has stopped."""
        self.has_next = self.is_receiving = False
        yield self._error(error)

    # Calls

    def _run_calls(self, chunk: Chunk) -> Iterator[Json]:
        """Run the collected calls. chunk: the chunk that caused the run."""
        calls = self._calls.taken()
        searches = [call for call in calls if call.name == tools.SEARCH]
        if not searches:  # the service would refuse a message without calls
            self._added.append(tools.calls_message(calls))
            self._added += [tools.told_message(call, f"There is no tool `{call.name}`: the only one is `{tools.SEARCH}`.")
                            for call in calls]
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
    """Tool calls that arrive in parts; true if it has collected any."""

    def __init__(self) -> None:
        self._by_place: dict[int, Call] = {}

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def add(self, parts: Sequence[CallPart]) -> None:
        """Add the parts of a chunk, possibly none."""
        for part in parts:
            known = self._by_place.get(part.place)
            self._by_place[part.place] = Call(part.id, part.name, part.arguments) if known is None else \
                known._replace(arguments=known.arguments + part.arguments)

    def taken(self) -> list[Call]:
        """Return the collected calls in order, and remove them."""
        calls = [self._by_place[place] for place in sorted(self._by_place)]
        self._by_place = {}
        return calls
