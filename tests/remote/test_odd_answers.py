"""What must hold of whoever asks another host: whatever it answers, there is an error that is declared, or a result.

CLIENTS has them: for each a good answer, a call, and the exceptions that it declares. No exception is another one, no ApiError is an
internal error without words, no thread dies. The seed is fixed; `make soak` (tests/faults/test_odd_answers.py) takes other ones.
"""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_network
from typing import Any, NamedTuple

import pytest

from svcd.api.facet_search import _counted_values as read_facets
from svcd.api.network_documents import _documents, _page
from svcd.api.remote_search import remote_result
from svcd.base.errors import ApiError
from svcd.cluster import rqlite
from svcd.cluster.log import Address, MissingPiece, Trimmed, Unavailable
from svcd.cluster.rqlite import RqliteLog
from svcd.embedding import EmbeddingError, Environment, embedder_of, service
from svcd.instance.network import Network, Remote
from svcd.remote import Undelivered, client, object_store
from svcd.remote.client import Client
from svcd.remote.guard import Guard
from svcd.remote.object_store import ObjectStore, StoreClient, Upload
from svcd.remote.remote_calls import RemoteCalls
from svcd.remote.reranking import Reranker
from svcd.tasks.export_target import NotTaken, Target
from tests.support.odd_answers import odd_server

LOOPBACK = Guard([ip_network("127.0.0.0/8")])
ROUNDS, SEED = 60, 28
SEARCHED = {
    "hits": [{"id": 1, "_federation": {"indexUid": "films", "queriesPosition": 0, "weightedRankingScore": 1.0, "extra_document": {"a": 1},
                                       "weightedScoreValues": [{"weightedScore": 0.5}, {"sort": {"asc": True, "value": 1}},
                                                               {"geoSort": {"asc": True, "distance": 2.5}}], "pinnedPosition": None}}],
    "processingTimeMs": 1, "limit": 20, "offset": 0, "estimatedTotalHits": 1, "metadata": [{"indexUid": "films", "primaryKey": "id"}],
    "facetsByIndex": {"films": {"distribution": {"a": {"x": 1}}, "stats": {"a": {"min": 1, "max": 2}}}},
    "queryVectors": {"0": [0.5, 1]},
}
FETCHED = {"offset": 0, "limit": 20, "total": 1, "remoteErrors": {"c": {"message": "m", "code": "remote_timeout"}},
           "results": [{"id": 1, "_federation": {"weightedScoreValues": [{"sort": {"asc": True, "value": "x"}}]}}]}
FACETS = {"facetHits": [{"value": "x", "count": 1}], "facetQuery": "x", "processingTimeMs": 1}
REFUSAL = {"message": "m", "code": "index_not_found", "type": "invalid_request", "link": "l"}
CREDENTIALS = {"AssumeRoleWithWebIdentityResponse": {"AssumeRoleWithWebIdentityResult": {"Credentials": {
    "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c", "Expiration": 1.5}}}}
REST = {"source": "rest", "request": {"input": ["{{text}}", "{{..}}"]}, "response": {"data": [{"numbers": "{{embedding}}"}, "{{..}}"]}}


class Odd(NamedTuple):
    """A client. good: what it is answered, JSON, bytes, or a function of the request; ask: a call, given the URL and a number."""

    good: Any
    ask: Callable[[str, int], object]
    declared: tuple[type[Exception], ...] = (ApiError,)
    kind: str = "application/json"


def exchange(url: str, number: int) -> object:
    client = Client(LOOPBACK)
    if number % 2:
        return client.exchange(url, {}, None, 5, 1 << 20, method="GET", redirects=number % 5)
    with client.stream(url, {}, b"x", redirects=number % 5) as answer:
        while answer.read():
            pass
    return None


def export(url: str, number: int) -> object:
    target = Target(Client(LOOPBACK), url, "key")
    calls: Sequence[Callable[[], object]] = (
        lambda: target.has_index("a"), lambda: target.create_index("a", None), lambda: target.update_index("a", "id"),
        lambda: target.update_settings("a", {"foreignKeys": []}, ["foreignKeys"]), lambda: target.add_documents("a", b"x"),
        lambda: target.delete_index("a"))
    return calls[number % len(calls)]()


def remote(read: Callable[[Any], object]) -> Callable[[str, int], object]:
    def ask(url: str, number: int) -> object:
        network = Network(remotes={"b": Remote(url=url)})
        return RemoteCalls(network, Client(LOOPBACK), deadline=time.monotonic() + 5).start("b", "POST", "/x", {}, read).result()

    return ask


def embed(**settings: Any) -> Callable[[str, int], object]:
    def ask(url: str, number: int) -> object:
        path = url + settings.get("path", "")
        given = {name: value for name, value in settings.items() if name != "path"} | ({"dimensions": 2} if number % 3 else {})
        embedder = embedder_of({**given, "url": path}, Environment(LOOPBACK, {}, wait=lambda stop, seconds: False))
        if number % 2:
            return embedder.embed_query("a")
        return embedder.embed(["a", "b"])

    return ask


def rerank(url: str, number: int) -> object:
    return Reranker("key", Client(LOOPBACK).exchange, url, wait=lambda seconds: None).order("q", ["a", "b"], 5)


def store(url: str, number: int) -> object:
    client = StoreClient(ObjectStore(url, "r", "b", "", "k", "s"), Client(LOOPBACK), lambda seconds: None)
    upload = Upload(f"{url}/b/o", "u")
    calls: Sequence[Callable[[], object]] = (
        lambda: client.begin("o"), lambda: client.send_part(upload, 1, b"x"), lambda: client.end(upload, ["t"]), lambda: client.abort(upload))
    return calls[number % len(calls)]()


def rows(method: str, path: str, body: bytes) -> Any:
    """What rqlite answers: to a query of entries, or a single number."""
    if b"SUM(size)" in body:
        return {"results": [{"columns": ["upto"], "values": [[0]]}, {"columns": ["number", "body"], "values": [[1, "eA=="], [2, "eQ=="]]}]}
    if b"SUBSTR" in body:
        return {"results": [{"columns": ["key", "value", "revision"], "values": [["node/a", "e30=", 5]]}]}
    return {"results": [{"values": [[1]]}, {"values": [["eA=="]]}], "time": 0.1, "error": ""}


def log(url: str, number: int) -> object:
    host, _, port = url.removeprefix("http://").partition(":")
    opened = RqliteLog(Address("rqlite", ((host, int(port)),)), 0.05)
    calls: Sequence[Callable[[], object]] = (
        lambda: opened.append("a", b"x"), lambda: opened.read(0, 10, 0), opened.last, lambda: opened.trim(1),
        lambda: opened.put_piece("a", 0, b"x"), lambda: opened.get_piece("a", 0), lambda: opened.drop_pieces("a"),
        lambda: opened.records(""), lambda: opened.compare_and_set("a", b"x", number % 3))
    try:
        return calls[number % len(calls)]()
    finally:
        opened.close()


CLIENTS = {
    "any": Odd({"a": [1, 2]}, exchange, (Undelivered,)),
    "export": Odd(REFUSAL, export, (ApiError, NotTaken)),
    "search": Odd(SEARCHED, remote(lambda answer: remote_result("b", answer))),
    "documents": Odd(FETCHED, remote(lambda answer: _documents(_page(answer)))),
    "facets": Odd(FACETS, remote(read_facets)),
    "rest": Odd({"data": [{"numbers": [1, 2]}, {"numbers": [3, 4]}]}, embed(**REST), (EmbeddingError,)),
    "openAi": Odd({"data": [{"embedding": [1, 2]}, {"embedding": [3, 4]}]}, embed(source="openAi"), (EmbeddingError,)),
    "ollama": Odd({"embeddings": [[1, 2], [3, 4]]}, embed(source="ollama", model="m", path="/api/embed"), (EmbeddingError,)),
    "ollama alone": Odd({"embedding": [1, 2]}, embed(source="ollama", model="m", path="/api/embeddings"), (EmbeddingError,)),
    "rerank": Odd({"results": [{"index": 1, "relevance_score": 0.5}, {"index": 0}]}, rerank),
    "store": Odd(b"<?xml version='1.0'?><A><UploadId>u&amp;v</UploadId></A>", store, kind="application/xml"),
    "rqlite": Odd(rows, log, (Unavailable, Trimmed, MissingPiece)),
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRIED_S", -1.0)
    monkeypatch.setattr(rqlite, "_PAUSE_S", 0.001)
    monkeypatch.setattr(service, "MOST_RETRIES", 1)


@pytest.fixture(autouse=True)
def deaths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Exceptions that ended threads; none may."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    yield found
    assert found == []


def run(name: str, seed: int, rounds: int) -> int:
    """Ask a client so often; the number of answers that it took for good ones."""
    odd, taken, choose = CLIENTS[name], 0, random.Random()
    with odd_server(choose, odd.good, odd.kind) as host:
        for number in range(rounds):
            # A client that sends two requests at once may drop one of them: the next round must not depend on it.
            choose.seed(f"{name} {seed} {number}")
            try:
                odd.ask(host.url, number)
                taken += 1
            except odd.declared as failure:
                assert not isinstance(failure, ApiError) or _has_words(failure), f"round {number} of {name}, seed {seed}: {failure}"
            except Exception as bug:
                raise AssertionError(f"round {number} of {name}, seed {seed}") from bug
        assert host.answered
    return taken


def _has_words(failure: ApiError) -> bool:
    """An export, and a role of an object store, have documented sentences under the code internal."""
    return bool(failure.message) and not failure.message.startswith("Internal error")


@pytest.mark.parametrize("name", CLIENTS)
def test_every_answer_of_another_host_is_a_result_or_a_declared_error(name: str) -> None:
    print(f"seed {SEED}")
    assert run(name, SEED, ROUNDS)


def test_every_answer_of_the_token_service_is_a_role_or_a_declared_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("t")

    def role(url: str, number: int) -> object:
        monkeypatch.setattr(object_store, "STS_URL", url)
        given = ObjectStore("http://127.0.0.1:1", "r", "b", "", role_arn="a", token_file=str(tmp_path / "token"))
        return StoreClient(given, Client(LOOPBACK))._signer()

    monkeypatch.setitem(CLIENTS, "role", Odd(CREDENTIALS, role))
    assert run("role", SEED, ROUNDS)
