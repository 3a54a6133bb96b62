"""How much memory the indexing of a batch may take.

Knows shares; stands apart from `indexing` so that the main process, which hands budgets out, need not load that.
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """What one batch may hold in memory, in bytes."""

    page_cache: int = 8 << 20
    postings: int = 4 << 20
    documents: int = 2 << 20

    @classmethod
    def of(cls, memory: int | None) -> Budget:
        """Shares of `memory` bytes, never more than these defaults: they are as fast as any more."""
        if memory is None:
            return cls()
        return cls(*(max(1 << 18, min(most, memory // share)) for most, share in
                     ((cls.page_cache, 8), (cls.postings, 16), (cls.documents, 32))))
