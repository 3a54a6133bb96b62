"""What must hold while clients leave their requests half sent, send or take a byte now and then, or take nothing of 23 MB answers.

1. Searches of others take at most three times as long as without them.
2. Threads, sockets and memory are bounded: a thread for each body under way, a socket for each client, little memory.
3. All of it is given back, without the clients' help.
4. Clients that send nearly all of a large body, and wait then, share the memory of one; small bodies are read meanwhile.

The limits of docs/http.md#limits-and-time-outs are a twentieth of the real ones in the short form.
"""
from __future__ import annotations

import json
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from svcd.http.server import SPARE_THREADS
from svcd.http.sockets import Limits
from svcd.index.connections import SPARE_READERS
from tests.faults.conftest import IS_LONG
from tests.support.daemon import Daemon, memory_watched

pytestmark = pytest.mark.slow

DIVISOR = 1 if IS_LONG else 20
LIMITS = Limits()
# A daemon whose times are shorter: the defaults of Limits are those of its constructor.
PRELUDE = f"""
import svcd.http.sockets as sockets
shorter = sockets.Limits.__new__
shorter.__defaults__ = tuple(value / {DIVISOR} if isinstance(value, float) else value for value in shorter.__defaults__)
""" if DIVISOR > 1 else ""
POST = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
SEARCH, UPLOAD = POST % b"/indexes/films/search", POST % b"/indexes/slow/documents"
ALL_FILMS = b"GET /indexes/films/documents?limit=100000 HTTP/1.1\r\nHost: a\r\n\r\n"
FILMS, PLOT = 6000 if IS_LONG else 1000, "In a city by the sea a clerk finds a letter that was never sent. " * 60

HALF_OPEN = (  # what a client sends before it is silent
    b"", b"\r\n", b"POST /indexes/fil", SEARCH, SEARCH + b"Content-Length: 20\r\n\r\n", SEARCH + b"Content-Length: 20\r\n\r\n{\"q\": ",
    SEARCH + b"Content-Length: 20\r\nExpect: 100-continue\r\n\r\n", SEARCH + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"q\"",
    SEARCH + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", UPLOAD + b"Content-Length: 99000000\r\n\r\n[{\"id\": 1}, ",
    UPLOAD + b"Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n\x1f\x8b\x08\0", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
)
HOLDS_A_THREAD = 7 / len(HALF_OPEN)  # those whose bodies are under way
UPLOADS = sum(sent.startswith(UPLOAD) for sent in HALF_OPEN) / len(HALF_OPEN)  # those whose bodies are kept in files
TRICKLES = (  # what comes first, what is sent again and again
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX: ", b"y"), (b"GET /health HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n"), (b"", b"\r\n"),
    (SEARCH + b"Content-Length: 100000\r\n\r\n", b" "), (SEARCH + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    (SEARCH + b"Transfer-Encoding: chunked\r\n\r\n", b"1;a=b\r\n \r\n"), (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n", b"1\r\n \r\n"),
    (UPLOAD + b"Content-Length: 99000000\r\n\r\n[", b" "), (b"", ALL_FILMS),
)


class SlowClients:
    """Connections that are held open until close(). Those of trickle() go on, a byte every now and then, in one thread."""

    EVERY_S = 0.2

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[socket.socket] = []
        self._senders: list[tuple[socket.socket, bytes]] = []
        self._readers: list[socket.socket] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def half_open(self, sent: bytes, buffer: int | None = None) -> socket.socket:
        sock = socket.socket()
        sock.settimeout(20)
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.connect(("127.0.0.1", self._port))
        sock.sendall(sent)
        self._open.append(sock)
        return sock

    def trickle(self, first: bytes, then: bytes) -> None:
        """One that sends bytes again and again."""
        self._senders.append((self.half_open(first), then))

    def read_slowly(self, sent: bytes) -> None:
        """One that takes a byte of its answer now and then."""
        self._readers.append(self.half_open(sent, buffer=4096))

    def _go_on(self) -> None:
        while not self._is_over.wait(self.EVERY_S):
            for sock, then in list(self._senders):
                self._try(sock, lambda: sock.send(then, socket.MSG_DONTWAIT))
            for sock in list(self._readers):
                self._try(sock, lambda: sock.recv(1, socket.MSG_DONTWAIT))

    def _try(self, sock: socket.socket, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError:  # the daemon has cut it off, or has nothing yet
            pass

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        for sock in self._open:
            sock.close()


class Resources:
    """What the main process has open."""

    def __init__(self, daemon: Daemon) -> None:
        main = Path(f"/proc/{daemon.pids[0]}")
        self.threads = len(list((main / "task").iterdir()))
        self.descriptors = len(list((main / "fd").iterdir()))


@contextmanager
def most_watched(daemon: Daemon) -> Iterator[Resources]:
    """The most that the main process has open during a block."""
    most, ended = Resources(daemon), threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            now = Resources(daemon)
            most.threads, most.descriptors = max(most.threads, now.threads), max(most.descriptors, now.descriptors)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with 23 MB of films, a sixth of that in the short form, one process alone."""
    daemon = Daemon(tmp_path_factory.mktemp("slow"), ["--search-workers", "0"], prelude=PRELUDE).start()
    try:
        daemon.call("PATCH", "/indexes/films/settings", json.dumps({"searchableAttributes": ["title"]}))
        documents = [{"id": n, "title": f"Film {n % 700} of {n % 13} in {n % 97}", "plot": PLOT} for n in range(FILMS)]
        daemon.done(daemon.post("/indexes/films/documents", documents))
        assert len(daemon.call("GET", "/indexes/films/documents?limit=100000").body) > 3900 * FILMS
        yield daemon
        assert [line for line in daemon.bugs() if " status=503 " not in line] == []
    finally:
        daemon.kill9()


def search_times(daemon: Daemon, count: int, dice: random.Random) -> list[float]:
    """Seconds that searches take which nobody has made before, on connections of their own: slow clients have them, too."""
    times = []
    for _ in range(count):
        body = json.dumps({"q": f"film {dice.randrange(700)} {dice.randrange(10**9)}", "limit": 5, "matchingStrategy": "last"})
        reply = daemon.call("POST", "/indexes/films/search", body)
        assert reply.status == 200 and reply.json["hits"], reply.body
        times.append(reply.seconds)
    return times


def test_slow_clients_cost_others_little_and_nothing_in_the_end(
        films: Daemon, seed: int, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    half_open, silent, trickles, searches = amount(120, 500), amount(20, 100), amount(3, 20), amount(150, 500)
    dice = random.Random(seed)
    # The last are idle ones, or take their answers slowly; then spare threads end, and what is spare is closed when nothing is done.
    limit_s = (LIMITS.idle_s + LIMITS.answer_waits_s + LIMITS.spare_s + 2 * LIMITS.idle_call_s) / DIVISOR + 30
    search_times(films, 50, dice)
    before, quiet = Resources(films), search_times(films, searches, dice)
    with memory_watched(films, 0.05) as memory, most_watched(films) as most, closing(SlowClients(films.port)) as clients:
        for _ in range(silent):
            clients.half_open(ALL_FILMS, buffer=4096)
        for number in range(half_open):
            clients.half_open(HALF_OPEN[number % len(HALF_OPEN)])
        for _ in range(trickles):
            for first, then in TRICKLES:
                clients.trickle(first, then)
            clients.read_slowly(ALL_FILMS)
        busy = search_times(films, searches, dice)
        everybody = half_open + silent + trickles * (len(TRICKLES) + 1)
        bodies = round(half_open * HOLDS_A_THREAD) + trickles * 5
        files = round(half_open * UPLOADS) + trickles * 2
        seconds = seconds_until_given_back(films, before, limit_s)
        after = Resources(films)
    # Before and afterwards: the machine may have got busier meanwhile.
    times = statistics.median(busy) / max(statistics.median(quiet), statistics.median(search_times(films, searches // 2, dice)))
    figure(f"{half_open} half-open, {silent} that never read 23 MB: searches", times, "times their time", limit="3 times")
    threads, descriptors = most.threads - before.threads, most.descriptors - before.descriptors
    figure("slow clients: threads", threads, limit=f"one for each body under way, {bodies}, and 32")
    # Of SQLite a file and its log for each large answer, and as many of the instance for each request that is read at a time.
    readers = 2 * (silent + 2 * trickles + 32)
    figure("slow clients: descriptors", descriptors, limit=f"{everybody} clients, {files} bodies, {readers} of SQLite")
    figure("slow clients: memory", memory[1] - memory[0], "MB", limit="100 MB")
    figure("slow clients: time until all is given back", seconds, "s", limit=f"{limit_s:.0f} s")
    assert times < 3
    assert threads <= bodies + 32
    assert descriptors <= everybody + files + readers
    assert memory[1] - memory[0] < 100, memory
    assert seconds < limit_s, (before.__dict__, after.__dict__)


def test_clients_that_hold_back_the_end_of_large_bodies_share_the_memory_of_one(
        films: Daemon, seed: int, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    greedy, size, piece = amount(12, 60), 30_000_000, b" " * 1_000_000
    with memory_watched(films, 0.05) as memory, closing(SlowClients(films.port)) as clients:
        for _ in range(greedy):
            client = clients.half_open(SEARCH + b"Content-Length: %d\r\n\r\n{" % size)
            try:
                for _ in range(size // len(piece) - 1):
                    client.sendall(piece)
            except OSError:  # refused before its end
                pass
        search_times(films, 10, random.Random(seed))
    figure(f"{greedy} clients that hold back the end of 30 MB: memory", memory[1] - memory[0], "MB", limit="180 MB")
    assert memory[1] - memory[0] < 180, memory


def seconds_until_given_back(daemon: Daemon, before: Resources, patience_s: float) -> float:
    """How long it takes until threads and descriptors are as few as before, but for spare ones, while the clients stay."""
    begin = time.monotonic()
    while time.monotonic() < begin + patience_s:
        now = Resources(daemon)
        if now.threads <= before.threads + SPARE_THREADS and now.descriptors <= before.descriptors + 2 * SPARE_READERS + 2:
            break
        time.sleep(0.05)
    return time.monotonic() - begin
