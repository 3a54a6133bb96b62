"""Filters over joined indexes: `_foreign(field, filter)` becomes `field IN [ids of the documents there]` (11.5).

Knows foreign keys and the limits of joins; refuses to know how another index is opened.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from svcd.bitsets import to_docids
from svcd.engine.filters.matching import matching
from svcd.engine.filters.tree import And, Condition, Foreign, In, Not, Or, in_order, parts_of
from svcd.engine.joins import foreign_keys
from svcd.engine.primary_keys import document_identifier
from svcd.engine.reader import Reader
from svcd.errors import ApiError
from svcd.jsontext import loads

MOST_DOCUMENTS = 100

# index uid -> a reader of it, for as long as the block lasts.
Opener = Callable[[str], AbstractContextManager[Reader]]

_NESTED = "Nested foreign filters are not supported"
_NO_KEY = "Field `{field}` is not a foreign key"
_TOO_MANY = ("Foreign filter is retrieving too many documents, "
             f"foreign filters can't retrieve more than {MOST_DOCUMENTS} documents per index")


def is_joined(condition: Condition | None) -> bool:
    """Does a filter look into other indexes?"""
    return condition is not None and any(isinstance(part, Foreign) for part in in_order(condition))


def resolved(condition: Condition, index_uid: str, settings: Mapping[str, Any], open_index: Opener) -> Condition:
    """The filter without joins.

    index_uid, settings: of the index that is filtered. Raises invalid_search_filter, and invalid_document_filter for
    what the other index refuses, each message beginning with its index.
    """
    keys = foreign_keys(settings)

    def refused(sentence: str) -> ApiError:
        return ApiError("invalid_search_filter", f"Index `{index_uid}`: {sentence}")

    def joined(part: Condition) -> Condition:
        if isinstance(part, Not):
            return Not(joined(part.part))
        if isinstance(part, (And, Or)):
            return type(part)([joined(each) for each in part.parts])
        return of_foreign(part) if isinstance(part, Foreign) else part

    def of_foreign(part: Foreign) -> Condition:
        if any(is_joined(inner) for inner in parts_of(part)):
            raise refused(_NESTED)
        if part.field.text not in keys:
            raise refused(_NO_KEY.format(field=part.field.text))
        ids = _identifiers(keys[part.field.text], part, open_index)
        if len(ids) > MOST_DOCUMENTS:
            raise refused(_TOO_MANY)
        return In(part.field, ids)

    return joined(condition)


def _identifiers(index_uid: str, join: Foreign, open_index: Opener) -> list[str]:
    """The documents of an index that a join asks for, one more than is allowed at most."""
    with open_index(index_uid) as reader:
        try:
            docids = matching(reader, join.part, "invalid_document_filter", since=join.start)
        except ApiError as error:
            raise ApiError(error.code, f"Index `{index_uid}`: {error.message}") from None
        key = reader.primary_key
        if key is None:
            return []
        texts = reader.documents(to_docids(docids, MOST_DOCUMENTS + 1))
        return [document_identifier(loads(text), key) for text in texts]
