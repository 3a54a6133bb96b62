"""Which embedder belongs to which settings, and those that a process keeps in use."""
from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from svcd.embedding.composite import CompositeEmbedder
from svcd.embedding.embedder import Embedder, Environment
from svcd.embedding.errors import USER, EmbeddingError
from svcd.embedding.rest import ollama_embedder, open_ai_embedder, rest_embedder
from svcd.embedding.static_file import static_file_embedder
from svcd.embedding.user_provided import UserProvidedEmbedder
from svcd.schema.embedder_settings import fragments, resolve_embedders

Settings = Mapping[str, Any]


def embedder_of(settings: Settings, environment: Environment, dimensions: int | None = None) -> Embedder:
    """The embedder of one settings object, as it is stored or with its defaults. Nothing is called yet.

    dimensions: those found out earlier for these settings, so that the service need not be asked again.
    Raises EmbeddingError when the settings are not of use (templates of requests, fragments, address of ollama, missing file).
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
    search, indexing = [_part(part, environment, dimensions) for part in parts]
    has_fragments = any(fragments(part, member) for part in parts for member in ("searchFragments", "indexingFragments"))
    return CompositeEmbedder(search, indexing, (parts[0]["source"], parts[1]["source"]), has_fragments, dimensions)


def _part(settings: Settings, environment: Environment, dimensions: int | None) -> Embedder:
    if settings["source"] == "rest":
        return rest_embedder(settings, environment, dimensions, is_part=True)
    return _SOURCES[settings["source"]](settings, environment, dimensions)


_SOURCES: Mapping[str, Callable[[Settings, Environment, int | None], Embedder]] = {
    "userProvided": _user_provided,
    "rest": rest_embedder,
    "openAi": open_ai_embedder,
    "ollama": ollama_embedder,
    "huggingFace": _hugging_face,
    "composite": _composite,
    "staticFile": static_file_embedder,
}


class Embedders:
    """Embedders in use, kept by their settings, so that caches, dimensions and loaded files last longer than one search.

    Any thread may call. The least recently used ones are dropped when there are more than `most`.
    """

    def __init__(self, environment: Environment, most: int = 64) -> None:
        self._environment = environment
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Embedder] = OrderedDict()

    def get(self, settings: Settings, dimensions: int | None = None) -> Embedder:
        """The embedder of these settings: a kept one or a new one. Raises EmbeddingError as embedder_of() does."""
        key = json.dumps([settings, dimensions], sort_keys=True)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = embedder_of(settings, self._environment, dimensions)
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return self._kept[key]

    def abort(self) -> None:
        """End what is in progress in all of them."""
        with self._lock:
            kept = list(self._kept.values())
        for embedder in kept:
            embedder.abort()
