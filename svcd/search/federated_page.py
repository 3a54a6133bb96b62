"""Render the page of a federated search: each hit by the options of its own query, with the member `_federation`.

Source: docs/search.md#federation.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.base import tracing
from svcd.base.json_text import dumps, loads
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import VectorSorted
from svcd.search.hits import (MAX_PAGE_BYTES, LongPage, RepeatedValues, average_hit_size, federation_member, page_of_texts,
                              plain_documents, render_hits, without_ranking_hits)
from svcd.search.keyword import Found
from svcd.search.merge_order import MergeKey, merge_keys
from svcd.search.proxied_hits import FEDERATION, WEIGHTED_SCORE, ExtraDocuments, members_for_caller
from svcd.search.request import Federation, FormattingBudget, IndexedQuery
from svcd.search.stored_strings import LongStrings

if TYPE_CHECKING:
    from svcd.search.remote_hits import RemoteHit, Remotes

LOCAL = "execute local search"  # the name of the tracing span


class NumberedQuery(NamedTuple):
    """A query with its number among the queries that run here, from 0."""

    number: int
    indexed: IndexedQuery

    @property
    def position(self) -> int:
        """The query number that hits and messages report; it also decides between equal hits."""
        return self.number if self.indexed.position is None else self.indexed.position


class QueryResult(NamedTuple):
    """The result of one query. budget: for formatting its hits."""

    query: NumberedQuery
    reader: Reader
    found: Found
    budget: FormattingBudget

    def hits(self) -> list[MergedHit]:
        """Return the organic hits, with their merge keys."""
        position, key = self.query.position, merge_keys(self.query.indexed.weight)
        return [MergedHit(hit, key(hit.details), position, self) for hit in self._split()[0]]

    def pins(self) -> list[tuple[int, MergedHit]]:
        """Return the pinned hits with the positions that their rules ask for; nothing compares them with other hits."""
        key, number = MergeKey((), self.query.indexed.weight), self.query.position
        return [(position, MergedHit(hit, key, number, self)) for position, hit in self._split()[1]]

    def _split(self) -> tuple[Sequence[Hit], Sequence[tuple[int, Hit]]]:
        if self.query.indexed.query.rules is None:
            return self.found.ranking.hits, ()
        from svcd.search.pins import split  # imported late: few instances use search rules

        return split(self.found.ranking.hits)


class MergedHit(NamedTuple):
    """A hit of one of the queries.

    number: of the query; decides between equal hits. source: the QueryResult that the hit comes from.
    """

    hit: Hit
    key: MergeKey
    number: int
    source: Any

    @property
    def is_semantic(self) -> bool:
        """Whether the hit was found by its vector."""
        return any(isinstance(detail, VectorSorted) for detail in self.hit.details)

    def parts(self) -> list[Mapping[str, Any]]:
        """Return its document."""
        (text,) = self.source.reader.documents([self.hit.docid])
        return [loads(text)]


class FederatedPage:
    """The hits of a page as JSON texts. federation, remotes: of the search."""

    def __init__(self, federation: Federation, remotes: Remotes | None) -> None:
        self._federation = federation
        self._remote = {} if remotes is None else {"remote": remotes.own_name}

    def texts(self, hits: Sequence[MergedHit | RemoteHit]) -> Sequence[str]:
        """Return the texts of hits of this instance and of remotes."""
        own = [hit for hit in hits if isinstance(hit, MergedHit)]
        if len(own) == len(hits):
            return self._own_texts(own)
        rendered = iter(self._own_texts(own))
        return [next(rendered) if isinstance(hit, MergedHit) else hit.text() for hit in hits]

    def _own_texts(self, hits: Sequence[MergedHit]) -> Sequence[str]:
        """Return the JSON texts of a page; a long page holds docids and scores only, and is rendered on access."""
        sources: Collection[QueryResult] = {each.source.query.number: each.source for each in hits}.values()
        size = 0
        if len(hits) > 1:
            size = max(average_hit_size(source.reader, source.query.indexed.query) for source in sources)
        long_strings = LongStrings()
        if len(hits) * size <= MAX_PAGE_BYTES:
            return page_of_texts(self._render(hits, long_strings), long_strings)
        docids, scores = array("I", (each.hit.docid for each in hits)), array("d", (each.key.score for each in hits))
        needs_details = set()  # numbers of queries
        for each in sources:
            query = each.query.indexed.query
            if self._federation.is_proxied or query.show_ranking_score or query.show_ranking_score_details:
                needs_details.add(each.query.number)
        details = RepeatedValues([each.hit.details if each.source.query.number in needs_details else () for each in hits])
        light = {each.query.number: each._replace(found=without_ranking_hits(each.found)) for each in sources}
        numbers = array("I", (each.source.query.number for each in hits))

        def hit_at(place: int) -> MergedHit:
            result = light[numbers[place]]
            return MergedHit(Hit(docids[place], details[place]), MergeKey((), scores[place]), result.query.position, result)

        def render_between(first: int, end: int) -> Sequence[str]:
            long_strings.clear()
            return self._render(list(map(hit_at, range(first, end))), long_strings)

        return LongPage(len(hits), size, render_between, long_strings)

    @tracing.span(LOCAL)
    def _render(self, hits: Sequence[MergedHit], long_strings: LongStrings) -> list[str]:
        """Return the JSON texts of hits, each rendered by the options of its own query."""
        def render(result: QueryResult, some: Sequence[MergedHit]) -> Sequence[str]:
            index_uid, query, weight = result.query.indexed.index_uid, result.query.indexed.query, result.query.indexed.weight
            own = {"indexUid": index_uid, "queriesPosition": result.query.position}
            members = [{**own, WEIGHTED_SCORE: each.key.score, **self._remote} for each in some]
            if self._federation.is_proxied:  # the caller needs the values to compare the hits by
                extra = ExtraDocuments(result.reader, index_uid, query, self._federation)
                for member, each in zip(members, some):
                    member.update(members_for_caller(each.hit.details, weight, extra.of(each.hit.docid)))
            texts = [dumps({FEDERATION: member})[1:-1] for member in members]
            found = [each.hit for each in some]
            return render_hits(result.reader, query, result.found, found, result.budget, long_strings, texts)

        return _by_query(hits, render)

    def plain_documents(self, hits: Sequence[MergedHit | RemoteHit], shows_source: bool) -> list[str]:
        """Return the documents of hits as a reranking gets them. shows_source: with the member `_federation`."""
        own = iter(_by_query([hit for hit in hits if isinstance(hit, MergedHit)], lambda result, some: plain_documents(
            result.reader, result.query.indexed.query, result.found, [each.hit for each in some],
            [federation_member(result.query.indexed.index_uid, each.number, each.key.score) for each in some]
            if shows_source else ())))
        return [next(own) if isinstance(hit, MergedHit) else hit.plain_document(shows_source) for hit in hits]


def _by_query(hits: Sequence[MergedHit], render: Callable[[QueryResult, Sequence[MergedHit]], Sequence[str]]) -> list[str]:
    """Return the texts of hits in their order. render: makes the texts of the hits of one query."""
    places: dict[int, list[int]] = {}  # number of a query -> the places of its hits
    for place, each in enumerate(hits):
        places.setdefault(each.source.query.number, []).append(place)
    texts = [""] * len(hits)
    for among in places.values():
        rendered = render(hits[among[0]].source, [hits[place] for place in among])
        for place, text in zip(among, rendered):
            texts[place] = text
    return texts
