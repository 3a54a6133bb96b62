"""The route that explains one document in a search: why it is at its place, or why it is not a hit (docs/guide/explain.md)."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from svcd.api.answers import milliseconds_since
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context
from svcd.api.filters import allowed_filter, index_snapshot, resolve_joins, visible_docids, with_bearer_filter
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.api.search_parameters import (
    FIELDS, check_available, check_sort, document_id, page_of, query_of, with_joins_resolved,
)
from svcd.api.search_services import SearchEmbedding
from svcd.base.errors import ApiError
from svcd.search.request import Federation, no_embedding
from svcd.validation import Field, anything, parsed

if TYPE_CHECKING:
    from svcd.filters.tree import Condition

_CODE = "invalid_search_filter"


def _clock(milliseconds: int) -> Callable[[], bool]:
    end = time.monotonic() + milliseconds / 1000
    return lambda: time.monotonic() >= end


def explain_document(ctx: Context) -> HandlerResult:
    """Explain a document. Raises index_not_found, document_not_found, and the errors of a search."""
    started, services = time.monotonic(), ctx.services
    tenant_filter = ctx.body.get("tenantFilter")
    body = {**ctx.body, "filter": with_bearer_filter(ctx.body.get("filter"), tenant_filter, _CODE)}
    asked = query_of(ctx, ctx.index_uid, body)
    check_available(body, services.data_folder.features)
    with services.searches.slot(), index_snapshot(ctx, [ctx.index_uid]), ctx.read(ctx.index_uid) as reader:
        from svcd.search.explain import Question, clauses_of, explain  # imported late, as in svcd.api.search

        check_sort(body)
        timer = ctx.timer()
        embedding = SearchEmbedding(services.embedding, timer) if body.get("hybrid") else no_embedding

        def resolved(condition: Condition) -> Condition:
            found = resolve_joins(ctx, condition, ctx.index_uid, reader)
            return condition if found is None else found

        visible = visible_docids(ctx, ctx.index_uid, reader, _CODE, is_rewritten=True)
        docid = reader.identified_docids([body["documentId"]]).get(body["documentId"])
        if docid is None or visible is not None and docid not in visible:
            raise ApiError("document_not_found", f"Document `{body['documentId']}` not found.")
        clauses = [clause for kind, value in (("filter", ctx.body.get("filter")), ("tenantFilter", tenant_filter))
                   for clause in clauses_of(allowed_filter(value, _CODE, services.data_folder.features), kind, resolved)]
        question = Question(with_joins_resolved(ctx, asked.indexed, reader), Federation(**page_of(body)), docid, clauses, visible,
                            timer, _clock, embedding)
        members = explain(reader, question)
    return HandlerResult(200, {"indexUid": ctx.index_uid, "documentId": body["documentId"], "query": body.get("q") or "",
                               **members, "processingTimeMs": milliseconds_since(started)})


_BODY = Fields({
    "documentId": Field(parsed(anything, document_id), "invalid_document_id", required=True, about="The document to explain."),
    "tenantFilter": Field(anything, _CODE, about="A further filter, as a tenant token would add it: the answer tells it apart."),
    **FIELDS,
}, most_values=MAX_SEARCH_VALUES)

ROUTES = (
    Route("POST", "/indexes/{index_uid}/explain", explain_document, "search", {200: "Explanation"},
          "Explain a document in a search", "Search", body=_BODY, joins_rules=True),
)
