"""Routes of similar documents: documents with vectors near the vectors of one document.

The order of the checks is part of the interface: the filter as a text, the embedder, the document, then the filter on the index.
"""
from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from svcd.api.answer_members import PERFORMANCE_DETAILS, measured, milliseconds_since, performance_details, timed_slot
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context
from svcd.api.filters import (
    allowed_filter, filter_of_query_string, index_snapshot, read_joined, resolve_joins, with_bearer_filter,
)
from svcd.api.routes import Fields, HandlerResult, Route, Text
from svcd.api.search import AnswerBuilder
from svcd.api.search_parameters import unit_interval, unit_parser
from svcd.base import tracing
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.schema.documents import checked_identifier
from svcd.search.request import SearchQuery
from svcd.validation import (
    Field, Param, anything, array_of, boolean, bounds, nullable, number, parsed, positive_integer, query_strings, string,
)

if TYPE_CHECKING:
    from svcd.base.docids import DocIds
    from svcd.index.reader import IndexReader as Reader

_TAG = "Similar documents"
_PATH = "/indexes/{index_uid}/similar"
_FILTER_CODE = "invalid_similar_filter"


def _similar(ctx: Context, wanted: Mapping[str, Any]) -> HandlerResult:
    """Raises index_not_found, invalid_similar_filter, invalid_similar_embedder, not_found_similar_id."""
    from svcd.search.hits import LongPage  # see svcd.api.filters

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
            rest = {"id": wanted["id"], "processingTimeMs": milliseconds_since(started), "limit": wanted["limit"],
                    "offset": wanted["offset"], "estimatedTotalHits": total}
            if (details := performance_details()) is not None:
                rest[PERFORMANCE_DETAILS] = details
            answer.add(f"],{dumps(rest)[1:]}".encode())
        return HandlerResult(200, Text(answer.body(ctx)))


def _run(ctx: Context, wanted: Mapping[str, Any], reader: Reader) -> tuple[Any, int]:
    """(JSON texts of the hits, the number of documents that count)."""
    from svcd.search.search import SimilarQuery, render_similar, similar_documents
    from svcd.search.semantic import embedder_settings

    embedder, limit, offset = wanted["embedder"], wanted["limit"], wanted["offset"]
    given = allowed_filter(wanted.get("filter"), _FILTER_CODE, ctx.services.data_folder.features)
    embedder_settings(reader, embedder, "invalid_similar_embedder")
    # A document that the tenant token hides is not found, and not similar to another document.
    rule = with_bearer_filter(None, ctx.permission.search_filter(ctx.index_uid), _FILTER_CODE)
    allowed = _filtered(ctx, reader, allowed_filter(rule, _FILTER_CODE, ctx.services.data_folder.features))
    docid = reader.docid_of(wanted["id"])
    if docid is None or docid not in allowed:
        raise ApiError("not_found_similar_id", f"Document `{wanted['id']}` not found.")
    candidates = allowed & _filtered(ctx, reader, given)
    query = SimilarQuery(docid, embedder, offset, limit, wanted.get("rankingScoreThreshold"))
    ranking = similar_documents(reader, query, candidates)
    shown = SearchQuery(
        attributes_to_retrieve=wanted.get("attributesToRetrieve"), retrieve_vectors=bool(wanted.get("retrieveVectors")),
        show_ranking_score=bool(wanted.get("showRankingScore")),
        show_ranking_score_details=bool(wanted.get("showRankingScoreDetails")),
    )
    return render_similar(reader, shown, ranking), min(len(ranking.counted), reader.settings.max_total_hits)


def _filtered(ctx: Context, reader: Reader, condition: Any) -> DocIds:
    from svcd.filters.evaluation import filter_docids

    resolved = resolve_joins(condition, ctx.index_uid, reader, lambda other: read_joined(ctx, other))
    return filter_docids(reader, resolved, _FILTER_CODE)


def similar_post(ctx: Context) -> HandlerResult:
    """Find similar documents with the parameters of the body."""
    return _similar(ctx, ctx.body)


def similar_get(ctx: Context) -> HandlerResult:
    """Find similar documents with the parameters of the query string."""
    return _similar(ctx, {**ctx.query, "filter": filter_of_query_string(ctx.query["filter"], _FILTER_CODE)})


# Parameters


def _document_id(value: Any) -> str:
    try:
        return checked_identifier(value)
    except ApiError as error:
        raise ValueError(error.message) from None


_FLAGS = {
    "retrieveVectors": "invalid_similar_retrieve_vectors",
    "showRankingScore": "invalid_similar_show_ranking_score",
    "showRankingScoreDetails": "invalid_similar_show_ranking_score_details",
    "showPerformanceDetails": "invalid_similar_show_performance_details",
}
_SCORE_CODE = "invalid_similar_ranking_score_threshold"


def _flag_params(*names: str) -> dict[str, Param]:
    return {name: Param(query_strings.boolean, _FLAGS[name], default=False) for name in names}


_SHOW = ("showRankingScore", "showRankingScoreDetails", "showPerformanceDetails")
_BODY = Fields({  # in the order in which messages list them
    "id": Field(parsed(anything, _document_id), "invalid_similar_id", required=True, about="The document to compare with."),
    "offset": Field(positive_integer, "invalid_similar_offset", default=0),
    "limit": Field(positive_integer, "invalid_similar_limit", default=20),
    "filter": Field(anything, _FILTER_CODE),
    "embedder": Field(string, "invalid_similar_embedder", required=True, about="Whose vectors are compared."),
    "attributesToRetrieve": Field(nullable(array_of(string, bound=bounds.NAMES)), "invalid_similar_attributes_to_retrieve"),
    **{name: Field(boolean, code, default=False) for name, code in _FLAGS.items()},
    "rankingScoreThreshold": Field(nullable(parsed(number, unit_interval("rankingScoreThreshold"))), _SCORE_CODE),
}, most_values=MAX_SEARCH_VALUES)
_PARAMS = {  # in the order in which messages list them
    "id": Param(_document_id, "invalid_similar_id", required=True),
    "embedder": Param(query_strings.text, "invalid_similar_embedder", required=True),
    "offset": Param(query_strings.positive_integer, "invalid_similar_offset", default=0),
    "limit": Param(query_strings.positive_integer, "invalid_similar_limit", default=20),
    "attributesToRetrieve": Param.list_of(query_strings.text, "invalid_similar_attributes_to_retrieve", bound=bounds.NAMES),
    **_flag_params("retrieveVectors"),
    "filter": Param(query_strings.text, _FILTER_CODE),
    **_flag_params(*_SHOW),
    "rankingScoreThreshold": Param(unit_parser("rankingScoreThreshold"), _SCORE_CODE, schema={"type": "number"}),
}

ROUTES = (
    Route("GET", _PATH, similar_get, "search", {200: "SimilarAnswer"}, "Get similar documents with a query string", _TAG,
          query=_PARAMS, joins_rules=True),
    Route("POST", _PATH, similar_post, "search", {200: "SimilarAnswer"}, "Get similar documents with a body", _TAG,
          body=_BODY, joins_rules=True),
)
