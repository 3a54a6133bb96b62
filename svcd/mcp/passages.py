"""Passages: documents as a model reads them, cut to a budget of characters."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from svcd.base.json_text import dumps

SCHEME = "svcd://"
CUT = "…"
# Members that may be the title of a document, the likeliest one first.
TITLES = ("title", "name", "label", "headline", "subject")
# A passage of fewer characters says too little, and a value of fewer is not cut.
_LEAST, _SHORT = 200, 60


def uri_of(index_uid: str, document_id: Any = None) -> str:
    """The address of a document, or of an index, as a resource."""
    return f"{SCHEME}{index_uid}" + ("" if document_id is None else f"/{quote(str(document_id), safe='')}")


def parts_of(uri: str) -> tuple[str, str | None] | None:
    """(index uid, identifier of the document or None) of an address; None for another address."""
    if not uri.startswith(SCHEME):
        return None
    index_uid, slash, document_id = uri.removeprefix(SCHEME).partition("/")
    return unquote(index_uid), unquote(document_id) if slash else None


def passage(hit: Mapping[str, Any], index_uid: str, primary_key: str | None) -> dict[str, Any]:
    """A hit of a search, with the crops of its fields if it has them. The member `fields` comes last."""
    fields = {name: value for name, value in hit.get("_formatted", hit).items()
              if not name.startswith("_") and name != primary_key}
    title = next((name for name in TITLES if isinstance(fields.get(name), str)), None)
    found: dict[str, Any] = {}
    if primary_key is not None and primary_key in hit:
        found = {"id": hit[primary_key], "uri": uri_of(index_uid, hit[primary_key])}
    if title is not None:
        found["title"] = fields.pop(title)
    if "_rankingScore" in hit:
        found["score"] = round(hit["_rankingScore"], 3)
    if "_matchedPassage" in hit:
        found["matchedPassage"] = hit["_matchedPassage"]
    return {**found, "fields": fields}


def shortened(value: Any, most: int) -> Any:
    """The beginning of a text of more than `most` characters; of a list or an object its JSON text."""
    text = dumps(value) if isinstance(value, (list, dict)) else value
    return text[:most] + CUT if isinstance(text, str) and len(text) > most else value


def within(documents: Iterable[dict[str, Any]], characters: int, member: str = "fields") -> list[dict[str, Any]]:
    """The documents, best first, whose JSON texts fit in a number of characters together; the first one always, but cut.

    member: of a document, whose values are cut, the longest first. A document that was cut has a list `cut` with their names.
    """
    kept: list[dict[str, Any]] = []
    for document in documents:
        if kept and characters < _LEAST:
            break
        while (excess := len(dumps(document)) - characters) > 0:
            fields = document[member]
            longest = max(fields, key=lambda name: len(dumps(fields[name])), default="")
            size = len(dumps(fields.get(longest)))
            if size < _SHORT:
                break
            text = fields[longest] if isinstance(fields[longest], str) else dumps(fields[longest])
            text = text[:len(text) * max(size - excess - _SHORT, 0) // size] + CUT
            document = {**document, member: {**fields, longest: text}, "cut": sorted({*document.get("cut", ()), longest})}
        if kept and excess > 0:
            break
        kept.append(document)
        characters -= len(dumps(document))
    return kept
