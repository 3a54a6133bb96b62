"""Requests on the wire: bodies, and heads, which are read without a socket.

1. A sized body is as long as announced; a chunked one is its chunks, without extensions and trailer.
2. How the bytes were cut on their way changes nothing.
3. Malformed chunks are rejected, and so are extensions and trailers beyond their limits.
4. A head that leaves no doubt is read as RFC 9112 says.
5. A head that two readers could understand differently is rejected, with the status of its fault.
6. Whatever the bytes, the outcome is a Head or an HttpError, in time that grows with their number only.
7. A head that is too long is rejected before it is complete.
"""
from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.http import framing
from svcd.http.framing import CHUNKED, ChunkedBody, Head, SizedBody, chunk, head_end, read_head
from svcd.http.message import HttpError
from tests.support.malformed_requests import BROKEN_CHUNKS, GET, NOT_BLANK, POST, REFUSED_HEADS
from tests.support.pace import is_within


class Tape:
    """A wire that gives its bytes in pieces of one size."""

    def __init__(self, content: bytes, piece: int = 1 << 20) -> None:
        self.rest = content
        self.piece = piece

    def take(self, max_bytes: int) -> bytes:
        if not self.rest:
            raise HttpError(400, "cut off")
        size = min(max_bytes, self.piece)
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def take_line(self, max_bytes: int) -> bytes:
        end = self.rest.find(b"\n", 0, max_bytes) + 1 or max_bytes
        if len(self.rest) < end:
            raise HttpError(400, "cut off")
        taken, self.rest = self.rest[:end], self.rest[end:]
        return taken


WHOLE = {  # on the wire: the body
    b"0\r\n\r\n": b"",
    b"3\r\nabc\r\n0\r\n\r\n": b"abc",
    b"003\r\nabc\r\n00\r\n\r\n": b"abc",
    b"1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n": b"a0123456789",
    b"1;x=y\r\na\r\n1 ;z\r\nb\r\n0;\r\n\r\n": b"ab",
    b"2\r\n\r\n\r\n0\r\n\r\n": b"\r\n",
    b"1\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n": b"a",
}

@pytest.mark.parametrize("piece", [1, 2, 1 << 20])
@pytest.mark.parametrize("wire", WHOLE, ids=repr)
def test_chunks_are_joined(wire: bytes, piece: int) -> None:
    tape = Tape(wire + b"GET /", piece)
    body = ChunkedBody(tape)
    assert b"".join(body) == WHOLE[wire]
    assert body.is_over and tape.rest == b"GET /"


@pytest.mark.parametrize("wire", BROKEN_CHUNKS, ids=lambda wire: repr(wire)[:50])
def test_malformed_chunks_are_refused(wire: bytes) -> None:
    body = ChunkedBody(Tape(wire))
    with pytest.raises(HttpError) as fault:
        list(body)
    assert fault.value.status == BROKEN_CHUNKS[wire]
    assert not body.is_over


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_a_sized_body_ends_where_it_was_announced(piece: int) -> None:
    tape = Tape(b"abcdeGET /", piece)
    body = SizedBody(tape, 5)
    assert not body.is_over and body.remaining == 5
    assert b"".join(body) == b"abcde"
    assert body.is_over and body.length == 5 and tape.rest == b"GET /"


def test_an_answer_in_chunks_is_read_as_one() -> None:
    wire = b"".join((chunk(b"a" * 300), chunk(b"b"), framing.LAST_CHUNK))
    assert b"".join(ChunkedBody(Tape(wire))) == b"a" * 300 + b"b"


# Heads

def read(raw: bytes) -> Head:
    assert head_end(raw) == len(raw)
    return read_head(raw)


ACCEPTED = {  # head: (attribute of Head, value)
    GET + b"\r\n": ("path", "/"),
    b"GET /a%2Fb?q=1&r=2?3 HTTP/1.1\r\nHost: a\r\n\r\n": ("query", "q=1&r=2?3"),
    b"GET http://example.com:80/x?y HTTP/1.1\r\nHost: a\r\n\r\n": ("path", "/x"),
    b"GET HTTPS://example.com?y HTTP/1.1\r\nHost: a\r\n\r\n": ("path", "/"),
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n": ("path", "*"),
    b"GET /?q=\xc3\xa9{\"}| HTTP/1.1\r\nHost: a\r\n\r\n": ("query", "q=\u00c3\u00a9{\"}|"),
    b"GET / HTTP/1.0\r\n\r\n": ("keep_alive", False),
    b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n": ("keep_alive", True),
    GET + b"Connection: foo, Close\r\n\r\n": ("keep_alive", False),
    b"GET / HTTP/1.1\r\nHost:\r\n\r\n": ("minor", 1),
    b"GET / HTTP/1.1\r\nhOST:[::1]:7700\t \r\n\r\n": ("minor", 1),
    POST + b"Content-Length: \t007 \r\n\r\n": ("length", 7),
    POST + b"Transfer-Encoding: Chunked\r\n\r\n": ("length", CHUNKED),
    POST + b"Transfer-Encoding:\t chunked \t\r\n\r\n": ("length", CHUNKED),
    GET + b"Connection: keep-alive,\tclose \t\r\n\r\n": ("keep_alive", False),
    **{GET + b"Connection: %bclose\r\n\r\n" % blank: ("keep_alive", True) for blank in NOT_BLANK},
    POST + b"Content-Length: 5\r\nExpect: 100-Continue\r\n\r\n": ("awaits_continue", True),
    POST + b"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n": ("awaits_continue", False),
    b"POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n": ("awaits_continue", False),
    POST + b"Content-Length: 5\r\nExpect: 200-OK\r\n\r\n": ("awaits_continue", False),
}

@pytest.mark.parametrize("raw", ACCEPTED, ids=repr)
def test_clear_heads_are_read(raw: bytes) -> None:
    attribute, value = ACCEPTED[raw]
    assert getattr(read(raw), attribute) == value


@pytest.mark.parametrize("raw", REFUSED_HEADS, ids=lambda raw: repr(raw)[:70])
def test_doubtful_heads_are_refused(raw: bytes) -> None:
    with pytest.raises(HttpError) as fault:
        read(raw)
    assert (fault.value.status, fault.value.code) == (REFUSED_HEADS[raw], "bad_request")
    assert fault.value.message.endswith(".")


def test_headers_are_found_in_any_case_and_joined_in_order() -> None:
    headers = read(GET + b"Accept: a\r\nX-Y: \xe9\r\nACCEPT: \t b \r\n\r\n").headers
    assert (headers.get("accept"), headers.get("Accept"), headers.get("x-y")) == ("a, b", "a, b", "\u00e9")
    assert "aCCEPT" in headers and "b" not in headers and headers.get("b", "c") == "c"


def test_every_fault_has_a_head_that_shows_it() -> None:
    messages = set()
    for raw in REFUSED_HEADS:
        with pytest.raises(HttpError) as fault:
            read(raw)
        messages.add(fault.value.message)
    assert {message for _, message in framing.FAULTS.values()} <= messages


@pytest.mark.parametrize("cut", range(0, len(GET) + 2, 3))
def test_an_incomplete_head_has_no_end(cut: int) -> None:
    assert head_end((GET + b"\r\n")[:cut]) == -1


def test_the_end_is_that_of_the_first_head() -> None:
    assert head_end(GET + b"\r\n" + POST + b"\r\n") == len(GET) + 2


@pytest.mark.parametrize(("raw", "status"), [
    (b"a" * (framing.MAX_TARGET + 1), 414),
    (b"GET / HTTP/1.1\r\n" + b"a" * framing.MAX_HEAD, 431),
])
def test_a_head_without_end_is_refused_when_it_is_too_long(raw: bytes, status: int) -> None:
    with pytest.raises(HttpError) as fault:
        head_end(raw)
    assert fault.value.status == status


@given(st.lists(st.sampled_from([
    b"GET ", b"/ ", b"HTTP/1.1", b"\r\n", b"\n", b"\r", b"Host: a", b"Host", b":", b" ", b"\t", b"\x00", b"\xff", b"X: y",
    b"Content-Length: ", b"1", b"Transfer-Encoding: chunked", b",",
])).map(b"".join))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        read_head(raw + b"\r\n\r\n")
    except HttpError as fault:
        assert fault.status in {400, 414, 431, 501, 505}


@pytest.mark.parametrize("line", [
    b"X: " + b" " * 100_000 + b"\x00", b"X" * 100_000, b" " * 100_000, b"X" + b" " * 100_000, b"X \n" * 30_000,
    b"X: " + b"\t" * 100_000 + b"\r", b"X: y\r" * 20_000,
])
def test_hostile_lines_cost_no_more_than_long_ones(line: bytes) -> None:
    started = time.perf_counter()
    with pytest.raises(HttpError):
        read_head(GET + line + b"\r\n\r\n")
    assert is_within(time.perf_counter() - started, 0.2)
