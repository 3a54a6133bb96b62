"""Calls to other hosts: which addresses are permitted, one request, delivery of notices to webhooks."""
from __future__ import annotations


class Undelivered(Exception):
    """A request to another host failed. str(): the reason, without URL and headers, which may hold secrets.

    Defined here, so that callers that only wait for it need not load the client (urllib, OpenSSL).
    """
