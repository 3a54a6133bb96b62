"""Calls to other hosts: which addresses are permitted, one request, delivery of notices to webhooks."""
from __future__ import annotations


class Undelivered(Exception):
    """A request to another host failed. str(): the reason, without URL and headers, which may hold secrets.

    is_final: another attempt would fail as well (an address that is not allowed, a URL without host). Defined here, so that
    callers that only wait for it need not load the client (urllib, OpenSSL).
    """

    def __init__(self, reason: str, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final
