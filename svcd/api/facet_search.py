"""The facet search route: finds the values of one attribute among the documents that a search would count."""
from __future__ import annotations

import time

from svcd.api.admission import Timer
from svcd.api.filters import index_snapshot
from svcd.api.routes import Context, Fields, HandlerResult, Route
from svcd.api.search import FIELDS, check_available, milliseconds_since, query_of, with_joins_resolved
from svcd.validation import Field, boolean, nullable, string

# Other members of a search are accepted and ignored, so that one body can be sent to both routes.
_BODY = Fields({
    "facetQuery": Field(nullable(string), "invalid_facet_search_query",
                        about="What the values begin with, typos forgiven; absent lists all values."),
    "facetName": Field(string, "invalid_facet_search_facet_name", required=True,
                       missing_code="missing_facet_search_facet_name"),
    **{name: FIELDS[name] for name in (
        "q", "vector", "media", "hybrid", "filter", "matchingStrategy", "attributesToSearchOn", "rankingScoreThreshold",
        "locales")},
    "exhaustiveFacetCount": Field(nullable(boolean), "invalid_facet_search_exhaustive_facet_count",
                                  about="Apply `distinct` to all documents, not to the best twenty alone."),
    "useNetwork": FIELDS["useNetwork"],
}, is_open=True)


def search_facets(ctx: Context) -> HandlerResult:
    """Search values. Raises index_not_found, facet_search_disabled, invalid_facet_search_facet_name and what a search
    raises."""
    # Imported late, as in svcd.api.search.
    from svcd.search.search import FacetQuery, facet_search

    started, body = time.monotonic(), ctx.body
    facet = FacetQuery(body["facetName"], body.get("facetQuery"), body.get("locales"))
    with ctx.searches.slot(), index_snapshot(ctx, [ctx.index_uid]), ctx.read(ctx.index_uid) as reader:
        check_available(body, ctx.instance.features)
        query = with_joins_resolved(ctx, query_of(ctx, ctx.index_uid, body, has_pins=False).indexed, reader).query
        hits = facet_search(reader, facet, query, bool(body.get("exhaustiveFacetCount")), Timer())
    return HandlerResult(200, {
        "facetHits": [hit._asdict() for hit in hits],
        "facetQuery": facet.text,
        "processingTimeMs": milliseconds_since(started),
    })


ROUTES = (
    Route("POST", "/indexes/{index_uid}/facet-search", search_facets, "search", {200: "FacetSearchAnswer"},
          "Search the values of an attribute", "Facet Search", body=_BODY, joins_rules=True),
)
