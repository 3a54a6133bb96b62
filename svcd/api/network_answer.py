"""The answer to one query that all instances of the network run: a federated search of this query alone."""
from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from svcd.api.answer_members import (
    PERFORMANCE_DETAILS, facet_members, metadata, performance_details, semantic_members, shown_vector, wants_metadata,
)
from svcd.api.filters import has_joins, hydrate_hits
from svcd.api.remote_search import NetworkQuery, NetworkSearch
from svcd.api.search_parameters import check_sort, page_of, personalized, with_joins_resolved
from svcd.api.traffic import DEGRADED
from svcd.base import tracing
from svcd.base.json_text import dumps
from svcd.search.federation import federated
from svcd.search.request import Federation, IndexedQuery

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.index.reader import IndexReader as Reader


def network_answer(ctx: Context, asked: IndexedQuery, body: Mapping[str, Any], request_uid: str) -> str:
    """The JSON text of the answer. body: the parameters that the query was made from.

    Raises the errors of a search on this instance, but the index may be missing here if this instance does not take part.
    """
    members = _members(ctx, asked, body, request_uid)
    if (details := performance_details()) is not None:
        members[PERFORMANCE_DETAILS] = details
    hits = ",".join(members.pop("hits"))
    return f'{{"hits":[{hits}],{dumps(members)[1:]}'


@tracing.span("search")
def _members(ctx: Context, asked: IndexedQuery, body: Mapping[str, Any], request_uid: str) -> dict[str, Any]:
    """The members of the answer; `hits` are JSON texts."""
    started, index_uid, timer = time.monotonic(), asked.index_uid, ctx.timer()
    check_sort(body)
    federation = Federation(**page_of(body), distinct=body.get("distinct"), is_single=True,
                            facets={index_uid: body["facets"]} if body.get("facets") else {})
    passed_on = {"showPerformanceDetails": bool(body.get("showPerformanceDetails")), "personalize": body.get("personalize")}
    readers: dict[str, Reader] = {}
    with ExitStack() as stack:

        def read(uid: str) -> Reader:
            if uid not in readers:
                readers[uid] = stack.enter_context(ctx.read(uid))
            return readers[uid]

        if has_joins(asked.query.filter):
            asked = with_joins_resolved(ctx, asked, read(index_uid))
        network = NetworkSearch(ctx, [NetworkQuery(body, asked)], federation, timer, passed_on)
        personalize = body.get("personalize")
        ordering = personalize and personalized(ctx, personalize, [body.get("q")], timer, readers)
        embedding = ctx.services.embedding.for_search(timer)
        found = federated(read, network.local, federation, timer, embedding, network.remotes, ordering)
        if timer.has_run_out:
            ctx.services.traffic.count_search(DEGRADED)
        hits = hydrate_hits(ctx, list(found.hits), readers)
        primary_keys = {uid: reader.primary_key for uid, reader in readers.items()}
    members: dict[str, Any] = {"hits": hits, "query": body.get("q") or ""}
    if 0 in found.query_vectors:
        members["queryVector"] = shown_vector(found.query_vectors[0])
    members["processingTimeMs"] = network.milliseconds(time.monotonic() - started)
    members |= {**found.pagination, **facet_members(found.facets.get(index_uid)), "requestUid": request_uid}
    if wants_metadata(ctx):
        key, name = network.primary_key(index_uid, None, primary_keys), network.shown_name(None)
        members["metadata"] = metadata(body.get("q"), index_uid, key, name)
    return {**members, **network.error_members(), **semantic_members(found)}
