"""Conditions on vectors: is there such an embedder, such a fragment (relevance.md 5.8)?

Knows the names in the settings; refuses to know vectors. Which documents have some is not known to this version.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from svcd.engine.filters.errors import FilterError, fail
from svcd.engine.filters.tree import Token, VectorExists
from svcd.engine.filters.vector_names import did_you_mean
from svcd.engine.reader import DocIds, Reader

_NO_EMBEDDER = "The embedder `{name}` does not exist. {available}"
_NO_EMBEDDERS = "This index does not have any configured embedders."
_NO_FRAGMENT = "The fragment `{name}` does not exist on embedder `{embedder}`. {available}"
_NO_FRAGMENTS = "This embedder does not have any configured fragments."


def vector_docids(reader: Reader, condition: VectorExists) -> DocIds:
    """The documents with such vectors. Raises FilterError."""
    embedders: Mapping[str, Any] = reader.settings.get("embedders") or {}
    if condition.embedder is not None:
        check_names(embedders, condition.embedder, condition.fragment)
    if not embedders:
        return 0
    raise FilterError("This version of svcd does not have filters on vectors yet.", condition.name)


def check_names(embedders: Mapping[str, Any], embedder: Token, fragment: Token | None) -> None:
    """Refuse an embedder, or a fragment of it, that the settings do not have."""
    if embedder.text not in embedders:
        available = _available("Available embedders", embedder.text, list(embedders)) or _NO_EMBEDDERS
        fail(_NO_EMBEDDER.format(name=embedder.text, available=available), embedder)
    if fragment is None:
        return
    fragments = (embedders[embedder.text] or {}).get("indexingFragments") or {}
    if fragment.text not in fragments:
        available = _available("Available fragments on this embedder", fragment.text, list(fragments)) or _NO_FRAGMENTS
        fail(_NO_FRAGMENT.format(name=fragment.text, embedder=embedder.text, available=available), fragment)


def _available(what: str, name: str, known: Sequence[str]) -> str:
    if not known:
        return ""
    return f"{what} are: {', '.join(f'`{each}`' for each in sorted(known))}.{did_you_mean(name, known)}"
