"""What must hold of answers that are made in portions:

1. They say what the same answer says in small ones, whatever is asked for.
2. They are of one state, whatever is written while they are taken.
3. They are made as they are taken: none is made ahead, and each piece is small.
4. At most so many are under way at once; one more is refused, and there is a place again when one ends.
5. What they are read from is released when they end, at whatever piece.
6. What is wrong with a request is told before anything is made.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.http.message import PORTION, Portions
from tests.api.working import instance, work  # noqa: F401  # fixtures

COUNT = 700
TEXT = "In a city by the sea a clerk finds a letter that was never sent, and goes to look for who wrote it. " * 4
FILMS = [{"id": n, "title": f"Film {n * 7919 % COUNT}", "year": 1900 + n % 97, "plot": f"{n} {TEXT}"} for n in range(COUNT)]
FETCH, LIST = "/indexes/films/documents/fetch", "/indexes/films/documents"
BODIES: list[dict[str, Any]] = [
    {},
    {"sort": ["year:desc", "title:asc"]},
    {"filter": "year < 1995"},
    {"filter": "year < 1995", "sort": ["title:asc"], "offset": 7},
    {"fields": ["title", "plot"]},
    {"ids": list(range(0, COUNT, 1))},
]


@pytest.fixture
def films(client: Any, work: Any) -> Any:
    """A client of an index `films` of 0.3 MB."""
    client.json("PATCH", "/indexes/films/settings", {
        "sortableAttributes": ["title", "year"], "filterableAttributes": ["year"], "pagination": {"maxTotalHits": COUNT}})
    client.json("POST", LIST, FILMS)
    work()
    return client


def in_pages(films: Any, body: dict[str, Any]) -> list[Any]:
    """The same documents in small pages."""
    found: list[Any] = []
    first = body.get("offset", 0)
    while page := films.json("POST", FETCH, {**body, "limit": 100, "offset": first + len(found)}).value["results"]:
        found += page
    return found


@pytest.mark.parametrize("body", BODIES)
def test_all_documents_are_those_of_all_pages(films: Any, body: dict[str, Any]) -> None:
    portions = films.parts("POST", FETCH, {**body, "limit": 100_000})
    assert isinstance(portions, Portions)
    pieces = list(portions)
    portions.close()
    assert len(pieces) > 5 and max(map(len, pieces)) < 2 * PORTION and all(pieces)
    answer = json.loads(b"".join(pieces))
    assert answer["results"] == in_pages(films, body)
    assert (list(answer), answer["limit"]) == (["results", "offset", "limit", "total"], 100_000)
    assert answer["total"] == len(answer["results"]) + body.get("offset", 0)


def test_small_ones_are_made_at_once(films: Any) -> None:
    assert isinstance(films.parts("GET", f"{LIST}?limit=200"), bytes)
    assert isinstance(films.parts("GET", f"{LIST}?limit=100000&filter=year=1901"), bytes)


def test_they_are_of_one_state(films: Any, work: Any) -> None:
    portions = films.parts("GET", f"{LIST}?limit=100000")
    first = next(portions)
    films.json("PUT", LIST, [{"id": n, "title": "changed", "late": True} for n in range(COUNT, COUNT + 5)])
    films.send("DELETE", f"{LIST}/{COUNT - 1}")
    films.json("PUT", LIST, [{"id": COUNT - 2, "title": "changed"}])
    work()
    assert json.loads(first + b"".join(portions))["results"] == FILMS
    portions.close()
    assert films.get(f"{LIST}?limit=1").value["total"] == COUNT + 4


def test_they_outlive_their_index(films: Any, work: Any) -> None:
    portions = films.parts("GET", f"{LIST}?limit=100000")
    films.send("DELETE", "/indexes/films")
    work()
    assert json.loads(b"".join(portions))["results"] == FILMS
    portions.close()


def test_they_are_bounded_in_number(films: Any) -> None:
    under_way = [films.parts("GET", f"{LIST}?limit=100000") for _ in range(2)]
    refused = films.get(f"{LIST}?limit=100000")
    assert (refused.status, refused.headers["retry-after"]) == (503, "10")
    assert refused.value["message"] == "All 2 large answers of this instance are in use: end one, or try again later."
    assert films.get(f"{LIST}?limit=20").status == 200
    next(under_way[0])
    for one in under_way:
        one.close()
        one.close()
    again = [films.parts("GET", f"{LIST}?limit=100000") for _ in range(2)]
    assert films.get(f"{LIST}?limit=100000").status == 503
    for one in again:
        one.close()


@pytest.mark.parametrize("taken", [0, 1, 1000])
def test_what_they_are_read_from_is_released(films: Any, instance: Any, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    pool, under_way = instance._readers, []
    begin, end = pool.begin, pool.end

    def begun(path: Any) -> Any:
        under_way.append(begin(path))
        return under_way[-1]

    monkeypatch.setattr(pool, "begin", begun)
    monkeypatch.setattr(pool, "end", lambda path, connection: (under_way.remove(connection), end(path, connection)))
    portions = films.parts("GET", f"{LIST}?limit=100000")
    for _ in zip(range(taken), portions):
        pass
    assert len(under_way) == 1
    portions.close()
    assert under_way == []


def test_what_is_wrong_is_told_at_once(films: Any) -> None:
    for body, code in (({"filter": "plot = 1"}, "invalid_document_filter"), ({"sort": ["plot:asc"]}, "invalid_document_sort")):
        got = films.json("POST", FETCH, {**body, "limit": 100_000})
        assert (got.status, got.value["code"]) == (400, code)
    assert isinstance(films.parts("GET", f"{LIST}?limit=100000"), Portions), "refusals took no place"

