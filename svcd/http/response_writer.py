"""Encodes answers: head, content coding (docs/http.md#content-codings), end of body, and CORS headers."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from svcd.base.errors import ApiError
from svcd.http import content_coding
from svcd.http.framing import LAST_CHUNK, chunk
from svcd.http.message import Headers, Portions, Request, Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# RFC 9110: these answers have no body, whatever their head says.
BODILESS = frozenset((204, 304))

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class EncodedResponse(NamedTuple):
    """An answer ready to be sent: head, then body, then each of stream as it comes."""

    head: bytes
    body: bytes
    stream: Iterator[bytes] | None
    closes: bool  # its end is the end of the connection


def encode_response(request: Request, response: Response, *, minor: int, closes: bool) -> EncodedResponse:
    """The answer for a client of HTTP/1.minor; closes: the connection ends with it."""
    fields = _fields(request, response)
    body, stream = response.body, None
    is_packed = bool(body) and response.status not in BODILESS and not _names(response, "content-encoding")
    name = content_coding.choose(request.headers.get("accept-encoding")) if is_packed else ""
    if is_packed:
        fields.append("Vary: Accept-Encoding\r\n")
    if name:
        fields.append(f"Content-Encoding: {name}\r\n")
    if response.status in BODILESS:
        body = b""
    elif isinstance(body, bytes):
        body = content_coding.pack(name, body) if name else body
        fields.append(f"Content-Length: {len(body)}\r\n")
    else:
        pack = content_coding.pack_portions if isinstance(body, Portions) else content_coding.pack_stream
        stream = pack(name, body) if name else iter(body)
        stream, body, closes = (_chunks(stream) if minor else stream), b"", closes or not minor
        fields.append("Transfer-Encoding: chunked\r\n" if minor else "")
    fields.append(_connection(minor, closes))
    head = "".join(fields).encode("latin-1")
    if request.verb == "HEAD":
        body, stream = b"", None
    return EncodedResponse(head, body, stream, closes)


def error_response(error: ApiError) -> Response:
    """The error object of an ApiError as an answer."""
    text = json.dumps(error.as_json(), ensure_ascii=False, separators=(",", ":"))
    return Response(error.status, text.encode("utf-8", "replace"), headers=error.headers)


def _fields(request: Request, response: Response) -> list[str]:
    """The header lines that do not depend on how the body is sent."""
    status = response.status
    fields = [STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n", f"Date: {_date()}\r\n"]
    if response.body and status not in BODILESS:
        fields.append(f"Content-Type: {response.content_type}\r\n")
    for name, value in (*response.headers, *answer_headers(request.headers)):
        if "\n" in value or "\r" in value:
            raise ValueError(f"header {name} with a line end: {value!r}")
        fields.append(f"{name}: {value}\r\n")
    return fields


def _names(response: Response, header: str) -> bool:
    return any(name.lower() == header for name, _ in response.headers)


def _connection(minor: int, closes: bool) -> str:
    """The Connection header if it differs from the default of the version, and the empty line."""
    if closes:
        return "Connection: close\r\n\r\n"
    return "\r\n" if minor else "Connection: keep-alive\r\n\r\n"


def _chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        framed = chunk(piece) if piece else b""
        del piece  # one copy is enough while the client takes it
        yield framed
    yield LAST_CHUNK


_last_date = (0, "")


def _date() -> str:
    """The Date header, made once a second: a tuple is replaced whole, so threads need no lock."""
    global _last_date
    second, text = _last_date
    now = int(time.time())
    if now != second:
        text = formatdate(now, usegmt=True)
        _last_date = now, text
    return text


# Cross-origin requests (Fetch standard). Permissive on purpose: an instance is protected by its keys, which a page has to
# send itself (`*` never covers cookies). See docs/http.md#cors.

MAX_AGE_S = 86_400
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
ALLOW_ORIGIN = ("Access-Control-Allow-Origin", "*")


def preflight(request: Request) -> Response | None:
    """The answer to a preflight, or None when the request is something else."""
    headers = request.headers
    method = headers.get("access-control-request-method")
    if request.method != "OPTIONS" or method is None or "origin" not in headers:
        return None
    # The names asked for, not `*`: a wildcard does not cover Authorization.
    wanted = headers.get("access-control-request-headers")
    allowed = (("Access-Control-Allow-Headers", wanted),) if wanted else ()
    return Response(200, headers=(
        ("Access-Control-Allow-Methods", METHODS),
        *allowed,
        ("Access-Control-Max-Age", str(MAX_AGE_S)),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ))


def answer_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """The CORS headers of an answer to a request with these headers."""
    return (ALLOW_ORIGIN,) if "origin" in headers else ()
