"""Searches of a chat: which indexes the model may search, and the searches themselves, with the rights of the request.

A request needs the action `chatCompletions` to begin a turn, and `search` for each search in it. The filter of a tenant token
applies in addition to the filter of the model. Search rules, other instances, personalization and joined documents are not
used (docs/chats.md#rights-of-the-model).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.context import Context
from svcd.api.filters import index_snapshot
from svcd.api.search_parameters import check_sort, query_of, with_joins_resolved
from svcd.api.traffic import DEGRADED
from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.chat.sources import SourceError
from svcd.chat.tools import Call, SearchableIndex
from svcd.chat.turn import Found
from svcd.facets.distribution import frequent_values, selected_fields
from svcd.filters.evaluation import filter_docids
from svcd.instance.data_folder import is_hidden
from svcd.schema.attributes import WILDCARD
from svcd.search.keyword import filtered_docids
from svcd.search.request import Federation, SearchResult
from svcd.search.search import search
from svcd.templates import Template, TemplateError, document_variables
from svcd.validation import Field, FieldError, nullable, object_of, string

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader as Reader

# Values of a field that the model is told.
MOST_VALUES = 10
_FAILED = "the search tool call failed with {}"
_ARGUMENTS = object_of({
    "index_uid": Field(string, required=True), "q": Field(nullable(string)), "filter": Field(nullable(string)),
}, is_open=True)


class _Rejected(Exception):
    """An error that the model can correct: the model gets the message, and the client gets no error."""


class _Hits(NamedTuple):
    """shown: JSON texts of the hits for the client. texts: one text for each hit, for the model."""

    shown: Sequence[str]
    texts: Sequence[str]


class ChatSearches:
    """The searches of one turn. ctx: of the request that began it."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    # Before the turn

    def indexes(self) -> list[SearchableIndex]:
        """The indexes that the bearer may search, in the order of their uids."""
        rows, _ = self._ctx.instance.list_indexes(is_allowed=self._ctx.permission.allows)
        found = []
        for row in rows:
            try:
                with self._ctx.instance.read(row.uid) as reader:
                    found.append(SearchableIndex(row.uid, reader.settings.resolved["chat"]["description"],
                                                 self._frequent_values(row.uid, reader)))
            except ApiError as error:
                if error.code != "index_not_found":  # a task may have deleted it meanwhile
                    raise
        return found

    def _frequent_values(self, index_uid: str, reader: Reader) -> Mapping[str, Sequence[str]]:
        names = selected_fields(reader.settings, reader.fields(), [WILDCARD])
        try:
            asked = with_joins_resolved(self._ctx, query_of(self._ctx, index_uid, {}, has_pins=False).indexed, reader)
            counted = filtered_docids(reader, asked.query)
        except ApiError:  # the filter of the token cannot be evaluated; a search will report it
            return dict.fromkeys(names, ())
        return frequent_values(reader, names, counted, MOST_VALUES)

    # During the turn

    def __call__(self, call: Call) -> Found:
        """Run a call of the search tool."""
        try:
            asked = _ARGUMENTS.decode(loads(call.arguments), "")
        except FieldError as fault:
            return Found(fault.message)
        except ValueError as fault:
            return Found(str(fault))
        logs.debug("a chat searches", index_uid=asked["index_uid"], q=asked.get("q"), filter=asked.get("filter"))
        try:
            hits = self._run(asked["index_uid"], asked.get("q") or "", asked.get("filter") or None)
        except _Rejected as reason:
            return Found(str(reason), [])
        except ApiError as error:
            failure = _FAILED.format(error.message)
            return Found(failure, error=SourceError("response_error", str(error.status), error.message))
        self._ctx.services.chats.count_search()
        return Found("\n".join(hits.texts), hits.shown)

    def _run(self, index_uid: str, q: str, condition: str | None) -> _Hits:
        """Run one search. Raises _Rejected, and the errors of a search route."""
        if is_hidden(index_uid):
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        self._ctx.instance.require_index(index_uid)
        permission = self._ctx.services.keys.check("search", index_uid, self._ctx.request.headers.get("authorization"))
        ctx = replace(self._ctx, permission=permission, snapshot=None)
        with ctx.services.searches.slot(), index_snapshot(ctx, [index_uid]), ctx.read(index_uid) as reader:
            chat = reader.settings.resolved["chat"]
            parameters: Mapping[str, Any] = chat["searchParameters"]
            if not q.strip():  # without words there is no meaning to search for
                parameters = {name: value for name, value in parameters.items() if name != "hybrid"}
            if parameters.get("hybrid") is not None:
                from svcd.search.semantic import embedder_settings

                embedder_settings(reader, parameters["hybrid"]["embedder"], "invalid_search_embedder")
            result = self._searched(ctx, index_uid, {**parameters, "q": q, "filter": condition}, reader)
            return _Hits(list(result.hits), _rendered(reader, result, chat["documentTemplate"]))

    def _searched(self, ctx: Context, index_uid: str, body: Mapping[str, Any], reader: Reader) -> SearchResult:
        try:
            asked = query_of(ctx, index_uid, body, has_pins=False).indexed
        except ApiError as error:
            raise error.inside(f"Index `{index_uid}`") from None
        check_sort(body)
        timer = ctx.timer()
        federation = Federation(limit=body.get("limit", Federation.limit))
        asked = with_joins_resolved(ctx, asked, reader)
        try:
            found = search({index_uid: reader}, [asked], federation, timer, ctx.services.embedding.for_search(timer))
            if timer.has_run_out:
                ctx.services.traffic.count_search(DEGRADED)
            return found
        except ApiError as error:
            place = f"Index `{index_uid}`: "
            if not error.message.startswith(place):
                raise
            # The search itself rejects it, for example an attribute that is not filterable.
            reason = error.message.removeprefix(place)
            if asked.query.filter is not None:
                try:
                    filter_docids(reader, asked.query.filter, "invalid_search_filter")
                except ApiError as fault:  # it names the place in the text of the model
                    reason = fault.message
            raise _Rejected(reason) from None


def _rendered(reader: Reader, result: SearchResult, template_text: str) -> list[str]:
    """Render the template with the whole document of each hit. Raises template_rendering_error."""
    documents = map(loads, reader.documents([hit.docid for hit in result.ranked]))
    is_searchable = reader.settings.searchable.__contains__
    try:
        template = Template.parse(template_text)
        return [template.render(document_variables(document, is_searchable)) for document in documents]
    except TemplateError as error:
        raise ApiError("template_rendering_error", f"user error: missing field in document: {error.message}") from None
