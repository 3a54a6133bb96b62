"""What the chats of a process share: counters for `/metrics`.

Threads: the request threads of all chats; `_lock` guards the counters.
"""
from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svcd.chat.chunks import Usage

TokensOf = tuple[str, str]  # workspace, model of the request
# Pairs of workspace and model that are counted: whoever may chat names the model.
MOST_PAIRS = 1000


class Chats:
    """The counters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[TokensOf, tuple[int, int, int]] = {}
        self.searches = 0  # that ran without an error

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
