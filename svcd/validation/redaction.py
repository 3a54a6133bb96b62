"""How a secret is shown to those who may know that it is there: in answers, and in the log.

Knows how much of a secret its length can spare, and where a URL holds one; refuses to know who asks.
Source: tasks.md 5, note 5.
"""
from __future__ import annotations

import re

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
