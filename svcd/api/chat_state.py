"""What the chats of a process share: the client that reaches language models, and counters for `/metrics`.

Threads: the request threads of all chats; `_lock` guards client and counters.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svcd.chat.chunks import Usage
    from svcd.remote.client import Client

TokensOf = tuple[str, str]  # workspace, model of the request
# Pairs of workspace and model that are counted: whoever may chat names the model.
MOST_PAIRS = 1000


def unrestricted_client() -> Client:
    """A client that reaches global addresses only."""
    from svcd.remote.client import Client  # 8 ms and 1 MB, needed with the first turn
    from svcd.remote.guard import Guard

    return Client(Guard())


class Chats:
    """The state of one process. make_client: called for the first turn."""

    def __init__(self, make_client: Callable[[], Client] = unrestricted_client) -> None:
        self._make_client = make_client
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._tokens: dict[TokensOf, tuple[int, int, int]] = {}
        self.searches = 0  # that ran without an error

    @property
    def client(self) -> Client:
        """The client for all turns."""
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def count_search(self) -> None:
        """One more search has run."""
        with self._lock:
            self.searches += 1

    def count_tokens(self, pair: TokensOf, usage: Usage) -> None:
        """Add the tokens that a service reports."""
        with self._lock:
            prompt, completion, total = self._tokens.get(pair, (0, 0, 0))
            if pair in self._tokens or len(self._tokens) < MOST_PAIRS:
                self._tokens[pair] = (prompt + usage.prompt, completion + usage.completion, total + usage.total)

    def tokens(self) -> Mapping[TokensOf, tuple[int, int, int]]:
        """(workspace, model) -> numbers of tokens: of prompts, of completions, of both."""
        with self._lock:
            return dict(self._tokens)
