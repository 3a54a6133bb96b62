"""Filters over joined indexes: `_foreign(field, filter)` becomes `field IN [ids of the documents there]` (11.5).

Knows foreign keys and the limits of joins; refuses to know how another index is opened.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from svcd.base.bitmaps import DocIds, to_docids
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.filters.requests import filter_docids
from svcd.filters.tree import And, Condition, Foreign, In, Not, Or, in_order
from svcd.query.reader import Reader
from svcd.schema.primary_keys import document_identifier
from svcd.search.joins import foreign_keys

MOST_DOCUMENTS = 100

# index uid -> a reader of it, for as long as the block lasts.
Opener = Callable[[str], AbstractContextManager[Reader]]

_NESTED = "Nested foreign filters are not supported"
_NO_KEY = "Field `{field}` is not a foreign key"
_TOO_MANY = ("Foreign filter is retrieving too many documents, "
             f"foreign filters can't retrieve more than {MOST_DOCUMENTS} documents per index")


def has_foreign(condition: Condition | None) -> bool:
    """Does a filter look into other indexes?"""
    return condition is not None and any(isinstance(part, Foreign) for part in in_order(condition))


def resolve_foreign(condition: Condition, index_uid: str, settings: Mapping[str, Any], open_index: Opener) -> Condition:
    """The filter without joins.

    index_uid, settings: of the index that is filtered. All joins are checked before another index is opened, each of
    which is opened once. Raises invalid_search_filter, and invalid_document_filter for what another index
    refuses; each message begins with the index that it speaks of.
    """
    joins = _joins(condition, index_uid, foreign_keys(settings))
    ids: dict[int, Sequence[str]] = {}
    for uid in dict.fromkeys(uid for _, uid in joins):
        ids |= _identifiers(uid, [join for join, other in joins if other == uid], open_index)

    def joined(part: Condition) -> Condition:
        if isinstance(part, Not):
            return Not(joined(part.part))
        if isinstance(part, (And, Or)):
            return type(part)([joined(each) for each in part.parts])
        return In(part.field, ids[id(part)]) if isinstance(part, Foreign) else part

    return joined(condition)


def _joins(condition: Condition, index_uid: str, keys: Mapping[str, str]) -> list[tuple[Foreign, str]]:
    """The joins of a filter, from left to right, and the index that each looks into."""
    found = []
    for join in in_order(condition):
        if not isinstance(join, Foreign):
            continue
        if join.field.text not in keys:
            raise _refused(index_uid, _NO_KEY.format(field=join.field.text))
        if has_foreign(join.part):
            raise _refused(index_uid, _NESTED)
        found.append((join, keys[join.field.text]))
    return found


def _identifiers(index_uid: str, joins: Sequence[Foreign], open_index: Opener) -> dict[int, Sequence[str]]:
    """By the identity of a join, the documents of one index that it asks for."""
    with open_index(index_uid) as reader:
        found = [(join, _matching(reader, index_uid, join)) for join in joins]
        together = 0
        for _, docids in found:
            together |= docids
        if together.bit_count() > MOST_DOCUMENTS:
            raise _refused(index_uid, _TOO_MANY)
        return {id(join): _keys_of(reader, docids) for join, docids in found}


def _matching(reader: Reader, index_uid: str, join: Foreign) -> DocIds:
    try:
        return filter_docids(reader, join.part, "invalid_document_filter", since=join.start)
    except ApiError as error:
        raise ApiError(error.code, f"Index `{index_uid}`: {error.message}") from None


def _keys_of(reader: Reader, docids: DocIds) -> list[str]:
    key = reader.primary_key
    if key is None:
        return []
    return [document_identifier(loads(text), key) for text in reader.documents(to_docids(docids))]


def _refused(index_uid: str, sentence: str) -> ApiError:
    return ApiError("invalid_search_filter", f"Index `{index_uid}`: {sentence}")
