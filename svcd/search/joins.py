"""Hits with documents of other indexes in the place of what identifies them (relevance.md 11.5).

Knows which values of a hit are foreign keys, and what is shown of a foreign document; refuses to know how another
index is opened, and who may look into it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, NamedTuple

from svcd.base.bitmaps import DocIds, to_docids
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.filters.requests import filter_docids
from svcd.filters.tree import And, Condition, Foreign, In, Not, Or, in_order
from svcd.query.reader import Reader
from svcd.schema.attributes import is_beneath, is_everything, is_related
from svcd.schema.documents import Selection, shown
from svcd.schema.index_settings import IndexSettings
from svcd.schema.primary_keys import document_identifier, identifier

Hit = dict[str, Any]
Keys = Mapping[str, str]  # attribute -> uid of the index whose documents its values identify

_FORMATTED, _VECTORS = "_formatted", "_vectors"
# What a search adds to the document of a hit: not its attributes, whatever a foreign key is called.
_ADDED = frozenset((_FORMATTED, "_matchesPosition", "_rankingScore", "_rankingScoreDetails", "_federation", "_geoDistance"))
_NOTHING: Mapping[str, Any] = {}  # is shown for a document that is not there


def hydrated(hits: Sequence[str], keys_of: Callable[[Hit], Keys], open_index: Opener) -> list[str]:
    """Hits, as JSON texts, with each scalar that is a foreign key and can identify a document replaced by that document.

    keys_of: the foreign keys for a hit. Each other index is opened and asked once for all hits, and not at all unless
    one names a document of it. Raises what opening raises.
    """
    read = [loads(hit) for hit in hits]
    named: dict[str, list[_Reference]] = {}  # index uid -> where its documents belong
    for hit in read:
        for reference in _references(hit, keys_of(hit)):
            named.setdefault(reference.index_uid, []).append(reference)
    for index_uid, references in named.items():
        documents = _documents(index_uid, {each.document_id for each in references}, open_index)
        for each in references:
            each.container[each.place] = documents.get(each.document_id, _NOTHING)
    return [dumps(hit) for hit in read] if named else list(hits)


class _Reference(NamedTuple):
    """A place in a hit, and the document that belongs there."""

    container: Any  # an object or an array
    place: Any
    index_uid: str
    document_id: str


def _references(hit: Hit, keys: Keys) -> Iterator[_Reference]:
    """The references in the document of a hit, and in what is shown of it formatted."""
    if keys:
        attributes = _Attributes(keys)
        yield from _beneath(hit, "", attributes, _ADDED)
        yield from _beneath(hit.get(_FORMATTED, {}), "", attributes)


class _Attributes:
    """Attributes by their foreign keys."""

    def __init__(self, keys: Keys) -> None:
        self.index_of: Callable[[str], str | None] = lru_cache(None)(
            lambda name: next((uid for key, uid in keys.items() if is_beneath(name, key)), None))
        self.leads_to_any: Callable[[str], bool] = lru_cache(None)(
            lambda name: any(is_related(name, key) for key in keys))


def _beneath(container: Any, path: str, attributes: _Attributes, without: frozenset[str] = frozenset()) -> Iterator[_Reference]:
    """The references in an object or array at a path, elements of arrays standing at the path of their array."""
    is_object = isinstance(container, dict)
    members: Iterable[tuple[Any, Any]] = container.items() if is_object else enumerate(container)
    for place, value in members:
        if place in without:
            continue
        name = (f"{path}.{place}" if path else place) if is_object else path
        if isinstance(value, (dict, list)):
            if attributes.leads_to_any(name):
                yield from _beneath(value, name, attributes)
        elif (index_uid := attributes.index_of(name)) is not None and (document_id := identifier(value)) is not None:
            yield _Reference(container, place, index_uid, document_id)


def _documents(index_uid: str, document_ids: set[str], open_index: Opener) -> dict[str, Any]:
    """Identifier -> what is displayed of the document, for those that are there. Vectors are not shown unasked."""
    with open_index(index_uid) as reader:
        displayed = reader.settings.displayed_attributes
        texts = reader.identified_documents(sorted(document_ids))
    documents = {document_id: loads(text) for document_id, text in texts.items()}
    for document in documents.values():
        document.pop(_VECTORS, None)
    if is_everything(displayed):
        return documents
    selection = Selection(displayed)
    return {document_id: shown(document, selection) for document_id, document in documents.items()}


# Filters over joined indexes: `_foreign(field, filter)` becomes `field IN [ids of the documents there]` (11.5).
#
# Knows foreign keys and the limits of joins; refuses to know how another index is opened.


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


def resolve_foreign(condition: Condition, index_uid: str, settings: IndexSettings, open_index: Opener) -> Condition:
    """The filter without joins.

    index_uid, settings: of the index that is filtered. All joins are checked before another index is opened, each of
    which is opened once. Raises invalid_search_filter, and invalid_document_filter for what another index
    refuses; each message begins with the index that it speaks of.
    """
    joins = _joins(condition, index_uid, settings.foreign_keys)
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
