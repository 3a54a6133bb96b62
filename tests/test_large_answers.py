"""What must hold of a daemon whose clients ask for everything there is and do not read it.

1. It holds little more memory than before, however many they are.
2. Searches are answered meanwhile, and so is a client that does read.
3. It stops working for them when they are gone.
"""
from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

import pytest

from tests.daemon import Daemon, memory_watched, running

CLIENTS = 60
COUNT = 3000
MOST_MB = 60.0  # a body of all documents is 4 MB, and there are CLIENTS of them
TEXT = "In a city by the sea a clerk finds a letter that was never sent, and goes to look for who wrote it. " * 13
ASKED: list[tuple[str, Any]] = [
    ("/indexes/films/documents/fetch", {"limit": 100_000}),
    ("/indexes/films/documents/fetch", {"limit": 100_000, "sort": ["year:desc"], "fields": ["id", "plot"]}),
    ("/indexes/films/search", {"limit": 100_000}),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A daemon with an index `films`, of which the plot is not searched."""
    with running(tmp_path_factory.mktemp("large")) as daemon:
        settings = {"sortableAttributes": ["year"], "searchableAttributes": ["title"], "pagination": {"maxTotalHits": COUNT}}
        daemon.call("PATCH", "/indexes/films/settings", json.dumps(settings))
        films = [{"id": n, "title": f"Film {n}", "year": 1900 + n % 97, "plot": f"{n} {TEXT}"} for n in range(COUNT)]
        daemon.done(daemon.post("/indexes/films/documents", films), 60)
        yield daemon


def silent(daemon: Daemon, path: str, body: Any) -> socket.socket:
    """A client that asks and does not read."""
    content = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", daemon.port), 10)
    sock.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return sock


@pytest.mark.parametrize(("path", "body"), ASKED)
def test_clients_that_do_not_read_cost_little(daemon: Daemon, path: str, body: Any) -> None:
    with memory_watched(daemon) as memory:
        clients = [silent(daemon, path, body) for _ in range(CLIENTS)]
        for _ in range(20):
            assert daemon.post("/multi-search", {"queries": [{"indexUid": "films", "q": "film 7", "limit": 1}]}).status == 200
        reply = daemon.post(path, body)
        (shown,) = [members for name, members in reply.json.items() if name in ("results", "hits")]
        assert len(shown) == COUNT and len(reply.body) > 3_900_000
        for client in clients:
            client.close()
    assert memory[1] - memory[0] < MOST_MB, memory
    assert daemon.bugs() == []
    sizes = taken_of(daemon, path, CLIENTS)
    assert sum(size < len(reply.body) // 2 for size in sizes) >= CLIENTS, "more was made than the system takes ahead"


def taken_of(daemon: Daemon, path: str, clients: int) -> list[int]:
    """The bytes of the last answers, once the log tells of those to so many clients and one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        told = re.findall(rf"path={path} status=200 ms=\S+ bytes=(\d+)", daemon.log.read_text())
        if len(told) % (clients + 1) == 0:
            return list(map(int, told[-clients - 1:]))
        daemon.get("/health")
    raise AssertionError(f"{len(told)} answers have ended")


def test_long_strings_are_shown_as_they_are(daemon: Daemon) -> None:
    """Each of them, wherever it is shown; a hit with one is made in pieces."""
    text = 'A "sunny"\n day \\ in the sea \u0001 😀 é. ' + "Water and again water. " * 15_000
    book = {"id": 1, "title": "Sea", "text": text, "_vectors": {"a": [1.0]}, "pages": [text, "short"]}
    daemon.done(daemon.post("/indexes/books/documents", [book]))
    del book["_vectors"]
    asked = {"q": "sunny", "attributesToHighlight": ["*"], "showMatchesPosition": True}
    marked = text.replace("sunny", "<em>sunny</em>")
    expected = {**book, "_formatted": {"id": "1", "title": "Sea", "text": marked, "_vectors": {"a": ["1.0"]},
                                       "pages": [marked, "short"]},
                "_matchesPosition": {"pages": [{"start": 3, "length": 5, "indices": [0]}], "text": [{"start": 3, "length": 5}]}}
    query = {"indexUid": "books", **asked}
    assert daemon.post("/indexes/books/search", asked).json["hits"] == [expected]
    assert [each["hits"] for each in daemon.post("/multi-search", {"queries": [query, query]}).json["results"]] == [[expected]] * 2
    (merged,) = daemon.post("/multi-search", {"queries": [query], "federation": {}}).json["hits"]
    assert merged.pop("_federation")["indexUid"] == "books" and merged == expected
    cropped = {**asked, "attributesToCrop": ["text:2"], "attributesToRetrieve": ["id"]}
    (hit,) = daemon.post("/indexes/books/search", cropped).json["hits"]
    assert hit["_formatted"]["text"].startswith("A \"<em>sunny</em>") and "pages" not in hit
