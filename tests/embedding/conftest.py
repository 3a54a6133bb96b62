"""The environment that may call the embedding service of these tests, on loopback."""
from __future__ import annotations

import threading
from collections.abc import Callable
from ipaddress import ip_network

import pytest

from svcd.embedding import Environment
from svcd.remote.guard import Guard

LOOPBACK = Guard((ip_network("127.0.0.0/8"),))


class Pauses:
    """Instead of waiting: what would have been waited, in seconds. The clock goes on by it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.now = 1000.0

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        self.now += seconds
        return stop.is_set()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def environment(pauses: Pauses) -> Callable[..., Environment]:
    """environment(SVC_X="1", query_cache_entries=3) -> an environment with these variables, no pauses and full randomness."""

    def make(query_cache_entries: int = 0, **variables: str) -> Environment:
        return Environment(LOOPBACK, variables, query_cache_entries, lambda: pauses.now, pauses.wait, lambda: 1.0)

    return make
