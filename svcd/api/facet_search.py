"""The facet search route: finds the values of one attribute among the documents that a search would count.

Over the network it adds up the counts of all instances (docs/network.md#facet-search).
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from svcd.api.answers import milliseconds_since
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context
from svcd.api.filters import index_snapshot, with_bearer_filter
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.api.search_parameters import FIELDS, check_available, query_of, with_joins_resolved
from svcd.base.errors import ApiError
from svcd.schema.field_values import normal_form
from svcd.validation import Field, boolean, bounds, nullable, string, text_of

if TYPE_CHECKING:
    from svcd.search.search import FacetHit

_OF_SEARCHES = ("q", "vector", "media", "hybrid", "filter", "matchingStrategy", "attributesToSearchOn", "rankingScoreThreshold",
                "locales")
# Other members of a search are accepted and ignored, so that one body can be sent to both routes.
_BODY = Fields({
    "facetQuery": Field(nullable(text_of(bounds.TEXT)), "invalid_facet_search_query",
                        about="A prefix of the values, with typos allowed; absent lists all values."),
    "facetName": Field(string, "invalid_facet_search_facet_name", required=True, missing_code="missing_facet_search_facet_name"),
    **{name: FIELDS[name] for name in _OF_SEARCHES},
    "exhaustiveFacetCount": Field(nullable(boolean), "invalid_facet_search_exhaustive_facet_count",
                                  about="Apply `distinct` to all documents, not only to the best twenty."),
    "useNetwork": FIELDS["useNetwork"],
}, is_open=True, most_values=MAX_SEARCH_VALUES)


CALLS_AT_ONCE = 40
# Members that remotes get, with the values of absent members.
_SENT: Mapping[str, Any] = {**dict.fromkeys(("facetQuery", "facetName", *_OF_SEARCHES, "exhaustiveFacetCount")),
                            "matchingStrategy": "last"}


def search_facets(ctx: Context) -> HandlerResult:
    """Search values. Raises index_not_found, facet_search_disabled, invalid_facet_search_facet_name, and the errors of a
    search."""
    if ctx.body.get("useNetwork"):
        return _search_network(ctx)
    answer, hits, _ = _search_here(ctx)
    return HandlerResult(200, {"facetHits": [hit._asdict() for hit in hits], **answer})


def _search_here(ctx: Context) -> tuple[dict[str, Any], list[FacetHit], str]:
    """(other members of the answer, the values of this instance, how they are ordered: `alpha` or `count`)"""
    # Imported late, as in svcd.api.search.
    from svcd.search.search import FacetQuery, facet_search

    body, started = ctx.body, time.monotonic()
    facet = FacetQuery(body["facetName"], body.get("facetQuery"), body.get("locales"))
    with ctx.services.searches.slot(), index_snapshot(ctx, [ctx.index_uid]), ctx.read(ctx.index_uid) as reader:
        check_available(body, ctx.services.data_folder.features)
        query = with_joins_resolved(ctx, query_of(ctx, ctx.index_uid, body, has_pins=False).indexed, reader).query
        hits = facet_search(reader, facet, query, bool(body.get("exhaustiveFacetCount")), ctx.timer())
        order = reader.settings.faceting.order_of(facet.field)
    return {"facetQuery": body.get("facetQuery"), "processingTimeMs": milliseconds_since(started)}, hits, order


def _search_network(ctx: Context) -> HandlerResult:
    """Search the values of all instances of the network.

    This instance always takes part; its errors end the request, and only its search is timed.
    """
    from svcd.api.remote_search import begin_calls, partition, waiting  # imported late: most instances are in no network
    from svcd.search.search import FacetHit

    check_available(ctx.body, ctx.services.data_folder.features)
    network = ctx.services.data_folder.network()
    # Remotes must not call other instances in turn: they get no `useNetwork`.
    body = {**_SENT, **{name: value for name, value in ctx.body.items() if name in _SENT},
            "filter": with_bearer_filter(ctx.body.get("filter"), ctx.permission.search_filter(ctx.index_uid),
                                         "invalid_search_filter"),
            "useNetwork": None}
    calls = begin_calls(ctx, network, CALLS_AT_ONCE)
    pending = {name: calls.start(name, "POST", f"/indexes/{ctx.index_uid}/facet-search", body, _counted_values)
               for name in partition(network).remotes}
    answer, hits, order = _search_here(ctx)
    lists: list[Iterable[tuple[str, int]]] = [hits]
    errors = {}
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
    if order == "count":
        found.sort(key=lambda hit: -hit.count)
    return HandlerResult(200, {"facetHits": [hit._asdict() for hit in found], **answer, "remoteErrors": errors})


def _counted_values(answer: Any) -> list[tuple[str, int]]:
    """(value, count) of an answer. Raises one of MISFITS if it is not an answer to a facet search."""
    hits = [(hit["value"], hit["count"]) for hit in answer["facetHits"]]
    if not all(isinstance(value, str) and type(count) is int and count >= 0 for value, count in hits):
        raise ValueError("not a list of facet hits")
    return hits


ROUTES = (
    Route("POST", "/indexes/{index_uid}/facet-search", search_facets, "search", {200: "FacetSearchAnswer"},
          "Search the values of an attribute", "Facet Search", body=_BODY, joins_rules=True),
)
