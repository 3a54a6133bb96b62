"""Parts that all searches of a process share: the embedding of queries, personalization, and the search rules of the instance.

Services or local models embed queries, and a rerank service orders hits, while a search waits. A service may be slow or
unreachable. A search that waits for it gives up its slot of the search queue, its cutoff is paused, and at most MAX_WAITING
searches wait at once, so that searches by words continue. If an embedder did not answer in time, only one search at a time waits
for it again, unless a search needs the vector (docs/http.md#search-queue).

Threads: all request threads use it; the `_lock` of Trust guards its sets of services, the one of Personalization the creation of
the reranker; ActiveRules holds its `_lock` while it compiles rules, so that one thread does it.
"""
from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from svcd.api.admission import SearchQueue, Timer
from svcd.api.streaming import ConcurrencyLimit
from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.base.quantities import now
from svcd.instance.data_folder import DataFolderReader

if TYPE_CHECKING:
    from svcd.embedding import Embedders
    from svcd.remote.reranking import Reranker
    from svcd.rules.rule_set import IndexRules, RuleSet
    from svcd.search.request import QueryInput

MAX_WAITING = 64
# Most seconds that a search waits: a search that needs the vector, and a search that has words as well.
NEEDED_WITHIN_S, USEFUL_WITHIN_S = 10.0, 3.0
# A service that fails after more than this many seconds counts as slow.
SLOW_S = 1.0


def no_services() -> Embedders:
    """Embedders with the environment of this process, and no allowed networks beyond the default."""
    from svcd.embedding import Embedders, Environment  # loaded with the first query that is embedded

    return Embedders(Environment())


class Trust:
    """Services that did not answer in time at their last call; each is identified by a number.

    One search at a time may find out whether such a service works again; other searches do not wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow: set[int] = set()
        self._tried: set[int] = set()

    @contextmanager
    def trying(self, service: int) -> Iterator[bool]:
        """True if this block may call the service; False while another search finds out whether it works again."""
        with self._lock:
            is_slow = service in self._slow
            is_allowed = not is_slow or service not in self._tried
            if is_slow and is_allowed:
                self._tried.add(service)
        try:
            yield is_allowed
        finally:
            if is_slow and is_allowed:
                with self._lock:
                    self._tried.discard(service)

    def note(self, service: int, is_slow: bool) -> None:
        """A service has answered, or failed. is_slow: it kept the search waiting."""
        with self._lock:
            (self._slow.add if is_slow else self._slow.discard)(service)


class QueryEmbedding:
    """Embeds queries for all searches of a process. Any thread may call it.

    make_embedders: called when the first query is embedded. searches: the queue whose slots waiting searches give up.
    """

    def __init__(self, searches: SearchQueue, make_embedders: Callable[[], Embedders] = no_services,
                 most: int = MAX_WAITING) -> None:
        self._searches = searches
        self._make_embedders = make_embedders
        self._waiting = ConcurrencyLimit(most)
        self._trust = Trust()

    @cached_property
    def _embedders(self) -> Embedders:
        return self._make_embedders()

    def vector(self, wanted: QueryInput, timer: Timer) -> array[float]:
        """The vector of a query. Raises vector_embedding_error, too_many_search_requests."""
        from svcd.embedding import EmbeddingError

        with self._searches.one_of(self._waiting), self._searches.paused(), timer.paused():
            try:
                return self._embed(wanted)
            except EmbeddingError as error:
                raise ApiError("vector_embedding_error", error.while_generating()) from None

    def _embed(self, wanted: QueryInput) -> array[float]:
        """Raises EmbeddingError, too_many_search_requests."""
        from svcd.embedding import EmbeddingError

        embedder = self._embedders.get(wanted.settings, wanted.dimensions)
        if wanted.is_needed:
            return embedder.embed_query(wanted.q, wanted.media, NEEDED_WITHIN_S)
        with self._trust.trying(id(embedder)) as is_allowed:
            if not is_allowed:
                raise self._searches.too_many_searches()
            started, is_slow = time.monotonic(), False
            try:
                return embedder.embed_query(wanted.q, wanted.media, USEFUL_WITHIN_S)
            except EmbeddingError:
                is_slow = time.monotonic() - started > SLOW_S
                raise
            finally:
                self._trust.note(id(embedder), is_slow)


class SearchEmbedding:
    """Embeds the queries of one search. has_failed: whether a query was not embedded, and only its words were searched.

    timer: the cutoff of the search, which is paused during a call.
    """

    def __init__(self, embedding: QueryEmbedding, timer: Timer) -> None:
        self.has_failed = False
        self._embedding = embedding
        self._timer = timer

    def __call__(self, wanted: QueryInput) -> array[float]:
        """The vector of a query. Raises vector_embedding_error, too_many_search_requests."""
        try:
            return self._embedding.vector(wanted, self._timer)
        except ApiError as error:
            self.has_failed = True
            if not wanted.is_needed and error.code == "vector_embedding_error":
                logs.warn("no query vector; fell back to keyword search", embedder=wanted.embedder, failure=error.message)
            raise


# Personalized searches: a rerank service orders the hits of a page for the user (docs/personalization.md)


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


# Search rules, read from the hidden index of the rules, so that all processes see a change with the task that made it


class QueryRules(NamedTuple):
    """The rules that may pin documents for one query. cache_key: what its answer depends on besides the query."""

    rules: IndexRules
    cache_key: str


class ActiveRules:
    """The rules of one data folder, compiled once for each change of them. Thread-safe."""

    def __init__(self, instance: DataFolderReader) -> None:
        from svcd.rules.values import limits_of  # imported late, as in _rules(): few instances use search rules

        self._instance = instance
        self._limits = limits_of(os.environ)
        self._lock = threading.Lock()
        self._compiled: RuleSet | None = None

    def of_query(self, index_uid: str) -> QueryRules | None:
        """The rules for a query that begins now; None if none can pin a document of this index."""
        rules = self._rules()
        moment = now()
        found = rules.of_query(index_uid, moment) if rules else None
        return None if found is None or rules is None else QueryRules(found, repr((rules.key, rules.interval(moment))))

    def _rules(self) -> RuleSet | None:
        """The current rules, compiled if they have changed; None if the instance has no rules."""
        from svcd.rules.rule_set import RuleSet
        from svcd.rules.stored import INDEX_UID, PRIMARY_KEY

        state = self._instance.index_state(INDEX_UID)
        if state is None:
            return None
        compiled = self._compiled
        if compiled is not None and compiled.key == state.state:
            return compiled
        with self._lock:
            compiled = self._compiled
            if compiled is not None and compiled.key == state.state:
                return compiled
            try:
                with self._instance.read(INDEX_UID) as reader:
                    documents = [loads(text) for text in reader.texts()]
                    docid_of = reader.identified_docids([str(document[PRIMARY_KEY]) for document in documents])
                    compiled = RuleSet(((docid_of[str(document[PRIMARY_KEY])], document) for document in documents),
                                       reader.settings.analyzer, self._limits, reader.state)
            except ApiError:  # index_not_found: a task has just deleted the index
                compiled = None
            self._compiled = compiled
            return compiled
