"""Searches over the network: choose the instances for each query, call them, and collect their results (docs/network.md).

The calls begin before this instance searches. It waits for them afterwards, without a slot of the search queue: otherwise two
instances that call each other could block each other until the deadline.
"""
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.admission import Timer
from svcd.api.answer_members import wants_metadata
from svcd.api.remote_answers import remote_result
from svcd.api.search_parameters import FIELDS
from svcd.api.use_network import begin_calls, partition, waiting
from svcd.base import tracing
from svcd.base.errors import ApiError, ErrorObject
from svcd.remote.remote_calls import INCLUDE_METADATA, PROXY_SEARCH
from svcd.search.remote_hits import RemoteResult, Remotes
from svcd.search.request import Federation, IndexedQuery

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.instance.network import Network
    from svcd.remote.remote_calls import Pending

# Members of a query that the federation sets, and `useNetwork`: a remote must not call other instances in turn.
_NOT_PASSED_ON = ("offset", "limit", "page", "hitsPerPage", "facets", "useNetwork", "showPerformanceDetails")


class NetworkQuery(NamedTuple):
    """A query of a request. body: its members. remote: the instance that it names, or None."""

    body: Mapping[str, Any]
    indexed: IndexedQuery
    remote: str | None = None

    @property
    def uses_network(self) -> bool:
        """Return whether the query uses the network, or names an instance, even this one."""
        return self.remote is not None or bool(self.body.get("useNetwork"))


class _Plan(NamedTuple):
    """Which instance runs which queries. local: the queries for this instance. sent: name of a remote -> the JSON of its queries.

    is_remote: whether any query uses the network, even if only this instance answers it.
    """

    local: list[IndexedQuery]
    sent: dict[str, list[dict[str, Any]]]
    is_remote: bool


def _planned(network: Network, queries: Sequence[NetworkQuery], federation: Federation) -> _Plan:
    local: list[IndexedQuery] = []
    sent: dict[str, list[dict[str, Any]]] = {}
    is_remote = False
    for place, query in enumerate(queries):
        own = query.indexed if query.indexed.position is not None else replace(query.indexed, position=place)
        names: Sequence[str] = ()
        is_local = True
        if query.remote is not None:
            is_local = query.remote == network.self_name
            names = () if is_local else (query.remote,)
        elif query.body.get("useNetwork"):
            instances = partition(network)
            names, is_local = instances.remotes, instances.is_local
        is_remote = is_remote or (query.uses_network and bool(names or is_local))
        if is_local:
            local.append(own)
        for name in names:
            sent.setdefault(name, []).append(_sent_query(query, place, federation))
    return _Plan(local, dict(sorted(sent.items())), is_remote)


# Requests to remotes


def _sent_query(query: NetworkQuery, place: int, federation: Federation) -> dict[str, Any]:
    """The JSON of a query with all members, including absent ones. place: position of the query in the request."""
    body = query.body
    given = {name: body.get(name) for name in FIELDS if name != "personalize"}
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

    local: the queries for this instance. remotes: for svcd.search.federation.federated; None if no query uses the network.
    """

    def __init__(self, ctx: Context, queries: Sequence[NetworkQuery], federation: Federation, timer: Timer,
                 passed_on: Mapping[str, Any]) -> None:
        """timer: paused while this instance waits for remotes. passed_on: members of the federation that remotes get, too."""
        network = ctx.services.data_folder.network()
        plan = _planned(network, queries, federation)
        self.local = plan.local
        self.remotes = Remotes(network.self_name, self._wait) if plan.is_remote else None
        self._ctx, self._timer = ctx, timer
        self._results: dict[str, RemoteResult] = {}
        self._errors: dict[str, ErrorObject] = {}
        self._waited_s = 0.0
        tracing.begin("start remote search")
        self._calls: Mapping[str, Pending[RemoteResult]] = {}  # name of a remote -> its call
        if plan.sent:
            calls, sent_federation = begin_calls(ctx, network), _sent_federation(federation, passed_on)
            headers = {**PROXY_SEARCH, **INCLUDE_METADATA} if wants_metadata(ctx) else PROXY_SEARCH
            self._calls = {name: calls.start(name, "POST", "/multi-search", {"queries": sent, "federation": sent_federation},
                                             partial(remote_result, name), headers) for name, sent in plan.sent.items()}
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
