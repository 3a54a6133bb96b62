"""The members that a hit has for an instance that merges it with its own hits: its merge key, and values that it does not show.

See docs/network.md#being-a-remote.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svcd.base.json_text import loads
from svcd.facets.distribution import selected_fields
from svcd.query.reader import Reader
from svcd.ranking.scores import Detail, Pinned
from svcd.schema.attributes import is_everything
from svcd.schema.documents import Selection, select, shown_parts
from svcd.search.keyword import values_at
from svcd.search.request import Federation, SearchQuery
from svcd.search.score_values import shown_values

# The members of a hit.
FEDERATION = "_federation"
WEIGHTED_SCORE, SCORE_VALUES = "weightedRankingScore", "weightedScoreValues"
EXTRA_DOCUMENT, PINNED_POSITION = "extra_document", "pinnedPosition"


def members_for_caller(details: Sequence[Detail], weight: float, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the members of `_federation` for the instance that merges the hit. extra: its ExtraDocuments.of()."""
    if details and isinstance(details[0], Pinned):
        return {SCORE_VALUES: [], EXTRA_DOCUMENT: extra, PINNED_POSITION: details[0].position}
    return {SCORE_VALUES: shown_values(details, weight), EXTRA_DOCUMENT: extra}


class ExtraDocuments:
    """The values of documents that a caller needs and that hits do not show: the values of `distinct` and of the facets.

    The caller compares the values of `distinct` over all its lists, and subtracts the values of rejected hits from its facets.
    """

    def __init__(self, reader: Reader, index_uid: str, query: SearchQuery, federation: Federation) -> None:
        self._reader = reader
        fields = reader.fields()
        wanted = [] if federation.distinct is None else [federation.distinct]
        if wanted:
            wanted += selected_fields(reader.settings, fields, federation.facets.get(index_uid) or ())
        self._wanted = wanted
        self._shown = Selection(_named(_named(fields, reader.settings.displayed_attributes), query.attributes_to_retrieve))

    def of(self, docid: int) -> dict[str, Any]:
        """Return the values of one document; {} if the hit shows them all."""
        if not self._wanted:
            return {}
        (text,) = self._reader.documents([docid])
        document = loads(text)
        shown = shown_parts(document, self._shown)
        missing = [field for field in self._wanted if list(values_at(document, field)) != list(values_at(shown, field))]
        return select(document, Selection(missing))


def _named(fields: Sequence[str], entries: Sequence[str] | None) -> Sequence[str]:
    return fields if is_everything(entries) else [field for field in fields if field in set(entries or ())]
