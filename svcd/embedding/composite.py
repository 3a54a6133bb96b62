"""Embedders of two parts, one for queries and one for documents, which must produce similar vectors."""
from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import Any

from svcd.embedding.embedder import DEFAULT_SEARCH_DEADLINE_S, Embedder, RequestCounts
from svcd.embedding.errors import NO_MEDIA, RUNTIME, USER, EmbeddingError
from svcd.vectors.vector import cosine_distance

MOST_DISTANCE = 0.01
TEST_TEXTS = ("test", "a brave dog", "This is a sample text. It is meant to compare similarity.")

_FAILED = "error while generating test embeddings.\n  - "
_HINTS = {
    (True, True): "\n  - Make sure the `model`, `revision` and `pooling` of both embedders match.",
    (True, False): "\n  - Consider trying a different `pooling` method for the search embedder.",
    (False, True): "\n  - Consider trying a different `pooling` method for the indexing embedder.",
    (False, False): "",
}


class CompositeEmbedder:
    """See embedder.Embedder."""

    def __init__(self, search: Embedder, indexing: Embedder, sources: tuple[str, str], has_fragments: bool,
                 dimensions: int | None) -> None:
        """sources: of both parts. has_fragments: the parts are not compared, because plain texts do not suit them.

        dimensions: found by an earlier comparison of the parts, or None.
        """
        self._search = search
        self._indexing = indexing
        self._hint = _HINTS[sources[0] == "huggingFace", sources[1] == "huggingFace"]
        self._is_comparable = not has_fragments
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self.inputs_per_request = indexing.inputs_per_request
        self.requests_at_once = indexing.requests_at_once

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
