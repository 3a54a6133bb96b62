"""What a call to another host can come to; apart from the client, so that who waits for nothing need not load it."""
from __future__ import annotations


class Undelivered(Exception):
    """A request came to no good end. str(): why, without URL and headers, which may hold secrets."""
