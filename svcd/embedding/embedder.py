"""The interface of embedders, their environment, counts of requests, and a cache of query vectors.

EmbeddingError is in the wording of the interface.
"""
from __future__ import annotations

import os
import random
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from svcd.remote.guard import Guard

# How long a search waits for the vector of its query, retries included; after that it uses only the words.
DEFAULT_SEARCH_DEADLINE_S = 3.0
# The default folder of model files; the environment variable overrides it.
MODELS_VARIABLE, DEFAULT_MODELS = "SVC_EMBEDDER_FILES_PATH", "embedders"

USER, RUNTIME, UNDECIDED = "user error", "runtime error", "error"
# Longer queries are not cached: they are seldom repeated, and the cache is limited by entries only.
MOST_CACHED_BYTES = 2000
NO_MEDIA = "`media` requested but the configuration doesn't have source `rest`"


class EmbeddingError(Exception):
    """Vectors could not be made. str(): the fault and the reason, as `runtime error: could not reach embedding server: ...`.

    fault: who can fix it, one of USER, RUNTIME and UNDECIDED. Its error code is vector_embedding_error. Callers put their context
    before it: `While embedding documents for embedder `NAME`: {error}`, or error.while_generating() outside of documents.
    """

    def __init__(self, fault: str, reason: str) -> None:
        super().__init__(f"{fault}: {reason}")
        self.fault, self.reason = fault, reason

    def while_generating(self) -> str:
        """Return the message of an error in settings or searches."""
        return f"Error while generating embeddings: {self}"


class ServiceError(EmbeddingError):
    """The service answered with a status other than 2xx. reply: its body as shown in messages, or ""."""

    def __init__(self, fault: str, reason: str, status: int, reply: str) -> None:
        super().__init__(fault, reason + reply)
        self.status, self.reply = status, reply


class RequestCounts:
    """Counts of requests to services, which the batch shows. Any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0
        self.failed = 0
        self.last_error: str | None = None

    def add(self, error: EmbeddingError | None = None) -> None:
        """Count one request and its failure, if any."""
        with self._lock:
            self.total += 1
            if error is not None:
                self.failed += 1
                self.last_error = str(error)


@dataclass(frozen=True)
class Environment:
    """The environment of embedders in their process.

    guard: which hosts may be called. variables: of the environment (keys and addresses that settings leave out, time-outs, the
    folder of local models). query_cache_entries: cached query vectors per embedder; 0 disables the cache. Tests replace the other
    fields: clock (seconds), wait (until an event is set or the given seconds are over) and random (0 to 1).
    """

    guard: Guard = field(default_factory=Guard)
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    query_cache_entries: int = 0
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    random: Callable[[], float] = random.random

    @property
    def models(self) -> Path:
        """The folder of local models."""
        return Path(self.variables.get(MODELS_VARIABLE) or DEFAULT_MODELS)

    def seconds(self, variable: str, default: float) -> float:
        """Return a duration from an environment variable; the default if it is missing or not a number."""
        try:
            return max(float(self.variables.get(variable) or default), 0.001)
        except ValueError:
            return default


class Embedder(Protocol):
    """Turns texts into vectors of equal length. Any thread may call any method."""

    # Inputs per request: 1 or 10. embed() takes any number of inputs and divides them into requests.
    inputs_per_request: int
    # Concurrent requests of embed(). Callers collect inputs_per_request * requests_at_once inputs, or a multiple.
    requests_at_once: int

    def dimensions(self) -> int:
        """Return the length of the vectors. Unless settings give it, asks the service once, with the text `test`.

        Raises EmbeddingError.
        """

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """Return one vector per input, in the order of the inputs. Waits for retries, which may take minutes.

        inputs: rendered document templates (str); with indexing fragments, rendered fragments (any JSON value). Equal inputs are
        sent repeatedly. counts: counts the requests. Raises EmbeddingError if any input fails. abort() ends the call.
        """

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """Return the vector of a query within `within_s` seconds, from the cache if possible.

        q: None in a search without `q`. media: the value of the search's `media`, or None. Raises EmbeddingError.
        """

    def abort(self) -> None:
        """End calls of other threads (the daemon stops, or the task is canceled); they raise EmbeddingError."""


class QueryCache:
    """The vectors of at most `entries` queries; the least recently used ones are dropped. Any thread may call."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, array[float]] = OrderedDict()

    def get(self, text: str) -> array[float] | None:
        """Return the cached vector of a text, or None."""
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
            return self._kept.get(text)

    def put(self, text: str, vector: array[float]) -> None:
        """Cache the vector of a text."""
        if self._entries < 1 or len(text.encode("utf-8", "replace")) > MOST_CACHED_BYTES:
            return
        with self._lock:
            self._kept[text] = vector
            self._kept.move_to_end(text)
            if len(self._kept) > self._entries:
                self._kept.popitem(last=False)
