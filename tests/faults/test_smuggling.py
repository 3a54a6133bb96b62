"""What must hold where requests are made so that two readers take them apart differently.

1. Each malformed shape gets its status, and nothing after it on its connection is answered.
2. Behind nginx and HAProxy, with the files of examples/: after each such request another client gets the answer to its own, over
   the connections that both share.
3. svcd gets no request there which the proxy does not know of.

The pairs of 2 are random: SVCD_FAULTS_SEED chooses others.
"""
from __future__ import annotations

import json
import random
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, running
from tests.support.malformed_requests import BROKEN_CHUNKS, REFUSED_HEADS
from tests.support.reverse_proxies import PROXIES, Proxy, running_proxy

SMUGGLED = b"GET /smuggled/%d HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED_POST = b"POST /indexes HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
# How long an attacker waits for a first byte: many of its requests wait for more bytes themselves, and get none.
PATIENCE_S = 0.02
LOG_S = 10.0  # the log of a proxy tells of a request some time after its answer
_LOGGED = re.compile(r"method=(\S+) path=(/(?:attack|victim|smuggled)/\d+) ")


def test_malformed_shapes_are_rejected_and_the_connection_is_closed(daemon: Daemon, figure: Callable[..., None]) -> None:
    shapes = {**REFUSED_HEADS, **{CHUNKED_POST + wire: status for wire, status in BROKEN_CHUNKS.items()}}
    wrong = []
    for number, (raw, status) in enumerate(shapes.items()):
        answer = daemon.raw(raw + SMUGGLED % number)
        if not answer.startswith(b"HTTP/1.1 %d " % status) or answer.count(b"HTTP/1.1 ") > 1 or b"Connection: close" not in answer:
            wrong.append((raw[:200], answer[:200]))
    figure("malformed requests: rejected, and closed", f"{len(shapes) - len(wrong)} of {len(shapes)} shapes", limit="60 shapes, all")
    assert wrong == [] and len(shapes) >= 60
    assert "/smuggled" not in daemon.log.read_text()


# -- Pairs behind a proxy


class Attacks:
    """Requests of HTTP/1.1 that may be read in two ways, most of them with another one in what could be their body."""

    LENGTHS = (b"Content-Length: %d", b"Content-Length: +%d", b"Content-Length:%d", b"Content-Length : %d", b"content-length: 0%d",
               b"Content-Length: %d ", b"Content-Length: %d,%d", b"Content-Length: 0\r\nContent-Length: %d", b"Content_Length: %d",
               b"Content-Length: %d\r\nContent-Length: 0", b"Content-Length:\r\n %d", b"X: y\rContent-Length: %d", b"Content-Length\0: %d",
               b"X: y\nContent-Length: %d", b"Content-Length: 0x%x", b"Content-Length: %d\0", b"Content-Length: 1%d", b"Content-Length: -%d",
               b"Connection: Content-Length\r\nContent-Length: %d", b"Content-Length: %d.0", b"Content-Length: \x0b%d", b"")
    CODINGS = (b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked",
               b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked",
               b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
               b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding:\r\n chunked", b"X: y\rTransfer-Encoding: chunked",
               b"X: y\nTransfer-Encoding: chunked", b"Transfer-Encoding\r\n: chunked", b"Transfer_Encoding: chunked", b"Transfer-Encoding: ",
               b"Transfer-Encoding: chunked\xa0", b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: chunked;q=1", b"",
               b"Transfer-Encoding: gzip, chunked", b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
               b" Transfer-Encoding: chunked", b"Transfer-Encoding: chunked\0", b"TE: trailers\r\nTransfer-Encoding: chunked")
    SIZES = (b"%x", b"0%x", b"%x;a=b", b" %x", b"%x ", b"0x%x", b"%x\r", b"+%x", b"-%x", b"%x;\n", b"1000000000000000%x", b"%x;a\rb", b"")
    LINE_ENDS = (b"\r\n", b"\n", b"\r", b"", b"\r\n\r\n", b" \r\n")
    VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/1.1 ", b"http/1.1")
    OTHERS = (b"", b"Expect: 100-continue", b"Connection: close", b"Connection: keep-alive, Content-Length", b"Connection: Host",
              b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", b"Connection: Upgrade\r\nUpgrade: websocket",
              b"Trailer: Content-Length", b"Host: b", b"X-HTTP-Method-Override: HEAD", b"X: " + b"y" * 9000)

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._rejected = [raw for raw in REFUSED_HEADS if len(raw) < 30_000]

    def next(self, number: int) -> tuple[bytes, bool]:
        """The bytes of one attack, and are they HTTP/2."""
        kind = self._dice.randrange(8)
        if kind == 0:
            return self._dice.choice(self._rejected) + self._inner(number), False
        return (self._of_2(number), True) if kind == 1 else (self._of_1(number), False)

    def _inner(self, number: int) -> bytes:
        """What is to be taken for a request: whole, or so that what follows becomes a header of it."""
        return SMUGGLED % number if self._dice.randrange(3) else b"GET /smuggled/%d HTTP/1.1\r\nX: " % number

    def _odd(self, shapes: Sequence[bytes]) -> bytes:
        """Mostly the first of them, which is right: a request with many faults ends at the proxy."""
        return shapes[0] if self._dice.randrange(4) else self._dice.choice(shapes)

    def _of_1(self, number: int) -> bytes:
        choose, odd, inner = self._dice.choice, self._odd, self._inner(number)
        chunk_end = odd(self.LINE_ENDS)
        body = choose((
            inner, b"0\r\n\r\n" + inner, b"0" + odd(self.LINE_ENDS) + odd(self.LINE_ENDS) + inner, b"0\r\nX: y\r\n\r\n" + inner,
            odd(self.SIZES).replace(b"%x", b"%x" % len(inner)) + b"\r\n" + inner + chunk_end + b"0\r\n\r\n",
            b"1" + odd(self.LINE_ENDS) + b"a" + odd(self.LINE_ENDS) + b"0\r\n\r\n" + inner,
            b"0\r\nContent-Length: 5\r\nHost: b\r\n" + inner, b"%x\r\n" % (len(inner) + 7) + inner + b"\r\n0\r\n\r\n"))
        size = choose((len(body), len(body), len(body), 0, 4, 5, len(body) - len(inner), len(body) + 1))
        length, coding = odd(self.LENGTHS), odd(self.CODINGS)
        length = length.replace(b"%d", b"%d" % size).replace(b"%x", b"%x" % size)
        kind = self._dice.randrange(3)  # a length, a coding, or both
        lines = [b"Host: localhost", odd(self.OTHERS), length if kind != 1 else b"", coding if kind else b""]
        self._dice.shuffle(lines)
        target = odd((b"", b"http://localhost", b"http://b")) + b"/attack/%d" % number
        head = b"%b %b %b\r\n" % (odd((b"POST", b"PUT", b"GET", b"DELETE", b"HEAD", b"OPTIONS")), target, odd(self.VERSIONS))
        return head + b"".join(line + b"\r\n" for line in lines if line) + b"\r\n" + body

    def _of_2(self, number: int) -> bytes:
        choose, inner = self._dice.choice, self._inner(number)
        body = choose((inner, b"0\r\n\r\n" + inner, b"", b"5\r\nabcde\r\n0\r\n\r\n" + inner))
        extra = choose((
            (b"content-length", b"%d" % choose((0, 1, 5, len(body), len(body) + 1))), (b"transfer-encoding", b"chunked"),
            (b"x", b"y\r\nTransfer-Encoding: chunked"), (b"x", b"y\r\n\r\n" + inner), (b"x\r\ncontent-length: 0", b"y"), (b"x: y", b"z"),
            (b"content-length", b"0\r\nX: y"), (b"connection", b"content-length"), (b"te", b"chunked"), (b"host", b"b"), (b"x", b"y\0z"),
            (b"Transfer-Encoding", b"chunked"), (b"content-length", b"0, %d" % len(body)), (b"x", b"y\nTransfer-Encoding: chunked")))
        method, path = choose(((b"POST", b"/attack/%d"), (b"POST", b"/attack/%d"), (b"POST", b"/attack/%d HTTP/1.1\r\nX: y"), (b"GET", b"/attack/%d"),
                               (b"GET /smuggled/0 HTTP/1.1\r\nX: y\r\n\r\nPOST", b"/attack/%d"), (b"POST", b"/attack/%d\0")))
        fields = [(b":method", method), (b":scheme", b"https"), (b":authority", choose((b"localhost", b"a\r\nX: y"))), (b":path", path % number), extra]
        return http_2_request(fields, body)


def http_2_request(fields: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    """All that a client of HTTP/2 sends for one request, with fields as they are (RFC 9113, and 7541 without its tables)."""
    def text(content: bytes) -> bytes:
        size = len(content)
        if size < 127:
            return bytes([size]) + content
        assert size < 255  # one byte more holds it
        return bytes([127, size - 127]) + content

    def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
        return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content

    head = b"".join(b"\0" + text(name) + text(value) for name, value in fields)
    end_stream, end_headers = 1, 4
    return (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, end_headers | (0 if body else end_stream), 1, head)
            + (frame(0, end_stream, 1, body) if body else b""))


def attack(proxy: Proxy, raw: bytes, is_http_2: bool) -> None:
    """Send it, and wait a moment for what comes back."""
    with proxy.socket(is_http_2) as sock:
        sock.settimeout(PATIENCE_S)
        try:
            sock.sendall(raw)
            while sock.recv(65536) and is_http_2:  # settings come first
                pass
        except (TimeoutError, ssl.SSLError, ConnectionError):
            pass


class Victim:
    """Another client, on a connection that it keeps. Each of its requests has a number, which stands in the answer."""

    def __init__(self, proxy: Proxy) -> None:
        self._connection = proxy.connection()

    def gets_its_own(self, number: int) -> bool:
        if number % 2:
            self._connection.request("GET", f"/victim/{number}", headers={"Accept": "*/*"})
            expected = f"There is no route `/victim/{number}`."
        else:
            query = json.dumps({"q": f"victim {number}"})
            self._connection.request("POST", "/indexes/films/search", query, {"Content-Type": "application/json"})
            expected = f'"query":"victim {number}"'
        answer = self._connection.getresponse()
        return expected in answer.read().decode()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("films"), "--log-level", "INFO") as daemon:
        daemon.done(daemon.post("/indexes/films/documents", [{"id": 1, "title": "victim"}]))
        yield daemon
        assert daemon.bugs() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PROXIES)
def test_no_client_gets_the_answer_of_another(name: str, films: Daemon, tmp_path: Path, seed: int, amount: Callable[[int, int], int],
                                              figure: Callable[..., None]) -> None:
    pairs, attacks, wrong = amount(250, 10_000), Attacks(seed), []
    before = seen_by(films)
    with running_proxy(name, tmp_path, films.port) as proxy:
        victim = Victim(proxy)
        for number in range(pairs):
            raw, is_http_2 = attacks.next(number)
            attack(proxy, raw, is_http_2)
            if not victim.gets_its_own(number):
                wrong.append(raw)
        victim.close()
        seen = seen_by(films) - before
        deadline = time.monotonic() + LOG_S
        while (unknown := seen - proxy.seen()) and time.monotonic() < deadline:
            time.sleep(0.05)
    passed_on = sum(count for (_, path), count in seen.items() if "attack" in path)
    figure(f"request smuggling behind {name}: wrong answers", len(wrong), limit=f"none in {pairs} pairs")
    figure(f"request smuggling behind {name}: requests unknown to it", unknown.total(), limit=f"none in {pairs} pairs")
    assert (wrong, unknown) == ([], Counter())
    assert passed_on > pairs / 5, "attacks that the proxy rejects say nothing of svcd"


def seen_by(daemon: Daemon) -> Counter[tuple[str, str]]:
    """How often each method and path of these tests was answered."""
    return Counter((method, path) for method, path in _LOGGED.findall(daemon.log.read_text(errors="replace")))
