"""1. A path is matched by its segments; a slash at its end counts for nothing.
2. A literal segment wins over a parameter.
3. An unknown path is 404, an unknown method on a known path 405 with `Allow`.
4. Two routes never have the same method and path; every route of the table is reachable.
"""
from __future__ import annotations

import pytest

from svcd.api import facet_search, multi_search, search, similar
from svcd.api.all_routes import ROUTES
from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Table, is_for_all, segments_of
from svcd.http.message import Body, Headers, NoBody, Request


def run(_ctx: Context) -> HandlerResult:
    return HandlerResult(200, None)


def route(method: str, path: str) -> Route:
    return Route(method, path, run, None, {200: {}}, "", "")


TABLE = Table([route("GET", "/"), route("GET", "/tasks/{task_id}"), route("POST", "/tasks/cancel"),
               route("GET", "/indexes/{index_uid}/documents/{document_id}")])


def test_parameters_are_read_by_name() -> None:
    matched = TABLE.match("GET", ("indexes", "films", "documents", "7"))
    assert matched and matched[1] == {"index_uid": "films", "document_id": "7"}


def test_a_literal_segment_wins_over_a_parameter() -> None:
    assert TABLE.methods(("tasks", "cancel")) == ("POST",)
    assert TABLE.methods(("tasks", "1")) == ("GET",)


@pytest.mark.parametrize("segments", [("indexes",), ("indexes", "a"), ("tasks", "1", "x"), ("other",)])
def test_an_unknown_path_has_no_route(segments: tuple[str, ...]) -> None:
    assert TABLE.match("GET", segments) is None and TABLE.methods(segments) == ()


def test_the_root_is_a_path() -> None:
    assert TABLE.match("GET", ()) is not None


def test_two_routes_for_one_method_and_path_are_refused() -> None:
    with pytest.raises(ValueError, match="two routes for GET /tasks"):
        Table([route("GET", "/tasks/{a}"), route("GET", "/tasks/{b}")])


@pytest.mark.parametrize("declared", ROUTES, ids=lambda declared: f"{declared.method} {declared.path}")
def test_every_route_is_reachable(declared: Route) -> None:
    sample = tuple(segment if not segment.startswith("{") else "x" for segment in segments_of(declared.path))
    matched = Table(ROUTES).match(declared.method, sample)
    assert matched and matched[0] is declared


def test_an_unknown_route_is_answered_with_an_error_object(client) -> None:
    status, code, message = client.get("/indixes/films", accept="*/*").fault
    assert (status, code) == (404, "bad_request") and "`/indixes/films`" in message


def test_an_unknown_method_is_answered_with_the_known_ones(client) -> None:
    got = client.send("PUT", "/indexes/films", headers={"accept": "application/json"})
    assert got.status == 405 and got.headers["allow"] == "GET, PATCH, DELETE"
    assert got.value["code"] == "bad_request"


def test_a_client_that_accepts_nothing_gets_no_body_for_an_unknown_route(client) -> None:
    assert client.get("/indixes/films").text == ""


def test_a_slash_at_the_end_counts_for_nothing(client) -> None:
    assert client.get("/indexes/").value == client.get("/indexes").value


# Which requests every process answers

SEARCHES = {(route.method, route.path) for route in (
    *search.ROUTES, *multi_search.ROUTES, *facet_search.ROUTES, *similar.ROUTES)}


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
    ("GET", "/indexes/films/similar", True),
    ("GET", "/indexes/similar/stats", False),
    ("POST", "/indexes/multi-search", False),
])
def test_spelling(verb: str, path: str, expected: bool) -> None:
    assert is_for_all(request(verb, path)) == expected
