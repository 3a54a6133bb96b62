"""What an answer takes from other indexes than its own, documents or the filter on them: when, and for whom.

Knows the feature and who may look into an index; refuses to know which values of a hit are foreign keys.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from svcd.api.context import Context
from svcd.auth.permissions import INVALID_KEY
from svcd.base.errors import ApiError

if TYPE_CHECKING:
    from svcd.query.reader import Reader

_FEATURE = "foreignKeys"


@contextmanager
def index_snapshot(ctx: Context, index_uids: Iterable[str]) -> Iterator[None]:
    """In this block ctx.read() knows these indexes and those that their foreign keys name, all of them as one state of the
    list of indexes has them: a swap in between is seen whole or not at all."""
    with ctx.instance.read_together(index_uids, _foreign_indexes) as ctx.snapshot:
        try:
            yield
        finally:
            ctx.snapshot = None


def _foreign_indexes(reader: Reader) -> Iterable[str]:
    return reader.settings.foreign_keys.values()


def read_joined(ctx: Context, index_uid: str) -> AbstractContextManager[Any]:
    """An index into which a filter looks from another one. Raises index_not_found, and invalid_api_key unless the
    bearer may search all of it: what a token hides there must not be found out by asking from here."""
    if ctx.permission.search_filter(index_uid) is not None:
        raise ApiError("invalid_api_key", INVALID_KEY)
    return ctx.read(index_uid)


def has_foreign_keys(reader: Reader) -> bool:
    """May hits of an index show what other indexes hold, and so change when those do?"""
    return bool(reader.settings.foreign_keys)


def hydrate_hits(ctx: Context, hits: Sequence[str], readers: Mapping[str, Reader], index_uid: str | None = None) -> Sequence[str]:
    """The hits with foreign documents in the place of their identifiers.

    readers: by index uid, of all indexes that were searched. index_uid: the one of all hits; None when each tells its
    own, as merged ones do. Where the bearer may not search all of the other index, the identifiers stay: what a key or a
    token hides there must not be seen from here. Raises index_not_found for another index that does not exist.
    """
    keys = {uid: _shown_keys(ctx, reader) for uid, reader in readers.items() if has_foreign_keys(reader)}
    if not any(keys.values()):
        return hits
    from svcd.base import tracing
    from svcd.search import joins

    def keys_of(hit: joins.Hit) -> joins.Keys:
        return keys.get(hit["_federation"]["indexUid"] if index_uid is None else index_uid, {})

    tracing.begin("hydrate documents")
    shown = joins.hydrated(hits, keys_of, ctx.read)
    tracing.end()
    return shown


def _shown_keys(ctx: Context, reader: Reader) -> Mapping[str, str]:
    """The foreign keys of an index that are replaced for the bearer, while the feature is on."""
    if not ctx.instance.is_enabled(_FEATURE):
        return {}
    return {field: uid for field, uid in reader.settings.foreign_keys.items() if _may_search_all_of(ctx, uid)}


def _may_search_all_of(ctx: Context, index_uid: str) -> bool:
    return ctx.permission.allows(index_uid) and ctx.permission.search_filter(index_uid) is None
