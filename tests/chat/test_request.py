"""1. Known members are sent on in their order, at every level; unknown ones and null are dropped.
2. What has another form is refused, also words that services have learnt since.
3. What the rounds add follows the messages of the client.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.chat.request import COMPLETION, next_request
from svcd.chat.workspace import complete
from svcd.validation import FieldError

LEAST = {"messages": [], "model": "m"}
TOOL = {"type": "function", "function": {"name": "f"}}
MESSAGES = [
    {"role": "developer", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"}], "name": "n"},
    {"role": "user", "content": [
        {"type": "text", "text": "c"}, {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}]},
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "tool", "content": "e", "tool_call_id": "1"}, {"role": "function", "name": "f", "content": "g"},
]
ALL = {
    "messages": MESSAGES, "model": "m", "store": True, "reasoning_effort": "low", "metadata": {"a": [1]},
    "frequency_penalty": 0.1, "logit_bias": {"1": 2}, "logprobs": True, "top_logprobs": 3, "max_tokens": 4,
    "max_completion_tokens": 5, "n": 1, "modalities": ["text"], "prediction": {"type": "content", "content": "p"},
    "audio": {"voice": "ash", "format": "mp3"}, "presence_penalty": -2.0,
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}, "strict": True}}, "seed": -1,
    "service_tier": "auto", "stop": ["x"], "stream": True, "stream_options": {"include_usage": False}, "temperature": 0.7,
    "top_p": 1.0, "tools": [TOOL], "tool_choice": TOOL, "parallel_tool_calls": False, "user": "u",
    "function_call": {"name": "f"}, "functions": [{"name": "f", "parameters": {}}],
}


def test_known_members_pass() -> None:
    assert COMPLETION.decode(ALL, "") == ALL


@pytest.mark.parametrize(("member", "value", "kept"), [
    ("unknown", 1, None), ("seed", None, None), ("metadata", None, None),
    ("messages", [{"role": "user", "content": "c", "name": None, "x": 1}], [{"role": "user", "content": "c"}]),
    ("tools", [{**TOOL, "cache": 1}], [TOOL]), ("temperature", 0.123456789, 0.12345679), ("temperature", 1, 1.0),
    ("messages", [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]}],
     [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}]}]),
])
def test_the_rest_is_dropped(member: str, value: Any, kept: Any) -> None:
    assert COMPLETION.decode({**LEAST, member: value}, "") == ({**LEAST, member: kept} if kept is not None else LEAST)


@pytest.mark.parametrize("wrong", [
    {"messages": []}, {"model": "m"}, {**LEAST, "model": 1}, {**LEAST, "messages": "hi"}, {**LEAST, "messages": None}, [], "x",
    {**LEAST, "reasoning_effort": "minimal"}, {**LEAST, "messages": [{"role": "poet", "content": ""}]},
    {**LEAST, "messages": [{"content": ""}]}, {**LEAST, "messages": [{"role": "user"}]}, {**LEAST, "messages": ["hi"]},
    {**LEAST, "messages": [{"role": "tool", "content": [{"type": "image_url"}], "tool_call_id": "1"}]},
    {**LEAST, "n": -1}, {**LEAST, "n": 256}, {**LEAST, "tools": [{"type": "function"}]}, {**LEAST, "tool_choice": "any"},
    {**LEAST, "stream": "yes"}, {**LEAST, "temperature": "hot"}, {**LEAST, "stop": 1},
])
def test_other_forms_are_refused(wrong: Any) -> None:
    with pytest.raises(FieldError, match="^Json deserialize error: ") as refused:
        COMPLETION.decode(wrong, "")
    assert refused.value.code == "bad_request"


def test_the_request_of_a_round() -> None:
    body = COMPLETION.decode(ALL, "")
    workspace, added = complete({"prompts": {"system": "S"}}), [{"role": "tool"}]
    sent = next_request(workspace, body, {"a": 1}, added)
    assert list(sent) == list(ALL)
    assert sent == {**ALL, "messages": [{"role": "developer", "content": "S"}, *MESSAGES, *added], "tools": [{"a": 1}],
                    "stream_options": {"include_usage": True}}
    plain = next_request(complete({"source": "vLlm"}), body, {}, [])
    assert "stream_options" not in plain
