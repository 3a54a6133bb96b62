"""Builds embedders from settings, and keeps the embedders that a process uses.

An embedder of two parts, one for queries and one for documents, checks that they produce similar vectors.
"""
from __future__ import annotations

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svcd.embedding.embedder import (
    DEFAULT_SEARCH_DEADLINE_S, NO_MEDIA, RUNTIME, USER, Embedder, EmbeddingError, Environment, RequestCounts)
from svcd.embedding.rest import ollama_embedder, open_ai_embedder, rest_embedder
from svcd.embedding.static_file import StaticFileEmbedder
from svcd.schema.embedder_settings import fragments, resolve_embedders
from svcd.vectors.vector import cosine_distance

Settings = Mapping[str, Any]
MOST_DISTANCE = 0.01
TEST_TEXTS = ("test", "a brave dog", "This is a sample text. It is meant to compare similarity.")

_FAILED = "error while generating test embeddings.\n  - "
_HINTS = {
    (True, True): "\n  - Make sure the `model`, `revision` and `pooling` of both embedders match.",
    (True, False): "\n  - Consider trying a different `pooling` method for the search embedder.",
    (False, True): "\n  - Consider trying a different `pooling` method for the indexing embedder.",
    (False, False): "",
}


def embedder_of(settings: Settings, environment: Environment, dimensions: int | None = None) -> Embedder:
    """Return the embedder of one settings object, stored or with defaults. It calls no service yet.

    dimensions: found earlier for these settings, so that the service need not be asked again.
    Raises EmbeddingError for invalid settings (templates of requests, fragments, address of ollama, missing file).
    """
    resolved = resolve_embedders({"": dict(settings)})[""]
    return _SOURCES[resolved["source"]](resolved, environment, dimensions)


def _hugging_face(settings: Settings, environment: Environment, dimensions: int | None) -> Embedder:
    from svcd.embedding.hugging_face import HuggingFaceEmbedder  # imported late: few indexes have a model of their own

    return HuggingFaceEmbedder(settings, environment, dimensions)


class UserProvidedEmbedder:
    """The embedder without a model: documents and searches bring their vectors. See embedder.Embedder."""

    inputs_per_request = 1
    requests_at_once = 1

    def __init__(self, settings: Settings, _environment: Environment, _dimensions: int | None = None) -> None:
        self._dimensions: int = settings["dimensions"]

    def dimensions(self) -> int:
        """As in Embedder."""
        return self._dimensions

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """Raise EmbeddingError if there are any inputs."""
        if inputs:
            raise EmbeddingError(USER, "attempt to embed the following text in a configuration where embeddings must be user "
                                       f"provided:\n  - `{inputs[0]}`")
        return []

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """Raise EmbeddingError."""
        if media is not None or q is None:
            raise EmbeddingError(USER, NO_MEDIA)
        return self.embed([q])[0]

    def abort(self) -> None:
        """Do nothing: no call takes long."""


class CompositeEmbedder:
    """The embedder with a part for queries and a part for documents. See embedder.Embedder."""

    def __init__(self, settings: Settings, environment: Environment, dimensions: int | None = None) -> None:
        """dimensions: found by an earlier comparison of the parts, or None."""
        parts = [settings["searchEmbedder"], settings["indexingEmbedder"]]
        self._search, self._indexing = [
            rest_embedder(part, environment, dimensions, is_part=True) if part["source"] == "rest"
            else _SOURCES[part["source"]](part, environment, dimensions) for part in parts]
        self._hint = _HINTS[parts[0]["source"] == "huggingFace", parts[1]["source"] == "huggingFace"]
        # Plain texts do not suit parts with fragments, which are therefore not compared.
        self._is_comparable = not any(
            fragments(part, member) for part in parts for member in ("searchFragments", "indexingFragments"))
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self.inputs_per_request = self._indexing.inputs_per_request
        self.requests_at_once = self._indexing.requests_at_once

    def dimensions(self) -> int:
        """As in Embedder; the first call compares both parts."""
        with self._lock:
            if self._dimensions is not None:
                return self._dimensions
            at_search, at_indexing = self._search.dimensions(), self._indexing.dimensions()
            if at_search != at_indexing:
                raise EmbeddingError(
                    USER, f"{_FAILED}the dimensions of embeddings produced at search time and at indexing time don't match.\n"
                          f"  - Search time dimensions: {at_search}\n  - Indexing time dimensions: {at_indexing}\n"
                          "  - Note: Dimensions of embeddings produced by both embedders are required to match.")
            for left, right in zip(_tested(self._search, "search"), _tested(self._indexing, "indexing")
                                   ) if self._is_comparable else ():
                if (distance := cosine_distance(left, right)) > MOST_DISTANCE:
                    raise EmbeddingError(
                        USER, f"{_FAILED}the embeddings produced at search time and indexing time are not similar enough.\n"
                              f"  - angular distance {distance:.2f}\n  - Svc requires a maximum distance of {MOST_DISTANCE}.\n"
                              f"  - Note: check that both embedders produce similar embeddings.{self._hint}")
            self._dimensions = at_indexing
            return at_indexing

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """As in Embedder, with the part for documents."""
        return self._indexing.embed(inputs, counts)

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """As in Embedder, with the part for queries; media are not supported."""
        if media is not None or q is None:
            raise EmbeddingError(USER, NO_MEDIA)
        return self._search.embed_query(q, None, within_s)

    def abort(self) -> None:
        """As in Embedder."""
        self._search.abort()
        self._indexing.abort()


def _tested(part: Embedder, name: str) -> list[array[float]]:
    try:
        return part.embed(TEST_TEXTS)
    except EmbeddingError as failure:
        raise EmbeddingError(RUNTIME, f"{_FAILED}could not generate test embedding with embedder at {name} time.\n"
                                      f"  - Embedding failed with {failure}") from None


_SOURCES: Mapping[str, Callable[[Settings, Environment, int | None], Embedder]] = {
    "userProvided": UserProvidedEmbedder,
    "rest": rest_embedder,
    "openAi": open_ai_embedder,
    "ollama": ollama_embedder,
    "huggingFace": _hugging_face,
    "composite": CompositeEmbedder,
    "staticFile": StaticFileEmbedder,
}


class Embedders:
    """Embedders in use, by their settings, so that caches, dimensions and loaded files outlast one search.

    Any thread may call. Above `most` embedders, the least recently used ones are dropped.
    """

    def __init__(self, environment: Environment, most: int = 64) -> None:
        self._environment, self._most = environment, most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Embedder] = OrderedDict()

    def get(self, settings: Settings, dimensions: int | None = None) -> Embedder:
        """Return the embedder of these settings, kept or new. Raises EmbeddingError like embedder_of()."""
        key = json.dumps([settings, dimensions], sort_keys=True)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = embedder_of(settings, self._environment, dimensions)
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return self._kept[key]

    def abort(self) -> None:
        """End the running calls of all embedders."""
        with self._lock:
            kept = list(self._kept.values())
        for embedder in kept:
            embedder.abort()
