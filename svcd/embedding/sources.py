"""Builds embedders from settings, and keeps the embedders that a process uses."""
from __future__ import annotations

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svcd.embedding.composite import CompositeEmbedder
from svcd.embedding.embedder import DEFAULT_SEARCH_DEADLINE_S, Embedder, Environment, RequestCounts
from svcd.embedding.errors import NO_MEDIA, USER, EmbeddingError, user_provided
from svcd.embedding.rest import ollama_embedder, open_ai_embedder, rest_embedder
from svcd.embedding.static_file import static_file_embedder
from svcd.schema.embedder_settings import fragments, resolve_embedders

Settings = Mapping[str, Any]


def embedder_of(settings: Settings, environment: Environment, dimensions: int | None = None) -> Embedder:
    """Return the embedder of one settings object, stored or with defaults. It calls no service yet.

    dimensions: found earlier for these settings, so that the service need not be asked again.
    Raises EmbeddingError for invalid settings (templates of requests, fragments, address of ollama, missing file).
    """
    resolved = resolve_embedders({"": dict(settings)})[""]
    return _SOURCES[resolved["source"]](resolved, environment, dimensions)


def _user_provided(settings: Settings, environment: Environment, dimensions: int | None) -> Embedder:
    return UserProvidedEmbedder(settings["dimensions"])


def _hugging_face(settings: Settings, environment: Environment, dimensions: int | None) -> Embedder:
    raise EmbeddingError(USER, f"svcd does not run models of Hugging Face such as `{settings['model']}` itself.\n"
                               "  - Hint: run a server that does and use the source `rest`, `openAi` or `ollama`, or use word "
                               "vectors from a local file with the source `staticFile`")


def _composite(settings: Settings, environment: Environment, dimensions: int | None) -> Embedder:
    parts = [settings["searchEmbedder"], settings["indexingEmbedder"]]
    search, indexing = [
        rest_embedder(part, environment, dimensions, is_part=True) if part["source"] == "rest"
        else _SOURCES[part["source"]](part, environment, dimensions) for part in parts]
    has_fragments = any(fragments(part, member) for part in parts for member in ("searchFragments", "indexingFragments"))
    return CompositeEmbedder(search, indexing, (parts[0]["source"], parts[1]["source"]), has_fragments, dimensions)


_SOURCES: Mapping[str, Callable[[Settings, Environment, int | None], Embedder]] = {
    "userProvided": _user_provided,
    "rest": rest_embedder,
    "openAi": open_ai_embedder,
    "ollama": ollama_embedder,
    "huggingFace": _hugging_face,
    "composite": _composite,
    "staticFile": static_file_embedder,
}


class UserProvidedEmbedder:
    """The embedder without a model: documents and searches bring their vectors. See embedder.Embedder."""

    inputs_per_request = 1
    requests_at_once = 1

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    def dimensions(self) -> int:
        """As in Embedder."""
        return self._dimensions

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """Raise EmbeddingError if there are any inputs."""
        if inputs:
            raise user_provided(str(inputs[0]))
        return []

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """Raise EmbeddingError."""
        if media is not None or q is None:
            raise EmbeddingError(USER, NO_MEDIA)
        raise user_provided(q)

    def abort(self) -> None:
        """Do nothing: no call takes long."""


class Embedders:
    """Embedders in use, by their settings, so that caches, dimensions and loaded files outlast one search.

    Any thread may call. Above `most` embedders, the least recently used ones are dropped.
    """

    def __init__(self, environment: Environment, most: int = 64) -> None:
        self._environment = environment
        self._most = most
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
