"""The member `_vectors` of documents: the vectors that a user gives for each embedder, and the errors in them.

Source: docs/vectors.md#vectors-in-documents.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, unexpected
from svcd.validation.messages import ARRAY, NULL, NUMBER, expected, found, json_excerpt
from svcd.vectors.vector import vector_of

MEMBER = "_vectors"
MOST_VECTORS = 256  # of a document and an embedder

_REGENERATE, _EMBEDDINGS = "regenerate", "embeddings"
_NUMBERS = frozenset((int, float))
_KINDS: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}

_NOT_AN_OBJECT = ("The `_vectors` field in the document with id: `{id}` is not an object. Was expecting an object with a key for "
                  "each embedder with manually provided vectors, but instead got `{value}`")
_BAD_ENTRY = "Bad embedder configuration in the document with id: `{id}`. {error}"
_TOO_MANY = "Too many vectors for document with id {id}: found {count}, but limited to {most}."
_BAD_LENGTH = ("Invalid vector dimensions in document with id `{id}` in `._vectors.{embedder}`.\n"
               "  - note: embedding #{place} has dimensions {found}\n"
               "  - note: embedder `{embedder}` requires {expected}")
_NO_REGENERATE = ("Missing field `{path}.regenerate`\n  - note: `{path}` must be an array of floats, an array of arrays of "
                  "floats, or an object with field `regenerate`")
_UNKNOWN_FIELD = "Unexpected field `{path}.{field}`\n  - note: the allowed fields are `regenerate` and `embeddings`"
_WRONG_KIND = ("Expected `{path}` to be an array of floats, an array of arrays of floats, or an object with at least the field "
               "`regenerate`, but got the {kind} `{value}`")


class GivenVectors(NamedTuple):
    """The vectors that a document gives for one embedder.

    vectors: None if it gives no vectors, [] if it must not have any. is_made: the embedder made them, before a dump.
    """

    vectors: list[array[float]] | None
    regenerate: bool
    is_made: bool = False

    def after(self, earlier: GivenVectors | None) -> GivenVectors:
        """Apply this change after an earlier one that is not written yet: vectors to keep come from `earlier`."""
        is_to_stay = self.vectors is None and not self.regenerate
        return earlier._replace(regenerate=False) if earlier and is_to_stay else self

    def has_length(self, dimensions: int) -> bool:
        """Return whether all vectors have this length."""
        return all(len(vector) == dimensions for vector in self.vectors or ())


def split_vectors(document_id: str, value: Any, embedders: Mapping[str, int], may_be_outdated: bool = False
                  ) -> tuple[dict[str, GivenVectors], dict[str, Any]]:
    """Return the vectors for configured embedders in a value of `_vectors`, and its members with other names.

    embedders: name -> length of its vectors. may_be_outdated: see checked_vectors().
    Raises invalid_vectors_type, invalid_vector_dimensions, too_many_vectors.
    """
    if value is None:
        return {}, {}
    if not isinstance(value, dict):
        raise ApiError("invalid_vectors_type", _NOT_AN_OBJECT.format(id=document_id, value=json_excerpt(value)))
    given: dict[str, GivenVectors] = {}
    others: dict[str, Any] = {}
    for name, entry in value.items():
        if name in embedders:
            given[name] = checked_vectors(document_id, name, entry, embedders[name], may_be_outdated)
        else:
            others[name] = entry
    return given, others


def checked_vectors(document_id: str, embedder: str, entry: Any, dimensions: int, may_be_outdated: bool = False) -> GivenVectors:
    """Return the vectors that a document gives for one embedder.

    may_be_outdated: all of them may have another common length, which the embedder had when they were given.
    Raises invalid_vectors_type, invalid_vector_dimensions, too_many_vectors.
    """
    try:
        given = read_vectors(entry, f"._vectors.{embedder}")
    except ValueError as error:
        raise ApiError("invalid_vectors_type", _BAD_ENTRY.format(id=document_id, error=error)) from None
    vectors = given.vectors or []
    if len(vectors) > MOST_VECTORS:
        raise ApiError("too_many_vectors", _TOO_MANY.format(id=document_id, count=len(vectors), most=MOST_VECTORS))
    if may_be_outdated and vectors and vectors[0] and given.has_length(len(vectors[0])):
        return given
    for place, vector in enumerate(vectors):
        if len(vector) != dimensions:
            raise ApiError("invalid_vector_dimensions", _BAD_LENGTH.format(
                id=document_id, embedder=embedder, place=place, found=len(vector), expected=dimensions))
    return given


def read_vectors(entry: Any, path: str) -> GivenVectors:
    """Read an entry of `_vectors`, with vectors of any length. Raises ValueError, with the sentence of the message."""
    if entry is None:
        return GivenVectors([], False)
    if isinstance(entry, list):
        return GivenVectors(_vectors(entry, path), False)
    if not isinstance(entry, dict):
        raise ValueError(_WRONG_KIND.format(path=path, kind=_KINDS[type(entry)], value=entry if isinstance(entry, str)
                                            else json_excerpt(entry)))
    for field in entry:
        if field == _REGENERATE and not isinstance(entry[field], bool):
            # serde_json's sentence; the column is the end of the value in compact JSON.
            fields, value = list(entry), entry[_REGENERATE]
            before = {name: entry[name] for name in fields[:fields.index(_REGENERATE)]}
            column = len(dumps({**before, _REGENERATE: 0}).encode()) - len("0}") + len(dumps(value).encode())
            raise ValueError(f"Could not parse `{path}.regenerate`: invalid type: {unexpected(value)}, "
                             f"expected a boolean at line 1 column {column}")
        if field not in (_REGENERATE, _EMBEDDINGS):
            raise ValueError(_UNKNOWN_FIELD.format(path=path, field=field))
    if _REGENERATE not in entry:
        raise ValueError(_NO_REGENERATE.format(path=path))
    regenerate, embeddings = entry[_REGENERATE], entry.get(_EMBEDDINGS)
    if embeddings is None:
        # null removes the vectors; with `regenerate` it is ignored.
        return GivenVectors([] if _EMBEDDINGS in entry and not regenerate else None, regenerate)
    return GivenVectors(_vectors(embeddings, f"{path}.embeddings"), regenerate)


def _vectors(value: Any, path: str) -> list[array[float]]:
    """Return one vector, or a list of vectors, as a list."""
    if not isinstance(value, list):
        raise _wrong_type(path, (NULL, ARRAY), value)
    if not value:
        return []
    if type(value[0]) in _NUMBERS:
        return [_vector(value, path)]
    if not isinstance(value[0], list):
        raise _wrong_type(f"{path}[0]", (NUMBER, ARRAY), value[0])
    vectors = []
    for place, element in enumerate(value):
        if not isinstance(element, list):
            raise _wrong_type(f"{path}[{place}]", (ARRAY,), element)
        vectors.append(_vector(element, f"{path}[{place}]"))
    return vectors


def _vector(numbers: Sequence[Any], path: str) -> array[float]:
    if not _NUMBERS.issuperset(map(type, numbers)):
        place, wrong = next((place, each) for place, each in enumerate(numbers) if type(each) not in _NUMBERS)
        raise _wrong_type(f"{path}[{place}]", (NUMBER,), wrong)
    return vector_of(numbers)


def _wrong_type(path: str, kinds: Iterable[str], value: Any) -> ValueError:
    return ValueError(f"Invalid value type at `{path}`: expected {expected(kinds)}, but found {found(value)}")


def shown_entry(vectors: Iterable[Sequence[float]], regenerate: bool) -> dict[str, Any]:
    """Return an entry of `_vectors` as answers show it."""
    return {_EMBEDDINGS: [list(vector) for vector in vectors], _REGENERATE: regenerate}
