"""Reads the events of a service, and rewrites their chunks; a service sends one chunk of a completion in each event.

The client gets a chunk with all members in a fixed order: absent members are null, unknown ones are dropped. See
docs/chats.md#events.
"""
from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.validation import Check, Field, anything, array_of, bounded, nullable, object_of, one_of, string
from svcd.validation.answers import read_answer

DONE = "[DONE]"
CONTINUES = "tool_calls"  # the reason of a round that ends with tool calls
_U32 = bounded(2**32 - 1)
_REASONS = ("stop", "length", CONTINUES, "content_filter", "function_call")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TIERS = ("auto", "default", "flex", "priority", "scale")

Json = dict[str, Any]


class CallPart(NamedTuple):
    """A part of a tool call. place: position of the call among the calls of the round.

    The first part of a call has its id and name; every part has a piece of its arguments.
    """

    place: int
    id: str
    name: str
    arguments: str


class Usage(NamedTuple):
    """Numbers of tokens."""

    prompt: int
    completion: int
    total: int


class Chunk(NamedTuple):
    """A chunk. shown: the chunk for the client; parts: parts of tool calls in the first choice, None without tool calls.

    has_choice: False for a chunk with usage figures only. reason: why the round ends; None while it continues.
    """

    shown: Json
    has_choice: bool
    reason: str | None
    parts: Sequence[CallPart] | None
    usage: Usage | None


def _optional(check: Check) -> Field:
    return Field(nullable(check), default=None)


def _opened(fields: Mapping[str, Field]) -> Check:
    return object_of(fields, is_open=True)


class _Content:
    """A text, or a list of parts, decoded to the joined texts of its text parts; None without text parts."""

    def decode(self, value: Any, location: str) -> str | None:
        if not isinstance(value, list):
            return string.decode(value, location)
        texts = [part["text"] for part in value
                 if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)]
        return "".join(texts) if texts else None

    def describe(self) -> Json:
        return {}


_CALLED = _opened({"name": _optional(string), "arguments": _optional(string)})
_DELTA = _opened({
    "content": _optional(_Content()),
    "function_call": _optional(_CALLED),
    "tool_calls": _optional(array_of(_opened({
        "index": Field(_U32, required=True),
        "id": _optional(string),
        "type": _optional(one_of("function")),
        "function": _optional(_CALLED),
    }))),
    "role": _optional(one_of(*_ROLES)),
    "refusal": _optional(string),
})
_COUNT = Field(_U32, required=True)
_CHUNK = _opened({
    "id": Field(string, required=True),
    "choices": Field(array_of(_opened({
        "index": Field(_U32, required=True),
        "delta": Field(_DELTA, required=True),
        "finish_reason": _optional(one_of(*_REASONS)),
        "logprobs": _optional(_opened({"content": _optional(anything), "refusal": _optional(anything)})),
    })), required=True),
    "created": Field(_U32, required=True),
    "model": Field(string, required=True),
    "service_tier": _optional(one_of(*_TIERS)),
    "system_fingerprint": _optional(string),
    "object": Field(string, required=True),
    "usage": _optional(_opened({
        "prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT,
        "prompt_tokens_details": _optional(_opened(dict.fromkeys(("audio_tokens", "cached_tokens"), _optional(_U32)))),
        "completion_tokens_details": _optional(_opened(dict.fromkeys(
            ("accepted_prediction_tokens", "audio_tokens", "reasoning_tokens", "rejected_prediction_tokens"), _optional(_U32)))),
    })),
})


def chunk_of(text: str) -> Chunk:
    """Parse the chunk of an event. Raises ValueError(reason)."""
    shown: Json = read_answer(text, lambda value: _CHUNK.decode(value, ""))
    choice = shown["choices"][0] if shown["choices"] else None
    parts = choice["delta"]["tool_calls"] if choice else None
    call_parts = None
    if parts is not None:
        functions = [part["function"] or {} for part in parts]
        call_parts = [CallPart(part["index"], part["id"] or "", function.get("name") or "", function.get("arguments") or "")
                      for part, function in zip(parts, functions)]
    usage = shown["usage"]
    return Chunk(shown, choice is not None, choice["finish_reason"] if choice else None, call_parts,
                 None if usage is None else Usage(usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]))


def with_call(chunk: Chunk, call_id: str, name: str, arguments: str) -> Json:
    """Return a chunk of the daemon: one call of a tool of the client, with the other members from `chunk`, which caused it."""
    delta = {"content": None, "function_call": None, "tool_calls": [
        {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}},
    ], "role": "assistant", "refusal": None}
    return {**chunk.shown, "choices": [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}]}


# Server-sent events (WHATWG HTML 9.2.6)

_LINE_END = re.compile(r"\r\n|\n|\r")
# Characters of an event; a chunk has a few kB. Without a limit a service could fill the memory with an endless event.
MOST_EVENT = 16 << 20


class EventTooLong(Exception):
    """An event has more than MOST_EVENT characters."""


class EventReader:
    """Reads one stream from bytes as they come, and gives the data of each event.

    Ignores names, ids, retry times and comments, and an event at the end of the stream that lacks its empty line.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""  # an incomplete line
        self._lines: list[str] = []  # data of the current event
        self._length = 0  # characters in _lines
        self._is_first = True
        self._skips_newline = False  # the last character was a carriage return, so a newline would belong to the same line end

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of the events that end in this piece. Raises UnicodeDecodeError, EventTooLong."""
        lines: list[str] = []
        if text := self._decode(piece):
            if self._is_first:
                self._is_first = False
                text = text.removeprefix("\ufeff")
            if self._skips_newline:
                text = text.removeprefix("\n")
            self._skips_newline = text.endswith("\r")
            *lines, self._rest = _LINE_END.split(self._rest + text)
        for line in lines:
            if line:
                name, _, value = line.partition(":")
                if name == "data":
                    self._lines.append(value.removeprefix(" "))
                    self._length += len(value) + 1
            elif self._lines:
                found, self._lines, self._length = "\n".join(self._lines), [], 0
                yield found
        if self._length + len(self._rest) > MOST_EVENT:
            raise EventTooLong(f"an event has more than {MOST_EVENT} characters")
