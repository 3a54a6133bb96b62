"""Filters of requests, combined with the filter of a tenant token, and foreign documents, which filters and answers read.

A filter is parsed and checked against the features that are on. A request sees all indexes that it reads as of one
moment, and of another index only documents that its bearer may search (docs/http.md#visibility).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from svcd.api.context import Context
from svcd.auth.keys import INVALID_KEY
from svcd.base.errors import ApiError
from svcd.base.json_text import loads

if TYPE_CHECKING:
    from svcd.base.docids import DocIds
    from svcd.filters.requirements import Flags
    from svcd.filters.tree import Condition
    from svcd.query.reader import Reader


def allowed_filter(value: Any, code: str, flags: Flags) -> Condition | None:
    """The parsed filter of a request; None for an empty one.

    flags: as svcd.filters.requirements.check_features(). Raises `code`, feature_not_enabled.
    """
    if value is None:
        return None
    # Imported here: the grammar takes a while to load, and a daemon that only indexes never needs it.
    from svcd.filters.evaluation import read_filter
    from svcd.filters.requirements import check_features

    condition = read_filter(value, code)
    check_features(condition, flags)
    return condition


def resolve_joins(ctx: Context, condition: Condition | None, index_uid: str, reader: Reader) -> Condition | None:
    """The filter with each `_foreign` condition replaced by a condition on the values of this index.

    index_uid, reader: of the index that is filtered. Raises invalid_search_filter, invalid_document_filter, index_not_found, and
    invalid_api_key unless the bearer may search all of the other index: documents that a token hides must not be found out by
    filtering another index.
    """
    if condition is None or not has_joins(condition):
        return condition
    from svcd.base import tracing
    from svcd.search.joins import resolve_foreign

    with tracing.span("execute local search"):
        tracing.begin("evaluate filter")
        return resolve_foreign(condition, index_uid, reader.settings, partial(_read_joined, ctx))


def has_joins(condition: Condition | None) -> bool:
    """Return whether a filter has a condition on another index."""
    if condition is None:
        return False
    from svcd.search.joins import has_foreign

    return has_foreign(condition)


def filter_of_query_string(text: str | None, code: str) -> Any:
    """The filter of a query string: parsed if it is JSON, else the text itself; None without one.

    Raises `code` for the JSON `null`, which is allowed in a body only.
    """
    if text is None:
        return None
    try:
        value = loads(text)
    except ValueError:
        return text
    if value is None:
        from svcd.filters.evaluation import check_shape

        check_shape(value, code)
    return value


def with_bearer_filter(given: Any, rule: Any, code: str) -> Any:
    """The filter of a request AND `rule`, the filter of its tenant token, or None. Raises `code`."""
    if rule is None:
        return given
    from svcd.filters.evaluation import check_shape, combine

    for value in (given, rule):
        if value is not None:
            check_shape(value, code)
    return combine(given, rule)


def visible_docids(ctx: Context, index_uid: str, reader: Reader, code: str, *, is_rewritten: bool = False) -> DocIds | None:
    """The documents that the filter of a tenant token lets its bearer see; None for all. is_rewritten: as for filter_docids().

    Raises `code`, feature_not_enabled, and the errors of resolve_joins().
    """
    rule = with_bearer_filter(None, ctx.permission.search_filter(index_uid), code)
    condition = allowed_filter(rule, code, ctx.services.data_folder.features)
    if condition is None:
        return None
    from svcd.filters.evaluation import filter_docids

    return filter_docids(reader, resolve_joins(ctx, condition, index_uid, reader), code, is_rewritten=is_rewritten)


# Foreign documents: which other indexes a request reads, and whether its bearer may


@contextmanager
def index_snapshot(ctx: Context, index_uids: Iterable[str]) -> Iterator[None]:
    """In this block ctx.read() opens these indexes, and the indexes that their foreign keys name, as of one moment.

    A swap of indexes during the request is then seen completely or not at all.
    """
    with ctx.services.data_folder.read_together(index_uids, lambda reader: reader.settings.foreign_keys.values()) as ctx.snapshot:
        try:
            yield
        finally:
            ctx.snapshot = None


def _read_joined(ctx: Context, index_uid: str) -> AbstractContextManager[Any]:
    """Open an index that a `_foreign` condition reads."""
    if ctx.permission.search_filter(index_uid) is not None:
        raise ApiError("invalid_api_key", INVALID_KEY)
    return ctx.read(index_uid)


def hydrate_hits(ctx: Context, hits: Sequence[str], readers: Mapping[str, Reader], index_uid: str | None = None) -> Sequence[str]:
    """The hits (JSON texts) with foreign documents in place of their identifiers.

    readers: index uid -> reader, for all searched indexes. index_uid: the index of all hits; None if each hit names its own
    in `_federation`. Identifiers stay where the bearer may not search all of the other index (docs/http.md#visibility).
    Raises index_not_found if the other index does not exist.
    """
    foreign_keys = {uid: reader.settings.foreign_keys for uid, reader in readers.items() if reader.settings.foreign_keys}
    if not foreign_keys or not ctx.services.data_folder.is_enabled("foreignKeys"):
        return hits
    permission = ctx.permission
    keys = {uid: {attribute: other for attribute, other in others.items()
                  if permission.allows(other) and permission.search_filter(other) is None}
            for uid, others in foreign_keys.items()}
    if not any(keys.values()):
        return hits
    from svcd.base import tracing
    from svcd.search import joins

    def keys_of(hit: joins.Hit) -> joins.Keys:
        return keys.get(hit["_federation"]["indexUid"] if index_uid is None else index_uid, {})

    tracing.begin("hydrate documents")
    shown = joins.hydrate(hits, keys_of, ctx.read)
    tracing.end()
    return shown
