"""How the similarities of models are distributed, so that their scores mean the same (docs/vectors.md#scores)."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# (source, model) -> mean and sigma of the similarities of texts that have to do with each other.
_OF_MODELS = {
    ("openAi", "text-embedding-ada-002"): (0.90, 0.08),
    ("openAi", "text-embedding-3-large"): (0.70, 0.1),
    ("openAi", "text-embedding-3-small"): (0.75, 0.1),
    ("huggingFace", "BAAI/bge-base-en-v1.5"): (0.85, 0.1),
}


def distribution_of(embedder: Mapping[str, Any]) -> tuple[float, float] | None:
    """(mean, sigma) of an embedder: of its settings, else of its model; None if neither says.

    embedder: its settings with the defaults filled in.
    """
    given = embedder.get("distribution")
    if given is not None:
        return given["mean"], given["sigma"]
    if embedder.get("source") == "composite":
        return distribution_of(embedder.get("searchEmbedder") or {}) or distribution_of(embedder.get("indexingEmbedder") or {})
    return _OF_MODELS.get((embedder.get("source", ""), embedder.get("model", "")))
