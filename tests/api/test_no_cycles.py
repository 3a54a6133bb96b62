"""What a search used is freed as soon as it has been answered: nothing of it is in a reference cycle, which would keep it, bitmaps and
all, until Python looks for cycles the next time (svcd.cli.serving.settle).
"""
from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.api.conftest import Client

WORDS = ["night", "train", "sea", "letter", "stone", "knight", "trains", "seal"]
FILMS = [{"id": n, "title": f"{WORDS[n % 8]} of the {WORDS[n * 3 % 7]}", "year": 1950 + n % 60, "genres": [WORDS[n % 3], WORDS[n % 5]],
          "_geo": {"lat": n % 80, "lng": n % 170}, "_vectors": {"own": [n % 7, 1.5]}} for n in range(400)]
SETTINGS = {"filterableAttributes": ["year", "genres", "_geo"], "sortableAttributes": ["year", "_geo"], "synonyms": {"sea": ["ocean trip"]},
            "distinctAttribute": None, "embedders": {"own": {"source": "userProvided", "dimensions": 2}}}
SEARCHES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "words": {"q": "night of sea"},
    "as you type": {"q": "the nigh"},
    "typos": {"q": "nihgt trian", "showRankingScoreDetails": True},
    "phrase": {"q": '"night of the" -stone'},
    "all of them": {"q": "night train sea", "matchingStrategy": "all"},
    "frequency": {"q": "train the sea", "matchingStrategy": "frequency"},
    "filter and facets": {"q": "letter", "filter": "year > 1960 AND genres = sea", "facets": ["*"]},
    "places": {"filter": "_geoRadius(10, 10, 900000)", "sort": ["_geoPoint(3, 4):asc"]},
    "sort": {"q": "sea", "sort": ["year:desc"]},
    "distinct": {"q": "sea", "distinct": "year"},
    "shown": {"q": "seal letter", "attributesToHighlight": ["*"], "attributesToCrop": ["title"], "showMatchesPosition": True},
    "vector": {"vector": [1.0, 2.0], "hybrid": {"embedder": "own"}},
    "hybrid": {"q": "sea", "vector": [1.0, 2.0], "hybrid": {"embedder": "own", "semanticRatio": 0.5}},
}
OTHERS = {
    "several": ("/multi-search", {"queries": [{"indexUid": "films", "q": "night"}, {"indexUid": "films", "q": "sea trai"}]}),
    "federated": ("/multi-search", {"federation": {}, "queries": [{"indexUid": "films", "q": "night"}, {"indexUid": "films", "q": "sea"}]}),
    "facet search": ("/indexes/films/facet-search", {"facetName": "genres", "facetQuery": "se", "q": "night"}),
    "similar": ("/indexes/films/similar", {"id": 3, "embedder": "own"}),
    "documents": ("/indexes/films/documents/fetch", {"filter": "year > 1980", "limit": 5}),
    "not valid": ("/indexes/films/search", {"q": "sea", "filter": "year >"}),
}
REQUESTS = {**{name: ("/indexes/films/search", body) for name, body in SEARCHES.items()}, **OTHERS}


@pytest.fixture
def without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.freeze()  # what other tests have loaded need not be looked through
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


def test_searches_leave_no_cycles(client: Client, work: Callable[[], None], without_collection: None) -> None:
    client.json("PATCH", "/indexes/films/settings", SETTINGS)
    client.json("POST", "/indexes/films/documents", FILMS)
    work()
    for url, body in REQUESTS.values():  # what stays is made
        client.json("POST", url, body)
    left = {}
    for name, (url, body) in REQUESTS.items():
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        got = client.json("POST", url, body | ({"limit": 7} if "queries" not in body and "facetName" not in body else {}))
        gc.collect()
        gc.set_debug(0)
        assert got.status == (400 if name == "not valid" else 200), got.text
        left[name] = sorted({f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage})
        gc.garbage.clear()
    assert {name: kinds for name, kinds in left.items() if kinds} == {}
