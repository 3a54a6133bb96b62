"""Searches that are made to cost much: those that must be refused, and the worst that the bounds accept.

Each is made for a number of items, so that the short form can send fewer.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Request = tuple[str, Mapping[str, Any]]  # path, body
FILMS, PLACES = "/indexes/films", "/indexes/places"
SEARCH = f"{FILMS}/search"
N = 900_000


def _any(form: str, count: int, connective: str = " OR ") -> str:
    """Conditions with a number in each."""
    return connective.join(form.format(number) for number in range(count))


def _names(count: int, form: str = "a{}") -> list[str]:
    return list(map(form.format, range(count)))


def _in(field: str, count: int) -> str:
    return f"{field} IN [{','.join(map(str, range(count)))}]"


def _points(count: int) -> str:
    return ", ".join(f"[{10 + number / 1e5:.5f}, {10 + number % 7 / 1e4:.5f}]" for number in range(count))


_FILTERS: dict[str, tuple[int, int, Callable[[int], Any], bool]] = {  # name: (hostile, largest, filter, is it about places?)
    "OR of n texts in an array": (N, 50_000, lambda n: [_names(n, "year = {}")], False),
    "AND of n texts in an array": (N, 20_000, lambda n: _names(n, "year != 3{}"), False),
    "IN n numbers": (N, 100_000, lambda n: _in("year", n), False),
    "NOT IN n texts with escapes": (N, 100_000, lambda n: "title NOT IN [" + ",".join(_names(n, r"'a{}\n'")) + "]", False),
    "n ORs": (300_000, 50_000, lambda n: _any("year = {}", n), False),
    "n ranges": (300_000, 1_000, lambda n: _any("year > {}", n), False),
    "n ranges of texts": (300_000, 1_000, lambda n: _any("title > a{}", n, " AND "), False),
    "n STARTS WITH": (100_000, 1_000, lambda n: _any("title STARTS WITH x{}", n), False),
    "n CONTAINS": (2_000, 100, lambda n: _any("title CONTAINS x{}", n), False),
    "n radiuses": (50_000, 100, lambda n: _any("_geoRadius({0}e-3, {0}e-4, 200000)", n), True),
    "a polygon of n points": (1_000_000, 49_500, lambda n: f"_geoPolygon({_points(n)})", True),
}
_LISTS: dict[str, tuple[int, int, Callable[[int], list[Any]], str]] = {  # member: (hostile, largest, list, code)
    "facets": (N, 10_000, lambda n: ["year"] * n, "invalid_search_facets"),
    "sort": (500_000, 100, lambda n: _names(n, "title.a{}:asc"), "invalid_search_sort"),
    "attributesToRetrieve": (N, 10_000, lambda n: _names(n, "title.a{}"), "invalid_search_attributes_to_retrieve"),
    "attributesToHighlight": (N, 10_000, lambda n: _names(n, "title.a{}"), "invalid_search_attributes_to_highlight"),
    "attributesToCrop": (N, 10_000, lambda n: _names(n, "title.a{}"), "invalid_search_attributes_to_crop"),
    "attributesToSearchOn": (N, 10_000, lambda n: _names(n, "*t{}"), "invalid_search_attributes_to_search_on"),
    "locales": (N, 10_000, lambda n: ["eng"] * n, "invalid_search_locales"),
    "vector": (N, 100_000, lambda n: [0] * n, "invalid_search_vector"),
}
_FILTER_ROUTES = {  # path: code
    f"{FILMS}/search": "invalid_search_filter", f"{FILMS}/facet-search": "invalid_search_filter",
    f"{FILMS}/documents/fetch": "invalid_document_filter", f"{FILMS}/documents/delete": "invalid_document_filter",
    f"{FILMS}/documents/edit": "invalid_document_filter", f"{PLACES}/similar": "invalid_similar_filter",
}
_REST: dict[str, Mapping[str, Any]] = {
    f"{FILMS}/facet-search": {"facetName": "genres"}, f"{FILMS}/documents/edit": {"function": "doc.a = 1"},
    f"{PLACES}/similar": {"id": 1, "embedder": "default"},
}


def refused(part: float) -> Iterator[tuple[str, Request, str]]:
    """(name, request, code) of what is refused. part: of the items of the long form; never so few that they would be accepted."""
    for name, (hostile, largest, make, is_place) in _FILTERS.items():
        count = max(int(hostile * part), largest + largest // 10)
        yield f"filter: {name}, n = {count:,}", (f"{PLACES}/search" if is_place else SEARCH, {"filter": make(count)}), "invalid_search_filter"
    for path, code in _FILTER_ROUTES.items():
        count = max(int(N * part), 110_000)
        yield f"{path}: IN {count:,}", (path, {**_REST.get(path, {}), "filter": _in("country" if "places" in path else "year", count)}), code
    for name, (hostile, largest, listed, code) in _LISTS.items():
        count = max(int(hostile * part), largest + 1)
        yield f"{name}: {count:,}", (SEARCH, {"q": "the", "limit": 1000, name: listed(count)}), code
    fetched = f"{FILMS}/documents/fetch"
    yield "fetch: ids", (fetched, {"ids": list(range(max(int(N * part), 100_001)))}), "invalid_document_ids"
    yield "fetch: fields", (fetched, {"fields": _names(max(int(N * part), 10_001))}), "invalid_document_fields"
    yield "fetch: sort", (fetched, {"sort": _names(max(int(N * part), 101), "a{}:asc")}), "invalid_document_sort"
    yield "q", (SEARCH, {"q": "word " * max(int(16_000_000 * part), 200_001)}), "invalid_search_q"
    yield "facetQuery", (f"{FILMS}/facet-search", {"facetName": "cast", "facetQuery": "x" * 1_000_001}), "invalid_facet_search_query"


def largest() -> Iterator[tuple[str, Request]]:
    """(name, request) of the worst that is accepted."""
    for name, (_, count, make, is_place) in _FILTERS.items():
        yield f"filter: {name}, n = {count:,}", (f"{PLACES}/search" if is_place else SEARCH, {"filter": make(count)})
    for name, (_, count, listed, _) in _LISTS.items():
        if name != "vector":
            yield f"{name}: {count:,}", (SEARCH, {"q": "the", "limit": 1000, name: listed(count)})
    yield "fetch: ids 100,000", (f"{FILMS}/documents/fetch", {"ids": list(range(100_000)), "limit": 1})
    yield "fetch: sort 100", (f"{FILMS}/documents/fetch", {"sort": _names(100, "title.a{}:asc")})
    for q in ('"a b" ', '"the" -"a the" ', "-a ", "the " * 100, "中文字符"):
        yield f"q: {q[:20]!r} repeated", (SEARCH, {"q": (q * 1_000_000)[:1_000_000], "attributesToHighlight": ["*"], "limit": 1000})
    for name in ("highlightPreTag", "cropMarker"):
        yield f"{name}: 1 MB", (SEARCH, {"q": "the", name: "\x01" * 1_000_000, "limit": 1000, "attributesToHighlight": ["*"],
                                        "attributesToCrop": ["*"]})
