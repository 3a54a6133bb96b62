"""Bodies on the wire.

1. A sized body is as long as announced; a chunked one is its chunks, without extensions and trailer.
2. How the bytes were cut on their way changes nothing.
3. Malformed chunks are refused, and so are extensions and trailers beyond their limits.
"""
from __future__ import annotations

import pytest

from svcd.http import framing
from svcd.http.framing import ChunkedBody, SizedBody, chunk
from svcd.http.message import HttpError


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
BROKEN = {  # on the wire: status
    b"\r\n": 400, b"g\r\n": 400, b"+1\r\na\r\n": 400, b"-1\r\na\r\n": 400, b"1_0\r\n": 400, b"0x1\r\na\r\n": 400,
    b" 1\r\na\r\n": 400, b"1 \r\na\r\n": 400, b"1\na\n": 400, b"1\r\nab\r\n": 400, b"1\r\na0\r\n\r\n": 400,
    b"1\r\na\n0\r\n\r\n": 400, b"1;\x00\r\na\r\n": 400, b"1;a\rb\r\na\r\n": 400, b"1;a\nb\r\n": 400,
    b"f" * 16 + b"\r\n": 400, b"\xb2\r\n": 400, b"1\r\r\na\r\n": 400,
    b"1;" + b"x" * framing.MAX_CHUNK_LINE + b"\r\n": 400,
    (b"1;" + b"x" * 4000 + b"\r\na\r\n") * 5: 400,
    b"0\r\nX\r\n\r\n": 400, b"0\r\nX : y\r\n\r\n": 400, b"0\r\n X: y\r\n\r\n": 400, b"0\r\nX: y\n\r\n": 400,
    b"0\r\n" + b"X: y\r\n" * 4000 + b"\r\n": 431, b"0\r\nX: " + b"y" * 20000 + b"\r\n\r\n": 431,
    b"3\r\nab": 400, b"3\r\nabc\r\n": 400, b"": 400,
}


@pytest.mark.parametrize("piece", [1, 2, 1 << 20])
@pytest.mark.parametrize("wire", WHOLE, ids=repr)
def test_chunks_are_joined(wire: bytes, piece: int) -> None:
    tape = Tape(wire + b"GET /", piece)
    body = ChunkedBody(tape)
    assert b"".join(body) == WHOLE[wire]
    assert body.is_over and tape.rest == b"GET /"


@pytest.mark.parametrize("wire", BROKEN, ids=lambda wire: repr(wire)[:50])
def test_malformed_chunks_are_refused(wire: bytes) -> None:
    body = ChunkedBody(Tape(wire))
    with pytest.raises(HttpError) as fault:
        list(body)
    assert fault.value.status == BROKEN[wire]
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
