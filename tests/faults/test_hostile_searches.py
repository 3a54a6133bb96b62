"""What must hold of one search that is made to cost much:

1. Filters with 900,000 elements, lists with as many names, and texts of megabytes are refused with the code of their field, on every
   route that reads them, within seconds; the worst that is accepted takes about the cutoff (docs/search.md#bounds).
2. Tags and markers of a megabyte add at most 16 MB to an answer.
3. They leave the daemon with no more memory than its cache may have (before: 400 MB).

Seconds are those of the processor, so that other work on the machine does not count. The long form has the sizes of a real catalogue
of films, made of random words.
"""
from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.hostile_searches import largest, refused
from tests.support.daemon import Daemon, Reply, processor_seconds, running

pytestmark = pytest.mark.slow

REFUSAL_S, WORST_S = 2.0, 5.0
CACHE_MB, LEFT_MB = 24, 64.0  # what searches may keep for later ones, and that with what the allocator holds back
MOST_ADDED = 16_777_216


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with films and places."""
    chosen = random.Random(1)
    count = 36_000 if os.environ.get("SVCD_SOAK") == "1" else 2_000
    words = ["the", *("".join(chosen.choices("etaoinshrdlu", k=chosen.randint(2, 8))) for _ in range(5000))]
    films = [{"id": number, "title": " ".join(chosen.choices(words, k=4)), "year": 1900 + number % 120,
              "genres": chosen.choices(words[:20], k=2), "cast": [" ".join(chosen.choices(words, k=2)) for _ in range(4)],
              "extract": " ".join(chosen.choices(["the", *words], k=60))} for number in range(count)]
    places = [{"id": number, "country": number % 100, "_geo": {"lat": number % 80, "lng": number % 170},
               "_geojson": {"type": "Point", "coordinates": [number % 170, number % 80]},
               "_vectors": {"default": [number % 7, 1, number % 3]}} for number in range(1, count // 10)]
    with running(tmp_path_factory.mktemp("hostile"), "--search-memory", f"{CACHE_MB} MiB") as daemon:
        daemon.call("PATCH", "/experimental-features", json.dumps({"containsFilter": True, "editDocumentsByFunction": True}))
        for uid, documents, settings in (
            ("films", films, {"filterableAttributes": ["genres", "year", "cast", "title"], "sortableAttributes": ["title", "year"]}),
            ("places", places, {"filterableAttributes": ["_geo", "_geojson", "country"],
                                "embedders": {"default": {"source": "userProvided", "dimensions": 3}}}),
        ):
            daemon.done(daemon.call("PATCH", f"/indexes/{uid}/settings", json.dumps(settings)), 600)
            assert daemon.done(daemon.post(f"/indexes/{uid}/documents", documents), 600)["status"] == "succeeded"
        daemon.post("/indexes/films/search", {"q": "the", "filter": "year > 0", "attributesToHighlight": ["*"], "facets": ["*"]})
        yield daemon
        assert daemon.bugs() == []


def measured(daemon: Daemon, path: str, body: Any) -> tuple[Reply, float]:
    """The reply, and the seconds of the processor that it took."""
    before = processor_seconds(daemon.pids[0])
    reply = daemon.call("POST", path, json.dumps(body), timeout=600)
    return reply, processor_seconds(daemon.pids[0]) - before


def test_a_search_that_would_cost_too_much_is_refused_at_once(
    filled: Daemon, amount: Callable[[int, int], int], figure: Callable[..., None]
) -> None:
    slowest, memory = 0.0, filled.anonymous_mb()
    for name, (path, body), code in refused(amount(1, 20) / 20):
        reply, seconds = measured(filled, path, body)
        figure(f"refused: {name}", seconds, "s of the processor", limit="under 2 s")
        assert (reply.status, reply.code) in ((400, code), (413, "payload_too_large")), (name, reply.body[:300])
        slowest = max(slowest, seconds)
    left = filled.anonymous_mb() - memory
    figure("memory after searches that were refused", left, "MB more", limit="under 64 MB")
    assert slowest < REFUSAL_S and left < LEFT_MB


def test_the_worst_search_that_is_accepted_takes_about_the_cutoff(filled: Daemon, figure: Callable[..., None]) -> None:
    slowest, memory = 0.0, filled.anonymous_mb()
    for name, (path, body) in largest():
        reply, seconds = measured(filled, path, body)
        figure(f"accepted: {name}", seconds, "s of the processor", limit="under 5 s")
        assert reply.status == 200 and len(reply.body) < 2 * MOST_ADDED, (name, reply.body[:300])
        slowest = max(slowest, seconds)
    left = filled.anonymous_mb() - memory
    figure("memory after the worst searches that are accepted", left, "MB more", limit="under 64 MB")
    assert slowest < WORST_S and left < LEFT_MB


def test_a_tag_of_a_megabyte_adds_16_mb_at_most(filled: Daemon, amount: Callable[[int, int], int]) -> None:
    options = {"q": "the", "limit": 1000, "attributesToHighlight": ["*"]}
    plain = len(filled.post("/indexes/films/search", options).body)
    for tag in ("x", "\x01", "é"):
        body = filled.post("/indexes/films/search", {**options, "highlightPreTag": tag * amount(100_000, 1_000_000)}).body
        assert len(body) <= plain + MOST_ADDED
        assert json.loads(body)["hits"][-1]["_formatted"]
