"""Personalized searches: the hits of a page in the order that a rerank service finds best for the user (docs/personalization.md).

A search that waits for the service gives up its slot of the search queue, and only so many may wait at once. Import it late: no
other search needs it.

Threads: every request thread comes here; the `_lock` guards the making of the reranker.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from svcd.api.admission import SearchQueue, Timer
from svcd.api.routes import Context
from svcd.api.streaming import ConcurrencyLimit
from svcd.search.request import Reranking
from svcd.validation import features

if TYPE_CHECKING:
    from svcd.remote.reranking import Reranker

MAX_WAITING = 64


class Personalization:
    """Orders the hits of all personalized searches of a process.

    searches: the queue whose slots are given up. make_reranker: called when the first search is personalized.
    """

    def __init__(self, searches: SearchQueue, make_reranker: Callable[[], Reranker], most: int = MAX_WAITING) -> None:
        self._searches = searches
        self._make_reranker = make_reranker
        self._waiting = ConcurrencyLimit(most)
        self._lock = threading.Lock()
        self._made: Reranker | None = None

    def order(self, prompt: str, documents: Sequence[str], timer: Timer, cutoff_ms: int) -> Sequence[int]:
        """The positions of documents (JSON texts), best first; as they are when the time of the search is over.

        timer, cutoff_ms: the clock of the search, and its time. The clock stands still meanwhile, so that formatting has its
        time. Raises what Reranker.order() raises, and too_many_search_requests when too many searches wait.
        """
        with self._searches.one_of(self._waiting):
            within_s = cutoff_ms / 1000 - timer.elapsed_s()
            with self._searches.paused(), timer.paused():
                found = self._reranker().order(prompt, documents, within_s)
        return range(len(documents)) if found is None else found

    def _reranker(self) -> Reranker:
        with self._lock:
            self._made = self._made or self._make_reranker()
            return self._made


def reranking(ctx: Context, user_context: str, texts: Iterable[str | None], timer: Timer,
              cutoff_ms: Callable[[], int]) -> Reranking:
    """What orders the hits of one search. texts: the `q` of its queries; cutoff_ms: called when the hits are known.

    Its `order` raises feature_not_enabled without a key, also for no hits: only after the search has run, as clients expect.
    """
    is_legacy = bool(ctx.instance.features().get("legacySearch"))
    prompt = prompt_of(user_context, [text for text in texts if text is not None], is_legacy)

    def order(documents: Sequence[str]) -> Sequence[int]:
        if ctx.personalization is None:
            raise features.not_enabled(features.PERSONALIZATION, "reranking search results")
        return ctx.personalization.order(prompt, documents, timer, cutoff_ms()) if documents else ()

    return Reranking(order, shows_source=not is_legacy)


def prompt_of(user_context: str, texts: Sequence[str], is_legacy: bool) -> str:
    """The query of the rerank service. texts: of the queries; is_legacy: leave out the second line when there are none."""
    first = f"User Context: {user_context}"
    return first if is_legacy and not texts else f"{first}\nQuery: {', '.join(texts)}"
