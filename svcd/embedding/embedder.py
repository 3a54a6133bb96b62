"""What all embedders have in common: their methods, what they need of the process, and their counts of requests."""
from __future__ import annotations

import os
import random
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from svcd.embedding.errors import EmbeddingError
from svcd.remote.guard import Guard

# How long a search waits for the vector of its query, retries included; then words alone must do.
DEFAULT_SEARCH_DEADLINE_S = 3.0
# Where files of models are, unless the environment says another folder.
MODELS_VARIABLE, DEFAULT_MODELS = "SVC_EMBEDDER_FILES_PATH", "embedders"


class RequestCounts:
    """Requests to services: shown with the batch. Any thread may add."""

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
    """What embedders need of their process.

    guard: which hosts may be called. variables: those of the environment (keys and addresses that settings leave out, time-outs,
    the folder of local models). query_cache_entries: vectors of queries kept per embedder; 0 keeps none. The others are
    replaced in tests: clock (seconds), wait (until an event is set or so many seconds are over) and randomness (0 to 1).
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
        """A duration of the environment; the default when there is none, or none that can be read."""
        try:
            return max(float(self.variables.get(variable) or default), 0.001)
        except ValueError:
            return default


class Embedder(Protocol):
    """Turns texts into vectors of equal length. Any thread may call any method."""

    # How many inputs one request carries: 1 or 10. embed() takes any number and makes requests of it.
    inputs_per_request: int
    # How many requests embed() makes at once. Callers collect inputs_per_request * requests_at_once inputs, or a multiple.
    requests_at_once: int

    def dimensions(self) -> int:
        """The length of the vectors. Asks the service, once, with the text `test`, when settings do not say it.

        Raises EmbeddingError.
        """

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """One vector per input, in the order of the inputs; waits through retries, which may take minutes.

        inputs: rendered document templates (str); with indexing fragments, rendered fragments (any JSON value). Equal inputs
        are sent as often as they are given. counts: to which requests are added. Raises EmbeddingError; then no vector is
        returned. abort() ends it.
        """

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """The vector of a query, within so many seconds; from the cache when there is one.

        q: None when the search has none. media: the value of the search's `media`, or None. Raises EmbeddingError.
        """

    def abort(self) -> None:
        """End what is in progress in other threads (the daemon stops, or the task is canceled); they raise EmbeddingError."""
