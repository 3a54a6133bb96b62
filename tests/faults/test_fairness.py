"""What must hold of the daemon while clients with a search key send requests that are made to cost much.

1. `/health` is answered at once beside each of them.
2. A small search beside each takes at most ten times as long as alone.
3. Each is answered, or refused with a 4xx or 503 that says what to do, and none takes minutes.
4. Memory stays bounded, and goes back to the system afterwards.

The long form runs on the films of the shared material, and prints a row for each kind of request.
"""
from __future__ import annotations

import gzip
import json
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.faults.conftest import IS_LONG
from tests.support.daemon import Daemon, memory_watched
from tests.support.pace import is_within, slowness
from tests.support.shared_material import SHARED

FILMS = SHARED / "data" / "movies.ndjson.gz"
MOST_TIMES, LEAST_S = 10, 0.02  # a search beside others may take so many times as long as alone, or so long
HEALTH_S = 1.0
LOST_S = 30.0
AFTER_S = 45.0  # until what is idle has been given back

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Load:
    """Requests of one kind, from so many clients at once, each of which repeats its request until the time is over.

    reads: does the client read the answer, or a few bytes now and then? most_mb: that the memory may grow meanwhile.
    """

    name: str
    clients: int
    path: str
    body: Callable[[], Any]
    reads: bool = True
    most_mb: float = 150.0


def _filters(count: int) -> list[Any]:
    return [[f"year = {number}" for number in range(count)]]


def loads(part: float) -> Iterator[Load]:
    """All kinds. part: of the full sizes."""
    def some(count: int) -> int:
        return max(1, int(count * part))

    def queries(count: int, **members: Any) -> dict[str, Any]:
        return {"queries": [{"indexUid": "films", "q": f"the {number}", **members} for number in range(count)]}

    search, multi = "/indexes/films/search", "/multi-search"
    yield Load("200 queries of limit 1000", 1, multi, lambda: queries(some(200), limit=1000))
    yield Load("8 times 3,000 queries", 8, multi, lambda: queries(some(3000)))
    yield Load("8 times 900 queries", 8, multi, lambda: queries(some(900)))
    yield Load("8 times 900 queries in a federation", 8, multi, lambda: {**queries(some(900)), "federation": {}})
    yield Load("64 times 20 queries", 64, multi, lambda: queries(20))
    yield Load("900,000 filters in arrays", 1, search, lambda: {"filter": _filters(some(900_000))})
    yield Load("IN of 900,000", 1, search, lambda: {"filter": f"year IN [{','.join(map(str, range(some(900_000))))}]"})
    yield Load("300,000 ORs", 1, search, lambda: {"filter": " OR ".join(f"year = {number}" for number in range(some(300_000)))})
    yield Load("900,000 facets", 1, search, lambda: {"facets": [f"genres{number}" for number in range(some(900_000))]})
    yield Load("sort of 500,000", 1, search, lambda: {"sort": [f"year{number}:asc" for number in range(some(500_000))]})
    yield Load("900,000 attributes", 1, search, lambda: {"attributesToRetrieve": [f"a{number}" for number in range(some(900_000))]})
    yield Load("a vector of 900,000", 1, search, lambda: {"vector": [0.5] * some(900_000)})
    yield Load("tags of 1 MB, limit 1000", 1, search, lambda: {
        "q": "the", "limit": 1000, "highlightPreTag": "x" * some(1_000_000), "attributesToHighlight": ["*"]})
    yield Load("8 bodies of 15 MB that are no JSON", 8, search, lambda: "[" + "1," * some(7_500_000), most_mb=200.0)
    yield Load("8 texts of 10 MB as q", 8, search, lambda: {"q": "star wars " * some(1_000_000)}, most_mb=200.0)
    yield Load("limit of 1,000,000, 8 times", 8, search, lambda: {"q": "", "limit": 1_000_000, "attributesToHighlight": ["*"]})
    yield Load("64 pages of 1,000, read slowly", 64, search, lambda: {"q": "", "limit": 1000}, reads=False)
    yield Load("all documents, 8 times", 8, "/indexes/films/documents/fetch", lambda: {"limit": 10**9})
    yield Load("all documents of a list of fields, 8 times", 8, "/indexes/films/documents/fetch",
               lambda: {"limit": 10**9, "fields": ["title", "genres"]})
    yield Load("900,000 ids", 1, "/indexes/films/documents/fetch", lambda: {"ids": [str(number) for number in range(some(900_000))]})


class Client(threading.Thread):
    """A client that sends the same request again and again. outcomes: (status, seconds, bytes of the answer)."""

    def __init__(self, daemon: Daemon, load: Load, request: bytes) -> None:
        super().__init__(daemon=True)
        self._daemon, self._load, self._request = daemon, load, request
        self.outcomes: list[tuple[int, float, int]] = []
        self.error = b""
        self.began = time.monotonic()
        self._ended = threading.Event()
        self._socket: socket.socket | None = None

    def run(self) -> None:
        while not self._ended.is_set():
            self.began = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", self._daemon.port), 600) as self._socket:
                    self._exchange(self._socket)
            except OSError:
                continue

    def _exchange(self, sock: socket.socket) -> None:
        received = b""
        try:
            sock.sendall(self._request)
        except OSError:  # refused before its end: the answer is there
            pass
        size = 0
        while piece := sock.recv(1 << 20 if self._load.reads else 1024):
            size += len(piece)
            received += piece if len(received) < 65536 else b""
            if not self._load.reads and self._ended.wait(0.1):
                break
        if received:
            status = int(received[9:12])
            self.outcomes.append((status, time.monotonic() - self.began, size))
            if status >= 400:
                self.error = received.partition(b"\r\n\r\n")[2]

    def end(self) -> None:
        """Leave, whatever is under way."""
        self._ended.set()
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@dataclass
class Measured:
    """What was measured beside one load, in seconds and MB."""

    searches: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # of these: what came instead of an answer
    outcomes: list[tuple[int, float, int]] = field(default_factory=list)
    unanswered_s: float = 0.0  # how long the longest request had been under way at the end
    error: bytes = b""
    memory: Sequence[float] = ()

    def shown(self, alone: Measured) -> str:
        """A row."""
        first, most, after = self.memory
        statuses = sorted({status for status, _, _ in self.outcomes}) or "none"
        slowest = max([seconds for _, seconds, _ in self.outcomes], default=0.0)
        answer = max([size for _, _, size in self.outcomes], default=0) / 1e6
        under_way = f", {self.unanswered_s:.0f} s and more" if self.unanswered_s > slowest else ""
        p50, p95 = quantile(self.searches, 50), quantile(self.searches, 95)
        return (f"search {1e3 * p50:.0f}/{1e3 * p95:.0f}/{1e3 * max(self.searches):.0f} ms (alone {1e3 * quantile(alone.searches, 50):.0f}/"
                f"{1e3 * quantile(alone.searches, 95):.0f}), health {1e3 * max(self.health):.0f} ms, {len(self.outcomes)} answers "
                f"{statuses} up to {slowest:.1f} s{under_way}, {answer:.1f} MB, memory {first:.0f} {most:.0f} {after:.0f} MB" + f", {len(self.lost)} without answer" * bool(self.lost))


def quantile(times: Sequence[float], percent: int) -> float:
    """The time that so many of the times do not exceed."""
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


class Prober:
    """Small searches, each another one, and /health, one after the other."""

    def __init__(self, daemon: Daemon, words: Sequence[str], seed: int) -> None:
        self._daemon, self._words, self._random = daemon, words, random.Random(seed)

    def search(self, lost: list[str]) -> float:
        body = json.dumps({"q": " ".join(self._random.choices(self._words, k=2)), "limit": self._random.randint(5, 20)})
        return self._timed("POST", "/indexes/films/search", body, lost)

    def _timed(self, method: str, path: str, body: str | None, lost: list[str]) -> float:
        """Seconds until the answer; lost gets what came instead of one."""
        began = time.monotonic()
        try:
            reply = self._daemon.call(method, path, body, timeout=LOST_S)
            if reply.status != 200:
                lost.append(f"{path}: {reply.status}")
        except OSError as error:
            lost.append(f"{path}: {error!r}")
        return time.monotonic() - began

    def until(self, is_over: Callable[[], bool], measured: Measured) -> None:
        """Search, and ask for /health at the same time."""
        def health() -> None:
            while not is_over() or not measured.health:
                measured.health.append(self._timed("GET", "/health", None, measured.lost))
                time.sleep(0.05)

        beside = threading.Thread(target=health)
        beside.start()
        while not is_over() or not measured.searches:
            measured.searches.append(self.search(measured.lost))
            time.sleep(0.02)
        beside.join()


def measure(daemon: Daemon, load: Load, prober: Prober, seconds: float, after_s: float) -> Measured:
    """What happens while the clients of a load repeat their requests for so long."""
    measured = Measured()
    content = load.body()
    body = (content if isinstance(content, str) else json.dumps(content)).encode()
    request = (f"POST {load.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(body)}\r\n\r\n").encode() + body
    clients = [Client(daemon, load, request) for _ in range(load.clients)]
    with memory_watched(daemon) as memory:
        for client in clients:
            client.start()
        until = time.monotonic() + seconds
        prober.until(lambda: time.monotonic() > until, measured)
        measured.outcomes = [outcome for client in clients for outcome in client.outcomes]
        measured.unanswered_s = max(time.monotonic() - client.began for client in clients)
        for client in clients:
            client.end()
        for client in clients:
            client.join(10)
        measured.error = next((client.error for client in clients if client.error), b"")
    deadline, least = time.monotonic() + after_s, memory[1]
    while time.monotonic() < deadline and least > memory[0] * 1.3:
        time.sleep(0.5)
        least = min(least, daemon.anonymous_mb())
    measured.memory = (*memory, least)
    return measured


def films(amount: int, seed: int) -> list[Mapping[str, Any]]:
    """Real ones where they are to be had."""
    if IS_LONG and FILMS.exists():
        with gzip.open(FILMS, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    chosen = random.Random(seed)
    words = ["".join(chosen.choices("etaoinshrdlu", k=chosen.randint(3, 8))) for _ in range(2000)]
    return [{"id": number, "title": " ".join(["the", *chosen.choices(words, k=3)]), "year": 1900 + number % 120,
             "genres": chosen.choices(words[:20], k=2), "cast": [" ".join(chosen.choices(words, k=2)) for _ in range(3)]}
            for number in range(amount)]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory, amount: Callable[[int, int], int]) -> Iterator[tuple[Daemon, Sequence[str]]]:
    """A daemon with films, and words of their titles."""
    documents = films(3000, 1)
    daemon = Daemon(tmp_path_factory.mktemp("hostile")).start()
    try:
        settings = {"filterableAttributes": ["year", "genres", "cast"], "sortableAttributes": ["year"],
                    "pagination": {"maxTotalHits": 1_000_000}}
        daemon.done(daemon.call("PATCH", "/indexes/films/settings", json.dumps(settings)))
        daemon.done(daemon.post("/indexes/films/documents", documents), 600)
        words = sorted({word for document in documents[::7] for word in document["title"].split() if word.isalnum()})
        yield daemon, words
    finally:
        daemon.kill9()


_LOADS = {load.name: load for load in loads(1.0 if IS_LONG else 0.05)}
_SHORT = ("200 queries of limit 1000", "8 times 3,000 queries", "900,000 filters in arrays", "8 bodies of 15 MB that are no JSON",
          "limit of 1,000,000, 8 times")


@pytest.mark.parametrize("name", _LOADS if IS_LONG else _SHORT)
def test_beside_hostile_requests(name: str, indexed: tuple[Daemon, Sequence[str]], seed: int, amount: Callable[[int, int], int],
                                 figure: Callable[..., None]) -> None:
    daemon, words = indexed
    load = _LOADS[name]
    if IS_LONG:  # each has its memory, and no rest of the one before
        daemon.kill9()
        daemon.start()
    prober, alone = Prober(daemon, words, seed), Measured()
    for _ in range(20):
        prober.search(alone.lost)
    until = time.monotonic() + amount(1, 3)
    prober.until(lambda: time.monotonic() > until, alone)
    beside = measure(daemon, load, prober, amount(3, 20), amount(0, AFTER_S))
    figure(name, beside.shown(alone), limit="search at most 10 times as long, health under 1 s")
    if beside.error:
        print(beside.error[:300])
    allowed = max(MOST_TIMES * statistics.median(alone.searches), LEAST_S)
    assert not beside.lost
    assert is_within(max(beside.health), HEALTH_S)
    assert is_within(quantile(beside.searches, 50), allowed), f"more than {allowed * slowness()} s"
    assert beside.memory[1] - beside.memory[0] < load.most_mb
    assert all(status == 200 or status in (400, 413, 503) for status, _, _ in beside.outcomes)
    assert not daemon.bugs()
