"""Facet searches over the network: the values of all instances, with their counts added up (docs/network.md#facet-search)."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from svcd.api.filters import with_bearer_filter
from svcd.api.use_network import begin_calls, partition, waiting
from svcd.base.errors import ApiError, ErrorObject
from svcd.schema.field_values import normal_form
from svcd.search.search import FacetHit

if TYPE_CHECKING:
    from svcd.api.context import Context

CALLS_AT_ONCE = 40
# Members that remotes get, with the values of absent members.
_SENT: Mapping[str, Any] = {
    **dict.fromkeys(("facetQuery", "facetName", "q", "vector", "media", "hybrid", "filter")), "matchingStrategy": "last",
    **dict.fromkeys(("attributesToSearchOn", "rankingScoreThreshold", "locales", "exhaustiveFacetCount")),
}

Hits = list[FacetHit]


def search(ctx: Context, local: Callable[[], tuple[Hits, str]]) -> tuple[Hits, dict[str, ErrorObject]]:
    """(the values of all instances, name of a failed remote -> its error).

    local: searches this instance, which always takes part; returns its hits and their order, `alpha` or `count`.
    Its errors end the request.
    """
    network = ctx.services.data_folder.network()
    # Remotes must not call other instances in turn: they get no `useNetwork`.
    body = {**_SENT, **{name: value for name, value in ctx.body.items() if name in _SENT},
            "filter": with_bearer_filter(ctx.body.get("filter"), ctx.permission.search_filter(ctx.index_uid),
                                         "invalid_search_filter"),
            "useNetwork": None}
    calls = begin_calls(ctx, network, CALLS_AT_ONCE)
    pending = {name: calls.start(name, "POST", f"/indexes/{ctx.index_uid}/facet-search", body, _read)
               for name in partition(network).remotes}
    hits, order = local()
    lists, errors = [hits], {}
    with waiting(ctx):
        for name, call in pending.items():
            try:
                lists.append(call.result())
            except ApiError as error:
                errors[name] = error.as_json()
    counts: dict[str, int] = {}  # all values are kept: each instance has cut its own list
    for value, count in (hit for hits in lists for hit in hits):
        counts[value] = counts.get(value, 0) + count
    found = sorted((FacetHit(*each) for each in counts.items()), key=lambda hit: (normal_form(hit.value), hit.value))
    return sorted(found, key=lambda hit: -hit.count) if order == "count" else found, errors


def _read(answer: Any) -> Hits:
    """The values of an answer. Raises one of MISFITS if it is not an answer to a facet search."""
    hits = [FacetHit(hit["value"], hit["count"]) for hit in answer["facetHits"]]
    if not all(isinstance(hit.value, str) and type(hit.count) is int and hit.count >= 0 for hit in hits):
        raise ValueError("not a list of facet hits")
    return hits
