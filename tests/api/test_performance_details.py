"""`performanceDetails`. What must hold:

1. Each form of a search shows it if it is asked for, as the last member, and not otherwise.
2. Its steps are named from the outermost in, the inner ones first; queries of one request share the wait.
3. Durations are texts of two decimals in the largest unit they reach.
4. A measured search is made each time: its answer is not kept, and never shown to another one.
"""
from __future__ import annotations

import re
from typing import Any

import pytest

from svcd.api.answers import duration
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

INDEXES = {
    "films": DictReader([{"id": 1, "title": "sun", "by": 7}], {
        "filterableAttributes": ["by"], "foreignKeys": [{"fieldName": "by", "foreignIndexUid": "people"}]}),
    "people": DictReader([{"id": 7}], {"filterableAttributes": ["id"]}),
}
ASKED = {"showPerformanceDetails": True}
LOCAL = "search > execute local search"
STEPS = ["wait in queue", *(f"{LOCAL} > {name}" for name in (
    "tokenize query", "evaluate query", "keyword ranking", "format")), LOCAL, "search"]
DURATION = re.compile(r"[0-9]+\.[0-9]{2}(ns|µs|ms|s)")


@pytest.fixture(autouse=True)
def indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    read_indexes(monkeypatch, INDEXES)


def check(answer: Any, expected: list[str]) -> dict[str, str]:
    assert list(answer)[-1] == "performanceDetails"
    details = answer["performanceDetails"]
    assert list(details) == expected
    assert all(DURATION.fullmatch(text) for text in details.values())
    return details


def test_one_search_shows_its_steps(client, check_shape) -> None:
    for got in (client.json("POST", "/indexes/films/search", {"q": "sun", **ASKED}),
                client.get("/indexes/films/search?q=sun&showPerformanceDetails=true", **{"svc-include-metadata": "1"})):
        check(got.value, STEPS)
        check_shape(got.value, "SearchAnswer")


def test_joins_are_steps(client) -> None:
    client.instance.force_feature("foreignKeys")
    asked = {"q": "sun", "filter": "_foreign(by, id = 7)"}
    filtered, hydrated = f"{LOCAL} > evaluate filter", "search > hydrate documents"
    got = client.json("POST", "/indexes/films/search", {**asked, **ASKED}).value
    check(got, [STEPS[0], filtered, *STEPS[1:-1], hydrated, "search"])
    body = {"queries": [{"indexUid": "films", **asked}], "federation": ASKED}
    steps = check(client.json("POST", "/multi-search", body).value, [
        STEPS[0], "search > partition queries", filtered, *STEPS[1:4], "search > merge results", *STEPS[4:6], hydrated, "search"])
    assert len(steps) == len(STEPS) + 4


def test_each_query_has_its_own_and_all_share_the_wait(client, check_shape) -> None:
    films = {"indexUid": "films", "q": "sun"}
    got = client.json("POST", "/multi-search", {"queries": [{**films, **ASKED}, films, {**films, **ASKED}]}).value
    check_shape(got, "MultiSearchAnswer")
    first, second, third = got["results"]
    assert "performanceDetails" not in second
    assert check(first, STEPS)["wait in queue"] == check(third, STEPS)["wait in queue"]


def test_a_merged_search_shows_the_steps_of_all(client, check_shape) -> None:
    queries = [{"indexUid": uid, "q": "sun"} for uid in ("films", "people")]
    got = client.json("POST", "/multi-search", {"queries": queries, "federation": {
        **ASKED, "facetsByIndex": {"films": ["by"]}, "mergeFacets": {}}}).value
    check_shape(got, "MultiSearchAnswer")
    check(got, [STEPS[0], "search > partition queries", f"{LOCAL} > facet distribution", *STEPS[1:4],
                "search > merge results", *STEPS[4:6], "search > merge facets", "search"])
    for federation in ({}, {"showPerformanceDetails": False}):
        got = client.json("POST", "/multi-search", {"queries": queries, "federation": federation}).value
        assert "performanceDetails" not in got


def test_a_measured_search_is_made_each_time(client) -> None:
    def asked(**members: Any) -> Any:
        return client.json("POST", "/indexes/people/search", {"q": "7", **members}).value

    assert "performanceDetails" not in asked()
    for _ in range(2):  # the steps of a search that was made
        assert f"{LOCAL} > keyword ranking" in asked(**ASKED)["performanceDetails"]
    assert "performanceDetails" not in asked() and "performanceDetails" not in asked(showPerformanceDetails=False)


@pytest.mark.parametrize(("nanoseconds", "text"), [
    (0, "0.00ns"), (999, "999.00ns"), (1_000, "1.00µs"), (132_390, "132.39µs"), (1_000_000, "1.00ms"), (21_504_999, "21.50ms"),
    (61_234_567_890, "61.23s")])
def test_durations_are_texts(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text
