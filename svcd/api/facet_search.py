"""Search among the values of one attribute over HTTP.

Knows the parameters, most of them those of a search; refuses to know how values are found and counted.
"""
from __future__ import annotations

import time

from svcd.api import search
from svcd.api.admission import Timer
from svcd.api.context import Context, HandlerResult
from svcd.api.joins import one_state
from svcd.api.routes import Fields, Route
from svcd.validation import Field, boolean, nullable, string

# Members that other searches have are let through: the same body may be sent to both routes.
_BODY = Fields({
    "facetQuery": Field(nullable(string), "invalid_facet_search_query",
                        about="What the values begin with, typos forgiven; absent lists all values."),
    "facetName": Field(string, "invalid_facet_search_facet_name", required=True,
                       missing_code="missing_facet_search_facet_name"),
    **{name: search.FIELDS[name] for name in (
        "q", "vector", "media", "hybrid", "filter", "matchingStrategy", "attributesToSearchOn", "rankingScoreThreshold",
        "locales")},
    "exhaustiveFacetCount": Field(nullable(boolean), "invalid_facet_search_exhaustive_facet_count",
                                  about="Apply `distinct` to all documents, not to the best twenty alone."),
    "useNetwork": search.FIELDS["useNetwork"],
}, is_open=True)


def search_facets(ctx: Context) -> HandlerResult:
    """Search values. Raises index_not_found, facet_search_disabled, invalid_facet_search_facet_name and what a search
    raises."""
    # As with searches: a fifth of the time to start that not every daemon needs.
    from svcd.search.facet_search import FacetQuery, facet_search

    started, body = time.monotonic(), ctx.body
    facet = FacetQuery(body["facetName"], body.get("facetQuery"), body.get("locales"))
    with ctx.searches.place(), one_state(ctx, [ctx.index_uid]), ctx.read(ctx.index_uid) as reader:
        search.check_available(body, ctx.instance.features)
        query = search.without_joins_of(ctx, search.query_of(ctx, ctx.index_uid, body), reader).query
        hits = facet_search(reader, facet, query, bool(body.get("exhaustiveFacetCount")), Timer())
    return HandlerResult(200, {
        "facetHits": [hit._asdict() for hit in hits],
        "facetQuery": facet.text,
        "processingTimeMs": search.milliseconds_since(started),
    })


ROUTES = (
    Route("POST", "/indexes/{index_uid}/facet-search", search_facets, "search", {200: "FacetSearchAnswer"},
          "Search the values of an attribute", "Facet Search", body=_BODY, joins_rules=True),
)
