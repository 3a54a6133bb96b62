"""Foreign documents in answers and filters: which other indexes a request reads, and whether its bearer may."""
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
    """In this block ctx.read() opens these indexes, and those that their foreign keys name, as of one moment.

    A swap of indexes during the request is then seen completely or not at all.
    """
    with ctx.instance.read_together(index_uids, _foreign_indexes) as ctx.snapshot:
        try:
            yield
        finally:
            ctx.snapshot = None


def _foreign_indexes(reader: Reader) -> Iterable[str]:
    return reader.settings.foreign_keys.values()


def read_joined(ctx: Context, index_uid: str) -> AbstractContextManager[Any]:
    """Open an index that a `_foreign` condition reads.

    Raises index_not_found, and invalid_api_key unless the bearer may search all of that index: documents that a token
    hides must not be found out by filtering another index.
    """
    if ctx.permission.search_filter(index_uid) is not None:
        raise ApiError("invalid_api_key", INVALID_KEY)
    return ctx.read(index_uid)


def has_foreign_keys(reader: Reader) -> bool:
    """True if hits may contain documents of other indexes, and so may change without a write to this one."""
    return bool(reader.settings.foreign_keys)


def hydrate_hits(ctx: Context, hits: Sequence[str], readers: Mapping[str, Reader], index_uid: str | None = None) -> Sequence[str]:
    """The hits (JSON texts) with foreign documents in place of their identifiers.

    readers: by index uid, of all indexes that were searched. index_uid: that of all hits; None if each hit names its own
    in `_federation`. Identifiers stay where the bearer may not search all of the other index (docs/http.md#visibility).
    Raises index_not_found if the other index does not exist.
    """
    keys = {uid: _shown_keys(ctx, reader) for uid, reader in readers.items() if has_foreign_keys(reader)}
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


def _shown_keys(ctx: Context, reader: Reader) -> Mapping[str, str]:
    """The foreign keys that are replaced for this bearer: attribute -> index uid; none while the feature is off."""
    if not ctx.instance.is_enabled(_FEATURE):
        return {}
    return {field: uid for field, uid in reader.settings.foreign_keys.items() if _may_search_all_of(ctx, uid)}


def _may_search_all_of(ctx: Context, index_uid: str) -> bool:
    return ctx.permission.allows(index_uid) and ctx.permission.search_filter(index_uid) is None
