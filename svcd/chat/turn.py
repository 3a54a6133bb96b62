"""One turn of a chat: from the messages of a client to the end of the model's answer, over some rounds (docs/chats.md#a-turn).

A round is one request to the service. A turn builds the request (`request()`), takes each event of the reply (`receive()`) and
its end (`end_round()` or `fail()`), and yields the chunks for the client. Its only effect is to call the search function; the
caller opens connections and sends bytes. If a client declares one of the tools EVENTS, the turn reports its progress by calls of
that tool (docs/chats.md#events).

    has_next ──request()──> receiving ──receive()──┐
       ▲                        ▲ └────────────────┘
       │                        │  usage alone, or [DONE]: is_receiving is False
       └──── end_round() ───────┘  with calls: another round; else, after MOST_ROUNDS, or by fail(): the turn is over
"""
from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.chat.chunks import CONTINUES, DONE, Chunk, Usage, chunk_of, with_call
from svcd.chat.request import next_request
from svcd.chat.sources import SourceError, unreadable_chunk
from svcd.chat.workspace import Complete

MOST_ROUNDS = 20
SEARCH = "_meiliSearchInIndex"  # the tool that the model may call
PROGRESS, SOURCES, APPEND = EVENTS = ("_meiliSearchProgress", "_meiliSearchSources", "_meiliAppendConversationMessage")

Json = dict[str, Any]


# Tools


class SearchableIndex(NamedTuple):
    """The description of an index for the model. fields: name -> frequent values."""

    uid: str
    description: str
    fields: Mapping[str, Sequence[str]]


class Call(NamedTuple):
    """A tool call by the model. id: chosen by the model; arguments: a text that should be JSON, but may be invalid."""

    id: str
    name: str
    arguments: str


def wanted_events(tools: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the events that a client asks for. Raises bad_request, unimplemented_external_function_calling."""
    wanted = set()
    for tool in tools:
        name = tool["function"]["name"]
        if name == SEARCH:
            raise ApiError("bad_request", f"{SEARCH} function is already defined.")
        if name not in EVENTS:
            raise ApiError("unimplemented_external_function_calling", f"{name}: External functions are not supported yet.")
        wanted.add(name)
    return frozenset(wanted)


def search_tool(workspace: Complete, indexes: Sequence[SearchableIndex]) -> Json:
    """Return the declaration of the search tool for a request."""
    prompts = workspace["prompts"]
    frequent = "".join(
        f"\n## Facet distributions of the {each.uid} index\n"
        + "".join(f"{name}: {', '.join(values)}.\n" if values else f"{name}: \n" for name, values in each.fields.items()) + "\n"
        for each in indexes)
    return {"type": "function", "function": {
        "name": SEARCH,
        "description": prompts["searchDescription"] + "".join(f"\n\n - {each.uid}: {each.description}\n\n" for each in indexes),
        "parameters": {
            "type": "object",
            "properties": {
                "index_uid": {"type": "string", "enum": [each.uid for each in indexes],
                              "description": prompts["searchIndexUidParam"]},
                "q": {"type": "string", "description": prompts["searchQParam"]},
                "filter": {"type": "string", "description": prompts["searchFilterParam"] + frequent},
            },
            "required": ["index_uid", "q", "filter"],
            "additionalProperties": False,
        },
        "strict": True,
    }}


def _calls_message(calls: Iterable[Call]) -> Json:
    """Return the message of the model that calls tools."""
    return {"role": "assistant", "tool_calls": [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in calls]}


def _reply_message(call: Call, content: str) -> Json:
    """Return the message that answers a call."""
    return {"role": "tool", "content": content, "tool_call_id": call.id}


# The turn


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


class Turn:
    """The state of a turn. search: runs a call of the search tool; count: called with each usage that the service reports."""

    def __init__(self, begun: Conversation, search: Callable[[Call], Found], count: Callable[[Usage], None]) -> None:
        self.has_next = True
        self.is_receiving = False
        self._begun = begun
        self._search = search
        self._count = count
        self._rounds = 0
        self._added: list[Json] = []  # messages after the client's messages
        self._calls: dict[int, Call] = {}  # place among the calls of the round -> call, which arrives in parts
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
            for part in chunk.parts:
                known = self._calls.get(part.place)
                self._calls[part.place] = Call(part.id, part.name, part.arguments) if known is None else \
                    known._replace(arguments=known.arguments + part.arguments)
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
        yield _error(error)

    def _run_calls(self, chunk: Chunk) -> Iterator[Json]:
        """Run the collected calls. chunk: the chunk that caused the run."""
        calls, self._calls = [self._calls[place] for place in sorted(self._calls)], {}
        searches = [call for call in calls if call.name == SEARCH]
        if not searches:  # the service would refuse a message without calls
            self._added.append(_calls_message(calls))
            self._added += [
                _reply_message(call, f"There is no tool `{call.name}`: the only one is `{SEARCH}`.") for call in calls]
            return
        self._added.append(_calls_message(searches))
        for call in searches:
            begun = {"call_id": call.id, "function_name": call.name, "function_arguments": call.arguments}
            yield from self._event(chunk, PROGRESS, dumps(begun))
            yield from self._event(chunk, APPEND, dumps(_calls_message([call])))
            found = self._search(call)
            message = _reply_message(call, found.told)
            self._added.append(message)
            if found.hits is not None:
                sources = f'{{"call_id":{dumps(call.id)},"sources":[{",".join(found.hits)}]}}'
                yield from self._event(chunk, SOURCES, sources)
            yield from self._event(chunk, APPEND, dumps(message))
            if found.error is not None:
                yield _error(found.error)

    def _event(self, chunk: Chunk, name: str, arguments: str) -> Iterator[Json]:
        """Yield the chunk of an event, if the client asked for it. arguments: JSON text."""
        if name in self._begun.events:
            yield with_call(chunk, str(uuids.uuid4()), name, arguments)


def _error(error: SourceError) -> Json:
    return {"event_id": str(uuids.uuid4()), "type": "error", "error": {
        "type": error.type, "code": error.code, "message": error.message, "param": error.param, "event_id": None}}
