"""What must hold of dry runs of 36,273 films and of a million documents, against what the tasks do afterwards:

1. The counts of each kind of change are exact: documents, words, vectors, calls of the service, errors.
2. The seconds are within a factor of 2, or within 0.3 s: of films once the daemon has learned from an upload and from one use of
   the service, of a million documents at once, with the default rates.

Run it with `-s` to see the figures. The machine may have other work: seconds are compared after division by the slowdown that it
caused, of the dry run and of the task; where a service is called, as they are, since its seconds are not scaled. The million
documents are those of `../shared/bench/bench.py --docs 1000000`; with SVCD_MILLION=FOLDER the data folder of that index is kept there
for the next run.
"""
from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import growth
from svcd.base import machine
from svcd.tasks.views import parse_duration
from tests.faults.conftest import IS_LONG
from tests.support.daemon import Daemon, running
from tests.support.scripted_server import Reply as Vectors, ScriptedServer, by_body
from tests.support.shared_material import SHARED

FILMS = SHARED / "data" / "movies.ndjson.gz"
TOLERANCE_S, FACTOR = 0.3, 2.0
MILLION = 1_000_000
MOST_ANSWER_S = 600

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FILMS.exists(), reason="the films are not beside the repository"),
              pytest.mark.skipif(not IS_LONG, reason="a long run")]


@dataclass
class Compared:
    """A daemon with an index. figures: of each change, the estimate and the seconds of the task, comparable with each other."""

    daemon: Daemon
    service: ScriptedServer
    documents: list[dict[str, Any]]
    index: str = "films"
    figures: list[tuple[str, float, float]] = field(default_factory=list)

    def number(self) -> int:
        return self.daemon.get(f"/indexes/{self.index}/stats")["numberOfDocuments"] if self.daemon.get("/indexes")["total"] else 0

    def core_times(self) -> tuple[int, int]:
        """Of the processes that run batches."""
        times = [machine.core_times(Path(f"/proc/{pid}/schedstat")) for pid in self.daemon.children("svcd.tasks.indexing_process")]
        return sum(ran for ran, _ in times), sum(waited for _, waited in times)

    def change(self, name: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Make a dry run, then the change; compare them. body: JSON."""
        content = None if body is None else json.dumps(body)
        begun, tasks, asked = time.monotonic(), self.daemon.get("/tasks?limit=0")["total"], len(self.service.requests)
        got = self.daemon.call(method, f"{path}{'&' if '?' in path else '?'}dryRun=true", content, timeout=MOST_ANSWER_S)
        answered = time.monotonic() - begun
        found = got.json
        assert got.status == 200, found
        assert self.daemon.get("/tasks?limit=0")["total"] == tasks and len(self.service.requests) == asked
        before, cores = self.number(), self.core_times()
        task = self.daemon.done(self.daemon.call(method, path, content), 3600)
        assert (found["status"], found["error"], found["details"]) == (task["status"], task["error"], task["details"])
        assert self.number() - before == found["documents"]["added"] - found["documents"]["deleted"]
        assert sum(each["calls"] for each in found["vectors"].values()) == len(self.service.requests) - asked
        trace = self.daemon.get(f"/batches/{task['batchUid']}")["stats"]["progressTrace"]
        ran, waited = (now - then for now, then in zip(self.core_times(), cores))
        took, slowdown = parse_duration(trace["processing tasks"]) / 1e9, 1 + waited / max(ran, 1) if ran >= 0 else 1
        is_scaled = not any(each["calls"] for each in found["vectors"].values())
        self.figures.append((name, found["seconds"] / found["slowdown"], took / slowdown) if is_scaled else
                            (name, found["seconds"], took))
        print(f"{name:20} dry run {answered:6.2f} s   estimate {found['seconds']:7.2f} s ({found['slowdown']:.1f})   "
              f"task {took:7.2f} s ({slowdown:.1f})   {found['seconds'] / took:5.2f}   "
              f"without slowdown {found['seconds'] / found['slowdown'] / took * slowdown:5.2f}   {found['bytesOnDisk'] / 1e6:8.1f} MB",
              flush=True)
        return found


    @staticmethod
    def wrong(figures: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
        """The figures that are not within the limits."""
        return [each for each in figures if abs(each[1] - each[2]) > TOLERANCE_S and not 1 / FACTOR <= each[1] / each[2] <= FACTOR]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    with gzip.open(FILMS, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    service = ScriptedServer(by_body(lambda body: Vectors([[len(text), 1, 2, 3] for text in body])), path="/embed")
    with running(tmp_path_factory.mktemp("films"), "--experimental-allowed-ip-networks", "127.0.0.0/8") as daemon:
        yield Compared(daemon, service, documents)
        assert daemon.bugs() == []
    service.close()


def test_what_a_dry_run_of_films_says_happens(films: Compared) -> None:
    documents, count, change = films.documents, len(films.documents), films.change
    settings, uploads = "/indexes/films/settings", "/indexes/films/documents"
    rest = {"source": "rest", "url": films.service.url, "request": ["{{text}}", "{{..}}"], "response": ["{{embedding}}", "{{..}}"],
            "dimensions": 4, "documentTemplate": "{{doc.title}}"}
    found = change("add films", "POST", f"{uploads}?primaryKey=id", documents)
    assert (found["documents"]["added"], found["madeAgain"]["words"]) == (count, count)
    assert change("the same films", "POST", uploads, documents)["documents"]["unchanged"] == count
    for name, body, again in (
            ("stopWords", {"stopWords": ["the", "a"]}, "words"),
            ("searchableAttributes", {"searchableAttributes": ["title", "extract"]}, "words"),
            ("searchableAttributes", {"searchableAttributes": ["title"]}, "words"),
            ("all attributes", {"searchableAttributes": None}, "words"),
            ("cjk", {"cjk": "bigrams"}, "words"),
            ("filterableAttributes", {"filterableAttributes": ["genres", "year", "id"]}, "values"),
            ("sortableAttributes", {"sortableAttributes": ["title"]}, "values"),
            ("bm25", {"defaultMatchingStrategy": "bm25"}, "wordCounts"),
            ("no bm25", {"defaultMatchingStrategy": None}, None),
            ("synonyms", {"synonyms": {"movie": ["film"]}, "infixSearch": ["title"], "stemming": ["eng"]}, None)):
        found = change(name, "PATCH", settings, body)["madeAgain"]
        assert {part: number for part, number in found.items() if number} == ({again: count} if again else {})
    found = change("embedder", "PATCH", settings, {"embedders": {"e": rest}})
    assert found["vectors"]["e"]["made"] == len({each["title"] for each in documents})  # equal texts are sent once
    change("template", "PATCH", settings, {"embedders": {"e": {**rest, "documentTemplate": "{% if doc.id > 900000 %}x{% endif %}{{doc.title}}"}}})
    found = change("second embedder", "PATCH", settings, {"embedders": {"f": {**rest, "documentTemplate": "{{doc.title}} {{doc.id}}"}}})
    assert found["vectors"]["f"]["made"] == count
    assert change("one embedder", "PATCH", settings, {"embedders": {"f": None}})["vectors"]["f"]["removed"] == count
    changed = [{**each, "extract": "another"} if n % 10 == 0 else each for n, each in enumerate(documents)]
    found = change("a tenth changed", "POST", uploads, changed)
    assert found["documents"]["replaced"] == sum(each != old for each, old in zip(changed, documents)) == found["madeAgain"]["words"]
    change("titles", "PUT", uploads, [{"id": each["id"], "title": f"{each['title']} II"} for each in documents[:2000]])
    change("a wrong id", "POST", uploads, [*documents[:100], {"id": "no id"}])
    change("edit", "POST", f"{uploads}/delete-batch", [each["id"] for each in documents[:1000]])
    change("filter", "POST", f"{uploads}/delete", {"filter": "genres = Drama"})
    change("no embedder", "PATCH", settings, {"embedders": {"e": None}})
    assert change("all", "DELETE", uploads)["documents"]["deleted"] == films.daemon.get("/tasks?limit=1")["results"][0]["details"]["deletedDocuments"]
    assert films.wrong([each for each in films.figures[2:] if each[0] != "embedder"]) == []


def million_documents() -> Iterator[bytes]:
    """Those of the benchmark, as JSON."""
    return growth.documents(growth.sentences(gzip.decompress(FILMS.read_bytes()).splitlines()), MILLION)


def build_million(daemon: Daemon) -> None:
    """The index of the benchmark."""
    daemon.done(daemon.post("/indexes", {"uid": "m", "primaryKey": "id"}))
    daemon.done(daemon.call("PATCH", "/indexes/m/settings", json.dumps({
        "searchableAttributes": ["title", "cast", "extract"], "filterableAttributes": ["genres", "year", "cast"],
        "sortableAttributes": ["year", "title"]})))
    lines = list(million_documents())
    for start in range(0, MILLION, 300_000):
        daemon.done(daemon.call("POST", "/indexes/m/documents", b"\n".join(lines[start:start + 300_000]),
                                {"Content-Type": "application/x-ndjson"}, timeout=MOST_ANSWER_S), 3600)


@pytest.fixture
def million(tmp_path: Path) -> Iterator[Compared]:
    kept = Path(os.environ["SVCD_MILLION"]) if "SVCD_MILLION" in os.environ else None
    if kept is None or not kept.exists():
        with running(tmp_path) as daemon:
            build_million(daemon)
        if kept:
            shutil.copytree(tmp_path / "data.ms", kept)
    else:
        shutil.copytree(kept, tmp_path / "data.ms")
    service = ScriptedServer(by_body(lambda body: Vectors([])), path="/embed")
    with running(tmp_path) as daemon:
        daemon.call("PATCH", "/experimental-features", json.dumps({"editDocumentsByFunction": True}))
        yield Compared(daemon, service, list(map(json.loads, islice(million_documents(), 10_000))), "m")
        assert daemon.bugs() == []
    service.close()


def test_the_first_dry_run_of_a_million_documents_says_what_happens(million: Compared) -> None:
    some, uploads, settings = million.documents, "/indexes/m/documents", "/indexes/m/settings"
    spread = range(500, MILLION, MILLION // 1000)
    changes: list[tuple[str, str, str, Any, Callable[[dict[str, Any]], tuple[int, int]]]] = [
        ("the same 10,000", "POST", uploads, some, lambda found: (found["documents"]["unchanged"], len(some))),
        ("add 1,000", "POST", uploads, [{**each, "id": 2 * MILLION + each["id"]} for each in some[:1000]],
         lambda found: (found["documents"]["added"], 1000)),
        ("update 1,000", "PUT", uploads, [{"id": each["id"], "year": each["year"] + 1} for each in some[:1000]],
         lambda found: (found["documents"]["replaced"], 1000)),
        ("replace 1,000", "POST", uploads, [{**each, "id": number, "extract": "Five words, and no more."}
                                            for each, number in zip(some, spread)],
         lambda found: (found["documents"]["replaced"], 1000)),
        ("delete 1,000", "POST", f"{uploads}/delete-batch", [number + 1 for number in spread],
         lambda found: (found["documents"]["deleted"], 1000)),
        ("delete by filter", "POST", f"{uploads}/delete", {"filter": "year = 1921"},
         lambda found: (found["documents"]["deleted"], found["details"]["deletedDocuments"])),
        ("edit by filter", "POST", f"{uploads}/edit", {"function": "doc.year += 1", "filter": "year = 1911"},
         lambda found: (found["documents"]["replaced"], found["details"]["editedDocuments"])),
        ("synonyms", "PATCH", settings, {"synonyms": {"movie": ["film"]}}, lambda found: (found["madeAgain"]["words"], 0)),
        ("values again", "PATCH", settings, {"sortableAttributes": ["year", "title", "id"]},
         lambda found: (found["madeAgain"]["values"], million.number())),
        ("words again", "PATCH", settings, {"stopWords": ["the", "a"]},
         lambda found: (found["madeAgain"]["words"], million.number())),
        ("delete all", "DELETE", uploads, None,
         lambda found: (found["documents"]["deleted"], found["details"]["deletedDocuments"])),
    ]
    for name, method, path, body, counted in changes:
        million.daemon.stop()
        million.daemon.start()  # without what it learned
        there, expected = counted(million.change(name, method, path, body))
        assert there == expected, name
    assert million.wrong(million.figures) == []
