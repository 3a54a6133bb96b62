"""The results of remotes: hits with merge keys, pins, totals and facets, to be merged with the results of this instance.

See docs/network.md#merging. svcd.api.remote_answers reads them from the answers of remotes.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.json_text import dumps
from svcd.facets.distribution import Facets
from svcd.search.merge_order import MergeKey
from svcd.search.proxied_hits import FEDERATION

Json = Mapping[str, Any]
_ADDED = frozenset(("_formatted", "_matchesPosition", "_rankingScore", "_rankingScoreDetails"))


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
