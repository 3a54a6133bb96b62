"""Which requests every process answers: those of the routes of a search, and no others."""
from __future__ import annotations

import pytest

from svcd.api import multi_search, search
from svcd.api import search as facet_search
from svcd.api.app import ROUTES
from svcd.api.routes import Route, is_for_all
from svcd.http.message import Body, Headers, NoBody, Request

SEARCHES = {(route.method, route.path) for route in (*search.ROUTES, *multi_search.ROUTES, *facet_search.FACET_SEARCH_ROUTES)}


def request(verb: str, path: str) -> Request:
    return Request(verb, path, "", Headers({}), Body(NoBody()), "127.0.0.1")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("index_uid", ["films", "search", "indexes"])
def test_it_is_the_searches(route: Route, index_uid: str) -> None:
    path = route.path.replace("{index_uid}", index_uid)
    assert is_for_all(request(route.method, path)) == ((route.method, route.path) in SEARCHES)


@pytest.mark.parametrize(("verb", "path", "expected"), [
    ("HEAD", "/indexes/films/search", True),
    ("POST", "/indexes/films/search/", True),
    ("POST", "//indexes/a%2Fb/search", True),
    ("OPTIONS", "/indexes/films/search", False),
    ("DELETE", "/indexes/films/search", False),
    ("POST", "/indexes/films/search/more", False),
    ("POST", "/indexes/films/searches", False),
    ("POST", "/indexes/search", False),
    ("POST", "/multi-search/", True),
    ("POST", "/indexes/multi-search", False),
])
def test_spelling(verb: str, path: str, expected: bool) -> None:
    assert is_for_all(request(verb, path)) == expected
