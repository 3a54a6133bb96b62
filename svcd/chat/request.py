"""The body of a completion: the members that a client may send, and the request of each round (docs/chats.md#completions).

Decoding drops unknown members at every level, treats null as absent, and rounds numbers to single precision, so that a service
of this protocol gets only members that it expects.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.base.errors import ApiError
from svcd.chat.sources import stream_options, system_role
from svcd.chat.workspace import Complete
from svcd.validation import (
    Check, Field, FieldError, any_object, anything, array_of, boolean, bounded, number, object_of, object_or, one_of, parsed,
    string,
)
from svcd.vectors.vector import single

Json = dict[str, Any]

_U8, _U32, _I64 = bounded(2**8 - 1), bounded(2**32 - 1), bounded(2**63 - 1, -(2**63))


def _shortest_single(value: float) -> float:
    """Round to single precision, with the fewest digits that identify the number: 0.1, not 0.10000000149011612."""
    return next((shown for digits in range(1, 9) if single(shown := float(f"{value:.{digits}g}")) == single(value)),
                single(value))


_FLOAT = parsed(number, _shortest_single)


@dataclass(frozen=True, eq=False, slots=True)
class _Object:
    """An object; decoding keeps its known members that are not null."""

    check: Check

    def decode(self, value: Any, location: str) -> Any:
        given = {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else value
        return self.check.decode(given, location)

    def describe(self) -> Json:
        return self.check.describe()


@dataclass(frozen=True, eq=False, slots=True)
class _Tagged:
    """An object with a member that names its form."""

    tag: str
    forms: Mapping[str, Check]

    def decode(self, value: Any, location: str) -> Any:
        any_object.decode(value, location)
        if self.tag not in value:
            raise FieldError(f"Missing field `{self.tag}`{f' inside `{location}`' if location else ''}")
        name = one_of(*self.forms).decode(value[self.tag], f"{location}.{self.tag}")
        return self.forms[name].decode(value, location)

    def describe(self) -> Json:
        return {"oneOf": [form.describe() for form in self.forms.values()]}


@dataclass(frozen=True, eq=False, slots=True)
class _TextOr:
    """A text, or a value that the check accepts."""

    check: Check

    def decode(self, value: Any, location: str) -> Any:
        return value if isinstance(value, str) else self.check.decode(value, location)

    def describe(self) -> Json:
        return {"oneOf": [string.describe(), self.check.describe()]}


def _object(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    fields = {name: Field(check, required=True) for name, check in needed.items()}
    return _Object(object_of({**fields, **{name: Field(check) for name, check in (optional or {}).items()}}, is_open=True))


def _forms(tag: str, forms: Mapping[str, tuple[Mapping[str, Check], Mapping[str, Check]]]) -> Check:
    """Return a check of tagged objects. forms: name -> (required members, optional members)."""
    return _Tagged(tag, {name: _object({tag: one_of(name), **needed}, optional) for name, (needed, optional) in forms.items()})


_NAMED = _object({"name": string})
_FUNCTION = one_of("function")
_TEXT_PART: tuple[Mapping[str, Check], Mapping[str, Check]] = ({"text": string}, {})
_TEXTS = _TextOr(array_of(_forms("type", {"text": _TEXT_PART})))
_USER_CONTENT = _TextOr(array_of(_forms("type", {
    "text": _TEXT_PART,
    "image_url": ({"image_url": _object({"url": string}, {"detail": one_of("auto", "low", "high")})}, {}),
    "input_audio": ({"input_audio": _object({"data": string, "format": one_of("wav", "mp3")})}, {}),
})))
_ASSISTANT_CONTENT = _TextOr(array_of(_forms("type", {"text": _TEXT_PART, "refusal": ({"refusal": string}, {})})))
_CALLED = _object({"name": string, "arguments": string})
# A tool call in a message of the model; its type may be missing, because only one type exists.
_TOOL_CALL = _Object(object_of({"id": Field(string, required=True), "type": Field(_FUNCTION, default="function"),
                                "function": Field(_CALLED, required=True)}, is_open=True))
_MESSAGE = _forms("role", {
    "developer": ({"content": _TEXTS}, {"name": string}),
    "system": ({"content": _TEXTS}, {"name": string}),
    "user": ({"content": _USER_CONTENT}, {"name": string}),
    "assistant": ({}, {
        "content": _ASSISTANT_CONTENT, "refusal": string, "name": string, "audio": _object({"id": string}),
        "tool_calls": array_of(_TOOL_CALL), "function_call": _CALLED}),
    "tool": ({"content": _TEXTS, "tool_call_id": string}, {}),
    "function": ({"name": string}, {"content": string}),
})
_VOICES = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse")
_FORMATS = ("wav", "mp3", "flac", "opus", "pcm16")
_SCHEMA = _object({"name": string}, {"description": string, "schema": anything, "strict": boolean})
# The required and the optional members, in the order in which svcd sends them.
_NEEDED: Mapping[str, Check] = {"messages": array_of(_MESSAGE), "model": string}
_OPTIONAL: Mapping[str, Check] = {
    "store": boolean,
    "reasoning_effort": one_of("low", "medium", "high"),
    "metadata": anything,
    "frequency_penalty": _FLOAT,
    "logit_bias": any_object,
    "logprobs": boolean,
    "top_logprobs": _U8,
    "max_tokens": _U32,
    "max_completion_tokens": _U32,
    "n": _U8,
    "modalities": array_of(one_of("text", "audio")),
    "prediction": _forms("type", {"content": ({"content": _TEXTS}, {})}),
    "audio": _object({"voice": one_of(*_VOICES), "format": one_of(*_FORMATS)}),
    "presence_penalty": _FLOAT,
    "response_format": _forms("type", {"text": ({}, {}), "json_object": ({}, {}), "json_schema": ({"json_schema": _SCHEMA}, {})}),
    "seed": _I64,
    "service_tier": one_of("auto", "default"),
    "stop": _TextOr(array_of(string)),
    "stream": boolean,
    "stream_options": _object({"include_usage": boolean}),
    "temperature": _FLOAT,
    "top_p": _FLOAT,
    "tools": array_of(_object({"type": _FUNCTION, "function": _object(
        {"name": string}, {"description": string, "parameters": anything, "strict": boolean})})),
    "tool_choice": object_or(_object({"type": _FUNCTION, "function": _NAMED}), one_of("none", "auto", "required")),
    "parallel_tool_calls": boolean,
    "user": string,
    "function_call": object_or(_NAMED, one_of("none", "auto")),
    "functions": array_of(_object({"name": string}, {"description": string, "parameters": anything})),
}
_ORDER = (*_NEEDED, *_OPTIONAL)
_MEMBERS = _object(_NEEDED, _OPTIONAL)


class _Completion:
    """The whole body; every fault becomes the error that clients know."""

    def decode(self, value: Any, location: str) -> Any:
        try:
            return _MEMBERS.decode(value, location)
        except FieldError as fault:
            raise FieldError(f"Json deserialize error: {fault.message}", "bad_request") from None

    def describe(self) -> Json:
        return _MEMBERS.describe()


COMPLETION = _Completion()


def check_kind(body: Mapping[str, Any]) -> None:
    """Check that the client asks for one answer, as a stream.

    Raises unimplemented_multi_choice_chat_completions, unimplemented_non_streaming_chat_completions.
    """
    choices = body.get("n", 1)
    if choices != 1:
        raise ApiError("unimplemented_multi_choice_chat_completions",
                       f"You tried to specify n = {choices} but only single choices are supported (n = 1).")
    if not body.get("stream"):
        raise ApiError("unimplemented_non_streaming_chat_completions", "Non-streamed chat completions is not implemented")


def next_request(workspace: Complete, body: Mapping[str, Any], search_tool: Json, added: Sequence[Json]) -> Json:
    """Return the body of the next request to the service. added: the messages that the earlier rounds added."""
    system = {"role": system_role(workspace, body["model"]), "content": workspace["prompts"]["system"]}
    own = {"messages": [system, *body["messages"], *added], "stream": True, "stream_options": stream_options(workspace),
           "tools": [search_tool]}
    members = {**body, **own}
    return {name: members[name] for name in _ORDER if members.get(name) is not None}
