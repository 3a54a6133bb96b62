"""Searches over the network: choose the instances, call them, and read and collect their results (docs/network.md).

The calls begin before this instance searches. It waits for them afterwards, without a slot of the search queue: otherwise two
instances that call each other could block each other until the deadline. Searches of facets and documents over the network
choose, call and wait for instances by the same functions.

A remote answers like any client's request, except that `_federation` of its hits has more members (svcd.search.remote_hits).
"""
from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.admission import Timer
from svcd.api.answers import AnswerBuilder, members_text, parts_of, text_after_hits, wants_metadata
from svcd.api.filters import has_joins, hydrate_hits
from svcd.api.search_parameters import FIELDS, PAGE_FIELDS, check_sort, page_of, personalized, with_joins_resolved
from svcd.api.search_services import SearchEmbedding
from svcd.api.streaming import ConcurrencyLimit
from svcd.api.traffic import DEGRADED
from svcd.base import tracing
from svcd.base.errors import ApiError, ErrorObject
from svcd.facets.distribution import Facets
from svcd.remote import remote_calls
from svcd.remote.remote_calls import INCLUDE_METADATA, PROXY_SEARCH
from svcd.search.federation import federated
from svcd.search.merge_order import MergeKey, read_values
from svcd.search.remote_hits import (
    EXTRA_DOCUMENT, FEDERATION, PINNED_POSITION, SCORE_VALUES, WEIGHTED_SCORE, RemoteHit, RemoteResult, Remotes,
)
from svcd.search.request import Federation, IndexedQuery

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.index.reader import IndexReader as Reader
    from svcd.instance.network import Network
    from svcd.remote.remote_calls import Pending, RemoteCalls

Json = Mapping[str, Any]

# Each request that waits for remotes holds a thread, and perhaps readers.
MAX_WAITING = 64
_waiting = ConcurrencyLimit(MAX_WAITING)


class Partition(NamedTuple):
    """The instances that answer a query that uses the network. remotes: names of the remotes to call, in byte order.

    is_local: this instance answers, too. place: its position among all instances.
    """

    remotes: tuple[str, ...]
    is_local: bool
    place: int = 0


def partition(network: Network) -> Partition:
    """Each remote of the network once; a remote with the name of this instance is this instance."""
    names = tuple(network.remotes)
    if network.self_name is None or network.self_name not in network.remotes:
        return Partition(names, is_local=False)
    place = names.index(network.self_name)
    return Partition(names[:place] + names[place + 1:], is_local=True, place=place)


def begin_calls(ctx: Context, network: Network, at_once: int | None = None) -> RemoteCalls:
    """Calls to remotes for a request, or a part of it, that begins now: the deadline counts from here.

    at_once: how many calls run at the same time; None for all.
    """
    from svcd.remote.remote_calls import RemoteCalls, timeout_s  # loaded with the first request over the network

    return RemoteCalls(network, ctx.services.client, time.monotonic() + timeout_s(os.environ), at_once)


def waiting(ctx: Context) -> AbstractContextManager[None]:
    """Wait for remotes in this block. Raises too_many_search_requests if too many requests of this process wait already."""
    return ctx.services.searches.one_of(_waiting)


# Requests to remotes

# Members of a query that the federation sets, and `useNetwork`: a remote must not call other instances in turn.
_NOT_PASSED_ON = (*PAGE_FIELDS, "facets", "useNetwork", "showPerformanceDetails")
# All instances use one strategy, whatever their settings: of a query that names none, this one.
_STRATEGY = "last"


class NetworkQuery(NamedTuple):
    """A query of a request. body: its members. remote: the instance that it names, or None."""

    body: Json
    indexed: IndexedQuery
    remote: str | None = None


def _sent_query(query: NetworkQuery, place: int, federation: Federation) -> dict[str, Any]:
    """The JSON of a query with all members, including absent ones. place: position of the query in the request."""
    body = query.body
    given = {name: body.get(name) for name in FIELDS if name != "personalize"}
    given["matchingStrategy"] = body.get("matchingStrategy", _STRATEGY)
    given.update(dict.fromkeys(_NOT_PASSED_ON))
    if federation.distinct is not None:
        given["distinct"] = None
    options = {"weight": query.indexed.weight, "remote": None, "queryPosition": place}
    condition = None
    if query.indexed.query.filter is not None:
        from svcd.filters.tree import canonical_text

        # It includes the filter of the tenant token, and no joins, which this instance has resolved.
        condition = canonical_text(query.indexed.query.filter)
    return {"indexUid": query.indexed.index_uid, **given, "filter": condition, "federationOptions": options}


def _sent_federation(federation: Federation, others: Mapping[str, Any]) -> dict[str, Any]:
    """The federation with a page from the first hit to the end of the wanted page. others: members to pass on unchanged."""
    if federation.is_paged:
        page, size = federation.page_and_size
        page_members = {"limit": federation.limit, "offset": federation.offset,
                        "page": min(page, 1), "hitsPerPage": max(page, 1) * size}
    else:
        page_members = {"limit": federation.offset + federation.limit, "offset": 0}
    distinct = {} if federation.distinct is None else {"distinct": federation.distinct}
    given = {name: value for name, value in others.items() if value is not None}
    return {**page_members, "facetsByIndex": federation.facets, **distinct, **given}


class NetworkSearch:
    """A search that other instances share. Its creation starts the calls.

    local: the queries for this instance. remotes: for svcd.search.federation.federated; None if no query uses the network, or
    names an instance, even this one.
    """

    def __init__(self, ctx: Context, queries: Sequence[NetworkQuery], federation: Federation, timer: Timer,
                 passed_on: Mapping[str, Any]) -> None:
        """timer: paused while this instance waits for remotes. passed_on: members of the federation that remotes get, too."""
        network = ctx.services.data_folder.network()
        self.local: list[IndexedQuery] = []
        to_send: dict[str, list[dict[str, Any]]] = {}  # name of a remote -> the JSON of its queries
        uses_network = False
        for place, query in enumerate(queries):
            names: Sequence[str] = ()
            is_local = True
            if query.remote is not None:
                is_local = query.remote == network.self_name
                names = () if is_local else (query.remote,)
                uses_network = True
            elif query.body.get("useNetwork"):
                instances = partition(network)
                names, is_local = instances.remotes, instances.is_local
                uses_network = uses_network or bool(names or is_local)
            if is_local:
                own = query.indexed
                if names and own.query.matching_strategy is None:
                    own = own._replace(query=own.query._replace(matching_strategy=_STRATEGY))
                self.local.append(own if own.position is not None else own._replace(position=place))
            for name in names:
                to_send.setdefault(name, []).append(_sent_query(query, place, federation))
        self.remotes = Remotes(network.self_name, self._wait) if uses_network else None
        self._ctx, self._timer = ctx, timer
        self._results: dict[str, RemoteResult] = {}
        self._errors: dict[str, ErrorObject] = {}
        self._waited_s = 0.0
        tracing.begin("start remote search")
        self._calls: Mapping[str, Pending[RemoteResult]] = {}  # name of a remote -> its call
        if to_send:
            calls, sent_federation = begin_calls(ctx, network), _sent_federation(federation, passed_on)
            headers = {**PROXY_SEARCH, **INCLUDE_METADATA} if wants_metadata(ctx) else PROXY_SEARCH
            self._calls = {name: calls.start(name, "POST", "/multi-search", {"queries": sent, "federation": sent_federation},
                                             partial(remote_result, name), headers) for name, sent in sorted(to_send.items())}
        tracing.end()

    def _wait(self) -> Sequence[RemoteResult]:
        """The results of the remotes that answered. Raises too_many_search_requests if too many searches wait already."""
        if not self._calls:
            return ()
        tracing.begin("wait for remote results")
        started = time.monotonic()
        with waiting(self._ctx), self._ctx.services.searches.paused(), self._timer.paused():
            for name, call in self._calls.items():
                try:
                    self._results[name] = call.result()
                except ApiError as error:
                    self._errors[name] = error.as_json()
        self._waited_s = time.monotonic() - started
        return list(self._results.values())

    def milliseconds(self, elapsed_s: float) -> int:
        """The longest processing time of the instances. elapsed_s: time since the search began, including waits for remotes."""
        own = int((elapsed_s - self._waited_s) * 1000)
        return max(own, *(result.milliseconds for result in self._results.values()), 0)

    def error_members(self) -> dict[str, Any]:
        """The member `remoteErrors`; {} for a search that does not use the network."""
        return {} if self.remotes is None else {"remoteErrors": self._errors}

    def primary_key(self, index_uid: str, remote: str | None, own: Mapping[str, str | None]) -> str | None:
        """The primary key in the metadata of a query. remote: the instance it names. own: primary keys of the indexes here."""
        if remote is None:
            return own.get(index_uid)
        result = self._results.get(remote)  # None for a query that names this instance: clients expect it
        return None if result is None else result.primary_keys.get(index_uid)

    def shown_name(self, remote: str | None) -> str | None:
        """The name of the instance in the metadata of a query. remote: the instance it names."""
        return remote if remote is not None or self.remotes is None else self.remotes.own_name


# Answers of remotes: hits with the values that order them, pins, totals and facets (docs/network.md#merging)

_FOR_MERGING = (SCORE_VALUES, EXTRA_DOCUMENT, PINNED_POSITION)
_PAGINATIONS = (("hitsPerPage", "page", "totalPages", "totalHits"), ("limit", "offset", "estimatedTotalHits"))


def remote_result(remote: str, answer: Any) -> RemoteResult:
    """Read the answer of a remote.

    Raises ValueError for anything but an answer to a federated search, and remote_bad_response for hits that cannot be merged.
    Leaves out a hit if only a member of it has a wrong type.
    """
    given_hits = answer.get("hits") if isinstance(answer, dict) else None
    if not isinstance(given_hits, list) or not all(isinstance(hit, dict) for hit in given_hits):
        raise ValueError("no hits")
    if not _is_count(answer.get("processingTimeMs")):
        raise ValueError("no processing time")
    total = next((answer[names[-1]] for names in _PAGINATIONS if all(_is_count(answer.get(name)) for name in names)), None)
    if total is None:
        raise ValueError("no total")
    facets = _facets(answer)
    query_vectors = {int(number): vector for number, vector in _object(answer.get("queryVectors") or {}).items()}
    if not all(isinstance(vector, list) and all(map(_is_number, vector)) for vector in query_vectors.values()):
        raise ValueError("not a vector")
    entries = answer.get("metadata")
    primary_keys = {
        entry["indexUid"]: entry["primaryKey"] for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("primaryKey"), str) and isinstance(entry.get("indexUid"), str)}
    hits = [hit for given in given_hits if (hit := _hit(remote, given)) is not None]
    return RemoteResult(hits=[hit for hit in hits if hit.pinned_position is None],
                        pinned_hits=[hit for hit in hits if hit.pinned_position is not None], total=total, facets=facets,
                        query_vectors=query_vectors, milliseconds=answer["processingTimeMs"],
                        primary_keys=primary_keys if hits else {})  # the reference engine ignores them, too


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _hit(remote: str, given: Json) -> RemoteHit | None:
    """A hit; None if a member has a wrong type. Raises remote_bad_response if a required member is missing."""
    if FEDERATION not in given:
        raise remote_calls.missing_in_hit(f".{FEDERATION}")
    federation = given[FEDERATION]
    if not isinstance(federation, dict):
        raise remote_calls.unexpected_in_hit(f".{FEDERATION}", "map", federation)
    for name in (SCORE_VALUES, WEIGHTED_SCORE):
        if name not in federation:
            raise remote_calls.missing_in_hit(f".{FEDERATION}.{name}")
    extra, pinned = federation.get(EXTRA_DOCUMENT) or {}, federation.get(PINNED_POSITION)
    score, number, index_uid = federation[WEIGHTED_SCORE], federation.get("queriesPosition"), federation.get("indexUid")
    try:
        compared, is_semantic = read_values(federation[SCORE_VALUES])
    except ValueError:
        return None
    is_placed = _is_count(number) and (pinned is None or _is_count(pinned)) and _is_number(score)
    if not is_placed or not isinstance(extra, dict) or not isinstance(index_uid, str):
        return None
    shown = {name: value for name, value in federation.items() if name not in _FOR_MERGING}
    document = {**given, FEDERATION: {**shown, "remote": remote}}
    return RemoteHit(MergeKey(compared, float(score)), number or 0, index_uid, document, extra, pinned, is_semantic)


def _facets(answer: Json) -> dict[str, Facets]:
    """Index uid -> facets. Raises ValueError."""
    facets = {}
    for index_uid, own in _object(answer.get("facetsByIndex") or {}).items():
        own = _object(own)
        distribution = {field: _object(counts) for field, counts in _object(own.get("distribution") or {}).items()}
        if not all(_is_count(count) for counts in distribution.values() for count in counts.values()):
            raise ValueError("a count that is not a number")
        stats = {field: (_object(ends).get("min"), ends.get("max")) for field, ends in _object(own.get("stats") or {}).items()}
        if not all(_is_number(end) for ends in stats.values() for end in ends):
            raise ValueError("a minimum or maximum that is not a number")
        facets[index_uid] = Facets(distribution, {field: {"min": float(least), "max": float(most)}  # type: ignore[arg-type]  # they are numbers
                                                  for field, (least, most) in stats.items()})
    return facets


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def add_network_answer(answer: AnswerBuilder, ctx: Context, asked: IndexedQuery, body: Json, request_uid: str, head: str) -> None:
    """Append the answer to one query that all instances of the network run: a federated search of this query alone.

    Other arguments: see svcd.api.search.add_answer(). Raises the errors of a search on this instance, but the index may be
    missing here if this instance does not take part.
    """
    started, index_uid, timer = time.monotonic(), asked.index_uid, ctx.timer()
    readers: dict[str, Reader] = {}
    with tracing.span("search"), ExitStack() as stack:

        def read(uid: str) -> Reader:
            if uid not in readers:
                readers[uid] = stack.enter_context(ctx.read(uid))
            return readers[uid]

        check_sort(body)
        federation = Federation(**page_of(body), distinct=body.get("distinct"), is_single=True,
                                facets={index_uid: body["facets"]} if body.get("facets") else {})
        personalize = body.get("personalize")
        passed_on = {"showPerformanceDetails": bool(body.get("showPerformanceDetails")), "personalize": personalize}
        if has_joins(asked.query.filter):
            asked = with_joins_resolved(ctx, asked, read(index_uid))
        network = NetworkSearch(ctx, [NetworkQuery(body, asked)], federation, timer, passed_on)
        ordering = personalize and personalized(ctx, personalize, [body.get("q")], timer, readers)
        embedding = SearchEmbedding(ctx.services.embedding, timer)
        found = federated(read, network.local, federation, timer, embedding, network.remotes, ordering)
        if timer.has_run_out:
            ctx.services.traffic.count_search(DEGRADED)
        parts = parts_of(hydrate_hits(ctx, list(found.hits), readers), found, index_uid)
        key = network.primary_key(index_uid, None, {uid: reader.primary_key for uid, reader in readers.items()})
        milliseconds = network.milliseconds(time.monotonic() - started)
    more = members_text(network.error_members()) + parts.last.decode()
    rest = text_after_hits(ctx, wants_metadata(ctx), body, parts._replace(last=b""), milliseconds, request_uid, index_uid, key,
                           network.shown_name(None), more)
    answer.add(f'{{{head}"hits":['.encode(), parts.hits, rest)
