"""May a text be the address of a service?

Knows what a URL must have before anything is sent to it, and the words for what it lacks; refuses to
connect. Source: messages.json, shared.url_error.
"""
from __future__ import annotations

import re
import socket

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_SPECIAL = frozenset({"http", "https", "ws", "wss", "ftp"})
_WEB = frozenset({"http", "https"})
_FORBIDDEN_IN_DOMAINS = re.compile(r"[\x00-\x20\"#%/:<>?@\[\\\]^`{|}\x7f]")
_PORT = re.compile(r"[0-9]*", re.ASCII)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


def parse_url(text: str) -> str:
    """The text itself when it is an absolute URL; raises ValueError(reason) otherwise."""
    match = _SCHEME.fullmatch(text.strip())
    if match is None:
        raise ValueError("relative URL without a base")
    if match[1].lower() in _SPECIAL:
        _check_authority(re.split(r"[/\\?#]", match[2].lstrip("/\\"), maxsplit=1)[0])
    return text


def parse_web_url(text: str) -> str:
    """The text itself when it is an absolute URL of HTTP; raises ValueError(reason) otherwise."""
    parse_url(text)
    scheme = text.strip().partition(":")[0]
    if scheme.lower() not in _WEB:
        raise ValueError(f"scheme `{scheme}` cannot be called, expected `http` or `https`")
    return text


def _check_authority(authority: str) -> None:
    place = authority.rpartition("@")[2]
    host, port = _host_and_port(place)
    if not host:
        raise ValueError("empty host")
    _check_host(host)
    if not _PORT.fullmatch(port) or int(port[:6] or "0") > 65535:
        raise ValueError("invalid port number")


def _host_and_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, bracket, rest = place.partition("]")
        return host + bracket, rest.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port


def _check_host(host: str) -> None:
    if host.startswith("["):
        if not host.endswith("]") or not _is_address(socket.AF_INET6, host[1:-1]):
            raise ValueError("invalid IPv6 address")
        return
    if _FORBIDDEN_IN_DOMAINS.search(host):
        raise ValueError("invalid domain character")
    # A last label that is a number makes the whole host an IPv4 address, in any of its old notations.
    if _NUMERIC_LABEL.fullmatch(host.removesuffix(".").rpartition(".")[2]) and not _is_old_ipv4(host):
        raise ValueError("invalid IPv4 address")


def _is_address(family: int, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _is_old_ipv4(text: str) -> bool:
    try:
        socket.inet_aton(text.removesuffix("."))
    except OSError:
        return False
    return True


# What a header that svcd sends may be made of.
#
# Knows the characters of names and values; refuses to know which headers there are. Source: RFC 9110 5.1 and 5.5,
# without the bytes beyond ASCII that it calls obsolete; messages.json, invalid_webhook_headers.


_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e]*", re.ASCII)


def is_header_name(text: str) -> bool:
    """True when a header can have this name."""
    return _NAME.fullmatch(text) is not None


def is_header_value(text: str) -> bool:
    """True when a header can have this value."""
    return _VALUE.fullmatch(text) is not None


# How a secret is shown to those who may know that it is there: in answers, and in the log.
#
# Knows how much of a secret its length can spare, and where a URL holds one; refuses to know who asks.
# Source: tasks.md 5, note 5.


# As browsers and svcd.remote.client read it: any number of slashes, backslashes are slashes, and what stands before
# the last `@` of the place is user and password.
_CREDENTIALS = re.compile(r"(\s*[A-Za-z][A-Za-z0-9+.-]*:[/\\]*)([^/\\?#]*)@")


def redacted_secret(secret: str) -> str:
    """A secret as answers show it: as many of its first characters as its length can spare."""
    length = len(secret.encode("utf-8", "surrogatepass"))
    for below, shown, mask in ((10, 0, "XXX..."), (20, 2, "XXXX..."), (30, 3, "XXXXX...")):
        if length < below:
            return _first_bytes(secret, shown) + mask
    return _first_bytes(secret, 5) + "XXXXXX..."


def _first_bytes(text: str, count: int) -> str:
    """As many whole characters as `count` bytes hold."""
    return text.encode("utf-8", "surrogatepass")[:count].decode("utf-8", "ignore")


def redacted_url(url: str) -> str:
    """A URL with hidden user and password: some services take their token as the one, some as the other."""
    match = _CREDENTIALS.match(url)
    if match is None:
        return url
    user, colon, password = match[2].partition(":")
    hidden = (redacted_secret(user) if user else "") + colon + (redacted_secret(password) if password else "")
    return f"{match[1]}{hidden}@{url[match.end():]}"
