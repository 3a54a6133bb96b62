"""Routes of similar documents: documents with vectors near the vectors of one document.

The order of the checks is part of the interface: the filter as a text, the embedder, the document, then the filter on the index.
"""
from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from svcd.api.answers import AnswerBuilder, measured, milliseconds_since, timed_slot
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context
from svcd.api.filters import allowed_filter, filter_of_query_string, index_snapshot, resolve_joins, visible_docids
from svcd.api.routes import Fields, HandlerResult, Route, Text
from svcd.api.search_parameters import PARAMETERS, Parameter, document_id, fields_of, params_of
from svcd.base import tracing
from svcd.base.errors import ApiError
from svcd.search.request import SearchQuery
from svcd.validation import Param, anything, parsed, query_strings, string

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader as Reader

_TAG = "Similar documents"
_PATH = "/indexes/{index_uid}/similar"
_FILTER_CODE = "invalid_similar_filter"


def _similar(ctx: Context) -> HandlerResult:
    """Find similar documents with the parameters of the body or of the query string.

    Raises index_not_found, invalid_similar_filter, invalid_similar_embedder, not_found_similar_id.
    """
    from svcd.search.hits import LongPage  # see svcd.api.filters

    wanted = {**ctx.query, "filter": filter_of_query_string(ctx.query["filter"], _FILTER_CODE)} if ctx.body is None else ctx.body
    with ExitStack() as held:
        answer = AnswerBuilder(held)
        with measured(wanted.get("showPerformanceDetails")), timed_slot(ctx.services.searches):
            held.enter_context(index_snapshot(ctx, [ctx.index_uid]))
            started = time.monotonic()
            with tracing.span("search"), answer.reading(ctx, ctx.index_uid) as (reader, keep):
                hits, total = _run(ctx, wanted, reader)
                if isinstance(hits, LongPage):
                    keep()
            answer.add(b'{"hits":[')
            if isinstance(hits, LongPage):
                answer.add_hits(ctx, hits, {})
            else:
                answer.add(",".join(hits).encode())
            answer.end({"id": wanted["id"], "processingTimeMs": milliseconds_since(started), "limit": wanted["limit"],
                        "offset": wanted["offset"], "estimatedTotalHits": total})
        return HandlerResult(200, Text(answer.body(ctx)))


def _run(ctx: Context, wanted: dict[str, Any], reader: Reader) -> tuple[Any, int]:
    """(JSON texts of the hits, the number of documents that count)."""
    from svcd.filters.evaluation import filter_docids
    from svcd.search.search import SimilarQuery, render_similar, similar_documents
    from svcd.search.semantic import embedder_settings

    given = allowed_filter(wanted.get("filter"), _FILTER_CODE, ctx.services.data_folder.features)
    embedder_settings(reader, wanted["embedder"], "invalid_similar_embedder")
    # A document that the tenant token hides is not found, and not similar to another document.
    visible = visible_docids(ctx, ctx.index_uid, reader, _FILTER_CODE)
    docid = reader.docid_of(wanted["id"])
    if docid is None or visible is not None and docid not in visible:
        raise ApiError("not_found_similar_id", f"Document `{wanted['id']}` not found.")
    candidates = filter_docids(reader, resolve_joins(ctx, given, ctx.index_uid, reader), _FILTER_CODE)
    if visible is not None:
        candidates = visible & candidates
    query = SimilarQuery(docid, wanted["embedder"], wanted["offset"], wanted["limit"], wanted.get("rankingScoreThreshold"))
    ranking = similar_documents(reader, query, candidates)
    shown = SearchQuery(
        attributes_to_retrieve=wanted.get("attributesToRetrieve"), retrieve_vectors=bool(wanted.get("retrieveVectors")),
        show_ranking_score=bool(wanted.get("showRankingScore")),
        show_ranking_score_details=bool(wanted.get("showRankingScoreDetails")))
    return render_similar(reader, shown, ranking), min(len(ranking.counted), reader.settings.max_total_hits)


_PARAMETERS = {  # the parameters of a search, and two of its own
    **PARAMETERS,
    "id": Parameter(parsed(anything, document_id), Param(document_id), required=True, about="The document to compare with."),
    "embedder": Parameter(string, Param(query_strings.text), required=True, about="Whose vectors are compared."),
}
# In the order in which messages list them.
_IN_BODY = ("id", "offset", "limit", "filter", "embedder", "attributesToRetrieve", "retrieveVectors", "showRankingScore",
            "showRankingScoreDetails", "showPerformanceDetails", "rankingScoreThreshold")
_IN_QUERY = ("id", "embedder", "offset", "limit", "attributesToRetrieve", "retrieveVectors", "filter", "showRankingScore",
             "showRankingScoreDetails", "showPerformanceDetails", "rankingScoreThreshold")
_BODY = Fields(fields_of("invalid_similar_", {name: _PARAMETERS[name] for name in _IN_BODY}), most_values=MAX_SEARCH_VALUES)
_PARAMS = params_of("invalid_similar_", {name: _PARAMETERS[name] for name in _IN_QUERY})

ROUTES = (
    Route("GET", _PATH, _similar, "search", {200: "SimilarAnswer"}, "Get similar documents with a query string", _TAG,
          query=_PARAMS, joins_rules=True),
    Route("POST", _PATH, _similar, "search", {200: "SimilarAnswer"}, "Get similar documents with a body", _TAG, body=_BODY,
          joins_rules=True),
)
