"""What must hold of tracing spans:

1. A step lasts until the next one begins, it is ended, or its group is closed.
2. Steps with the same path are added up; a path is listed where it ended last, so after all its parts.
3. Steps outside the recorded block, or in a block that records nothing, are not measured.
4. An exception closes the groups that it leaves.
5. Searches name their steps: with and without keywords, with filters and facets, and of merged lists.
"""
from __future__ import annotations

from itertools import count

import pytest

from svcd.base import tracing
from svcd.base.tracing import Recorder, recording, span
from svcd.filters.evaluation import read_filter
from svcd.search.federation import federated
from svcd.search.request import Federation, IndexedQuery, SearchQuery
from tests.support.searching import UID, answer, never, titled

FILMS = titled("sun", "sun night", filterableAttributes=["id"])
LOCAL = "execute local search"


def recorder() -> Recorder:
    """Its clock goes one forward each time it is looked at."""
    return Recorder(count().__next__)


def test_a_step_lasts_until_the_next() -> None:
    measuring = recorder()
    with recording(measuring):
        tracing.begin("a")
        with span("g"):
            tracing.begin("b")
            tracing.begin("c")
            tracing.end()
            tracing.end()
    assert list(measuring.durations.items()) == [("a", 1), ("g > b", 1), ("g > c", 1), ("g", 5)]


def test_equal_paths_are_added_up_and_stand_where_they_ended_last() -> None:
    measuring = Recorder(count().__next__, {"wait": 5})

    @span("g")
    def searched(name: str) -> None:
        tracing.begin(name)

    with recording(measuring):
        searched("a")
        tracing.begin("b")
        searched("c")
        searched("a")
    assert list(measuring.durations.items()) == [("wait", 5), ("b", 1), ("g > c", 1), ("g > a", 2), ("g", 9)]


def test_only_what_is_recorded_is_reported() -> None:
    measuring = recorder()
    tracing.begin("before")
    with recording(measuring):
        assert tracing.recorder() is measuring
        with recording(None), span("inner"):
            tracing.begin("nobody hears this")
        with span("g"):
            pass
    tracing.begin("after")
    assert list(measuring.durations) == ["g"] and tracing.recorder() is None


def test_a_failure_leaves_its_groups() -> None:
    measuring = recorder()
    with recording(measuring):
        with pytest.raises(ValueError), span("a"), span("b"):
            tracing.begin("c")
            raise ValueError
        tracing.begin("d")
        tracing.end()
    assert list(measuring.durations) == ["a > b > c", "a > b", "a", "d"]


@pytest.mark.parametrize(("q", "asked", "expected"), [
    ("sun", {}, ["tokenize query", "evaluate query", "keyword ranking", "format"]),
    ("", {}, ["tokenize query", "evaluate query", "placeholder ranking", "format"]),
    ("sun", {"filter": "id = 1", "facets": ["id"]},
     ["evaluate filter", "tokenize query", "evaluate query", "keyword ranking", "format", "facet distribution"]),
])
def test_a_search_reports_its_steps(q: str, asked: dict, expected: list[str]) -> None:
    measuring = recorder()
    federation = Federation(facets={UID: asked["facets"]} if "facets" in asked else {})
    with recording(measuring):
        answer(FILMS, q, federation, filter=read_filter(asked.get("filter"), "invalid_search_filter"))
    assert list(measuring.durations) == [*(f"{LOCAL} > {name}" for name in expected), LOCAL]
    inner = sum(measuring.durations[f"{LOCAL} > {name}"] for name in expected)
    assert len(expected) == inner < measuring.durations[LOCAL]


def test_a_merged_search_reports_its_steps() -> None:
    measuring = recorder()
    queries = [IndexedQuery(uid, SearchQuery(q="sun")) for uid in ("a", "b")]
    with recording(measuring):
        federated(lambda uid: FILMS, queries, Federation(facets={"b": ["id"]}), never)
    local = [f"{LOCAL} > {name}" for name in ("tokenize query", "evaluate query", "keyword ranking", "facet distribution", "format")]
    assert list(measuring.durations) == ["partition queries", *local[:4], "merge results", local[4], LOCAL]
    assert [measuring.durations[path] for path in local] == [2, 2, 2, 1, 2]
