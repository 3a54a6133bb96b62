"""`svcd relevance`, against a running daemon, and with documents that the file of tests brings along. What must hold:

1. Each kind of expectation holds or fails as a plain look at the hits says, and the status tells scripts.
2. The figures of judged lists are those of their definitions.
3. diff shows what settings would change, and changes nothing in the instance.
4. A fault in a file is named with its place.
"""
from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.commands import relevance_tests
from tests.commands.conftest import Run
from tests.support.daemon import ROOT, Daemon, running

STAR = {"q": "star", "index": "films"}  # finds 1, 7, 12 by their titles, then 2 by its overview
SETTINGS = {"searchableAttributes": ["title", "overview"]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        daemon.call("PATCH", "/indexes/films/settings", json.dumps(SETTINGS))
        daemon.done(daemon.post("/indexes/films/documents", json.loads((ROOT / "examples/films.json").read_text())))
        yield daemon


def write(name: str, value: Any) -> str:
    Path(name).write_text(json.dumps(value))
    return name


@pytest.mark.parametrize(("expected", "failures"), [
    ({"first": 1}, []),
    ({"first": [1, 7]}, []),
    ({"first": 7}, ["7 must be at 1, and is at 2"]),
    ({"within": {"2": [7, 1], "4": 2}}, []),
    ({"within": {"1": [1, 7], "20": "x"}}, ["7 must be within 1, and is at 2", "x must be within 20, and is not among the hits"]),
    ({"above": [[1, 2], [1, 3]], "absent": 3}, []),
    ({"above": [[2, 1], [3, 1]]}, ["2 must be above 1, and is at 4, 1 at 1", "3 must be above 1, and is not among the hits, 1 at 1"]),
    ({"absent": [3, 2]}, ["2 must be absent, and is at 4"]),
])
def test_expectations_hold_or_fail_as_the_hits_say(run: Run, expected: Any, failures: list[str]) -> None:
    status, out, err = run("relevance", "check", write("tests.json", {"queries": [{**STAR, **expected}]}), "--json")
    (test,) = json.loads(out)["tests"]
    assert (status, test["failures"], err) == (bool(failures), failures, "")
    assert test["index"] == "films" and test["holds"] == (not failures)


def test_parameters_of_searches_apply_to_the_file_or_to_a_query(run: Run) -> None:
    Path("tests.toml").write_text("""
        index = "films"
        search = { attributesToSearchOn = ["title"] }
        queries = [{ q = "star", absent = 2 }, { q = "star", search = { attributesToSearchOn = ["overview"] }, first = 2 }]
    """)
    status, out, _ = run("relevance", "check", "tests.toml")
    assert status == 0 and out == "holds  films  star\nholds  films  star\n2 tests, none failed\n"


def plain_figures(found: list[str], grades: dict[str, float]) -> list[float]:
    """nDCG@10, recall@100 and MRR, each by its definition."""
    best = sorted(grades.values(), reverse=True)
    dcg = sum(grades.get(found[place], 0) / math.log2(place + 2) for place in range(min(10, len(found))))
    ideal = sum(best[place] / math.log2(place + 2) for place in range(min(10, len(best))))
    relevant = {each for each in grades if grades[each]}
    ranks = [place + 1 for place, each in enumerate(found) if each in relevant]
    return [dcg / ideal, len(relevant & set(found)) / len(relevant), 1 / ranks[0] if ranks else 0]


def test_figures_are_those_of_the_definitions() -> None:
    chance = random.Random(1)
    for _ in range(50):
        found = chance.sample([str(number) for number in range(40)], chance.randrange(30))
        grades = {str(number): float(chance.randrange(4)) for number in chance.sample(range(40), 15)} | {"0": 1.0}
        assert relevance_tests.judge(found, grades) == pytest.approx(plain_figures(found, grades))


def test_judged_lists_have_bounds_and_may_be_files(run: Run) -> None:
    write("judged.json", {"queries": {"a": "star", "b": "wizard"}, "relevant": {"a": {"7": 2, "1": 1}, "b": {"6": 1}}})
    judged = [{"file": "judged.json", "index": "films", "least": {"MRR": 1, "nDCG@10": 0.9}},
              {"name": "inline", "index": "films", "relevant": {"star": {"7": 2, "1": 1}}}]
    status, out, _ = run("relevance", "check", write("tests.json", {"judged": judged}), "--json")
    first, second = json.loads(out)["tests"]
    star, _, _ = plain_figures(["1", "7", "12", "2"], {"7": 2, "1": 1})
    assert first["figures"] == pytest.approx({"nDCG@10": (star + 1) / 2, "recall@100": 1, "MRR": 1})
    assert first["queries"] == pytest.approx({"star": star, "wizard": 1}) and second["queries"] == {"star": pytest.approx(star)}
    assert status == 0 and (first["test"], second["test"]) == ("judged.json", "inline")
    judged[0]["least"] = {"nDCG@10": 0.95}
    status, out, _ = run("relevance", "check", write("tests.json", {"judged": judged}))
    assert status == 1 and "FAILS  films  judged.json" in out and "nDCG@10 must be at least 0.95, and is 0.9" in out


def test_documents_of_the_file_are_searched_in_an_instance_of_their_own(run: Run, daemon: Daemon) -> None:
    write("shops.json", [{"code": "x-1", "name": "Bakery"}, {"code": "x-2", "name": "Bakers"}])
    tests = {"index": "shops", "queries": [{"q": "bakery", "first": "x-1"}],
             "indexes": {"shops": {"documents": "shops.json", "primaryKey": "code", "settings": {"searchableAttributes": ["name"]}}}}
    status, out, err = run("relevance", "check", write("tests.json", tests), "--json")
    assert (status, json.loads(out)["holds"], err) == (0, True, "")
    assert daemon.get("/stats")["indexes"].keys() == {"films"}
    status, _, err = run("relevance", "check", "tests.json", "--url", f"http://127.0.0.1:{daemon.port}")
    assert status == 1 and "Index `shops` not found" in err


def test_diff_shows_what_settings_would_change_and_changes_nothing(run: Run, daemon: Daemon) -> None:
    before = daemon.get("/indexes/films/settings"), daemon.get("/tasks")["total"]
    tests = write("tests.json", {"index": "films", "queries": [{"q": "star", "first": 2}, {"q": "star", "within": {"2": [1, 7]}},
                                                               {"q": "wizard", "first": 6}],
                                 "judged": [{"name": "list", "relevant": {"star": {"1": 1}, "alien": {"3": 1}}}]})
    status, out, _ = run("relevance", "diff", write("settings.json", {"searchableAttributes": ["overview"]}), tests, "--json")
    shown = json.loads(out)
    assert status == 1 and shown["isWorse"]
    assert [(each["before"]["holds"], each["after"]["holds"]) for each in shown["tests"]] == [
        (False, True), (True, False), (True, False), (True, True)]
    assert [shown["tests"][3][when]["figures"]["MRR"] for when in ("before", "after")] == [1, 0]
    assert (daemon.get("/indexes/films/settings"), daemon.get("/tasks")["total"]) == before
    assert not list(Path("state").rglob("*.json"))


@pytest.mark.parametrize(("tests", "words"), [
    ({}, ": contains nothing to test: add `queries` or `judged`"),
    ({"queries": [{"q": "a", "first": 1}]}, "missing field `index` at `.queries[0]`, or once for the file"),
    ({"queries": [STAR]}, "`.queries[0]` expects nothing: give `first`, `within`, `above` or `absent`"),
    ({"queries": [{**STAR, "firs": 1}]}, "Unknown field `firs` inside `.queries[0]`: did you mean `first`?"),
    ({"queries": [{**STAR, "first": 1.5}]}, "at `.queries[0].first`: a document id is an integer or a string"),
    ({"queries": [{**STAR, "within": {"x": 1}}]}, "`x` is not a number of hits from 1 to 1000"),
    ({"queries": [{**STAR, "above": [[1]]}]}, "at `.queries[0].above[0]`: expected two document ids, the better one first"),
    ({"judged": [{"index": "films"}]}, "`.judged[0]` lacks judged queries: give `relevant`, or a `file` with it"),
    ({"judged": [{"index": "films", "file": "gone.json"}]}, "gone.json cannot be read: No such file"),
    ({"judged": [{"index": "films", "relevant": {"a": {"1": 0}}}]}, "`relevant.a` needs a document with a grade above 0, or remove it"),
    ({"judged": [{"index": "films", "relevant": {"a": {"1": 1}}, "least": {"ndcg": 1}}]}, "`ndcg` is not a figure: expected one of nDCG@10"),
    ([], "must contain an object"),
])
def test_faults_are_named_with_their_place(run: Run, tests: Any, words: str) -> None:
    status, out, err = run("relevance", "check", write("tests.json", tests))
    assert status == 2 and out == "" and words in err and err.count("\n") == 1


def test_diff_asks_for_the_index_where_there_are_several(run: Run) -> None:
    tests = write("tests.json", {"queries": [{**STAR, "first": 1}, {"index": "books", "q": "a", "first": 1}]})
    status, _, err = run("relevance", "diff", write("settings.json", {}), tests)
    assert status == 2 and "has tests of films, books: name one of them with --index" in err
