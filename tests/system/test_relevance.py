"""Searches for questions through a daemon: BM25, stems, pairs of characters and fusion (docs/guide/relevance.md).

1. `bm25` works in every route that searches, and as the default of an index.
2. A write is found at once; the index equals one that is built anew.
3. Settings have routes, survive a dump's form, and are not shown while they are not set.
4. Errors name what was wrong.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.rebuilt import differences

PAPERS = [
    {"id": 1, "title": "Heated wings", "text": "Heat conduction in wings at high speed", "year": 1950, "kind": "a"},
    {"id": 2, "title": "Boundary layers", "text": "Flows over a flat plate and its boundary layer", "year": 1951, "kind": "b"},
    {"id": 3, "title": "Running tests", "text": "How tests of wings are run in a tunnel", "year": 1952, "kind": "a"},
    {"id": 4, "title": "東京都庁", "text": "都庁の場所", "year": 1953, "kind": "b"},
]
QUESTION = "what is known about the conduction of heat in a heated wing"
INDEX = "/indexes/papers"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        settings = {"defaultMatchingStrategy": "bm25", "stemming": ["eng"], "filterableAttributes": ["kind"], "cjk": "bigrams",
                    "embedders": {"e": {"source": "userProvided", "dimensions": 2}}}
        daemon.done(daemon.call("PATCH", f"{INDEX}/settings", json.dumps(settings)))
        daemon.done(daemon.post(f"{INDEX}/documents", [
            {**paper, "_vectors": {"e": [paper["id"] / 4, 1 - paper["id"] / 4]}} for paper in PAPERS]))
        daemon.done(daemon.post("/indexes/plain/documents", PAPERS))
        yield daemon


def _ids(reply: dict[str, Any]) -> list[int]:
    return [hit["id"] for hit in reply["hits"]]


def test_every_route_that_searches_takes_the_strategy(daemon: Daemon) -> None:
    for index in ("papers", "plain"):
        asked = {"q": QUESTION, "matchingStrategy": "bm25", "filter": None}
        assert _ids(daemon.post(f"/indexes/{index}/search", asked).json)[:1] == [1]
        assert _ids(daemon.get(f"/indexes/{index}/search?matchingStrategy=bm25&q={QUESTION.replace(' ', '%20')}"))[:1] == [1]
        several = daemon.post("/multi-search", {"queries": [{"indexUid": index, **asked}]}).json
        assert _ids(several["results"][0])[:1] == [1]
        merged = daemon.post("/multi-search", {"federation": {}, "queries": [{"indexUid": index, **asked}]}).json
        assert _ids(merged)[:1] == [1]
    values = daemon.post(f"{INDEX}/facet-search", {"facetName": "kind", "q": "conduction plates"}).json["facetHits"]
    assert {value["value"]: value["count"] for value in values} == {"a": 1, "b": 1}


def test_the_default_strategy_of_an_index_is_used_where_none_is_named(daemon: Daemon) -> None:
    assert _ids(daemon.post(f"{INDEX}/search", {"q": QUESTION}).json)[0] == 1
    assert 2 in _ids(daemon.post(f"{INDEX}/search", {"q": "heating plates"}).json)
    assert _ids(daemon.post(f"{INDEX}/search", {"q": "plate zzz", "matchingStrategy": "all"}).json) == []
    assert _ids(daemon.post("/indexes/plain/search", {"q": QUESTION}).json) == []


def test_pages_filters_and_facets_work(daemon: Daemon) -> None:
    reply = daemon.post(f"{INDEX}/search", {"q": "wings", "filter": "kind = a", "facets": ["kind"], "hitsPerPage": 1, "page": 2}).json
    assert reply["totalHits"] == 2 and len(reply["hits"]) == 1 and reply["facetDistribution"] == {"kind": {"a": 2}}


def test_stems_and_pairs_are_highlighted(daemon: Daemon) -> None:
    (hit,) = daemon.post(f"{INDEX}/search", {"q": "tunnels", "attributesToHighlight": ["text"]}).json["hits"]
    assert "<em>tunnel</em>" in hit["_formatted"]["text"]
    (hit,) = daemon.post(f"{INDEX}/search", {"q": "京都", "attributesToHighlight": ["title"]}).json["hits"]
    assert hit["_formatted"]["title"] == "東<em>京都</em>庁"


@pytest.mark.parametrize("fusion", ("rrf", "score"))
def test_lists_are_fused(daemon: Daemon, fusion: str) -> None:
    asked = {"q": "wing tunnels", "vector": [1.0, 0.0], "showRankingScoreDetails": True,
             "hybrid": {"embedder": "e", "semanticRatio": 0.4, "fusion": fusion, "k": 10}}
    reply = daemon.post(f"{INDEX}/search", asked).json
    assert _ids(reply)[0] == 3 and reply["hits"][0]["_rankingScoreDetails"]["fusion"]["kind"] == fusion


def test_writes_are_found_at_once_and_leave_the_index_as_built_anew(daemon: Daemon, tmp_path: Path) -> None:
    for number in range(5, 12):
        daemon.done(daemon.post(f"{INDEX}/documents", [
            {"id": number, "title": f"Oscillation{number} of wings", "_vectors": {"e": None}}]))
        assert _ids(daemon.post(f"{INDEX}/search", {"q": f"what is oscillation{number}"}).json) == [number]
    daemon.done(daemon.call("PUT", f"{INDEX}/documents", json.dumps(
        [{"id": 5, "title": "Flutter", "_vectors": {"e": None}}])))
    daemon.done(daemon.call("DELETE", f"{INDEX}/documents/6"))
    assert 5 not in _ids(daemon.post(f"{INDEX}/search", {"q": "oscillation5"}).json)
    assert 6 not in _ids(daemon.post(f"{INDEX}/search", {"q": "oscillation6"}).json)
    for path in (daemon.data / "indexes").glob("*.sqlite"):
        assert differences(path, tmp_path) == []
        (tmp_path / "rebuilt.sqlite").unlink()
        (tmp_path / "rebuilt.ndjson").unlink()


def test_settings_have_routes_and_are_hidden_while_they_are_not_set(daemon: Daemon) -> None:
    assert daemon.get(f"{INDEX}/settings/stemming") == ["eng"]
    assert daemon.get(f"{INDEX}/settings/default-matching-strategy") == "bm25"
    assert daemon.get("/indexes/plain/settings/bm25") is None
    shown = daemon.get("/indexes/plain/settings")
    assert shown.keys().isdisjoint(("defaultMatchingStrategy", "bm25", "stemming", "cjk", "infixSearch", "foldWidth"))
    assert daemon.get(f"{INDEX}/settings")["cjk"] == "bigrams"


def test_errors_name_what_was_wrong(daemon: Daemon) -> None:
    reply = daemon.call("PUT", f"{INDEX}/settings/stemming", json.dumps(["jpn"]))
    assert reply.code == "invalid_settings_stemming" and "`eng`" in reply.json["message"]
    assert daemon.call("PATCH", f"{INDEX}/settings/bm25", json.dumps({"k1": -1})).code == "invalid_settings_bm25"
    asked = {"q": "a", "vector": [1, 0], "hybrid": {"embedder": "e", "fusion": "best"}}
    assert daemon.post(f"{INDEX}/search", asked).code == "invalid_search_hybrid_fusion"
    reply = daemon.post(f"{INDEX}/search", {"matchingStrategy": "best"})
    assert reply.json["message"] == ("Unknown value `best` at `.matchingStrategy`: expected one of `last`, `all`, `frequency`")
