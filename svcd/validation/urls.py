"""Addresses of other services: check URLs and headers, and mask their secrets.

Nothing here resolves a name or connects.
"""
from __future__ import annotations

import re
import socket
from collections.abc import Mapping

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_SPECIAL = frozenset({"http", "https", "ws", "wss", "ftp"})
_WEB = frozenset({"http", "https"})
_FORBIDDEN_IN_DOMAINS = re.compile(r"[\x00-\x20\"#%/:<>?@\[\\\]^`{|}\x7f]")
_PORT = re.compile(r"[0-9]*", re.ASCII)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)
# RFC 9110, 5.1 and 5.5, without the bytes beyond ASCII, which it calls obsolete.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
# As browsers and svcd.remote.client parse it: any number of slashes, backslashes count as slashes, and user and password end
# with the last `@` of the authority.
_CREDENTIALS = re.compile(r"(\s*[A-Za-z][A-Za-z0-9+.-]*:[/\\]*)([^/\\?#]*)@")


# URLs


def parse_url(text: str) -> str:
    """Return the text itself if it is an absolute URL. Raises ValueError(reason)."""
    match = _SCHEME.fullmatch(text.strip())
    if match is None:
        raise ValueError("relative URL without a base")
    if match[1].lower() not in _SPECIAL:
        return text
    place = re.split(r"[/\\?#]", match[2].lstrip("/\\"), maxsplit=1)[0].rpartition("@")[2]
    if place.startswith("["):
        host, bracket, rest = place.partition("]")
        host, port = host + bracket, rest.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host:
        raise ValueError("empty host")
    _check_host(host)
    if not _PORT.fullmatch(port) or int(port[:6] or "0") > 65535:
        raise ValueError("invalid port number")
    return text


def parse_web_url(text: str) -> str:
    """Return the text itself if it is an absolute URL with the scheme http or https. Raises ValueError(reason)."""
    parse_url(text)
    scheme = text.strip().partition(":")[0]
    if scheme.lower() not in _WEB:
        raise ValueError(f"scheme `{scheme}` cannot be called, expected `http` or `https`")
    return text


def _check_host(host: str) -> None:
    try:
        if host.startswith("["):
            socket.inet_pton(socket.AF_INET6, host[1:-1] if host.endswith("]") else "")
            return
    except OSError:
        raise ValueError("invalid IPv6 address") from None
    if _FORBIDDEN_IN_DOMAINS.search(host):
        raise ValueError("invalid domain character")
    # As in the URL standard: when the last label is a number, the host must be an IPv4 address, in any of its notations.
    if _NUMERIC_LABEL.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        try:
            socket.inet_aton(host.removesuffix("."))
        except OSError:
            raise ValueError("invalid IPv4 address") from None


# Headers that svcd sends


def is_header_name(text: str) -> bool:
    """Return whether a text is a valid name of a header."""
    return _HEADER_NAME.fullmatch(text) is not None


def is_header_value(text: str) -> bool:
    """Return whether a text is a valid value of a header."""
    return _HEADER_VALUE.fullmatch(text) is not None


# Masking of secrets, in responses and in the log

# Error messages repeat at most _MOST_SHOWN characters of the answer of a service.
_MOST_SHOWN = 10_000
# A secret is masked where a service repeats it. A shorter word is not treated as a secret: it may be part of a sentence.
_LEAST_SECRET = 16
_SECRET_HEADER = "authorization"  # alone, in any letter case (recorded behaviour)
_BEARER = "Bearer "


def shown_reply(text: str, *secrets: str) -> str:
    """Return the answer of a service for messages: with secrets masked, and shortened."""
    for secret in sorted(secrets, key=len, reverse=True):  # a secret may contain another
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, redacted_secret(secret))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def redacted_secret(secret: str) -> str:
    """Return a secret as responses show it: its first characters, more for longer secrets."""
    length = len(secret.encode("utf-8", "surrogatepass"))
    for below, shown, mask in ((10, 0, "XXX..."), (20, 2, "XXXX..."), (30, 3, "XXXXX...")):
        if length < below:
            return _first_bytes(secret, shown) + mask
    return _first_bytes(secret, 5) + "XXXXXX..."


def _first_bytes(text: str, count: int) -> str:
    """Return the characters that fit into the first `count` bytes of UTF-8."""
    return text.encode("utf-8", "surrogatepass")[:count].decode("utf-8", "ignore")


def redacted_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers of a webhook as responses show them: `Authorization` is masked, except `Bearer `."""
    shown = dict(headers)
    for name, value in headers.items():
        if name.lower() == _SECRET_HEADER:
            scheme = _BEARER if value.startswith(_BEARER) else ""
            shown[name] = scheme + redacted_secret(value.removeprefix(scheme))
    return shown


def redacted_url(url: str) -> str:
    """Return a URL with masked user and password, because services take their token as either."""
    match = _CREDENTIALS.match(url)
    if match is None:
        return url
    user, colon, password = match[2].partition(":")
    hidden = (redacted_secret(user) if user else "") + colon + (redacted_secret(password) if password else "")
    return f"{match[1]}{hidden}@{url[match.end():]}"
