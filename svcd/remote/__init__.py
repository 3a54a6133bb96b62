"""Calls to other hosts: the guard of addresses, the HTTP client, webhooks, remotes of a network, the object store, reranking."""
from __future__ import annotations

from enum import Enum, auto


class Failure(Enum):
    """The kind of failure of a request."""

    TIMEOUT = auto()
    # The guard: the URL names an address that may not be called, or a host with such an address.
    FORBIDDEN_ADDRESS = auto()
    FORBIDDEN_HOST = auto()
    CONNECTION = auto()  # unknown host, refused, reset, a bad certificate, not HTTP
    RESPONSE = auto()  # the response broke off, or is too long
    REDIRECTS = auto()  # too many
    URL = auto()  # not an HTTP URL, or a header that cannot be sent


class Undelivered(Exception):
    """A request to another host failed. str(): the reason, without URL and headers, which may hold secrets.

    is_final: a repeated request would fail as well (an address that is not allowed, a URL without host).
    Defined here, so that callers that only catch it need not load the client (urllib, OpenSSL).
    """

    def __init__(self, reason: str, is_final: bool = False, kind: Failure = Failure.CONNECTION) -> None:
        super().__init__(reason)
        self.is_final, self.kind = is_final, kind
