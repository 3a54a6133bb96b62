"""The variables of templates: `doc` and `fields` of documents, `q` and `media` of search queries."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Not visible in templates, though they are members of documents.
HIDDEN = frozenset({"_vectors", "_geo", "_geojson"})


def document_variables(document: Mapping[str, Any], is_searchable: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """Return `doc` and `fields` for a document template.

    document: its JSON value, members in their stored order. is_searchable: returns for the name of a field whether the setting
    `searchableAttributes` has it (`settings.searchable.__contains__`); without an index always true.
    `fields` has {name, value, is_searchable} for each member of the document, in its order.
    """
    visible = {name: value for name, value in document.items() if name not in HIDDEN}
    return {
        "doc": visible,
        "fields": [{"name": name, "value": value, "is_searchable": is_searchable(name)} for name, value in visible.items()],
    }


def fragment_variables(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return only `doc`, for an indexing fragment."""
    return {"doc": {name: value for name, value in document.items() if name not in HIDDEN}}


def search_variables(q: str | None, media: Any = None) -> dict[str, Any]:
    """Return the given ones of `q` and `media` of a search query, for a search fragment."""
    return {name: value for name, value in (("q", q), ("media", media)) if value is not None}
