"""The embedder without a model: documents and searches bring their vectors along."""
from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from svcd.embedding import errors
from svcd.embedding.embedder import DEFAULT_SEARCH_DEADLINE_S, RequestCounts
from svcd.embedding.errors import NO_MEDIA, USER, EmbeddingError


class UserProvidedEmbedder:
    """See embedder.Embedder."""

    inputs_per_request = 1
    requests_at_once = 1

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    def dimensions(self) -> int:
        """As in Embedder."""
        return self._dimensions

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """Nothing for no inputs. Raises EmbeddingError for any."""
        if inputs:
            raise errors.user_provided(str(inputs[0]))
        return []

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """Raises EmbeddingError."""
        if media is not None or q is None:
            raise EmbeddingError(USER, NO_MEDIA)
        raise errors.user_provided(q)

    def abort(self) -> None:
        """Nothing is ever in progress."""
