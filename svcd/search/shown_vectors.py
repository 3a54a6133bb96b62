"""The member `_vectors` of documents in answers: the stored part for names without embedder, then vectors (docs/vectors.md).

The documents routes use it, too.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svcd.base.json_text import dumps, loads
from svcd.query.reader import Reader
from svcd.schema.document_vectors import MEMBER
from svcd.vectors.vector import DocumentVectors

# Documents without this text lack the member.
VECTORS_MEMBER = f'"{MEMBER}"'
# Bytes of a number of a vector in JSON: a single-precision number, printed in double precision.
_NUMBER_BYTES = 21

Json = dict[str, Any]

_NONE_YET = DocumentVectors([], True)


def vectors_of(reader: Reader, docids: Sequence[int]) -> list[Json]:
    """Return for each document the vectors of all configured embedders, in byte order of their names, as answers show them."""
    shown: list[Json] = [{} for _ in docids]
    for name in sorted(reader.settings.embedders, key=str.encode):
        found = dict(reader.vectors.document_vectors(docids, name))
        for docid, members in zip(docids, shown):
            own = found.get(docid, _NONE_YET)
            members[name] = {"embeddings": list(map(list, own.vectors)), "regenerate": own.regenerate}
    return shown


def set_vectors(document: Json, vectors: Json) -> None:
    """Make `_vectors` the last member: the stored part for names without embedder, then the vectors."""
    stored = document.pop(MEMBER, None)
    document[MEMBER] = {**(stored if isinstance(stored, dict) else {}), **vectors}


def are_displayed(reader: Reader) -> bool:
    """Return whether answers may show vectors. If displayed attributes are listed, a quirk of the reference engine decides: a
    listed `_vectors` hides them if some document has it as an attribute."""
    if reader.settings.is_everything_displayed:
        return True
    return (MEMBER in reader.settings.displayed_attributes) != (MEMBER in reader.fields())


def with_or_without_vectors(reader: Reader, are_retrieved: bool, docids: Sequence[int], texts: Sequence[str]) -> Sequence[str]:
    """Return documents (JSON texts) with their vectors if retrieved and displayed, else without the member `_vectors`."""
    if not are_retrieved or not are_displayed(reader):
        return [text if VECTORS_MEMBER not in text else
                dumps({name: value for name, value in loads(text).items() if name != MEMBER}) for text in texts]
    documents = list(map(loads, texts))
    for document, vectors in zip(documents, vectors_of(reader, docids)):
        set_vectors(document, vectors)
    return list(map(dumps, documents))


def average_bytes(reader: Reader) -> int:
    """Return about how many bytes the vectors of a document take in an answer."""
    return _NUMBER_BYTES * sum(reader.vectors.dimensions(name) or 0 for name in reader.settings.embedders)
