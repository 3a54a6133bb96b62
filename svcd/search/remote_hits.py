"""Hits between instances: members that a remote adds for its caller, and results of remotes as the caller merges them.

See docs/network.md#being-a-remote and docs/network.md#merging. svcd.api.remote_search reads the answers of remotes.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.json_text import dumps, loads
from svcd.facets.distribution import Facets, selected_fields
from svcd.query.reader import Reader
from svcd.ranking.scores import Detail, Pinned
from svcd.schema.attributes import is_everything
from svcd.schema.documents import Selection, select, shown_parts
from svcd.search.keyword import values_at
from svcd.search.merge_order import MergeKey, shown_values
from svcd.search.request import Federation, SearchQuery

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


# Results of remotes

Json = Mapping[str, Any]
_ADDED = frozenset(("_formatted", "_matchesPosition", "_matchedPassage", "_rankingScore", "_rankingScoreDetails"))


class RemoteHit(NamedTuple):
    """A hit of a remote.

    index_uid: of the index of the remote. document: the shown hit. extra: values of its document that it does not show.
    pinned_position: None unless it is a pin. is_semantic: it was found by its vector. The other members: see MergedHit.
    """

    key: MergeKey
    number: int
    index_uid: str
    document: dict[str, Any]
    extra: dict[str, Any]
    pinned_position: int | None
    is_semantic: bool

    def parts(self) -> list[Json]:
        """Return the known parts of its document."""
        return [self.document, self.extra]

    def text(self) -> str:
        """Return the JSON text of the hit."""
        return dumps(self.document)

    def plain_document(self, shows_source: bool) -> str:
        """Return the document as a reranking gets it, without members that the search added. shows_source: keep `_federation`."""
        added = _ADDED if shows_source else _ADDED | {FEDERATION}
        return dumps({name: value for name, value in self.document.items() if name not in added})


class RemoteResult(NamedTuple):
    """The result of a remote: the best hits of its queries, and the pinned hits, each in their order.

    facets: by index uid. query_vectors: by the number of the query. primary_keys: by index uid, if the remote was asked for
    metadata.
    """

    hits: Sequence[RemoteHit]
    pinned_hits: Sequence[RemoteHit]
    total: int
    facets: Mapping[str, Facets]
    query_vectors: Mapping[int, Sequence[float]]
    milliseconds: int
    primary_keys: Mapping[str, str]

    def pins(self) -> Sequence[tuple[int, RemoteHit]]:
        """Return the pins with the positions that the rules of the remote ask for."""
        return [(hit.pinned_position or 0, hit) for hit in self.pinned_hits]


class Remotes(NamedTuple):
    """The remotes that take part in a search.

    own_name: the name of this instance in the network, which its hits show. wait: returns the results of the remotes that
    answered, in byte order of their names; called once, after the search of this instance.
    """

    own_name: str | None
    wait: Callable[[], Sequence[RemoteResult]]
