"""What must hold of answers that are larger, or taken more slowly, than is good for others.

1. A client that takes nothing holds no thread, and of a body in portions no more is made than the system takes ahead.
2. Clients that read get their answers, however many others do not.
3. What a body is made from is released once: at its end, when the client leaves, takes nothing, or too little.
4. It says the same in every version of HTTP, in every coding, whole where it is small; HEAD has no body.
5. A failure before the first byte is an error object; after it, the connection is cut.
6. The connection is kept, and the next request is not answered before the last answer was taken.
7. Accept-Encoding: the highest q wins, among equals br, gzip, deflate; nothing asked for, nothing packed.
"""
from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Callable, Generator
from typing import Any

import brotli
import pytest

from svcd.base.errors import ApiError
from svcd.http.content_coding import PACKERS
from svcd.http.delivery import choose_coding
from svcd.http.message import PORTION, Portions, Request, Response
from svcd.http.sockets import Limits

Serve = Callable[..., Any]
QUICK = Limits(sweep_s=0.02)
GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
MAX_WAIT_S = 10
PIECES = [b"%d" % (n % 10) * PORTION for n in range(100)]


class Made:
    """Answers in portions, and how many pieces were made of them. /small: one short piece; else all PIECES."""

    def __init__(self) -> None:
        self.pieces = 0
        self.ends = threading.Semaphore(0)
        self.threads: set[str] = set()

    def __call__(self, request: Request) -> Response:
        return Response(200, Portions(self._pieces([b"few"] if "small" in request.path else PIECES), self.ends.release))

    def _pieces(self, pieces: list[bytes]) -> Generator[bytes]:
        for piece in pieces:
            self.threads.add(threading.current_thread().name)
            self.pieces += 1
            yield piece

    def wait_for_ends(self, count: int) -> None:
        for _ in range(count):
            assert self.ends.acquire(timeout=MAX_WAIT_S)


def test_clients_that_take_nothing_hold_no_thread_and_have_little_made(serve: Serve) -> None:
    made = Made()
    served = serve(made, threads=1)
    silent = [served.send(GET % b"") for _ in range(20)]
    assert served.send(GET % b"").answer()[2] == b"".join(PIECES)
    assert made.pieces < len(PIECES) + len(silent) * 30, "the system takes some ahead, 64 kB to begin with"
    assert made.threads == {"http-delivery"}
    for client in silent:
        client.close()
    made.wait_for_ends(21)


def test_a_whole_body_that_is_not_taken_holds_no_thread(serve: Serve) -> None:
    served = serve(lambda request: Response(200, b"a" * (20_000_000 if "large" in request.path else 1)), threads=1)
    silent = [served.send(GET % b"large") for _ in range(3)]
    assert served.send(GET % b"").answer()[2] == b"a"
    assert [len(client.answer()[2]) for client in silent] == [20_000_000] * 3


@pytest.mark.parametrize("limits", [QUICK._replace(write_stall_s=0.05), QUICK._replace(answer_waits_s=0.05, answer_rate=1 << 40)])
def test_who_takes_nothing_is_cut_off(serve: Serve, limits: Limits) -> None:
    made = Made()
    client = serve(made, limits=limits).send(GET % b"")
    made.wait_for_ends(1)
    with pytest.raises((ConnectionResetError, ValueError)):
        client.answer()


def test_who_takes_a_little_now_and_then_is_cut_off(serve: Serve) -> None:
    made = Made()
    client = serve(made, limits=QUICK._replace(answer_waits_s=0.1, answer_rate=1 << 40)).send(GET % b"")
    with pytest.raises(ConnectionResetError):
        while client.sock.recv(1):
            pass
    made.wait_for_ends(1)


def test_what_it_is_made_from_is_released_when_the_client_leaves(serve: Serve) -> None:
    made = Made()
    client = serve(made).send(GET % b"")
    client.sock.recv(1)
    client.close()
    made.wait_for_ends(1)
    assert made.pieces < len(PIECES)


def test_what_it_is_made_from_is_released_when_the_server_stops(serve: Serve) -> None:
    made = Made()
    served = serve(made)
    served.send(GET % b"").sock.recv(1)
    served.stop(0.05)
    made.wait_for_ends(1)


@pytest.mark.parametrize("path", [b"", b"small"])
def test_old_clients_get_the_same(serve: Serve, path: bytes) -> None:
    made = Made()
    _, headers, body = serve(made).send((GET % path).replace(b"1.1", b"1.0")).answer()
    assert (headers["connection"], "transfer-encoding" in headers) == ("close", False)
    assert body == (b"few" if path else b"".join(PIECES))
    made.wait_for_ends(1)


@pytest.mark.parametrize(("path", "header"), [(b"", "transfer-encoding"), (b"small", "content-length")])
def test_small_ones_have_a_length(serve: Serve, path: bytes, header: str) -> None:
    served = serve(Made())
    assert header in served.send(GET % path).answer()[1]
    client = served.send((GET % path).replace(b"GET", b"HEAD") + GET % b"small")
    assert header in client.answer(has_body=False)[1]
    assert client.answer()[2] == b"few"


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("path", [b"", b"small"])
def test_it_is_packed_as_the_client_wishes(serve: Serve, name: str, path: bytes) -> None:
    unpacked = {"br": brotli.decompress, "gzip": gzip.decompress, "deflate": zlib.decompress}[name]
    client = serve(Made()).send(b"GET /%b HTTP/1.1\r\nHost: a\r\nAccept-Encoding: %b\r\n\r\n" % (path, name.encode()))
    _, headers, body = client.answer()
    assert headers["content-encoding"] == name and len(body) < PORTION
    assert unpacked(body) == (b"few" if path else b"".join(PIECES))


@pytest.mark.parametrize("first", [0, 1])
def test_a_failure_is_an_error_or_a_cut(serve: Serve, first: int) -> None:
    def pieces() -> Generator[bytes]:
        yield from PIECES[:3 * first]
        raise ApiError("index_not_found", "Index `a` not found.")

    is_over = threading.Event()
    served = serve(lambda request: Response(200, Portions(pieces(), is_over.set)))
    client = served.send(GET % b"")
    if first:
        with pytest.raises((ConnectionResetError, ValueError)):
            client.answer()
    else:
        status, _, body = client.answer()
        assert (status, json.loads(body)["code"]) == (404, "index_not_found")
    assert is_over.wait(MAX_WAIT_S)


def test_requests_sent_ahead_are_answered_in_order(serve: Serve) -> None:
    made = Made()
    client = serve(made, threads=2).send(GET % b"" + GET % b"small" + GET % b"")
    assert [len(client.answer()[2]) for _ in range(3)] == [100 * PORTION, 3, 100 * PORTION]
    assert client.send(GET % b"small").answer()[2] == b"few"


def test_each_response_is_logged_with_its_size_when_it_is_taken(serve: Serve) -> None:
    served = serve(Made())
    client = served.send(GET % b"")
    assert served.lines == []
    client.answer()
    client.send(GET % b"small").answer()
    assert [(status, size > 100 * PORTION) for _, status, size in served.lines[:1]] == [(200, True)]


@pytest.mark.parametrize(("accept", "name"), {
    None: "", "": "", "identity": "", "zstd": "", "gzip": "gzip", "br": "br", "deflate": "deflate",
    "gzip, deflate": "gzip", "gzip, deflate, br, zstd": "br", "GZIP": "gzip", " deflate ,gzip ": "gzip",
    "*": "br", "*;q=0": "", "*;q=0, gzip": "gzip", "*, br;q=0": "gzip", "br;q=0": "",
    "gzip;q=1.0, br;q=0.5": "gzip", "gzip; q=0.5 , deflate;q=0.8": "deflate", "gzip;q=0.001": "gzip",
    "identity, gzip;q=0.5": "", "identity;q=0.5, gzip;q=0.5": "gzip", "identity;q=0, gzip": "gzip",
    "gzip;q=nan": "", "gzip;q=-1": "", "gzip;q=": "", "gzip;q=2": "gzip", "gzip;q=1e1": "", "gzip;level=1": "gzip",
    "gzip\t;\tq=0.5\t, br;q=0.4": "gzip", "\xa0gzip": "", "gzip\x85": "", "br;\x85q=0.5, gzip;q=0.9": "br", "gzip;q=\xa00.5": "",
    ",,": "", ";": "", "a" * 500 + ", gzip": "gzip",
}.items())
def test_the_client_chooses_the_coding(accept: str | None, name: str) -> None:
    assert choose_coding(accept) == name
