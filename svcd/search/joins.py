"""Join documents over foreign keys: in hits, and in filters over other indexes (docs/search.md#joins).

The caller opens the other indexes (`Opener`) and checks that the bearer may read them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, NamedTuple

from svcd.base.docids import DocIds, union_of
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.filters.evaluation import filter_docids
from svcd.filters.tree import And, Condition, Foreign, In, Not, Or, in_order
from svcd.query.reader import Reader
from svcd.schema.attributes import is_beneath, is_related
from svcd.schema.documents import Selection, document_identifier, identifier, shown_parts
from svcd.schema.index_settings import IndexSettings

Hit = dict[str, Any]
Keys = Mapping[str, str]  # attribute -> uid of the index whose documents its values identify

_FORMATTED, _VECTORS = "_formatted", "_vectors"
# Members that a search adds to a hit: they are never foreign keys.
_ADDED = frozenset((_FORMATTED, "_matchesPosition", "_matchedPassage", "_rankingScore", "_rankingScoreDetails", "_federation",
                    "_geoDistance"))
_ABSENT: Mapping[str, Any] = {}  # represents a document that does not exist


def hydrate(hits: Sequence[str], keys_of: Callable[[Hit], Keys], open_index: Opener) -> list[str]:
    """Replace foreign keys in hits (JSON texts) by the documents that they identify.

    keys_of: the foreign keys for a parsed hit. Each other index is opened once for all hits, and only if a hit refers to
    it. Raises the errors of opening an index.
    """
    parsed = [loads(hit) for hit in hits]
    references_of: dict[str, list[_Reference]] = {}  # index uid -> its references
    for hit in parsed:
        keys = keys_of(hit)
        if keys:
            attributes = _Attributes(keys)
            for reference in (*_beneath(hit, "", attributes, _ADDED), *_beneath(hit.get(_FORMATTED, {}), "", attributes)):
                references_of.setdefault(reference.index_uid, []).append(reference)
    for index_uid, references in references_of.items():
        documents = _documents(index_uid, {each.document_id for each in references}, open_index)
        for each in references:
            each.container[each.place] = documents.get(each.document_id, _ABSENT)
    return [dumps(hit) for hit in parsed] if references_of else list(hits)


class _Reference(NamedTuple):
    """A foreign key in a hit: its container, its name or index there, and the document that will replace it."""

    container: Any  # an object or an array
    place: Any
    index_uid: str
    document_id: str


class _Attributes:
    """The attributes that are foreign keys or contain some; cached by path."""

    def __init__(self, keys: Keys) -> None:
        self.index_of: Callable[[str], str | None] = lru_cache(None)(
            lambda name: next((uid for key, uid in keys.items() if is_beneath(name, key)), None))
        self.leads_to_any: Callable[[str], bool] = lru_cache(None)(
            lambda name: any(is_related(name, key) for key in keys))


def _beneath(container: Any, path: str, attributes: _Attributes, without: frozenset[str] = frozenset()) -> Iterator[_Reference]:
    """Yield the foreign keys in an object or array at a path; elements of an array have the path of the array."""
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
    """Return identifier -> displayed attributes of the document, for documents that exist. `_vectors` is left out."""
    with open_index(index_uid) as reader:
        settings = reader.settings
        texts = reader.identified_documents(sorted(document_ids))
    documents = {document_id: loads(text) for document_id, text in texts.items()}
    for document in documents.values():
        document.pop(_VECTORS, None)
    if settings.is_everything_displayed:
        return documents
    selection = Selection(settings.displayed_attributes)
    return {document_id: shown_parts(document, selection) for document_id, document in documents.items()}


# Filters over other indexes

MAX_DOCUMENTS = 100

# index uid -> a reader of it, open within the `with` block.
Opener = Callable[[str], AbstractContextManager[Reader]]

_NESTED = "Nested foreign filters are not supported"
_NO_KEY = "Field `{field}` is not a foreign key"
_TOO_MANY = ("Foreign filter is retrieving too many documents, "
             f"foreign filters can't retrieve more than {MAX_DOCUMENTS} documents per index")


def has_foreign(condition: Condition | None) -> bool:
    """Return whether a filter contains `_foreign`."""
    return condition is not None and any(isinstance(part, Foreign) for part in in_order(condition))


def resolve_foreign(condition: Condition, index_uid: str, settings: IndexSettings, open_index: Opener) -> Condition:
    """Replace each `_foreign(field, filter)` in a filter by `field IN [ids]`.

    index_uid, settings: of the index that is filtered. All joins are checked before another index is opened; each is
    opened once. Raises invalid_search_filter, and invalid_document_filter for an error of the inner filter; messages begin
    with the index concerned.
    """
    joins: dict[str, list[Foreign]] = {}  # index uid -> its joins, from left to right
    for join in in_order(condition):
        if isinstance(join, Foreign):
            if join.field.text not in settings.foreign_keys:
                raise _filter_error(index_uid, _NO_KEY.format(field=join.field.text))
            if has_foreign(join.part):
                raise _filter_error(index_uid, _NESTED)
            joins.setdefault(settings.foreign_keys[join.field.text], []).append(join)
    ids: dict[int, Sequence[str]] = {}
    for uid, of_index in joins.items():
        ids |= _matching_ids(uid, of_index, open_index)

    def joined(part: Condition) -> Condition:
        if isinstance(part, Not):
            return Not(joined(part.part))
        if isinstance(part, (And, Or)):
            return type(part)([joined(each) for each in part.parts])
        return In(part.field, ids[id(part)]) if isinstance(part, Foreign) else part

    return joined(condition)


def _matching_ids(index_uid: str, joins: Sequence[Foreign], open_index: Opener) -> dict[int, Sequence[str]]:
    """Return id(join) -> identifiers of the documents of one index that match its filter."""
    with open_index(index_uid) as reader:
        found: list[tuple[Foreign, DocIds]] = []
        for join in joins:
            try:
                found.append((join, filter_docids(reader, join.part, "invalid_document_filter", shown_from=join.start)))
            except ApiError as error:
                raise ApiError(error.code, f"Index `{index_uid}`: {error.message}") from None
        if len(union_of(docids for _, docids in found)) > MAX_DOCUMENTS:
            raise _filter_error(index_uid, _TOO_MANY)
        key = reader.primary_key
        return {id(join): [] if key is None else [
            document_identifier(loads(text), key) for text in reader.documents(docids.to_array())] for join, docids in found}


def _filter_error(index_uid: str, sentence: str) -> ApiError:
    return ApiError("invalid_search_filter", f"Index `{index_uid}`: {sentence}")
