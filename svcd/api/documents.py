"""Document routes: list, get, add or replace, add or update, edit, delete.

Uploads are read by svcd.api.uploads. Stored documents are JSON texts, and are parsed only if the request asks for parts of
them.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api import shapes
from svcd.api.bodies import read_sequence
from svcd.api.filters import (
    allowed_filter,
    filter_of_query_string,
    index_snapshot,
    read_joined,
    resolve_joins,
)
from svcd.api.routes import Context, Fields, HandlerResult, Route, Stream, Text
from svcd.api.streaming import WHOLE, list_body
from svcd.api.uploads import CONTENT_TYPES, payload_format, receive
from svcd.base import json_text
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.filters.evaluation import check_shape
from svcd.filters.one_index import local_filter
from svcd.ranking.sort import SortError, SortRule, check_sortable, geo_buckets, parse_rule, split_rules
from svcd.schema.documents import Selection, checked_identifier, select
from svcd.schema.document_vectors import MEMBER
from svcd.search.shown_vectors import VECTORS_MEMBER, average_bytes, set_vectors, vectors_of
from svcd.validation import bounds, features
from svcd.validation import Field, Param, anything, array_of, boolean, nullable, positive_integer, query_strings, string

if TYPE_CHECKING:
    from svcd.filters.tree import Condition
    from svcd.index.reader import IndexReader

_TAG = "Documents"
_VECTOR_BYTES = 1 << 18  # of documents with their vectors that are read together
_MAX_IDS = 2_000_000  # of one deletion: the indexing process holds them all in memory
_FILTER_CODE, _SORT_CODE = "invalid_document_filter", "invalid_document_sort"


# Read


class Wanted(NamedTuple):
    """What a request wants to see of which documents, checked as far as that needs no index.

    ids: None for all. filter: not parsed yet. fields: None for all.
    """

    ids: Sequence[str] | None
    filter: Any
    rules: Sequence[SortRule]
    fields: Selection | None
    has_vectors: bool


class Selected(NamedTuple):
    """The documents that a request selects, in an index that stays open. docids: None for all of them."""

    reader: IndexReader
    docids: DocIds | None
    wanted: Wanted

    def size(self) -> int:
        """About the bytes of a document as it is shown."""
        return self.reader.average_document_size() + (average_bytes(self.reader) if self.wanted.has_vectors else 0)

    def shown(self, docids: Iterable[int], size: int) -> Iterator[bytes]:
        """Documents as they are shown. size: as size() gives it."""
        return _shown(self.reader, docids, self.wanted.fields, size if self.wanted.has_vectors else 0)


def fetch(ctx: Context, asked: Mapping[str, Any], is_for_caller: bool = False) -> HandlerResult:
    """One page of the documents that `ids` names, or of all, by docid or in the order of `sort`.

    asked: the members of the body of `/documents/fetch`. is_for_caller: another instance asks, which merges the page with those
    of others. Raises, in this order, feature_not_enabled, invalid_document_ids, invalid_document_sort for what is no order,
    index_not_found, invalid_document_filter with the refusals of joins, invalid_document_sort.
    """
    offset, limit = asked["offset"], asked["limit"]
    uses_network = _uses_network(ctx, asked)
    wanted = read_wanted(asked)
    if uses_network:
        return _network_documents().fetch(ctx, asked, wanted)
    with ExitStack() as held:
        selected = select_documents(ctx, wanted, held)
        size = selected.size()
        if is_for_caller:
            elements, total = _network_documents().shown_for_caller(selected, offset, limit, size)
        else:
            docids, total = _page(selected.reader, selected.docids, wanted.rules, offset, limit)
            elements = selected.shown(docids, size)
        expected = min(limit, max(total - offset, 0)) * size
        if expected > WHOLE:
            held.callback(selected.reader.close)
        body = list_body(b'{"results":[', elements, f'],"offset":{offset},"limit":{limit},"total":{total}}}'.encode,
                         expected=expected, limit=ctx.large_answers, held=held)
    return HandlerResult(200, Text(body))


def _network_documents() -> ModuleType:
    from svcd.api import network_documents  # imported late: most instances are in no network

    return network_documents


def read_wanted(asked: Mapping[str, Any]) -> Wanted:
    """asked: as for fetch(). Raises invalid_document_ids, invalid_document_sort."""
    ids = None if asked.get("ids") is None else _identifiers(asked["ids"])
    rules = _sort_rules(asked.get("sort") or ())
    return Wanted(ids, asked.get("filter"), rules, _selection(asked.get("fields")), bool(asked["retrieveVectors"]))


def select_documents(ctx: Context, wanted: Wanted, held: ExitStack) -> Selected:
    """Open the index of a request until `held` is closed, and select documents of it.

    Raises index_not_found, invalid_document_filter, invalid_document_sort.
    """
    held.enter_context(index_snapshot(ctx, [ctx.index_uid]))
    reader = held.enter_context(ctx.read(ctx.index_uid))
    docids = _selected(reader, wanted.ids, _condition(ctx, reader, wanted.filter))
    _check_sortable(wanted.rules, reader.settings.sortable_attributes)
    return Selected(reader, docids, wanted)


def _page(reader: IndexReader, selected: DocIds | None, rules: Sequence[SortRule],
          offset: int, limit: int) -> tuple[Iterable[int], int]:
    """(the documents of a page, found on demand; how many there are on all pages)"""
    if selected is None and not rules:
        return reader.docids_page(offset, limit), reader.number_of_documents
    docids = reader.all_docids() if selected is None else selected
    total = len(docids)
    return islice(_sorted(reader, docids, rules), min(offset, total), min(offset + limit, total)), total


def _condition(ctx: Context, reader: IndexReader, wanted: Any) -> Condition | None:
    """The parsed filter, with conditions on other indexes resolved; None for none."""
    condition = allowed_filter(wanted, _FILTER_CODE, ctx.instance.features)
    return resolve_joins(condition, ctx.index_uid, reader, lambda other: read_joined(ctx, other))


def _selected(reader: IndexReader, ids: Sequence[str] | None, condition: Condition | None) -> DocIds | None:
    """The documents that have one of the identifiers and meet the filter; None when neither is given."""
    by_id = None if ids is None else _docids_of_ids(reader, ids)
    if condition is None:
        return by_id
    from svcd.filters.evaluation import filter_docids

    docids = filter_docids(reader, condition, _FILTER_CODE)
    return docids if by_id is None else docids & by_id


def _docids_of_ids(reader: IndexReader, ids: Sequence[str]) -> DocIds:
    """The documents with these identifiers; unknown ones are left out."""
    return DocIds(list(reader.identified_docids(ids).values()))


def _identifiers(ids: Sequence[Any]) -> list[str]:
    """The texts of identifiers. Raises invalid_document_ids."""
    checked = []
    for at, value in enumerate(ids):
        try:
            checked.append(checked_identifier(value))
        except ApiError as error:
            raise ApiError("invalid_document_ids", f"In `.ids[{at}]`: {error.message}") from None
    return checked


def _sort_rules(expressions: Sequence[str]) -> list[SortRule]:
    """The parsed sort expressions. Raises invalid_document_sort."""
    try:
        return [parse_rule(expression) for expression in expressions]
    except SortError as error:
        raise ApiError(_SORT_CODE, str(error)) from None


def _check_sortable(rules: Sequence[SortRule], sortable: Sequence[str]) -> None:
    try:
        check_sortable(rules, sortable)
    except SortError as error:
        raise ApiError(_SORT_CODE, str(error)) from None


def _sorted(reader: IndexReader, docids: DocIds, rules: Sequence[SortRule]) -> Iterator[int]:
    """The documents by the first rule, ties by the next, at last by docid; generated on demand."""
    opened = [iter([docids])]  # by rule: the buckets that are still to come
    while opened:
        bucket = next(opened[-1], None)
        if bucket is None:
            opened.pop()
        elif len(opened) > len(rules) or len(bucket) < 2:
            yield from bucket
        else:
            opened.append(_buckets(reader, bucket, rules[len(opened) - 1]))


def _buckets(reader: IndexReader, docids: DocIds, rule: SortRule) -> Iterator[DocIds]:
    if rule.point:
        return (bucket.docids for bucket in geo_buckets(reader, rule.point, rule.is_ascending, docids))
    return (bucket for _, bucket in reader.values.sort_buckets(rule.field, rule.is_ascending, docids))


def _selection(fields: Sequence[str] | None) -> Selection | None:
    """The fields of documents that are shown; None for all."""
    return None if fields is None or "*" in fields else Selection(fields)


def _view(text: str, fields: Selection | None, vectors: dict[str, Any] | None = None) -> str:
    """How a stored document is shown: its vectors, if they are given, do not count as a field."""
    if fields is None and vectors is None and VECTORS_MEMBER not in text:
        return text
    document = json_text.loads(text)
    stored = document.pop(MEMBER, None)
    shown = document if fields is None else select(document, fields)
    if vectors is not None:
        shown[MEMBER] = stored
        set_vectors(shown, vectors)
    return json_text.dumps(shown)


def _shown(reader: IndexReader, docids: Iterable[int], fields: Selection | None, size: int) -> Iterator[bytes]:
    """The documents as they are shown. size: about the bytes of one with its vectors; 0 shows none."""
    if not size:
        yield from (_view(text, fields).encode() for text in reader.each_document(docids))
        return
    wanted, count = iter(docids), max(_VECTOR_BYTES // size, 1)
    while part := list(islice(wanted, count)):
        for text, vectors in zip(reader.documents(part), vectors_of(reader, part)):
            yield _view(text, fields, vectors).encode()


def _uses_network(ctx: Context, asked: Mapping[str, Any]) -> bool:
    """Does a request ask all instances of the network? Raises feature_not_enabled."""
    given = asked.get("useNetwork")
    if given is not None:  # even `false` needs the feature
        features.require(ctx.instance.features(), "network", "passing `useNetwork` in a search query")
    return bool(given)


def get_documents(ctx: Context) -> HandlerResult:
    """One page of the documents, by the query string."""
    return fetch(ctx, {**ctx.query, "filter": filter_of_query_string(ctx.query["filter"], _FILTER_CODE)})


def documents_by_query_post(ctx: Context) -> HandlerResult:
    """One page of the documents, by the body."""
    return fetch(ctx, ctx.body, ctx.is_proxied)


def get(ctx: Context) -> HandlerResult:
    """One document. Raises index_not_found, document_not_found."""
    uses_network = _uses_network(ctx, ctx.query)
    try:
        text = _document_here(ctx)
    except ApiError:
        if not uses_network:
            raise
        text = _network_documents().find(ctx, ctx.path["document_id"])
    return HandlerResult(200, Text(text))


def _document_here(ctx: Context) -> str:
    document_id = ctx.path["document_id"]
    with ctx.instance.read(ctx.index_uid) as reader:
        docid = reader.docid_of(document_id)
        if docid is None:
            raise ApiError("document_not_found", f"Document `{document_id}` not found.")
        text = reader.document(docid)
        vectors = vectors_of(reader, [docid])[0] if ctx.query["retrieveVectors"] else None
    return _view(text, _selection(ctx.query["fields"]), vectors)


# Write


def _enqueued(ctx: Context, kind: str, details: dict[str, Any], content: dict[str, Any],
              **payload: Any) -> HandlerResult:
    task = ctx.queue.enqueue(kind, ctx.index_uid, details=details, content=content,
                             custom_metadata=ctx.query["customMetadata"], **payload)
    return HandlerResult(202, shapes.task_summary(task))


def _add(ctx: Context, method: str) -> HandlerResult:
    """Receive documents and enqueue their addition.

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


def replace_documents(ctx: Context) -> HandlerResult:
    """Enqueue documents that replace those of the same identifier."""
    return _add(ctx, "replace")


def update_documents(ctx: Context) -> HandlerResult:
    """Enqueue documents whose fields are merged into those of the same identifier."""
    return _add(ctx, "update")


def _delete_ids(ctx: Context, count: int, ids: str) -> HandlerResult:
    """ids: so many texts as the inside of a JSON list. As one text the task goes through the daemon; a list of
    millions would take many times the memory wherever it is read."""
    details = {"providedIds": count, "deletedDocuments": None, "originalFilter": None}
    return _enqueued(ctx, "documentDeletion", details, {"ids": f"[{ids}]"})


def delete(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of one document; whether it exists shows when the task runs."""
    return _delete_ids(ctx, 1, json_text.dumps(ctx.path["document_id"]))


def delete_documents_batch(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of documents by a list of identifiers, texts or numbers.

    Raises bad_request for a body that is no list, missing_payload, malformed_payload, unsupported_media_type,
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
    """Enqueue the deletion of the documents that meet a filter when the task runs.

    Raises invalid_document_filter, feature_not_enabled.
    """
    value = ctx.body["filter"]
    check_shape(value, _FILTER_CODE)  # null is none
    if local_filter(value, _FILTER_CODE, ctx.instance.features) is None:
        raise ApiError(_FILTER_CODE, "Sending an empty filter is forbidden.")
    details = {"providedIds": 0, "deletedDocuments": None, "originalFilter": json_text.dumps(value)}
    return _enqueued(ctx, "documentDeletion", details, {"filter": value})


def edit_documents_by_function(ctx: Context) -> HandlerResult:
    """Enqueue the edition by a function of the documents that meet a filter when the task runs, or of all.

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
    if wanted is not None and local_filter(wanted, _FILTER_CODE, ctx.instance.features, ctx.index_uid) is None:
        raise ApiError(_FILTER_CODE, "Sending an empty filter is forbidden.")
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
    "primaryKey": Param(query_strings.text, "invalid_index_primary_key", about="Used only when the index has none yet."),
    "csvDelimiter": Param(query_strings.one_character, "invalid_document_csv_delimiter",
                          about="One ASCII character between the columns of text/csv; a comma when absent."),
    **_METADATA,
    "skipCreation": Param(query_strings.boolean, "invalid_skip_creation", default=False,
                          about="True ignores documents that the index does not have."),
}
_LIST_PARAMS = {
    "offset": Param(query_strings.positive_integer, "invalid_document_offset", default=0, about="Documents to skip."),
    "limit": Param(query_strings.positive_integer, "invalid_document_limit", default=20, about="Documents to return."),
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
    "context": Field(anything, "invalid_document_edition_context", about="An object; what the function sees of it."),
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
    Route("GET", _ALL, get_documents, "documents.get", {200: _PAGE}, "List documents", _TAG,
          query=_LIST_PARAMS),
    Route("POST", _ALL, replace_documents, "documents.add", _SUMMARY, "Add or replace documents", _TAG,
          query=_ADD_PARAMS, body=Stream(CONTENT_TYPES)),
    Route("PUT", _ALL, update_documents, "documents.add", _SUMMARY, "Add or update documents", _TAG,
          query=_ADD_PARAMS, body=Stream(CONTENT_TYPES)),
    Route("DELETE", _ALL, clear_all_documents, "documents.delete", _SUMMARY, "Delete all documents", _TAG,
          query=_METADATA),
    Route("POST", f"{_ALL}/fetch", documents_by_query_post, "documents.get", {200: _PAGE},
          "List documents by a body", _TAG, body=_FETCH_BODY),
    Route("POST", f"{_ALL}/delete-batch", delete_documents_batch, "documents.delete", _SUMMARY,
          "Delete documents by identifiers", _TAG, query=_METADATA, body=Stream()),
    Route("POST", f"{_ALL}/delete", delete_documents_by_filter, "documents.delete", _SUMMARY,
          "Delete documents by filter", _TAG, query=_METADATA, body=_DELETE_BODY),
    Route("POST", f"{_ALL}/edit", edit_documents_by_function, "documents.*", _SUMMARY,
          "Edit documents by a function", _TAG, query=_METADATA, body=_EDIT_BODY,
          feature=("editDocumentsByFunction", "Using the documents edit route")),
    Route("GET", _ONE, get, "documents.get", {200: {"type": "object"}}, "Get a document", _TAG,
          query={"fields": _FIELDS_PARAM, "retrieveVectors": _VECTORS_PARAM, "useNetwork": _NETWORK_PARAM}),
    Route("DELETE", _ONE, delete, "documents.delete", _SUMMARY, "Delete a document", _TAG, query=_METADATA),
)
