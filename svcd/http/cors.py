"""Cross-origin requests: what a browser must be told so that a page of any origin may call.

Knows the CORS protocol (Fetch standard); refuses to know routes. Permissive on purpose: what protects an
instance is its keys, which a page has to send itself (`*` never covers cookies).
"""
from __future__ import annotations

from svcd.http.message import Headers, Request, Response

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
    """What every answer to a request with these headers says to the browser."""
    return (ALLOW_ORIGIN,) if "origin" in headers else ()
