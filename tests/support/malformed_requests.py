"""Requests that two readers could understand differently, each with the status of its rejection (docs/http.md#malformed-requests)."""
from __future__ import annotations

from svcd.http import framing

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
NOT_BLANK = (b"\x85", b"\xa0")  # what str.strip() takes from Latin-1 text besides ASCII

# Bodies in chunks: what stands on the wire.
BROKEN_CHUNKS = {
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

# Heads, with the empty line at their end.
REFUSED_HEADS = {
    # lengths
    POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n": 400,
    POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n": 400,
    POST + b"Content-Length: 5, 5\r\n\r\n": 400,
    POST + b"Content-Length: +5\r\n\r\n": 400,
    POST + b"Content-Length: -5\r\n\r\n": 400,
    POST + b"Content-Length: 1_0\r\n\r\n": 400,
    POST + b"Content-Length: 1 0\r\n\r\n": 400,
    POST + b"Content-Length: 0x10\r\n\r\n": 400,
    POST + b"Content-Length: 5.0\r\n\r\n": 400,
    POST + b"Content-Length: \xb2\r\n\r\n": 400,
    POST + b"Content-Length:\r\n\r\n": 400,
    POST + b"Content-Length: 1234567890123456789\r\n\r\n": 400,
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    # transfer codings
    POST + b"Transfer-Encoding: gzip\r\n\r\n": 400,
    POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n": 400,
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    POST + b"Transfer-Encoding:\r\n\r\n": 400,
    POST + b"Transfer-Encoding: xchunked\r\n\r\n": 400,
    POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n": 400,
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n": 501,
    **{POST + b"Transfer-Encoding: chunked%b\r\n\r\n" % blank: 400 for blank in NOT_BLANK},
    **{POST + b"Transfer-Encoding: %bchunked\r\n\r\n" % blank: 400 for blank in NOT_BLANK},
    b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    # hosts
    b"GET / HTTP/1.1\r\n\r\n": 400,
    GET + b"Host: a\r\n\r\n": 400,
    GET + b"Host: b\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n": 400,
    # whom it comes from, what it carries
    GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n": 400,
    GET + b"Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n": 400,
    # lines
    GET + b"X: a\rb\r\n\r\n": 400,
    GET + b"X: a\r\r\n\r\n": 400,
    GET + b"X: a\nY: b\r\n\r\n": 400,
    GET + b"X: a\r\n b\r\n\r\n": 400,
    GET + b"X: a\r\n\tb\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\n Host: a\r\n\r\n": 400,
    GET + b"X : a\r\n\r\n": 400,
    GET + b"X\t: a\r\n\r\n": 400,
    GET + b": a\r\n\r\n": 400,
    GET + b"X\r\n\r\n": 400,
    GET + b"X Y: a\r\n\r\n": 400,
    GET + b"X(Y): a\r\n\r\n": 400,
    GET + b"X\xc3\xa9: a\r\n\r\n": 400,
    GET + b"X: a\x00b\r\n\r\n": 400,
    GET + b"X: a\x1bb\r\n\r\n": 400,
    GET + b"X: a\x7fb\r\n\r\n": 400,
    b"GET / HTTP/1.1\nHost: a\n\n": 400,
    b"GET / HTTP/1.1\nHost: a\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: a\r\n\n": 400,
    # request lines
    b"GET /\r\n\r\n": 400,
    b"GET / \r\n\r\n": 400,
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n": 400,
    b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b" GET / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET / http/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET / HTTP/1.1\r HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"A" * 33 + b" / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET a HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"PRI * HTTP/2.0\r\n\r\n": 505,
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n": 505,
    b"GET / HTTP/1.2\r\nHost: a\r\n\r\n": 505,
    b"GET / HTTP/0.9\r\n\r\n": 505,
    b"GET / HTTP/1.10\r\nHost: a\r\n\r\n": 400,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": 400,  # a TLS handshake
    # sizes
    b"GET /" + b"a" * framing.MAX_TARGET + b" HTTP/1.1\r\nHost: a\r\n\r\n": 414,
    GET + b"X: " + b"a" * (framing.MAX_LINE + 1) + b"\r\n\r\n": 431,
    GET + b"X: a\r\n" * framing.MAX_FIELDS + b"\r\n": 431,
    GET + (b"X: " + b"a" * 8000 + b"\r\n") * 20 + b"\r\n": 431,
}
