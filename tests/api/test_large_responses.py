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
from svcd.index.connections import ReadPool
from svcd.search import federation, search

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
def test_what_they_are_read_from_is_released(films: Any, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    under_way, begin, end = [], ReadPool.begin, ReadPool.end

    def begun(pool: ReadPool, path: Any) -> Any:
        under_way.append(begin(pool, path))
        return under_way[-1]

    def ended(pool: ReadPool, path: Any, connection: Any) -> None:
        under_way.remove(connection)
        end(pool, path, connection)

    monkeypatch.setattr(ReadPool, "begin", begun)
    monkeypatch.setattr(ReadPool, "end", ended)
    portions = films.parts("GET", f"{LIST}?limit=100000")
    for _ in zip(range(taken), portions):
        pass
    assert len(under_way) == 1
    portions.close()
    assert under_way == []


SEARCHES: list[dict[str, Any]] = [
    {},
    {"q": "film", "showRankingScore": True, "showRankingScoreDetails": True},
    {"q": "sea", "attributesToHighlight": ["plot"], "attributesToRetrieve": ["id", "plot"]},
    {"filter": "year < 1995", "sort": ["year:desc"], "facets": ["year"], "offset": 3},
]


def without_times(answer: Any) -> Any:
    """An answer without what differs each time."""
    if isinstance(answer, list):
        return [without_times(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: without_times(value) for name, value in answer.items() if name not in ("processingTimeMs", "requestUid")}


def taken(films: Any, path: str, body: dict[str, Any]) -> Any:
    """A large answer, as it is found in small pieces."""
    portions = films.parts("POST", path, body)
    assert isinstance(portions, Portions)
    pieces = list(portions)
    portions.close()
    assert len(pieces) > 5 and max(map(len, pieces)) < 3 * PORTION
    return without_times(json.loads(b"".join(pieces)))


def whole(films: Any, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same answer, made at once."""
    with monkeypatch.context() as patched:
        for module in (search, federation):
            patched.setattr(module, "MAX_PAGE_BYTES", 1 << 40)
        made = films.parts("POST", path, body)
    if isinstance(made, bytes):
        return without_times(json.loads(made))
    content = b"".join(made)  # a multi-search drops the parts of a large answer as they are sent
    made.close()
    return without_times(json.loads(content))


@pytest.mark.parametrize("body", SEARCHES)
def test_all_hits_are_those_that_are_shown_at_once(
    films: Any, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    body = {**body, "limit": 10_000}
    found = taken(films, "/indexes/films/search", body)
    assert len(found["hits"]) > 600
    assert found == whole(films, "/indexes/films/search", body, monkeypatch)
    queries = {"queries": [{**body, "indexUid": "films"}, {"indexUid": "films", "limit": 1}, {**body, "indexUid": "films"}]}
    several = taken(films, "/multi-search", queries)
    assert [len(each["hits"]) for each in several["results"]] == [len(found["hits"]), 1, len(found["hits"])]
    assert several == whole(films, "/multi-search", queries, monkeypatch)


@pytest.mark.parametrize("shown", [{}, {"showRankingScore": True, "attributesToHighlight": ["title"]}])
def test_all_merged_hits_are_those_that_are_shown_at_once(
    films: Any, monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any]
) -> None:
    films.json("POST", "/indexes/others/documents", FILMS[:5])
    body = {"federation": {"limit": 10_000}, "queries": [
        {"indexUid": "films", "q": "film 7", **shown}, {"indexUid": "films", "filter": "year > 1950"}]}
    merged = taken(films, "/multi-search", body)
    assert len(merged["hits"]) == COUNT
    assert merged == whole(films, "/multi-search", body, monkeypatch)


def test_hits_are_of_one_state(films: Any, work: Any) -> None:
    portions = films.parts("POST", "/indexes/films/search", {"limit": 10_000})
    films.send("DELETE", LIST)
    work()
    assert json.loads(b"".join(portions))["hits"] == FILMS
    portions.close()


def enqueued(client: Any, count: int) -> list[Any]:
    """The list of so many tasks with long names, oldest first, in small pages."""
    for n in range(count):
        client.instance.queue.enqueue("indexUpdate", f"films-{n}", details={"primaryKey": f"{n}" * 200, "newIndexUid": None},
                                      content={})
    found: list[Any] = []
    while page := client.get(f"/tasks?reverse=true&limit=20&from={len(found)}").value["results"]:
        found += page
    return found


def test_all_tasks_are_those_of_all_pages(client: Any) -> None:
    tasks = enqueued(client, 500)
    body = client.parts("GET", "/tasks?limit=1000")
    assert isinstance(body, Portions)
    client.instance.queue.enqueue("indexUpdate", "late", details={}, content={})
    pieces = list(body)
    body.close()
    assert max(map(len, pieces)) < 2 * PORTION
    assert json.loads(b"".join(pieces)) == {
        "results": tasks[::-1], "total": 500, "limit": 1000, "from": 499, "next": None}
    some = client.get("/tasks?limit=120&from=300").value
    assert some == {"results": tasks[300:180:-1], "total": 501, "limit": 120, "from": 300, "next": 180}
    assert client.get("/tasks?limit=120&from=300&indexUids=none").value == {
        "results": [], "total": 0, "limit": 120, "from": None, "next": None}


def test_a_long_list_of_tasks_is_of_one_state(client: Any, instance: Any, work: Any) -> None:
    running = instance.queue
    tasks = enqueued(client, 500)
    batch = running.start([running.task(7)], "unspecified")
    body = client.parts("GET", "/tasks?limit=1000")
    running.requeue(batch)
    client.send("POST", "/tasks/cancel?statuses=enqueued")  # one batch; to run each would take half a minute
    work()
    shown = json.loads(b"".join(body))["results"]
    body.close()
    assert {task["status"] for task in shown} == {"enqueued", "processing"}
    assert [task["uid"] for task in shown if task["status"] == "processing"] == [7] and len(shown) == len(tasks)
    assert {task["status"] for task in client.get("/tasks?limit=1000").value["results"]} == {"canceled", "succeeded"}


def test_long_lists_of_batches_are_those_of_all_pages(client: Any, work: Any) -> None:
    enqueued(client, 120)
    work()
    whole = client.get("/batches?limit=1000").value
    pages = [client.get(f"/batches?limit=40&from={first}").value for first in (119, 79, 39)]
    assert whole["results"] == [batch for page in pages for batch in page["results"]]
    assert (whole["from"], whole["next"], whole["total"]) == (119, None, 120)


def test_the_documents_of_a_task_come_in_portions(films: Any, instance: Any) -> None:
    instance.force_feature("getTaskDocumentsRoute")
    uid = films.json("POST", LIST, FILMS).value["taskUid"]
    body = films.parts("GET", f"/tasks/{uid}/documents")
    assert isinstance(body, Portions)
    assert [json.loads(line) for line in b"".join(body).splitlines()] == FILMS
    body.close()


def test_errors_are_reported_at_once(films: Any) -> None:
    for body, code in (({"filter": "plot = 1"}, "invalid_document_filter"), ({"sort": ["plot:asc"]}, "invalid_document_sort")):
        got = films.json("POST", FETCH, {**body, "limit": 100_000})
        assert (got.status, got.value["code"]) == (400, code)
    assert isinstance(films.parts("GET", f"{LIST}?limit=100000"), Portions), "refusals took no place"

