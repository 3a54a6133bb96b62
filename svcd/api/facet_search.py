"""The facet search route: finds the values of one attribute among the documents that a search would count."""
from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from svcd.api.answer_members import milliseconds_since
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context
from svcd.api.filters import index_snapshot
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.api.search_parameters import FIELDS, check_available, query_of, with_joins_resolved
from svcd.validation import Field, boolean, bounds, nullable, string, text_of

if TYPE_CHECKING:
    from svcd.search.search import FacetHit

# Other members of a search are accepted and ignored, so that one body can be sent to both routes.
_BODY = Fields({
    "facetQuery": Field(nullable(text_of(bounds.TEXT)), "invalid_facet_search_query",
                        about="A prefix of the values, with typos allowed; absent lists all values."),
    "facetName": Field(string, "invalid_facet_search_facet_name", required=True,
                       missing_code="missing_facet_search_facet_name"),
    **{name: FIELDS[name] for name in (
        "q", "vector", "media", "hybrid", "filter", "matchingStrategy", "attributesToSearchOn", "rankingScoreThreshold",
        "locales")},
    "exhaustiveFacetCount": Field(nullable(boolean), "invalid_facet_search_exhaustive_facet_count",
                                  about="Apply `distinct` to all documents, not only to the best twenty."),
    "useNetwork": FIELDS["useNetwork"],
}, is_open=True, most_values=MAX_SEARCH_VALUES)


def search_facets(ctx: Context) -> HandlerResult:
    """Search values. Raises index_not_found, facet_search_disabled, invalid_facet_search_facet_name, and the errors of a
    search."""
    if ctx.body.get("useNetwork"):
        return _search_network(ctx)
    started = time.monotonic()
    hits, _ = _search_here(ctx)
    return HandlerResult(200, _answer(ctx, hits, started))


def _search_network(ctx: Context) -> HandlerResult:
    """Search the values of all instances of the network; only the search of this one is timed."""
    from svcd.api import network_facets  # imported late: most instances are in no network

    answer: dict[str, Any] = {}

    def search_timed() -> tuple[list[FacetHit], str]:
        nonlocal answer
        started = time.monotonic()
        hits, order = _search_here(ctx)
        answer = _answer(ctx, hits, started)
        return hits, order

    check_available(ctx.body, ctx.services.data_folder.features)
    hits, errors = network_facets.search(ctx, search_timed)
    return HandlerResult(200, {**answer, "facetHits": _shown(hits), "remoteErrors": errors})


def _search_here(ctx: Context) -> tuple[list[FacetHit], str]:
    """(the values of this instance, how they are ordered: `alpha` or `count`)"""
    # Imported late, as in svcd.api.search.
    from svcd.search.search import FacetQuery, facet_search

    body = ctx.body
    facet = FacetQuery(body["facetName"], body.get("facetQuery"), body.get("locales"))
    with ctx.services.searches.slot(), index_snapshot(ctx, [ctx.index_uid]), ctx.read(ctx.index_uid) as reader:
        check_available(body, ctx.services.data_folder.features)
        query = with_joins_resolved(ctx, query_of(ctx, ctx.index_uid, body, has_pins=False).indexed, reader).query
        hits = facet_search(reader, facet, query, bool(body.get("exhaustiveFacetCount")), ctx.timer())
        return hits, reader.settings.faceting.order_of(facet.field)


def _answer(ctx: Context, hits: Iterable[FacetHit], started: float) -> dict[str, Any]:
    return {"facetHits": _shown(hits), "facetQuery": ctx.body.get("facetQuery"), "processingTimeMs": milliseconds_since(started)}


def _shown(hits: Iterable[FacetHit]) -> list[dict[str, Any]]:
    return [hit._asdict() for hit in hits]


ROUTES = (
    Route("POST", "/indexes/{index_uid}/facet-search", search_facets, "search", {200: "FacetSearchAnswer"},
          "Search the values of an attribute", "Facet Search", body=_BODY, joins_rules=True),
)
