"""A turn as a state machine: no connection, a search that is a function.

1. Figures alone end a round, but not before a choice was seen.
2. A list of calls that is empty collects nothing.
3. Calls in the last chunk are run when the round ends; calls of a broken round are not.
4. A model that calls only tools that do not exist is told so; beside searches such calls are dropped.
5. Parts without id, name or arguments break nothing.
"""
from __future__ import annotations

import json
from typing import Any

from svcd.chat.chunks import Usage
from svcd.chat.sources import STREAM_ENDED
from svcd.chat.turn import Call, Conversation, Found, Turn
from svcd.chat.workspace import complete
from tests.support.chat_source import DONE, SEARCH, c, f, t, u


class Played:
    """A turn, and what it did."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.usages: list[Usage] = []
        begun = Conversation(complete({}), {"model": "m", "messages": []}, frozenset(), {})
        self.turn = Turn(begun, self.search, self.usages.append)

    def search(self, call: Call) -> Found:
        self.calls.append(call)
        return Found(f"found {call.arguments}", [])

    def round(self, *events: Any) -> list[Any]:
        """What the client gets for the events of a round, until the turn stops reading."""
        self.sent = self.turn.request()
        shown: list[Any] = []
        for event in events:
            assert self.turn.is_receiving
            shown += self.turn.receive(event if isinstance(event, str) else json.dumps(event))
        assert not self.turn.is_receiving
        return shown + list(self.turn.end_round())


def test_figures_alone_end_a_round() -> None:
    played = Played()
    assert len(played.round(u(1, 0, 1), c(content="a"), f("stop"), u(1, 2, 3))) == 2
    assert played.usages == [(1, 0, 1), (1, 2, 3)] and not played.turn.has_next


def test_an_empty_list_of_calls_collects_nothing() -> None:
    played = Played()
    shown = played.round(c(content="lost", tool_calls=[]), c(content="a"), f("stop"), DONE)
    assert [chunk["choices"][0]["delta"]["content"] for chunk in shown] == ["a", None] and played.calls == []


def test_calls_in_the_last_chunk_are_run() -> None:
    played, last = Played(), t(0, "1", SEARCH, "x")
    last["choices"][0]["finish_reason"] = "tool_calls"
    assert played.round(last, DONE) == [] and played.calls == [("1", SEARCH, "x")] and played.turn.has_next
    played.round(DONE)
    assert [message["role"] for message in played.sent["messages"]] == ["developer", "assistant", "tool"]
    assert not played.turn.has_next


def test_calls_of_a_broken_round_are_not_run() -> None:
    played = Played()
    played.turn.request()
    assert list(played.turn.receive(json.dumps(t(0, "1", SEARCH, "x")))) == []
    (error,) = played.turn.fail(STREAM_ENDED)
    assert error["error"]["type"] == "stream_ended"
    assert list(played.turn.end_round()) == [] and played.calls == [] and not played.turn.has_next


def test_a_model_is_told_that_a_tool_does_not_exist() -> None:
    played = Played()
    played.round(t(0, "1", "weather", "x"), f("tool_calls"), DONE)
    assert played.calls == [] and played.turn.has_next
    played.round(DONE)
    _, asked, told = played.sent["messages"]
    assert asked["tool_calls"][0]["id"] == told["tool_call_id"] == "1" and "`weather`" in told["content"]


def test_calls_of_other_tools_are_dropped_beside_searches() -> None:
    played = Played()
    played.round(t(1, "2", SEARCH, "b"), t(0, "1", SEARCH, "a"), t(2, "3", "weather", ""), f("tool_calls"), DONE)
    assert [call.id for call in played.calls] == ["1", "2"]
    played.round(DONE)
    assert [message.get("content") for message in played.sent["messages"][2:]] == ["found a", "found b"]


def test_parts_may_lack_texts() -> None:
    played = Played()
    bare = c(tool_calls=[{"index": 0}])
    played.round(t(0, None, SEARCH, None), bare, f("tool_calls"), DONE)
    assert played.calls == [("", SEARCH, "")]
