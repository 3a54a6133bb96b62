"""The member `_vectors` of documents in answers: vectors by embedder, after what is stored under other names (docs/vectors.md).

Also used by the documents routes.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svcd.base.json_text import dumps, loads
from svcd.query.reader import Reader
from svcd.schema.document_vectors import MEMBER
from svcd.vectors.vector import DocumentVectors

# A document without this text has no such member.
VECTORS_MEMBER = f'"{MEMBER}"'
# Bytes of a number of a vector in JSON: a single-precision number, printed in double precision.
_NUMBER_BYTES = 21

Json = dict[str, Any]

_NONE_YET = DocumentVectors([], True)


def vectors_of(reader: Reader, docids: Sequence[int]) -> list[Json]:
    """For each document the vectors of all embedders of the settings, in byte order of their names, as answers show them."""
    shown: list[Json] = [{} for _ in docids]
    for name in sorted(reader.settings.embedders, key=str.encode):
        found = dict(reader.vectors.document_vectors(docids, name))
        for docid, members in zip(docids, shown):
            own = found.get(docid, _NONE_YET)
            members[name] = {"embeddings": list(map(list, own.vectors)), "regenerate": own.regenerate}
    return shown


def set_vectors(document: Json, vectors: Json) -> None:
    """Make `_vectors` the last member: what the document has for names without embedder, then its vectors."""
    stored = document.pop(MEMBER, None)
    document[MEMBER] = {**(stored if isinstance(stored, dict) else {}), **vectors}


def are_displayed(reader: Reader) -> bool:
    """May answers show vectors? A quirk of the reference engine decides where the displayed attributes are listed: a listed
    `_vectors` hides them if some document has it as an attribute."""
    if reader.settings.is_everything_displayed:
        return True
    return (MEMBER in reader.settings.displayed_attributes) != (MEMBER in reader.fields())


def with_or_without_vectors(reader: Reader, are_retrieved: bool, docids: Sequence[int], texts: Sequence[str]) -> Sequence[str]:
    """Documents (JSON texts) with their vectors if these are retrieved and displayed, else without the member `_vectors`."""
    if not are_retrieved or not are_displayed(reader):
        return [_without_vectors(text) for text in texts]
    documents = list(map(loads, texts))
    for document, vectors in zip(documents, vectors_of(reader, docids)):
        set_vectors(document, vectors)
    return list(map(dumps, documents))


def _without_vectors(text: str) -> str:
    if VECTORS_MEMBER not in text:
        return text
    document = loads(text)
    document.pop(MEMBER, None)
    return dumps(document)


def average_bytes(reader: Reader) -> int:
    """About how many bytes the vectors of a document take in an answer."""
    return _NUMBER_BYTES * sum(reader.vectors.dimensions(name) or 0 for name in reader.settings.embedders)
