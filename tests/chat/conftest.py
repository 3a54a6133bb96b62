"""A workspace whose model is a script, over an index of two films."""
from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

import pytest

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.context import Services
from svcd.api.streaming import ConcurrencyLimit
from svcd.auth.keys import Keys
from svcd.instance.instance import Instance
from svcd.remote.client import Client as RemoteClient
from svcd.remote.guard import Guard
from tests.api.conftest import JSON_TYPE, Client
from tests.support.chat_source import DONE, Source
from tests.support.tasks_in_process import instance, work  # noqa: F401 (fixtures)

LOOPBACK = (ip_network("127.0.0.0/8"),)
PROMPTS = {"system": "SYS", "searchDescription": "DESC", "searchQParam": "Q", "searchFilterParam": "FLT",
           "searchIndexUidParam": "IDX"}
SETTINGS = {"displayedAttributes": ["id", "title"], "searchableAttributes": ["title"], "filterableAttributes": ["year"],
            "chat": {"description": "Films"}}
FILMS = [{"id": 1, "title": "Alien", "year": 1979}, {"id": 2, "title": "Heat", "year": 1995}]
TOOLS = {"progress": "_meiliSearchProgress", "sources": "_meiliSearchSources", "append": "_meiliAppendConversationMessage"}


def body_of(*tools: str, **members: Any) -> dict[str, Any]:
    """The body of a completion. tools: short or whole names of tools that the client declares."""
    declared = [{"type": "function", "function": {"name": TOOLS.get(name, name), "parameters": {}}} for name in tools]
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "stream": True,
            **({"tools": declared} if tools else {}), **members}


def events_of(raw: bytes) -> list[Any]:
    """The values of a whole stream; the last may be DONE."""
    assert raw.startswith(b"retry: 10000\n\n")
    blocks = raw.decode().split("\n\n")[1:-1]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks), blocks
    return [DONE if block == f"data: {DONE}" else json.loads(block.removeprefix("data: ")) for block in blocks]


@dataclass
class Chat:
    """A client of an App with the workspace `w`, and the source that it names."""

    client: Client
    source: Source
    work: Callable[[], None]
    bearer: str | None = None
    followed: list[Any] = field(default_factory=list)

    def plays(self, *rounds: Any) -> None:
        """The script from now on."""
        self.source.script, self.source.requests = list(rounds), []

    def answer(self, body: Any, workspace: str = "w", sock: socket.socket | None = None) -> Any:
        headers = JSON_TYPE if self.bearer is None else {**JSON_TYPE, "authorization": f"Bearer {self.bearer}"}
        return self.client.answer("POST", f"/chats/{workspace}/chat/completions", json.dumps(body).encode(), headers, sock)

    def complete(self, *tools: str, **members: Any) -> list[Any]:
        """The events of one turn."""
        answer = self.answer(body_of(*tools, **members))
        assert answer.status == 200, answer.body
        raw = b"".join(answer.body)
        answer.body.close()
        return events_of(raw)

    def configure(self, **members: Any) -> None:
        """Change the workspace."""
        got = self.client.json("PATCH", "/chats/w/settings", members)
        assert got.status == 200, got.text

    def settle(self, index_uid: str, **settings: Any) -> None:
        """Change an index."""
        assert self.client.json("PATCH", f"/indexes/{index_uid}/settings", settings).status == 202
        self.work()

    def add(self, index_uid: str, documents: Sequence[Any]) -> None:
        assert self.client.json("POST", f"/indexes/{index_uid}/documents?primaryKey=id", documents).status == 202
        self.work()


def client_of(instance: Instance, master_key: str | None = None, networks: Any = LOOPBACK, streams: int = 4) -> Client:
    searches, keys = SearchQueue(2), Keys(master_key, instance.keys)
    services = Services(instance, keys, searches, instance, streams=ConcurrencyLimit(streams),
                        large_answers=ConcurrencyLimit(2, "large answers"), make_client=lambda: RemoteClient(Guard(networks)))
    return Client(App(services), instance, searches, keys, [])


@pytest.fixture
def source() -> Iterator[Source]:
    """A service that plays a script."""
    made = Source()
    yield made
    made.close()


@pytest.fixture
def chat(instance: Instance, work: Callable[[], None], source: Source) -> Chat:
    """Everything as the cases presume it."""
    for feature in ("chatCompletions", "metrics"):
        instance.force_feature(feature)
    made = Chat(client_of(instance), source, work)
    made.settle("movies", **SETTINGS)
    made.add("movies", FILMS)
    made.configure(source="openAi", baseUrl=source.url, apiKey="sk-test", prompts=PROMPTS)
    return made
