"""An App over a real, empty data folder, and a check of answers against their declared shapes."""
from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pytest

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.context import Services
from svcd.api.shapes import SCHEMAS
from svcd.api.streaming import ConcurrencyLimit
from svcd.auth.keys import Keys, KeySource
from svcd.base import quantities
from svcd.cluster.service import ClusterService
from svcd.http.message import Body, Headers, Portions, Request, Response
from svcd.instance.instance import Instance
from svcd.remote.client import Client as RemoteClient
from svcd.remote.guard import Guard
from svcd.remote.reranking import Reranker
from svcd.search import search
from svcd.tasks.dry_runs import DryRuns
from svcd.tasks.indexing_client import MemoryBudget
from tests.support.tasks_in_process import LocalWriter, instance, work  # noqa: F401 (fixtures)

JSON_TYPE = {"content-type": "application/json"}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class _Wire:
    """The bytes of a body, as if read from a socket."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)

    def __iter__(self) -> Iterator[bytes]:
        return iter((self.content,) if self.content else ())


@dataclass
class Got:
    """One answer. text: its body; headers by lower-case name."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def value(self) -> Any:
        return json.loads(self.text)

    @property
    def fault(self) -> tuple[int, str, str]:
        """Status, code and message of a refusal."""
        return self.status, self.value["code"], self.value["message"]


class Client:
    """Sends requests to an App without a socket."""

    def __init__(self, app: App, instance: Instance, searches: SearchQueue, keys: Keys, broadcasts: list[Any]) -> None:
        """broadcasts: receives the commands that the App sends to other processes."""
        self.app = app
        self.instance = instance
        self.searches = searches
        self.keys = keys
        self.broadcasts = broadcasts

    def send(self, method: str, url: str, content: bytes = b"", headers: dict[str, str] | None = None) -> Got:
        answer = self.answer(method, url, content, headers)
        raw = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        if isinstance(answer.body, Portions):
            answer.body.close()
        return Got(answer.status, raw.decode(), {name.lower(): value for name, value in answer.headers})

    def answer(self, method: str, url: str, content: bytes = b"", headers: dict[str, str] | None = None,
               sock: socket.socket | None = None) -> Response:
        """What the App gives to the HTTP server. sock: the client's connection."""
        path, _, query = url.partition("?")
        body = Body(_Wire(content))
        return self.app.answer(Request(method, path, query, Headers(headers or {}), body, "127.0.0.1", sock))

    def ask(self, bearer: str, method: str, url: str, value: Any = None) -> Got:
        """A request with a key, and with a JSON body unless the value is None."""
        content, content_type = (b"", {}) if value is None else (json.dumps(value).encode(), JSON_TYPE)
        return self.send(method, url, content, {"authorization": f"Bearer {bearer}", **content_type})

    def get(self, url: str, **headers: str) -> Got:
        return self.send("GET", url, headers=headers)

    def parts(self, method: str, url: str, value: Any = None) -> Any:
        """The body of an answer as it comes: bytes, or what makes them piece by piece."""
        answer = self.answer(method, url, b"" if value is None else json.dumps(value).encode(), JSON_TYPE)
        assert answer.status == 200, answer.body
        return answer.body

    def json(self, method: str, url: str, value: Any) -> Got:
        return self.send(method, url, json.dumps(value).encode(), JSON_TYPE)


def loopback_client() -> RemoteClient:
    """What calls other instances: those on this machine."""
    return RemoteClient(Guard([ip_network("127.0.0.0/8")]))


def client_of(instance: Instance, master_key: str | None, now: Callable[[], int], source: KeySource,
              waiting_writes: int = 2, make_client: Callable[[], RemoteClient] = loopback_client,
              make_reranker: Callable[[], Reranker] | None = None, node: ClusterService | None = None,
              renames_by_patch: bool = False) -> Client:
    """A client of an App. now: the clock of its keys, which are in `source`. make_client: makes what calls other hosts.

    node: of a cluster.
    """
    searches, keys, broadcasts = SearchQueue(2), Keys(master_key, source, now), []
    services = Services(
        instance, keys, searches, instance, node, broadcast=broadcasts.append, streams=ConcurrencyLimit(2),
        waiting_writes=ConcurrencyLimit(waiting_writes), large_answers=ConcurrencyLimit(2, "large answers"),
        make_client=make_client, make_reranker=make_reranker, renames_by_patch=renames_by_patch,
        make_dry_runs=lambda: DryRuns(instance, MemoryBudget(), [], 1, LocalWriter))  # type: ignore[arg-type]
    return Client(App(services), instance, searches, keys, broadcasts)


@pytest.fixture(autouse=True)
def _searches_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search in a process that waits for a core must not end early; tests of the time limit set one of their own."""
    monkeypatch.setattr(search, "DEFAULT_CUTOFF_MS", 60_000)


@pytest.fixture
def connect(instance: Instance) -> Callable[..., Client]:
    """connect(master_key, now, waiting_writes, make_client, make_reranker) -> a client of an App over the same folder: see
    client_of()."""
    def connected(master_key: str | None = None, now: Callable[[], int] = quantities.now, waiting_writes: int = 2,
                  make_client: Callable[[], RemoteClient] = loopback_client,
                  make_reranker: Callable[[], Reranker] | None = None) -> Client:
        return client_of(instance, master_key, now, instance.keys, waiting_writes, make_client, make_reranker)

    return connected


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()


def misfit(value: Any, schema: Any, place: str = "$") -> str | None:
    """Where and why a value does not fit a schema, or None; of JSON Schema, what the shapes use."""
    if "$ref" in schema:
        return misfit(value, SCHEMAS[schema["$ref"].rsplit("/", 1)[-1]], place)
    if "oneOf" in schema:
        fits = [option for option in schema["oneOf"] if misfit(value, option, place) is None]
        return None if fits else f"{place}: {value!r} fits none of {schema['oneOf']}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_TYPES[name](value) for name in types):
        return f"{place}: {value!r} is not {types}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place}: {value!r} is not one of {schema['enum']}"
    return _member_misfit(value, schema, place)


def _member_misfit(value: Any, schema: Any, place: str) -> str | None:
    if isinstance(value, list):
        found = (misfit(part, schema.get("items", {}), f"{place}[{i}]") for i, part in enumerate(value))
        return next(filter(None, found), None)
    if not isinstance(value, dict):
        return None
    missing = set(schema.get("required", ())) - set(value)
    if missing:
        return f"{place}: {missing} missing"
    declared, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, member in value.items():
        if name not in declared and others is False:
            return f"{place}.{name}: not declared"
        inner = declared.get(name, others if isinstance(others, dict) else {})
        found_inside = misfit(member, inner, f"{place}.{name}")
        if found_inside:
            return found_inside
    return None


@pytest.fixture
def check_shape() -> Callable[[Any, Any], None]:
    """check_shape(value, shape): fails with the place that does not fit."""

    def check(value: Any, shape: Any) -> None:
        found = misfit(value, SCHEMAS[shape] if isinstance(shape, str) else shape)
        assert found is None, found

    return check
