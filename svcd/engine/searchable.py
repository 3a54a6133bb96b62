"""Which fields hold words to search, and how much each weighs (relevance.md 4.1).

Knows the list `searchableAttributes`; refuses to know which fields an index has.
"""
from __future__ import annotations

from typing import Any, Mapping, Sequence

from svcd.engine import attributes


class Searchable:
    """The searchable fields of one index: `field in searchable`, and the weight of each."""

    def __init__(self, listed: Sequence[str] | None) -> None:
        self.is_everything = attributes.is_everything(listed)
        self._entries = [] if self.is_everything else list(dict.fromkeys(listed or ()))
        self._weights: dict[str, int | None] = {}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Searchable:
        """The searchable fields that the settings of an index name."""
        return cls(settings.get("searchableAttributes"))

    @property
    def heaviest(self) -> int:
        """The largest weight of the list, even if no field has it; 0 when everything is searchable."""
        return max(len(self._entries) - 1, 0)

    def weight(self, field: str) -> int | None:
        """The place of the field in the list, 0 for all by default; None when it is not searchable."""
        if field not in self._weights:
            self._weights[field] = self._find_weight(field)
        return self._weights[field]

    def __contains__(self, field: str) -> bool:
        return self.weight(field) is not None

    def names(self, entry: str) -> bool:
        """Is this literally an entry of the list?"""
        return entry in self._entries

    def _find_weight(self, field: str) -> int | None:
        if attributes.is_reserved(field):
            return None
        if self.is_everything:
            return 0
        places = (place for place, entry in enumerate(self._entries) if attributes.is_beneath(field, entry))
        return next(places, None)
