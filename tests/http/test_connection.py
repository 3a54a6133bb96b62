"""What a client meets on one connection.

1. Answers come in the order of the requests, whatever was sent ahead, however it was cut.
2. A connection is kept or closed as version and headers say.
3. A request that cannot be understood gets the error object, and the connection ends.
4. A body that nobody reads never becomes the next request.
5. A slow client gets a 408 or is disconnected, and no other client waits for it.
6. A failure before the first byte of an answer is an error object; after it, the connection is cut.
7. Before there is an application, the gate answers `/health` only; everything else waits. From then on the application answers
   everything, waiting requests first.
"""
from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import pytest

from svcd.base.errors import ApiError
from svcd.http.connection import StartupGate
from svcd.http.message import Body, Headers, NoBody, Request, Response
from svcd.http.sockets import READABLE, Limits, wait

Serve = Callable[..., Any]
QUICK = Limits(sweep_s=0.02)
MAX_WAIT_S = 5
GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"


def streamed(*pieces: bytes) -> Callable[[Request], Response]:
    return lambda request: Response(200, iter(pieces))


def unread(request: Request) -> Response:
    return Response(200, request.path.encode())


# Order and framing.


def test_requests_sent_ahead_are_answered_in_order(serve: Serve) -> None:
    client = serve().send(b"".join(GET % str(n).encode() for n in range(50)))
    assert [client.answer()[2] for _ in range(50)] == [b"GET /%d " % n for n in range(50)]


def test_bodies_sent_ahead_are_kept_apart(serve: Serve) -> None:
    sized = POST + b"Content-Length: 3\r\n\r\nabc"
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\nX: y\r\n\r\n"
    client = serve().send(sized + chunked + b"\r\n" + sized + GET % b"")
    assert [client.answer()[2] for _ in range(4)] == [b"POST / abc", b"POST / def", b"POST / abc", b"GET / "]


def test_a_request_may_come_byte_by_byte(serve: Serve) -> None:
    client = serve().connect()
    for byte in POST + b"Transfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n0\r\n\r\n":
        client.send(bytes([byte]))
    assert client.answer()[2] == b"POST / a"


def test_large_bodies_go_in_and_out(serve: Serve) -> None:
    body = b"0123456789" * 500_000
    client = serve(lambda request: Response(200, request.body.read())).connect()
    threading.Thread(target=client.send, args=(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body,)).start()
    assert client.answer()[2] == body


def test_head_is_answered_as_get_without_the_body(serve: Serve) -> None:
    served = serve()
    client = served.send(b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
    status, headers, _ = client.answer(has_body=False)
    assert (status, headers["content-length"]) == (200, str(len(b"GET /a ")))
    assert client.send(GET % b"b").answer()[2] == b"GET /b "
    assert served.lines[0] == ("HEAD /a", 200, 0)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(serve: Serve, status: int) -> None:
    client = serve(lambda request: Response(status, b"ignored")).send(GET % b"")
    got, headers, _ = client.answer(has_body=False)
    assert got == status and not {"content-length", "content-type", "transfer-encoding"} & set(headers)
    assert client.send(GET % b"").answer(has_body=False)[0] == status


def test_an_empty_answer_has_a_length(serve: Serve) -> None:
    _, headers, body = serve(lambda request: Response(200)).send(GET % b"").answer()
    assert (headers["content-length"], body, "content-type" in headers) == ("0", b"", False)


# Keeping and closing.


@pytest.mark.parametrize(("head", "is_kept"), [
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
    (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
    (b"GET / HTTP/1.0\r\n\r\n", False),
    (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
])
def test_the_connection_is_kept_as_asked(serve: Serve, head: bytes, is_kept: bool) -> None:
    client = serve().send(head)
    _, headers, body = client.answer()
    assert body == b"GET / "
    assert (headers.get("connection") != "close") is is_kept
    assert client.send(GET % b"x").answer()[2] == b"GET /x " if is_kept else client.is_closed()


def test_a_client_that_ends_its_side_is_still_answered(serve: Serve) -> None:
    client = serve().connect()
    client.send(GET % b"1" + GET % b"2").sock.shutdown(1)
    assert [client.answer()[2], client.answer()[2]] == [b"GET /1 ", b"GET /2 "]
    assert client.is_closed()


# Refusals.


@pytest.mark.parametrize(("raw", "status"), [
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET % b"", 400),
    (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"GET /" + b"a" * 70_000, 414),
    (b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 140_000, 431),
    (GET[:-2] % b"" + b"X: y\r\n" * 101 + b"\r\n", 431),
])
def test_what_is_not_understood_is_refused_and_ends_the_connection(serve: Serve, raw: bytes, status: int) -> None:
    served = serve()
    client = served.send(raw)
    got, headers, body = client.answer()
    assert (got, headers["connection"]) == (status, "close")
    error = json.loads(body)
    assert list(error) == ["message", "code", "type", "link"] and error["code"] == "bad_request"
    assert client.is_closed()
    assert served.lines == [("- -", status, len(body))]


@pytest.mark.parametrize("chunks", [b"x\r\n", b"1\r\nab\r\n", b"0\r\nX\r\n\r\n"])
def test_malformed_chunks_end_the_connection(serve: Serve, chunks: bytes) -> None:
    client = serve().send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + GET % b"smuggled")
    assert client.answer()[0] == 400
    assert client.is_closed()


def test_a_body_cut_off_is_incomplete(serve: Serve) -> None:
    client = serve().send(POST + b"Content-Length: 5\r\n\r\nabc")
    client.sock.shutdown(1)
    status, _, body = client.answer()
    assert (status, json.loads(body)["message"]) == (400, "The provided payload is incomplete and cannot be parsed")
    assert client.is_closed()


def test_a_body_above_the_limit_is_refused_and_the_refusal_arrives(serve: Serve) -> None:
    body = b"a" * 3_000_000
    client = serve(payload_limit=10 << 10).send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status, headers, text = client.answer()
    assert (status, headers["connection"]) == (413, "close")
    assert json.loads(text)["message"].endswith("The maximum accepted payload size is 10 KiB.")
    assert client.is_closed()


# Continue.

EXPECTING = POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"


def test_a_client_that_waits_gets_100_continue(serve: Serve) -> None:
    client = serve().send(EXPECTING)
    assert client.answer(has_body=False)[0] == 100
    assert client.send(b"abc").answer()[2] == b"POST / abc"
    assert client.send(GET % b"").answer()[2] == b"GET / "


def test_a_client_that_did_not_wait_gets_no_100_continue(serve: Serve) -> None:
    client = serve().send(EXPECTING + b"abc")
    assert client.answer()[2] == b"POST / abc"


def test_an_unknown_expectation_is_ignored(serve: Serve) -> None:
    client = serve().send(POST + b"Content-Length: 3\r\nExpect: 200-OK\r\n\r\nabc")
    assert client.answer()[2] == b"POST / abc"
    assert client.send(GET % b"").answer()[2] == b"GET / "


def test_a_client_whose_body_is_not_needed_gets_no_100_continue(serve: Serve) -> None:
    client = serve(unread).send(EXPECTING)
    status, headers, _ = client.answer()
    assert (status, headers["connection"]) == (200, "close")


# Unread bodies.


def test_a_small_unread_body_is_skipped(serve: Serve) -> None:
    smuggled = GET % b"smuggled"
    client = serve(unread).send(POST + b"Content-Length: %d\r\n\r\n" % len(smuggled) + smuggled[:10])
    assert client.answer()[2] == b"/"
    client.send(smuggled[10:] + GET % b"next")
    assert client.answer()[2] == b"/next"


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked", b"Content-Length: 2000000"])
def test_after_an_unread_body_of_unknown_or_great_length_the_connection_ends(serve: Serve, framing: bytes) -> None:
    client = serve(unread).send(POST + framing + b"\r\n\r\n" + GET % b"smuggled")
    status, headers, body = client.answer()
    assert (status, headers["connection"], body) == (200, "close", b"/")
    assert client.is_closed()


def test_a_half_read_body_is_skipped_to_its_end(serve: Serve) -> None:
    def half(request: Request) -> Response:
        return Response(200, next(request.body.chunks()) if request.method == "POST" else b"next")

    client = serve(half).send(POST + b"Content-Length: 6\r\n\r\nabc")
    assert client.answer()[2] == b"abc"
    assert client.send(b"def" + GET % b"").answer()[2] == b"next"


# Slow clients.


def test_a_head_that_takes_too_long_is_refused(serve: Serve) -> None:
    client = serve(limits=QUICK._replace(head_s=0.05)).send(b"GET / HTTP/1.1\r\nHost:")
    status, headers, _ = client.answer()
    assert (status, headers["connection"]) == (408, "close")
    assert client.is_closed()


@pytest.mark.parametrize("before", [b"", GET % b""])
def test_empty_lines_before_a_head_count_as_its_beginning(serve: Serve, before: bytes) -> None:
    client = serve(limits=QUICK._replace(head_s=0.1)).send(before)
    if before:
        client.answer()
    client.sock.settimeout(0.01)
    until = time.monotonic() + MAX_WAIT_S
    while time.monotonic() < until:
        try:
            client.send(b"\r\n")
            assert client.sock.recv(1) == b""
            return
        except TimeoutError:
            pass  # it is still open
        except ConnectionError:
            return
    raise AssertionError("it is never closed")


@pytest.mark.parametrize("limits", [QUICK._replace(head_s=0.05), QUICK._replace(idle_s=0.05)])
def test_idle_connections_are_closed_without_a_word(serve: Serve, limits: Limits) -> None:
    client = serve(limits=limits).connect()
    if limits.idle_s < 1:
        client.send(GET % b"").answer()
    assert client.is_closed()


@pytest.mark.parametrize("limits", [QUICK._replace(body_stall_s=0.05), QUICK._replace(body_waits_s=0.05)])
def test_a_body_that_stalls_is_refused(serve: Serve, limits: Limits) -> None:
    client = serve(limits=limits).send(POST + b"Content-Length: 5\r\n\r\nabc")
    status, headers, body = client.answer()
    assert (status, headers["connection"], json.loads(body)["code"]) == (408, "close", "bad_request")


def test_a_body_that_came_quickly_may_not_stall_longer(serve: Serve) -> None:
    client = serve(limits=QUICK._replace(body_waits_s=0.3)).send(POST + b"Content-Length: 2000000\r\n\r\n" + b"a" * 1_000_000)
    deadline = time.monotonic() + MAX_WAIT_S
    while not wait(client.sock, READABLE, 0.02):
        assert time.monotonic() < deadline
        client.send(b"a")
    assert client.answer()[0] == 408


def test_bodies_that_are_read_whole_share_memory(serve: Serve) -> None:
    served = serve(payload_limit=4 << 20)
    large = POST + b"Content-Length: 4194304\r\n\r\n" + b"a" * 4_000_000
    first = served.send(large)
    deadline = time.monotonic() + MAX_WAIT_S
    while served.server.body_memory.taken < 4 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    status, headers, _ = served.send(large).answer()
    assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "10")
    assert served.send(POST + b"Content-Length: 60000\r\n\r\n" + b"a" * 60_000).answer()[0] == 200, "a small one needs none"
    assert first.send(b"a" * 194_304).answer()[0] == 200
    assert served.send(large + b"a" * 194_304).answer()[0] == 200
    assert served.server.body_memory.taken == 0


def test_a_client_that_takes_nothing_is_dropped(serve: Serve) -> None:
    served = serve(
        lambda request: Response(200, b"a" * 50_000_000), threads=1, limits=QUICK._replace(write_stall_s=0.05),
    )
    served.send(GET % b"")
    assert served.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").answer(has_body=False)[0] == 200


def test_who_goes_on_sending_after_a_refusal_is_dropped(serve: Serve) -> None:
    client = serve(limits=QUICK._replace(linger_s=0.05)).send(b"nonsense\r\n\r\n")
    client.answer()
    assert client.is_closed()


# Streams and failures.


def test_a_stream_arrives_piece_by_piece(serve: Serve) -> None:
    first_has_arrived = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b""
        yield b"first"
        assert first_has_arrived.wait(10)
        yield b"second"

    client = serve(lambda request: Response(200, pieces(), "application/x-ndjson")).send(GET % b"")
    assert client.file.readline() == b"HTTP/1.1 200 OK\r\n"
    while client.file.readline() != b"\r\n":
        pass
    assert client.file.read(8) == b"5\r\nfirst"
    first_has_arrived.set()
    assert client.file.read(18) == b"\r\n6\r\nsecond\r\n0\r\n\r\n"
    assert client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").answer(has_body=False)[0] == 200


def test_a_stream_for_an_old_client_ends_with_the_connection(serve: Serve) -> None:
    client = serve(streamed(b"a", b"", b"b")).send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    _, headers, body = client.answer()
    assert (headers["connection"], "transfer-encoding" in headers, body) == ("close", False, b"ab")


def test_a_stream_without_pieces_is_an_empty_body(serve: Serve) -> None:
    client = serve(streamed()).send(GET % b"" + GET % b"")
    assert [client.answer()[2], client.answer()[2]] == [b"", b""]


def test_a_failing_stream_is_an_error_before_its_first_piece(serve: Serve) -> None:
    def pieces() -> Iterator[bytes]:
        raise ApiError("index_not_found", "Index `a` not found.")
        yield b""

    status, _, body = serve(lambda request: Response(200, pieces())).send(GET % b"").answer()
    assert (status, json.loads(body)["code"]) == (404, "index_not_found")


def test_a_failing_stream_is_cut_after_its_first_piece(serve: Serve) -> None:
    is_closed = []

    def pieces() -> Iterator[bytes]:
        try:
            yield b"first"
            raise ZeroDivisionError
        finally:
            is_closed.append(True)

    served = serve(lambda request: Response(200, pieces()))
    for version in (b"1.1", b"1.0"):
        client = served.send(GET.replace(b"1.1", version) % b"")
        with pytest.raises((ConnectionResetError, ValueError)):
            assert b"first" in client.sock.recv(4096)
            while client.sock.recv(4096):
                pass
            raise AssertionError("ended as if it were complete")
    assert is_closed == [True, True] and "ZeroDivisionError" in served.errors[0]


def test_a_stream_is_closed_when_the_client_leaves(serve: Serve) -> None:
    is_closed = threading.Event()

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"a" * 100_000
        finally:
            is_closed.set()

    client = serve(lambda request: Response(200, pieces())).send(GET % b"")
    client.sock.recv(1)
    client.close()
    assert is_closed.wait(10)


def test_a_bug_is_logged_and_not_shown_to_the_client(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        raise KeyError("a secret")

    served = serve(answer)
    client = served.send(GET % b"")
    status, _, body = client.answer()
    assert (status, json.loads(body)["code"]) == (500, "internal")
    assert b"secret" not in body and "a secret" in served.errors[0]
    assert client.send(GET % b"").answer()[0] == 500


def test_a_header_with_a_line_end_is_a_bug(serve: Serve) -> None:
    served = serve(lambda request: Response(200, b"a", headers=(("X", "a\r\nY: b"),)))
    assert served.send(GET % b"").answer()[0] == 500
    assert "ValueError" in served.errors[0]


def test_an_error_of_the_interface_brings_its_status_and_headers(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        raise ApiError("too_many_search_requests", "Too many.", (("Retry-After", "10"),))

    status, headers, _ = serve(answer).send(GET % b"").answer()
    assert (status, headers["retry-after"], headers["content-type"]) == (503, "10", "application/json")


# Codings and log lines.


@pytest.mark.parametrize("body", [b"{}", b"0123456789" * 1000])
@pytest.mark.parametrize("is_stream", [False, True])
def test_answers_are_packed_as_the_client_wishes(serve: Serve, body: bytes, is_stream: bool) -> None:
    served = serve(lambda request: Response(200, iter([body]) if is_stream else body))
    client = served.connect()
    for accept, unpack in ((b"br", brotli.decompress), (b"gzip", gzip.decompress), (b"x", bytes)):
        client.send(GET[:-2] % b"" + b"Accept-Encoding: " + accept + b"\r\n\r\n")
        _, headers, packed = client.answer()
        assert unpack(packed) == body
        assert headers["vary"] == "Accept-Encoding"
        assert headers.get("content-encoding", "x") == accept.decode()


def test_what_is_packed_already_is_left_alone(serve: Serve) -> None:
    served = serve(lambda request: Response(200, b"packed", headers=(("Content-Encoding", "zstd"),)))
    _, headers, body = served.send(GET[:-2] % b"" + b"Accept-Encoding: br\r\n\r\n").answer()
    assert (headers["content-encoding"], body) == ("zstd", b"packed")


def test_packed_bodies_are_unpacked(serve: Serve) -> None:
    body = gzip.compress(b"kefir")
    head = POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert serve().send(head + body).answer()[2] == b"POST / kefir"


def test_each_request_is_logged_with_its_status_and_size(serve: Serve) -> None:
    served = serve()
    client = served.send(GET % b"a?b" + POST + b"Content-Length: 1\r\n\r\nc")
    client.answer(), client.answer()
    client.sock.shutdown(1)
    assert client.is_closed()
    assert served.lines == [("GET /a", 200, 7), ("POST /", 200, 8)]


def test_the_client_is_logged_by_its_address(serve: Serve) -> None:
    assert serve(lambda request: Response(200, request.client.encode())).send(GET % b"").answer()[2] == b"127.0.0.1"


# 7. The gate


def gate_request(path: str, verb: str = "GET") -> Request:
    return Request(verb, path, "", Headers({}), Body(NoBody()), "127.0.0.1")


def test_a_request_for_the_health_does_not_load_the_application_early() -> None:
    gate = StartupGate()
    assert gate.answer(gate_request("/health")).status == 200
    assert not gate.wanted.is_set()


@pytest.mark.parametrize(("verb", "path"), [("GET", "/indexes"), ("POST", "/health"), ("GET", "/health/x")])
def test_other_requests_wait_for_the_application(verb: str, path: str) -> None:
    gate, answers = StartupGate(), []
    waiting = threading.Thread(target=lambda: answers.append(gate.answer(gate_request(path, verb)).status))
    waiting.start()
    assert gate.wanted.wait(5) and not answers
    gate.open(lambda _request: Response(299))
    waiting.join(5)
    assert answers == [299]


def test_an_open_gate_leaves_everything_to_the_application() -> None:
    gate = StartupGate()
    gate.open(lambda _request: Response(299))
    assert gate.answer(gate_request("/health")).status == 299
