"""The documents that a request of the document routes wants, selected in an index and shown.

Stored documents are JSON texts, and are parsed only if the request asks for parts of them.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.filters import allowed_filter, has_joins, index_snapshot, resolve_joins
from svcd.base import json_text
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.ranking.scores import GeoSorted, Sorted
from svcd.ranking.sort import SortError, SortRule, check_sortable, geo_buckets, parse_rule
from svcd.schema.document_vectors import MEMBER
from svcd.schema.documents import Selection, checked_identifier, select
from svcd.search.shown_vectors import VECTORS_MEMBER, average_bytes, set_vectors, vectors_of

if TYPE_CHECKING:
    from svcd.api.context import Context, Headers
    from svcd.index.reader import IndexReader

_VECTOR_BYTES = 1 << 18  # of documents with their vectors that are read together
SortValue = Sorted | GeoSorted
FILTER_CODE, _SORT_CODE = "invalid_document_filter", "invalid_document_sort"


class Wanted(NamedTuple):
    """Which documents and fields a request wants; validated as far as possible without an index.

    ids: None for all. filter: not parsed yet. fields: None for all.
    """

    ids: Sequence[str] | None
    filter: Any
    rules: Sequence[SortRule]
    fields: Selection | None
    has_vectors: bool


class Selected(NamedTuple):
    """The documents that a request selects, in an index that stays open. docids: None for all of them. tag: the ETag, if any."""

    reader: IndexReader
    docids: DocIds | None
    wanted: Wanted
    tag: Headers

    def size(self) -> int:
        """Estimated bytes of one document in the response."""
        return self.reader.average_document_size() + (average_bytes(self.reader) if self.wanted.has_vectors else 0)

    def shown(self, docids: Iterable[int], size: int) -> Iterator[bytes]:
        """Documents as the response shows them. size: the result of size()."""
        reader, fields = self.reader, self.wanted.fields
        if not self.wanted.has_vectors:
            yield from (view(text, fields).encode() for text in reader.each_document(docids))
            return
        wanted, count = iter(docids), max(_VECTOR_BYTES // size, 1)
        while part := list(islice(wanted, count)):
            for text, vectors in zip(reader.documents(part), vectors_of(reader, part)):
                yield view(text, fields, vectors).encode()


def read_wanted(asked: Mapping[str, Any]) -> Wanted:
    """Read the members of the body of `/documents/fetch`. Raises invalid_document_ids, invalid_document_sort."""
    ids = None
    if asked.get("ids") is not None:
        ids = []
        for at, value in enumerate(asked["ids"]):
            try:
                ids.append(checked_identifier(value))
            except ApiError as error:
                raise ApiError("invalid_document_ids", f"In `.ids[{at}]`: {error.message}") from None
    try:
        rules = [parse_rule(expression) for expression in asked.get("sort") or ()]
    except SortError as error:
        raise ApiError(_SORT_CODE, str(error)) from None
    return Wanted(ids, asked.get("filter"), rules, selection(asked.get("fields")), bool(asked["retrieveVectors"]))


def select_documents(ctx: Context, wanted: Wanted, held: ExitStack) -> Selected:
    """Open the index of a request until `held` is closed, and select its documents that match `ids` and `filter`.

    Raises index_not_found, invalid_document_filter, invalid_document_sort, and the status 304.
    """
    held.enter_context(index_snapshot(ctx, [ctx.index_uid]))
    reader = held.enter_context(ctx.read(ctx.index_uid))
    condition = allowed_filter(wanted.filter, FILTER_CODE, ctx.instance.features)
    # Documents of other indexes change without a write to this one. Proxies have another answer, without an ETag.
    tag = () if ctx.is_proxied or has_joins(condition) else ctx.tagged(ctx.etag(reader.state, ctx.query, ctx.body))
    condition = resolve_joins(ctx, condition, ctx.index_uid, reader)
    docids = None if wanted.ids is None else DocIds(list(reader.identified_docids(wanted.ids).values()))  # skips unknown ids
    if condition is not None:
        from svcd.filters.evaluation import filter_docids

        matching = filter_docids(reader, condition, FILTER_CODE)
        docids = matching if docids is None else matching & docids
    try:
        check_sortable(wanted.rules, reader.settings.sortable_attributes)
    except SortError as error:
        raise ApiError(_SORT_CODE, str(error)) from None
    return Selected(reader, docids, wanted, tag)


def sorted_documents(reader: IndexReader, docids: DocIds, rules: Sequence[SortRule], *, needs_values: bool = True,
                     ) -> Iterator[tuple[int, tuple[SortValue, ...]]]:
    """The documents by the first rule, ties by the next, finally by docid; each with its values by all rules if needed."""
    opened: list[Iterator[tuple[tuple[SortValue, ...], DocIds]]] = [iter([((), docids)])]  # by rule: the remaining buckets
    while opened:
        values, bucket = next(opened[-1], ((), None))
        if bucket is None:
            opened.pop()
        elif len(opened) > len(rules) or not needs_values and len(bucket) < 2:
            for docid in bucket:
                yield docid, values
        else:
            opened.append(_buckets(reader, bucket, rules[len(opened) - 1], values))


def _buckets(reader: IndexReader, docids: DocIds, rule: SortRule, before: tuple[SortValue, ...],
             ) -> Iterator[tuple[tuple[SortValue, ...], DocIds]]:
    """Sort documents by one rule. before: their values by the rules before it."""
    if rule.point:
        for found in geo_buckets(reader, rule.point, rule.is_ascending, docids):
            yield (*before, GeoSorted(rule.point, rule.is_ascending, found.point, found.metres)), found.docids
        return
    for value, bucket in reader.values.sort_buckets(rule.field, rule.is_ascending, docids):
        yield (*before, Sorted(rule.field, rule.is_ascending, value)), bucket


def selection(fields: Sequence[str] | None) -> Selection | None:
    """The fields that a response shows; None for all."""
    return None if fields is None or "*" in fields else Selection(fields)


def view(text: str, fields: Selection | None, vectors: dict[str, Any] | None = None) -> str:
    """A stored document as a response shows it. vectors: added as `_vectors`, whatever `fields` selects."""
    if fields is None and vectors is None and VECTORS_MEMBER not in text:
        return text
    document = json_text.loads(text)
    stored = document.pop(MEMBER, None)
    shown = document if fields is None else select(document, fields)
    if vectors is not None:
        shown[MEMBER] = stored
        set_vectors(shown, vectors)
    return json_text.dumps(shown)
