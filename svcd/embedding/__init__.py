"""Embedders turn texts of documents and queries into vectors, with a service or a local file (docs/embedders.md).

`embedder_of` builds an embedder from its settings; `Embedders` keeps the embedders in use. Errors are EmbeddingError.
"""
from svcd.embedding.embedder import DEFAULT_SEARCH_DEADLINE_S, Embedder, EmbeddingError, Environment, RequestCounts
from svcd.embedding.sources import Embedders, embedder_of

__all__ = ["DEFAULT_SEARCH_DEADLINE_S", "Embedder", "Embedders", "EmbeddingError", "Environment", "RequestCounts", "embedder_of"]
