"""Which requests every process of a daemon answers, not its main process alone.

Knows the paths of searches; refuses to know which processes there are. Asked of each request before the routes are.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svcd.http.message import Request

_METHODS = frozenset(("GET", "POST"))
_SEARCHES = frozenset(("search", "facet-search"))
_SEVERAL = ("multi-search",)


def is_for_all(request: Request) -> bool:
    """A search of one index, of its facets or of several: it only reads, so that it may run anywhere."""
    if request.method not in _METHODS or "search" not in request.path:
        return False
    segments = request.segments
    return segments == _SEVERAL or len(segments) == 3 and segments[0] == "indexes" and segments[2] in _SEARCHES
