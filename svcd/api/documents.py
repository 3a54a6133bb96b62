"""Document routes: list, get, add or replace, add or update, edit, delete.

svcd.api.uploads reads uploads; svcd.api.document_selection selects and shows documents.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from svcd.api import shapes
from svcd.api.bodies import read_sequence
from svcd.api.context import Context
from svcd.api.document_selection import FILTER_CODE, read_wanted, select_documents, selection, sorted_documents, view
from svcd.api.filters import filter_of_query_string
from svcd.api.routes import OF_BODY, OF_STATE, Fields, HandlerResult, Route, Stream, Text
from svcd.api.streaming import WHOLE, list_body
from svcd.api.uploads import CONTENT_TYPES, payload_format, receive
from svcd.base import json_text
from svcd.base.errors import ApiError
from svcd.filters.evaluation import check_shape, local_filter
from svcd.ranking.sort import split_rules
from svcd.search.shown_vectors import vectors_of
from svcd.validation import Field, Param, anything, array_of, boolean, bounds, nullable, positive_integer, query_strings, string
from svcd.validation.names import require_feature

if TYPE_CHECKING:
    pass

_TAG = "Documents"
_MAX_IDS = 2_000_000  # of one deletion: the indexing process holds them all in memory


# Read


def fetch(ctx: Context) -> HandlerResult:
    """One page of the documents that `ids` names, or of all, by docid or in the order of `sort`; by body or query string.

    Another instance that sends the request merges the page with the pages of other instances.
    Raises, in this order, feature_not_enabled, invalid_document_ids, invalid_document_sort for a malformed expression,
    index_not_found, invalid_document_filter, the errors of joins, invalid_document_sort for an attribute that is not sortable.
    """
    asked = ctx.body or {**ctx.query, "filter": filter_of_query_string(ctx.query["filter"], FILTER_CODE)}
    offset, limit = asked["offset"], asked["limit"]
    uses_network = _uses_network(ctx, asked)
    wanted = read_wanted(asked)
    if uses_network:
        from svcd.api import network_documents  # imported late: most instances are in no network

        return network_documents.fetch(ctx, asked, wanted)
    with ExitStack() as held:
        selected = select_documents(ctx, wanted, held)
        reader, docids, size = selected.reader, selected.docids, selected.size()
        if ctx.body and ctx.is_proxied:
            from svcd.api import network_documents

            elements, total = network_documents.shown_for_caller(selected, offset, limit, size)
        elif docids is None and not wanted.rules:
            elements, total = selected.shown(reader.docids_page(offset, limit), size), reader.number_of_documents
        else:
            docids = reader.all_docids() if docids is None else docids
            total = len(docids)
            ordered: Iterable[int] = docids
            if wanted.rules:
                ordered = (docid for docid, _ in sorted_documents(reader, docids, wanted.rules, needs_values=False))
            page = islice(ordered, min(offset, total), min(offset + limit, total))
            elements = selected.shown(page, size)
        expected = min(limit, max(total - offset, 0)) * size
        if expected > WHOLE:
            held.callback(reader.close)
        body = list_body(b'{"results":[', elements, f'],"offset":{offset},"limit":{limit},"total":{total}}}'.encode,
                         expected=expected, limit=ctx.services.large_answers, held=held)
    return HandlerResult(200, Text(body), selected.tag)


def _uses_network(ctx: Context, asked: Mapping[str, Any]) -> bool:
    """Return whether a request asks all instances of the network. Raises feature_not_enabled."""
    given = asked.get("useNetwork")
    if given is not None:  # even `false` needs the feature
        require_feature(ctx.instance.features(), "network", "passing `useNetwork` in a search query")
    return bool(given)


def get(ctx: Context) -> HandlerResult:
    """One document. Raises index_not_found, document_not_found."""
    uses_network, document_id = _uses_network(ctx, ctx.query), ctx.path["document_id"]
    try:
        with ctx.instance.read(ctx.index_uid) as reader:
            docid = reader.docid_of(document_id)
            if docid is None:
                raise ApiError("document_not_found", f"Document `{document_id}` not found.")
            text = reader.document(docid)
            vectors = vectors_of(reader, [docid])[0] if ctx.query["retrieveVectors"] else None
        shown = view(text, selection(ctx.query["fields"]), vectors)
    except ApiError:
        if not uses_network:
            raise
        from svcd.api import network_documents

        shown = network_documents.find(ctx, document_id)
    return HandlerResult(200, Text(shown))


# Write


def _enqueued(ctx: Context, kind: str, details: dict[str, Any], content: dict[str, Any], **payload: Any) -> HandlerResult:
    return shapes.enqueued(ctx, kind, ctx.index_uid, details, content, custom_metadata=ctx.query["customMetadata"], **payload)


def _add(method: str, ctx: Context) -> HandlerResult:
    """Receive documents and enqueue their addition. method: `replace` replaces a document with the same identifier, `update`
    merges fields into it.

    Raises the errors of payloads, invalid_document_csv_delimiter.
    """
    delimiter = ctx.query["csvDelimiter"]
    if delimiter is not None and not delimiter.isascii():
        message = f"csv delimiter must be an ascii character. Found: `{delimiter}`"
        raise ApiError("invalid_document_csv_delimiter", message)
    content_type = payload_format(ctx.request.headers.get("content-type"), delimiter)
    ctx.queue.check_space("documentAdditionOrUpdate")  # before the upload fills the reserved space
    payload = receive(ctx.request.body.chunks(), content_type, ctx.queue.payload_folder, csv_delimiter=delimiter)
    try:
        return _enqueued(
            ctx, "documentAdditionOrUpdate", {"receivedDocuments": payload.documents, "indexedDocuments": None},
            {"method": method, "primaryKey": ctx.query["primaryKey"], "mayCreate": not ctx.query["skipCreation"],
             "mayCreateIndex": ctx.permission.may_create_index, "checksum": payload.checksum},
            payload=payload.path, payload_bytes=payload.bytes)
    except BaseException:
        payload.path.unlink(missing_ok=True)
        raise


def _delete_ids(ctx: Context, count: int, ids: str) -> HandlerResult:
    """Enqueue the deletion of `count` documents.

    ids: the inside of a JSON list of texts. The task holds it as one text, because a list of millions of identifiers would take
    many times the memory.
    """
    details = {"providedIds": count, "deletedDocuments": None, "originalFilter": None}
    return _enqueued(ctx, "documentDeletion", details, {"ids": f"[{ids}]"})


def delete(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of one document; whether it exists shows when the task runs."""
    return _delete_ids(ctx, 1, json_text.dumps(ctx.path["document_id"]))


def delete_documents_batch(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of documents by a list of identifiers, texts or numbers.

    Raises bad_request for a body that is not a list, missing_payload, malformed_payload, unsupported_media_type,
    payload_too_large.
    """
    count, portions = 0, []
    for values in read_sequence(ctx.request, _MAX_IDS):
        texts = [value if isinstance(value, str) else json_text.dumps(value) for value in values]
        count += len(texts)
        portions.append(json_text.dumps(texts)[1:-1])
    return _delete_ids(ctx, count, ",".join(portions))


def clear_all_documents(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of all documents."""
    return _enqueued(ctx, "documentDeletion", {"deletedDocuments": None}, {"all": True})


def delete_documents_by_filter(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of the documents that match a filter when the task runs.

    Raises invalid_document_filter, feature_not_enabled.
    """
    value = ctx.body["filter"]
    check_shape(value, FILTER_CODE)  # null means no filter
    if local_filter(value, FILTER_CODE, ctx.instance.features) is None:
        raise ApiError(FILTER_CODE, "Sending an empty filter is forbidden.")
    details = {"providedIds": 0, "deletedDocuments": None, "originalFilter": json_text.dumps(value)}
    return _enqueued(ctx, "documentDeletion", details, {"filter": value})


def edit_documents_by_function(ctx: Context) -> HandlerResult:
    """Enqueue the edition, by a function, of the documents that match a filter when the task runs, or of all documents.

    Raises bad_request for a function that the language does not know, invalid_document_filter,
    feature_not_enabled, invalid_document_edition_context.
    """
    # Imported here: the language takes 2 MB, which daemons without such edits save.
    from svcd.rhai import FunctionError, Program

    function, wanted, context = ctx.body["function"], ctx.body.get("filter"), ctx.body.get("context")
    try:
        Program(function)
    except FunctionError as error:
        raise ApiError("bad_request", str(error)) from None
    if wanted is not None and local_filter(wanted, FILTER_CODE, ctx.instance.features, ctx.index_uid) is None:
        raise ApiError(FILTER_CODE, "Sending an empty filter is forbidden.")
    if context is not None and not isinstance(context, dict):
        raise ApiError("invalid_document_edition_context", "The context must be an object")
    details = {"deletedDocuments": None, "editedDocuments": None, "context": context, "function": function,
               "originalFilter": None if wanted is None else json_text.dumps(wanted)}
    return _enqueued(ctx, "documentEdition", details, {"filter": wanted, "context": context, "function": function})


# Routes

_METADATA = {"customMetadata": Param(query_strings.text, "invalid_index_custom_metadata", about="Free text kept on the task.")}
_FIELDS_PARAM = Param.list_of(query_strings.text, "invalid_document_fields", bound=bounds.NAMES,
                              about="Fields returned; `*` or absent means all.")
_VECTORS_PARAM = Param(query_strings.boolean, "invalid_document_retrieve_vectors", default=False,
                       about="Adds `_vectors` to each document.")
_NETWORK_PARAM = Param(query_strings.boolean, "invalid_document_use_network", about="Asks all instances of the network.")
_ADD_PARAMS = {
    "primaryKey": Param(query_strings.text, "invalid_index_primary_key", about="Used only if the index does not have one yet."),
    "csvDelimiter": Param(query_strings.one_character, "invalid_document_csv_delimiter",
                          about="One ASCII character between the columns of text/csv; a comma when absent."),
    **_METADATA,
    "skipCreation": Param(query_strings.boolean, "invalid_skip_creation", default=False,
                          about="True ignores documents that the index does not have."),
}
_LIST_PARAMS = {
    **shapes.page_params("invalid_document_", "Documents"),
    "fields": _FIELDS_PARAM,
    "retrieveVectors": _VECTORS_PARAM,
    "ids": Param.list_of(query_strings.text, "invalid_document_ids", bound=bounds.IDS,
                         about="Identifiers of the documents to keep."),
    "filter": Param(query_strings.text, "invalid_document_filter"),
    "sort": Param(split_rules, "invalid_document_sort", about="`field:asc` or `field:desc`, separated by commas."),
    "useNetwork": _NETWORK_PARAM,
}
_FETCH_BODY = Fields({
    "offset": Field(positive_integer, "invalid_document_offset", default=0, about="Documents to skip."),
    "limit": Field(positive_integer, "invalid_document_limit", default=20, about="Documents to return."),
    "fields": Field(nullable(array_of(string, bound=bounds.NAMES)), "invalid_document_fields"),
    "retrieveVectors": Field(boolean, "invalid_document_retrieve_vectors", default=False),
    "ids": Field(nullable(array_of(anything, bound=bounds.IDS)), "invalid_document_ids"),
    "filter": Field(anything, "invalid_document_filter"),
    "sort": Field(nullable(array_of(string, bound=bounds.SORT)), "invalid_document_sort"),
    "useNetwork": Field(nullable(boolean), "invalid_document_use_network"),
})
_DELETE_BODY = Fields({
    "filter": Field(anything, "invalid_document_filter", required=True, missing_code="missing_document_filter"),
})
_EDIT_BODY = Fields({
    "filter": Field(anything, "invalid_document_filter"),
    "context": Field(anything, "invalid_document_edition_context", about="An object that the function can read as `context`."),
    "function": Field(string, "invalid_document_edition_function_filter", required=True,
                      missing_code="missing_document_edition_function"),
})
_ALL = "/indexes/{index_uid}/documents"
_ONE = "/indexes/{index_uid}/documents/{document_id}"
_SUMMARY = {202: "TaskSummary"}
_PAGE = shapes.record({
    "results": shapes.array({"type": "object"}), "offset": shapes.COUNT, "limit": shapes.COUNT, "total": shapes.COUNT,
    "remoteErrors": shapes.REMOTE_ERRORS,
}, optional=["remoteErrors"])

ROUTES = (
    Route("GET", _ALL, fetch, "documents.get", {200: _PAGE}, "List documents", _TAG, query=_LIST_PARAMS, etag=OF_STATE),
    Route("POST", _ALL, partial(_add, "replace"), "documents.add", _SUMMARY, "Add or replace documents", _TAG,
          query=_ADD_PARAMS, body=Stream(CONTENT_TYPES)),
    Route("PUT", _ALL, partial(_add, "update"), "documents.add", _SUMMARY, "Add or update documents", _TAG,
          query=_ADD_PARAMS, body=Stream(CONTENT_TYPES)),
    Route("DELETE", _ALL, clear_all_documents, "documents.delete", _SUMMARY, "Delete all documents", _TAG, query=_METADATA),
    Route("POST", f"{_ALL}/fetch", fetch, "documents.get", {200: _PAGE}, "List documents by a body", _TAG, body=_FETCH_BODY,
          etag=OF_STATE),
    Route("POST", f"{_ALL}/delete-batch", delete_documents_batch, "documents.delete", _SUMMARY,
          "Delete documents by identifiers", _TAG, query=_METADATA, body=Stream()),
    Route("POST", f"{_ALL}/delete", delete_documents_by_filter, "documents.delete", _SUMMARY,
          "Delete documents by filter", _TAG, query=_METADATA, body=_DELETE_BODY),
    Route("POST", f"{_ALL}/edit", edit_documents_by_function, "documents.*", _SUMMARY, "Edit documents by a function", _TAG,
          query=_METADATA, body=_EDIT_BODY, feature=("editDocumentsByFunction", "Using the documents edit route")),
    Route("GET", _ONE, get, "documents.get", {200: {"type": "object"}}, "Get a document", _TAG,
          query={"fields": _FIELDS_PARAM, "retrieveVectors": _VECTORS_PARAM, "useNetwork": _NETWORK_PARAM}, etag=OF_BODY),
    Route("DELETE", _ONE, delete, "documents.delete", _SUMMARY, "Delete a document", _TAG, query=_METADATA),
)
