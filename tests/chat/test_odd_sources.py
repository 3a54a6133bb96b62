"""What must hold of a chat whose source answers whatever it likes: the stream of the client has events, and ends; nothing else happens."""
from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

from tests.chat.conftest import Chat
from tests.support.chat_source import DONE, SEARCH, c, f, t, u
from tests.support.odd_answers import odd_json, odd_server

ROUNDS, SEED = 60, 28
CHUNKS = (c(content="a"), c(tool_calls=[]), t(0, "i", SEARCH, '{"index_uid": "movies", "q": "heat", "filter": null}'), f("tool_calls"),
          f("stop"), u(1, 2, 3))


def test_every_stream_ends_with_events(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    deaths: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", deaths.append)

    def stream(method: str, path: str, body: bytes) -> Any:
        if choose.random() < 0.2:
            return {"error": {"type": "t", "code": "c", "message": "m", "param": None}}
        events = [odd_json(choose, chunk) if choose.random() < 0.2 else json.dumps(chunk).encode()
                  for chunk in choose.choices(CHUNKS, k=choose.randrange(6))]
        return b"".join(b"data: %b\n\n" % event for event in [*events, DONE.encode()])

    with odd_server(choose, stream, "text/event-stream") as host:
        chat.configure(baseUrl=host.url)
        for _ in range(ROUNDS):
            assert chat.complete("progress", "append", "sources")[-1] == DONE
    assert deaths == []
