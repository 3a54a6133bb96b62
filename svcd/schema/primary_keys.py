"""Primary keys: which field identifies the documents of an index, and the identifier of one document."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps

_MOST_BYTES = 511
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,%d}" % _MOST_BYTES)
_SUFFIX = "id"
_ADVICE = "Please specify the primary key manually using the `primaryKey` query parameter."


def infer_primary_key(document: Mapping[str, Any]) -> str:
    """The only top-level field of a document whose name ends with `id` in any letter case.

    Raises index_primary_key_no_candidate_found, index_primary_key_multiple_candidates_found.
    """
    candidates = sorted(name for name in document if name.lower().endswith(_SUFFIX))
    if len(candidates) == 1:
        return candidates[0]
    failed = "The primary key inference failed as the engine"
    if not candidates:
        reason = f"{failed} did not find any field ending with `id` in its name."
        raise ApiError("index_primary_key_no_candidate_found", f"{reason} {_ADVICE}")
    found = f"{len(candidates)} fields ending with `id` in their names: '{candidates[0]}' and '{candidates[1]}'."
    raise ApiError("index_primary_key_multiple_candidates_found", f"{failed} found {found} {_ADVICE}")


def document_identifier(document: Mapping[str, Any], primary_key: str) -> str:
    """The identifier of a document, as text. Raises missing_document_id, invalid_document_id."""
    value = document.get(primary_key) if "." not in primary_key else None
    if type(value) is int or type(value) is str and _IDENTIFIER.fullmatch(value):
        return str(value)
    found = list(_values(document, primary_key))
    if not found:
        message = f"Document doesn't have a `{primary_key}` attribute: `{dumps(document)}`."
        raise ApiError("missing_document_id", message)
    if len(found) > 1:
        message = f"Document have too many matching `{primary_key}` attribute: `{dumps(document)}`."
        raise ApiError("invalid_document_id", message)
    return checked_identifier(found[0])


def _values(document: Mapping[str, Any], path: str) -> Iterator[Any]:
    """The values at a dotted path; each dot may separate two levels or belong to a name."""
    if path in document:
        yield document[path]
    for dot in (at for at, character in enumerate(path) if character == "."):
        member = document.get(path[:dot])
        if isinstance(member, dict):
            yield from _values(member, path[dot + 1:])


def identifier(value: Any) -> str | None:
    """The identifier that a JSON value is; None when it is not a valid one."""
    return str(value) if type(value) is int or isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None


def checked_identifier(value: Any) -> str:
    """The identifier that a JSON value is. Raises invalid_document_id."""
    found = identifier(value)
    if found is not None:
        return found
    rule = (
        "A document identifier can be of type integer or string, only composed of alphanumeric characters "
        f"(a-z A-Z 0-9), hyphens (-) and underscores (_), and can not be more than {_MOST_BYTES} bytes."
    )
    raise ApiError("invalid_document_id", f"Document identifier `{dumps(value)}` is invalid. {rule}")
