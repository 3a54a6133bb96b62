"""Personalized searches: a rerank service orders the hits of a page for the user (docs/personalization.md).

A search that waits for the service gives up its slot of the search queue, and at most MAX_WAITING searches wait at once. Import
this module late: no other search needs it.

Threads: all request threads use it; `_lock` guards the creation of the reranker.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from svcd.api.admission import SearchQueue, Timer
from svcd.api.streaming import ConcurrencyLimit

if TYPE_CHECKING:
    from svcd.remote.reranking import Reranker

MAX_WAITING = 64


class Personalization:
    """Orders the hits of all personalized searches of a process.

    searches: the queue whose slots waiting searches give up. make_reranker: called when the first search is personalized.
    """

    def __init__(self, searches: SearchQueue, make_reranker: Callable[[], Reranker], most: int = MAX_WAITING) -> None:
        self._searches = searches
        self._make_reranker = make_reranker
        self._waiting = ConcurrencyLimit(most)
        self._lock = threading.Lock()
        self._made: Reranker | None = None

    def order(self, prompt: str, documents: Sequence[str], timer: Timer, cutoff_ms: int) -> Sequence[int]:
        """Positions in `documents` (JSON texts), best first; in the given order if the time of the search is over.

        timer, cutoff_ms: the clock of the search, and its limit. The clock is paused during the call, so that formatting has
        time left. Raises the errors of Reranker.order(), and too_many_search_requests if too many searches wait.
        """
        with self._searches.one_of(self._waiting):
            within_s = cutoff_ms / 1000 - timer.elapsed_s()
            with self._searches.paused(), timer.paused():
                with self._lock:
                    reranker = self._made = self._made or self._make_reranker()
                found = reranker.order(prompt, documents, within_s)
        return range(len(documents)) if found is None else found


def prompt_of(user_context: str, texts: Sequence[str], is_legacy: bool) -> str:
    """The query for the rerank service. texts: the `q` of all queries; is_legacy: without texts, leave out the second line."""
    first = f"User Context: {user_context}"
    return first if is_legacy and not texts else f"{first}\nQuery: {', '.join(texts)}"
