"""Cross-origin requests.

1. A preflight is answered without asking the application: any method, the headers asked for, for a day.
2. So is `OPTIONS *`, which asks for the methods of the whole server.
3. Every answer to a request with an Origin may be read by any page; without one nothing is said.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Serve = Callable[..., Any]
ORIGIN = b"Host: a\r\nOrigin: https://example.com\r\n"
ASKING = ORIGIN + b"Access-Control-Request-Method: DELETE\r\n"


def forbidden(request: Any) -> Any:
    raise AssertionError("the application was asked")


def test_a_preflight_is_answered(serve: Serve) -> None:
    wanted = b"Access-Control-Request-Headers: authorization, content-type\r\n"
    served = serve(forbidden)
    status, headers, body = served.send(b"OPTIONS /indexes HTTP/1.1\r\n" + ASKING + wanted + b"\r\n").answer()
    assert (status, body) == (200, b"")
    assert headers["access-control-allow-origin"] == "*"
    assert "DELETE" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-headers"] == "authorization, content-type"
    assert headers["access-control-max-age"] == "86400"
    assert "Access-Control-Request-Headers" in headers["vary"]


def test_a_preflight_for_no_special_headers_allows_none(serve: Serve) -> None:
    _, headers, _ = serve(forbidden).send(b"OPTIONS / HTTP/1.1\r\n" + ASKING + b"\r\n").answer()
    assert "access-control-allow-headers" not in headers


@pytest.mark.parametrize("fields", [b"Host: a\r\n", ORIGIN, ASKING])
def test_the_methods_of_the_server_are_told(serve: Serve, fields: bytes) -> None:
    status, headers, body = serve(forbidden).send(b"OPTIONS * HTTP/1.1\r\n" + fields + b"\r\n").answer()
    assert (status, body) == (200, b"")
    assert headers["allow"] == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


@pytest.mark.parametrize("fields", [ORIGIN, b"Host: a\r\nAccess-Control-Request-Method: GET\r\n"])
def test_other_options_requests_are_the_applications(serve: Serve, fields: bytes) -> None:
    assert serve().send(b"OPTIONS /a HTTP/1.1\r\n" + fields + b"\r\n").answer()[2] == b"OPTIONS /a "


@pytest.mark.parametrize(("fields", "allowed"), [(ORIGIN, "*"), (b"Host: a\r\n", None)])
def test_any_page_may_read_the_answer(serve: Serve, fields: bytes, allowed: str | None) -> None:
    _, headers, _ = serve().send(b"GET / HTTP/1.1\r\n" + fields + b"\r\n").answer()
    assert headers.get("access-control-allow-origin") == allowed


def test_errors_may_be_read_too(serve: Serve) -> None:
    status, headers, _ = serve(forbidden).send(b"GET / HTTP/1.1\r\n" + ORIGIN + b"\r\n").answer()
    assert (status, headers["access-control-allow-origin"]) == (500, "*")
