"""Embedders: texts of documents and queries become vectors, by a service or a local file (docs/embedders.md).

`embedder_of` makes an embedder from its settings; `Embedders` keeps those in use. Errors are EmbeddingError.
"""
from svcd.embedding.embedder import DEFAULT_SEARCH_DEADLINE_S, Embedder, Environment, RequestCounts
from svcd.embedding.errors import EmbeddingError
from svcd.embedding.sources import Embedders, embedder_of

__all__ = [
    "DEFAULT_SEARCH_DEADLINE_S", "Embedder", "Embedders", "EmbeddingError", "Environment", "RequestCounts", "embedder_of",
]
