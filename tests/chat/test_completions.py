"""What a client and a language model see of each other, event by event.

1. A plain answer is passed on; the model is told of the indexes, their frequent values, and the search tool.
2. to 12. Searches of the model: what it is told, which events the client gets, and in which order.
13. A turn ends after twenty rounds.
14. to 21. Whatever a service does wrong is an event; the status is 200.
22. to 24. Models and services have their own roles, headers and addresses.
25. to 27. The rights of the request hold for each search.
28. Only permitted hosts are called.
29. What is refused is refused before the stream.
30. When the client leaves, the service is left, too.
"""
from __future__ import annotations

import json
import socket
import threading
import time
from itertools import repeat
from typing import Any

import pytest

from svcd.chat.turn import MOST_ROUNDS
from tests.chat.conftest import TOOLS, Chat, body_of, client_of
from tests.support.bearers import signed
from tests.support.chat_source import DONE, SEARCH, Round, c, f, t, u

S = SEARCH
HI = [c(role="assistant", content=""), c(content="Hi"), f("stop"), DONE]
LEAST = {"index_uid": "movies", "q": "", "filter": ""}
ALIEN_HIT, HEAT_HIT = {"id": 1, "title": "Alien"}, {"id": 2, "title": "Heat"}
ALL = ("progress", "sources", "append")
KEY = "a master key of some length"
_FAILED = "the search tool call failed with "


def arguments(**members: Any) -> str:
    return json.dumps({**LEAST, **members}, separators=(",", ":"))


ALIEN, HEAT = arguments(q="alien"), arguments(q="heat")


def call(text: str) -> tuple[list[Any], list[Any]]:
    """A script that searches once, then greets."""
    return [t(0, "c1", S, text), f("tool_calls"), DONE], HI


def shown(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk as a client gets it."""
    choices = [{
        "index": choice["index"],
        "delta": {name: choice["delta"].get(name) for name in ("content", "function_call", "tool_calls", "role", "refusal")},
        "finish_reason": choice["finish_reason"], "logprobs": None,
    } for choice in chunk["choices"]]
    return {"id": "c1", "choices": choices, "created": 1, "model": "m", "service_tier": None, "system_fingerprint": None,
            "object": "chat.completion.chunk", "usage": None}


HI_SHOWN = [*map(shown, HI[:-1]), DONE]


def told(events: list[Any]) -> list[Any]:
    """Events in short: of the daemon's own the kind and the content, others whole."""
    return [_short(event) for event in events]


def _short(event: Any) -> Any:
    if event == DONE:
        return event
    if event.get("type") == "error":
        assert len(event["event_id"]) == 36 and event["error"]["event_id"] is None
        return "error", event["error"]["type"], event["error"]["code"], event["error"]["message"]
    delta = event["choices"][0]["delta"]
    if not delta["tool_calls"]:
        return event
    (called,) = delta["tool_calls"]
    assert (called["index"], called["type"], len(called["id"]), delta["role"]) == (0, "function", 36, "assistant")
    assert event["id"] == "c1" and delta["content"] is None and event["choices"][0]["finish_reason"] is None
    names = {name: short for short, name in TOOLS.items()}
    return names[called["function"]["name"]], json.loads(called["function"]["arguments"])


def progress(text: str, call_id: str = "c1") -> Any:
    return "progress", {"call_id": call_id, "function_name": S, "function_arguments": text}


def sources(*hits: Any, call_id: str = "c1") -> Any:
    return "sources", {"call_id": call_id, "sources": list(hits)}


def asked(text: str, call_id: str = "c1") -> Any:
    return "append", {"role": "assistant", "tool_calls": [
        {"id": call_id, "type": "function", "function": {"name": S, "arguments": text}}]}


def answered(content: str, call_id: str = "c1") -> Any:
    return "append", {"role": "tool", "content": content, "tool_call_id": call_id}


def failed(status: int, message: str) -> Any:
    return "error", "response_error", str(status), message


def test_01_an_answer_is_passed_on(chat: Chat) -> None:
    chat.plays(HI)
    answer = chat.answer(body_of())
    headers = {name.lower(): value for name, value in answer.headers}
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    assert headers == {"cache-control": "no-cache", "content-encoding": "identity", "x-accel-buffering": "no"}
    assert next(answer.body) == b"retry: 10000\n\n" and chat.source.requests == []  # before the service is asked
    answer.body.close()
    assert chat.complete() == HI_SHOWN
    (received,) = chat.source.requests
    assert received.path == "/v1/chat/completions"
    wanted = {"authorization": "Bearer sk-test", "content-type": "application/json", "accept": "text/event-stream",
              "openai-beta": "assistants=v2"}
    assert wanted.items() <= received.headers.items() and "openai-project" not in received.headers
    sent = received.body
    assert list(sent) == ["messages", "model", "stream", "stream_options", "tools"]
    assert sent["messages"] == [{"role": "system", "content": "SYS"}, {"role": "user", "content": "hi"}]
    assert sent["stream"] is True and sent["stream_options"] == {"include_usage": True}
    described = "FLT\n## Facet distributions of the movies index\nyear: 1995, 1979.\n\n"
    assert sent["tools"] == [{"type": "function", "function": {
        "name": S, "description": "DESC\n\n - movies: Films\n\n", "strict": True, "parameters": {
            "type": "object", "required": ["index_uid", "q", "filter"], "additionalProperties": False, "properties": {
                "index_uid": {"type": "string", "enum": ["movies"], "description": "IDX"},
                "q": {"type": "string", "description": "Q"},
                "filter": {"type": "string", "description": described}}}}}]


def test_02_a_search_is_told_step_by_step(chat: Chat) -> None:
    chat.plays(*call(ALIEN))
    assert told(chat.complete(*ALL)) == [
        progress(ALIEN), asked(ALIEN), sources(ALIEN_HIT), answered("title: Alien\n"), *HI_SHOWN]
    assert len(chat.source.requests) == 2
    assert chat.source.bodies[1]["messages"][2:] == [
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": S, "arguments": ALIEN}}]},
        {"role": "tool", "content": "title: Alien\n", "tool_call_id": "c1"}]


def test_03_without_tools_nothing_is_told(chat: Chat) -> None:
    chat.plays(*call(ALIEN))
    assert chat.complete() == HI_SHOWN
    assert chat.source.told() == ["title: Alien\n"]


def test_04_calls_of_one_round_are_one_message(chat: Chat) -> None:
    let_me = c(role="assistant", content="Let me")
    chat.plays([let_me, t(0, "c1", S, ALIEN), t(1, "c2", S, HEAT), f("tool_calls"), u(1, 1, 2), DONE], HI)
    assert told(chat.complete("progress")) == [shown(let_me), progress(ALIEN), progress(HEAT, "c2"), *HI_SHOWN]
    message, *results = chat.source.bodies[1]["messages"][2:]
    assert [called["id"] for called in message["tool_calls"]] == ["c1", "c2"] and "content" not in message
    assert [result["tool_call_id"] for result in results] == ["c1", "c2"]


def test_05_arguments_come_in_parts(chat: Chat) -> None:
    chat.plays([t(0, "c1", S, ""), t(0, None, None, HEAT[:20]), t(0, None, None, HEAT[20:]), f("tool_calls"), DONE], HI)
    assert told(chat.complete("sources")) == [sources(HEAT_HIT), *HI_SHOWN]
    assert chat.source.told() == ["title: Heat\n"]


@pytest.mark.parametrize(("members", "hits", "text"), [
    ({"filter": "year > 1990"}, [HEAT_HIT], "title: Heat\n"),
    ({"q": "zzzz"}, [], ""),
], ids=["06_by_a_filter", "07_without_hits"])
def test_what_is_found_is_told(chat: Chat, members: Any, hits: Any, text: str) -> None:
    chat.plays(*call(arguments(**members)))
    assert told(chat.complete("sources")) == [sources(*hits), *HI_SHOWN]
    assert chat.source.told() == [text]


def test_08_an_unknown_index_is_an_error(chat: Chat) -> None:
    wrong = arguments(index_uid="nope")
    chat.plays(*call(wrong))
    message = "Index `nope` not found."
    assert told(chat.complete(*ALL)) == [
        progress(wrong), asked(wrong), answered(_FAILED + message), failed(404, message), *HI_SHOWN]


def test_08_hidden_indexes_do_not_exist(chat: Chat) -> None:
    chat.plays(*call(arguments(index_uid=".hidden")))
    assert told(chat.complete("sources"))[0] == failed(404, "Index `.hidden` not found.")


def test_09_arguments_that_are_no_json_are_told_to_the_model_alone(chat: Chat) -> None:
    chat.plays(*call("{"))
    *own, last = told(chat.complete(*ALL))[:4]
    assert own[:2] == [progress("{"), asked("{")]
    assert own[2] == answered(chat.source.told()[0]) and chat.source.told()[0]
    assert last == HI_SHOWN[0]


def test_10_what_the_search_refuses_is_told_to_the_model_alone(chat: Chat) -> None:
    wrong = arguments(filter="title = Heat")
    chat.plays(*call(wrong))
    message = ("Attribute `title` is not filterable. Available filterable attribute patterns are: `year`.\n"
               "1:6 title = Heat")
    assert told(chat.complete(*ALL)) == [progress(wrong), asked(wrong), sources(), answered(message), *HI_SHOWN]


def test_11_a_filter_that_does_not_parse_is_an_error(chat: Chat) -> None:
    chat.plays(*call(arguments(filter="year =")))
    message = "Index `movies`: Was expecting a value but instead got nothing.\n7:7 year ="
    assert told(chat.complete("sources")) == [failed(400, message), *HI_SHOWN]
    assert chat.source.told() == [_FAILED + message]


def test_12_a_call_without_a_further_round_is_run(chat: Chat) -> None:
    chat.plays([t(0, "c1", S, ALIEN), f("stop"), DONE])
    assert told(chat.complete("sources")) == [sources(ALIEN_HIT), DONE]
    assert len(chat.source.requests) == 1


def test_13_a_turn_ends_after_twenty_rounds(chat: Chat) -> None:
    chat.plays([t(0, "c1", S, ALIEN), f("tool_calls"), DONE])
    assert chat.complete() == [DONE]
    assert len(chat.source.requests) == MOST_ROUNDS == 20
    for number, sent in enumerate(chat.source.bodies):
        roles = [message["role"] for message in sent["messages"]]
        assert (roles.count("assistant"), roles.count("tool")) == (number, number)


def test_14_another_reason_ends_the_turn(chat: Chat) -> None:
    chat.plays([c(content="a"), f("length"), DONE])
    assert chat.complete() == [shown(c(content="a")), shown(f("length")), DONE]
    assert len(chat.source.requests) == 1


BAD_KEY = {"error": {"message": "Bad key", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}
_BAD_KEY_TOLD = ("error", "invalid_request_error", "invalid_api_key", "Bad key")
_UNREADABLE = ("error", "reqwest_error", None, "error decoding response body")


@pytest.mark.parametrize(("played", "error"), [
    (Round(status=401, content_type="application/json", body=json.dumps(BAD_KEY).encode()), _BAD_KEY_TOLD),
    (Round(status=500, content_type="text/plain", body=b"oops"), _UNREADABLE),
    (Round(status=200, content_type="application/json", body=json.dumps(BAD_KEY).encode()), _BAD_KEY_TOLD),
    (Round(status=400, content_type="application/json", body=b'{"error":{"message":1,"type":"t"}}'), _UNREADABLE),
    (Round(status=400, content_type="application/json", body=b'{"error":"t"}'), _UNREADABLE),
    (Round(status=400, content_type="application/json", body=b"[]"), _UNREADABLE),
], ids=["15_refused", "16_broken", "17_no_stream", "wrong_type", "no_object", "a_list"])
def test_errors_of_the_service_are_events(chat: Chat, played: Round, error: Any) -> None:
    chat.plays(played)
    assert told(chat.complete()) == [error, DONE]
    assert len(chat.source.requests) == 1


def test_18_a_stream_without_an_end(chat: Chat) -> None:
    chat.plays(HI[:-1])
    assert told(chat.complete()) == [*HI_SHOWN[:-1], ("error", "stream_ended", None, "Stream ended"), DONE]


def test_18_a_broken_stream(chat: Chat) -> None:
    chat.plays(Round([c(content="a")], is_broken=True))
    first, (_, kind, code, _), last = told(chat.complete())
    assert (first, kind, code, last) == (shown(c(content="a")), "transport_error", None, DONE)


@pytest.mark.parametrize("wrong", [
    json.dumps(BAD_KEY), "{", json.dumps(f("weary")), json.dumps(c(role="poet")), json.dumps({**c(), "service_tier": "gold"}),
    "[" * 100_000, json.dumps({**c(), "created": None}), json.dumps({**c(), "usage": {"total_tokens": 1}}),
])
def test_19_a_chunk_that_is_none(chat: Chat, wrong: str) -> None:
    chat.plays([c(content="a"), wrong, DONE])
    first, (_, kind, code, message), last = told(chat.complete())
    assert (first, kind, code, last) == (shown(c(content="a")), "json_deserialize_error", "internal", DONE) and message


def test_20_a_later_round_may_fail_too(chat: Chat) -> None:
    busy = {"error": {"message": "Slow down", "type": "requests", "param": "p", "code": None}}
    chat.plays(call(ALIEN)[0], Round(status=429, content_type="application/json", body=json.dumps(busy).encode()))
    events = chat.complete()
    assert told(events) == [("error", "requests", None, "Slow down"), DONE] and events[0]["error"]["param"] == "p"
    assert len(chat.source.requests) == 2


def test_21_content_in_parts_is_joined(chat: Chat) -> None:
    parts = [{"type": "reference", "reference_ids": []}, {"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
    chat.plays([c(content=parts), c(content=parts[:1]), f("stop"), DONE])
    assert chat.complete() == [shown(c(content="xy")), shown(c(content=None)), shown(f("stop")), DONE]


def test_21_halves_of_characters_are_sent_on(chat: Chat) -> None:
    chat.plays(['{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
                '{"content":"\\ud83d"},"finish_reason":null}]}', DONE])
    assert len(chat.complete()) == 2


@pytest.mark.parametrize(("model", "role"), [
    ("o3", "developer"), ("gpt-4", "system"), ("gpt-4-turbo", "system"), ("gpt-4.1-mini", "system"), ("gpt-4o", "system"),
    ("gpt-4ox", "developer"), ("GPT-4o", "developer"), ("gpt-5", "developer"), ("chatgpt-4o-latest", "system"),
    ("gpt-3.5-turbo", "system"), ("chatgpt-4", "developer"),
])
def test_22_newer_models_know_developers(chat: Chat, model: str, role: str) -> None:
    chat.plays(HI)
    assert chat.complete(model=model) == HI_SHOWN
    assert chat.source.bodies[0]["messages"][0] == {"role": role, "content": "SYS"}


def test_23_errors_of_mistral_are_flat(chat: Chat) -> None:
    chat.configure(source="mistral")
    cap = {"object": "error", "message": "Cap", "type": "t", "param": None, "code": None}
    chat.plays(Round(status=400, content_type="application/json", body=json.dumps(cap).encode()))
    assert told(chat.complete(model="o3", stream_options={"include_usage": True})) == [("error", "t", None, "Cap"), DONE]
    (sent,) = chat.source.bodies
    assert "stream_options" not in sent and sent["messages"][0]["role"] == "system"


def test_24_azure_has_its_own_address_and_header(chat: Chat) -> None:
    root = chat.source.url.removesuffix("/v1")
    chat.configure(source="azureOpenAi", baseUrl=root, deploymentId="dep", apiVersion="2024-02-01")
    chat.plays(HI)
    assert chat.complete() == HI_SHOWN
    (received,) = chat.source.requests
    assert received.path == "/openai/deployments/dep/chat/completions?api-version=2024-02-01"
    assert received.headers["api-key"] == "sk-test" and "authorization" not in received.headers


def bearer(chat: Chat, actions: list[str], indexes: list[str]) -> tuple[str, str]:
    """(uid, value) of a new key; from now on the instance is protected, and the chat uses the key."""
    chat.client = client_of(chat.client.instance, KEY)
    made = chat.client.ask(KEY, "POST", "/keys", {"actions": actions, "indexes": indexes, "expiresAt": None}).value
    chat.bearer = made["key"]
    return made["uid"], made["key"]


def test_25_the_filter_of_a_tenant_holds(chat: Chat) -> None:
    uid, secret = bearer(chat, ["chatCompletions", "search"], ["*"])
    chat.bearer = signed({"searchRules": {"movies": {"filter": "year > 1990"}}, "apiKeyUid": uid}, secret)
    chat.plays(*call(arguments()))
    assert told(chat.complete("sources")) == [sources(HEAT_HIT), *HI_SHOWN]
    assert chat.source.told() == ["title: Heat\n"]
    described = chat.source.bodies[0]["tools"][0]["function"]["parameters"]["properties"]["filter"]["description"]
    assert "year: 1995.\n" in described


def test_26_each_search_needs_the_right_to_search(chat: Chat) -> None:
    bearer(chat, ["chatCompletions"], ["*"])
    chat.plays(*call(ALIEN))
    message = "The provided API key is invalid."
    assert told(chat.complete("sources")) == [failed(403, message), *HI_SHOWN]
    assert chat.source.told() == [_FAILED + message]


def test_27_other_indexes_are_neither_offered_nor_searched(chat: Chat) -> None:
    chat.add("books", [{"id": 1}])
    bearer(chat, ["chatCompletions", "search"], ["movies"])
    chat.plays(*call(arguments(index_uid="books")))
    message = 'The API key cannot acces the index `books`, authorized indexes are ["movies"].'
    assert told(chat.complete("sources")) == [failed(403, message), *HI_SHOWN]
    properties = chat.source.bodies[0]["tools"][0]["function"]["parameters"]["properties"]
    assert properties["index_uid"]["enum"] == ["movies"]


def test_28_hosts_inside_are_not_called(chat: Chat) -> None:
    chat.client = client_of(chat.client.instance, networks=())
    chat.plays(HI)
    assert told(chat.complete()) == [("error", "transport_error", None, "Rejected IP"), DONE]
    assert chat.source.requests == []


def test_28_headers_that_cannot_be_sent(chat: Chat) -> None:
    chat.configure(apiKey="line\nend \u2603")
    ((_, kind, _, message), last) = told(chat.complete())
    assert (kind, last) == ("transport_error", DONE) and "line" not in message
    assert chat.source.requests == []


@pytest.mark.parametrize("url", ["no url", "ftp://127.0.0.1/v1", "", "http://127.0.0.1:1/v1"])
def test_28_what_cannot_be_called_is_an_event(chat: Chat, url: str) -> None:
    chat.configure(baseUrl=url)
    ((_, kind, code, message), last) = told(chat.complete())
    assert (kind, code, last) == ("transport_error", None, DONE) and message


@pytest.mark.parametrize(("members", "workspace", "refused"), [
    ({"n": 2}, "w", (501, "unimplemented_multi_choice_chat_completions",
                     "You tried to specify n = 2 but only single choices are supported (n = 1).")),
    ({"n": 0, "stream": None}, "x", (501, "unimplemented_multi_choice_chat_completions",
                                     "You tried to specify n = 0 but only single choices are supported (n = 1).")),
    ({"stream": None}, "x", (501, "unimplemented_non_streaming_chat_completions", "Non-streamed chat completions is not implemented")),
    ({"stream": False}, "w", (501, "unimplemented_non_streaming_chat_completions", "Non-streamed chat completions is not implemented")),
    (body_of("get_weather", S), "w", (501, "unimplemented_external_function_calling",
                                      "get_weather: External functions are not supported yet.")),
    (body_of("progress", S, "get_weather"), "w", (400, "bad_request", "_meiliSearchInIndex function is already defined.")),
    (body_of("get_weather"), "x", (404, "chat_not_found", "Chat `x` not found")),
])
def test_29_what_is_refused(chat: Chat, members: Any, workspace: str, refused: tuple[int, str, str]) -> None:
    answer = chat.answer({**body_of(), **members}, workspace)
    assert (answer.status, json.loads(answer.body)["code"], json.loads(answer.body)["message"]) == refused
    assert chat.source.requests == []


def test_30_when_the_client_leaves_the_service_is_left(chat: Chat) -> None:
    chat.plays(Round(repeat(c(content="x")), gap_s=0.1))
    here, there = socket.socketpair()
    with here, there:
        answer = chat.answer(body_of(), sock=here)
        assert next(answer.body) and next(answer.body)
        there.close()
        assert chat.source.left.wait(5) and chat.source.sent < 10
        assert list(answer.body) == []
        answer.body.close()
    assert len(chat.source.requests) == 1


def test_30_also_while_nothing_is_sent(chat: Chat) -> None:
    """Parts of a call are not passed on, so no failure to send tells that the client has left."""
    chat.plays(Round(repeat(t(0, "c1", S, "x")), gap_s=0.05))
    here, there = socket.socketpair()
    with here, there:
        answer = chat.answer(body_of(), sock=here)
        assert next(answer.body)
        threading.Timer(0.3, there.close).start()
        assert list(answer.body) == []
        answer.body.close()
    assert chat.source.left.wait(5) and len(chat.source.requests) == 1


def test_the_first_byte_comes_with_that_of_the_service(chat: Chat) -> None:
    """With two searches before it, too: the answer is passed on within 50 ms."""
    chat.plays([c(content="Let me"), t(0, "c1", S, ALIEN), f("tool_calls"), DONE], call(HEAT)[0], Round(HI, gap_s=0.2))
    answer = chat.answer(body_of())
    came = [time.perf_counter() for piece in answer.body]
    answer.body.close()
    assert len(chat.source.requests) == 3
    assert came[1] - chat.source.sent_at[0] < 0.05  # after the line that says when to ask again
    assert came[2] - chat.source.sent_at[2] < 0.05
