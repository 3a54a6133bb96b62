"""The source `huggingFace`: a model from a folder of local files, run by svcd itself. No hub is called.

See docs/embedders.md#huggingface.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from svcd.embedding.embedder import (
    DEFAULT_SEARCH_DEADLINE_S, NO_MEDIA, RUNTIME, USER, EmbeddingError, Environment, QueryCache, RequestCounts)
from svcd.embedding.safetensors import BadModel
from svcd.embedding.transformer import CLS, CONFIG, MEAN, Transformer
from svcd.schema.embedder_settings import LOCAL_MODEL
from svcd.vectors.nearest import numpy

_POOLING = {"useModel": None, "forceCls": CLS, "forceMean": MEAN}
_HINT = ("\n  - Hint: svcd downloads no model. Put `config.json`, `model.safetensors` and `tokenizer.json` (or `vocab.txt`) into "
         "this folder, or use the source `staticFile`, `ollama`, `rest` or `openAi`")


class HuggingFaceEmbedder:
    """See embedder.Embedder."""

    # A few seconds of work, after which the progress is shown and a canceled task ends.
    inputs_per_request = 32
    requests_at_once = 1

    def __init__(self, settings: Mapping[str, Any], environment: Environment, _dimensions: int | None = None) -> None:
        """Raises EmbeddingError when the model is missing or invalid, and without numpy."""
        if numpy() is None:
            raise EmbeddingError(USER, "the source `huggingFace` needs the package numpy: install `svcd[vectors]`")
        folders = list(_folders(settings, environment.models))
        folder = next((each for each in folders if (each / CONFIG).is_file()), folders[0])
        try:
            self._model = _model(folder, _POOLING[settings.get("pooling", "useModel")])
        except FileNotFoundError as missing:
            raise EmbeddingError(USER, f"there is no file `{Path(missing.filename).name}` in `{folder}`{_HINT}") from None
        except OSError as failure:
            raise EmbeddingError(RUNTIME, f"could not read the model in `{folder}`:\n  - {failure.strerror}") from None
        except BadModel as fault:
            raise EmbeddingError(USER, f"could not read the model in `{folder}`:\n  - {fault}") from None
        self._cache = QueryCache(environment.query_cache_entries)

    def dimensions(self) -> int:
        """As in Embedder."""
        return self._model.dimensions

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """As in Embedder."""
        return self._encoded([self._model.document_prompt + text for text in inputs])

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """As in Embedder; a model of some hundred megabytes that is read for the first time may take longer."""
        if media is not None or q is None:
            raise EmbeddingError(USER, NO_MEDIA)
        found = self._cache.get(q)
        if found is None:
            (found,) = self._encoded([self._model.query_prompt + q])
            self._cache.put(q, found)
        return found

    def _encoded(self, texts: Sequence[str]) -> list[array[float]]:
        try:
            return [array("f", vector.tobytes()) for vector in self._model.encode(texts)]
        except BadModel as fault:
            raise EmbeddingError(USER, f"the model cannot be used:\n  - {fault}") from None

    def abort(self) -> None:
        """Do nothing: no call takes long."""


# Embedders of several indexes share a model.
_model = lru_cache(maxsize=4)(Transformer)


def _folders(settings: Mapping[str, Any], models: Path) -> Iterator[Path]:
    """Yield the folders where the model may be, the best one first.

    A `model` stays inside the folder of models; with the layout of the hub's own cache it is the snapshot of the revision.
    """
    if path := settings.get("modelPath"):
        yield models / path
        return
    model, revision = settings["model"], settings.get("revision") or "main"
    if not all(map(LOCAL_MODEL.fullmatch, (*model.split("/"), revision))):
        raise EmbeddingError(USER, f"`{model}` is not the name of a model\n  - Hint: name a folder elsewhere with `modelPath`")
    yield models / model
    yield models / model.split("/")[-1]
    cache = models / f"models--{model.replace('/', '--')}"
    try:
        revision = (cache / "refs" / revision).read_text("utf-8").strip()
    except (OSError, ValueError):  # it is the name of a snapshot
        pass
    yield cache / "snapshots" / revision
