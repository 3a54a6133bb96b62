"""The page at `/` for people who open the address in a browser: search, filters, tasks, documents from a file.

One static file, page.html, which talks to the routes of this instance and to nothing else: the policy that is sent with it
forbids any other script, style and address. It is shown in development only (docs/page.md).
"""
from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Text

_HTML = "text/html"
_SCRIPT, _STYLE = re.compile(r"<script>(.*?)</script>", re.DOTALL), re.compile(r"<style>(.*?)</style>", re.DOTALL)


def root(ctx: Context) -> HandlerResult:
    """The page for browsers, in development; for all others a sign of life."""
    if ctx.services.shows_page and _HTML in (ctx.request.headers.get("accept") or ""):
        text, headers = _page()
        return HandlerResult(200, Text(text, f"{_HTML}; charset=utf-8"), headers)
    return HandlerResult(200, {"status": "Svc is running"})


@cache
def _page() -> tuple[str, tuple[tuple[str, str], ...]]:
    """The page and its headers."""
    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    policy = "; ".join((
        "default-src 'none'", f"script-src {_hash_of(_SCRIPT, text)}", f"style-src {_hash_of(_STYLE, text)}",
        "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    ))
    return text, (("Content-Security-Policy", policy), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                  ("Cache-Control", "no-cache"), ("Vary", "Accept"))


def _hash_of(element: re.Pattern[str], text: str) -> str:
    """The hash with which a policy allows the only element of this kind."""
    (content,) = element.findall(text)
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


ROUTES = (Route("GET", "/", root, None, {200: {"type": "object"}}, "Say that the instance runs", "Health"),)
