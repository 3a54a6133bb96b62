"""The query log of a daemon. What must hold:

1. Counts are exact over all processes, over a restart, and over a stop.
2. `kill -9` loses at most the searches of the last second.
3. `svcd analytics` shows the same figures, also of a folder that no daemon has open.
"""
from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Run, call  # noqa: F401 (fixture)
from tests.support.daemon import Daemon, running

OPTIONS = ("--query-log", "100 MiB", "--search-workers", "1")
WORDS = ["star", "wars", "dune", "alien", "xyzzy", "heat", "brazil"]


def replayed(daemon: Daemon, number: int, seed: int) -> list[tuple[float, str]]:
    """Search from four clients at once; (time of the answer, query) of each search."""
    answered: list[tuple[float, str]] = []

    def search(client: int) -> None:
        chance = random.Random(100 * seed + client)
        for _ in range(number // 4):
            q = " ".join(chance.sample(WORDS, 2))
            assert daemon.call("POST", "/indexes/films/search", json.dumps({"q": q}), {"x-ms-user-id": str(chance.random())}).status == 200
            answered.append((time.monotonic(), q))

    threads = [threading.Thread(target=search, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answered


def counts(found: Mapping[str, Any]) -> Counter[str]:
    return Counter({each["query"]: each["searches"] for each in found["queries"]})


def test_counts_are_exact_over_processes_and_restarts(tmp_path: Path, call: Run) -> None:
    daemon = Daemon(tmp_path, OPTIONS).start()
    try:
        daemon.done(daemon.post("/indexes/films/documents", [{"id": 1, "title": "Star Wars"}]))
        expected = Counter(q for _, q in replayed(daemon, 100, 1))
        daemon.stop()
        daemon.start()
        expected += Counter(q for _, q in replayed(daemon, 100, 2))
    finally:
        daemon.stop()
    status, out, _ = call("analytics", "films", "--folder", str(daemon.data), "--limit", "1000", "--json")
    assert status == 0 and counts(json.loads(out)) == expected
    status, out, _ = call("analytics", "--folder", str(daemon.data))
    assert status == 0 and out.startswith("200 searches, ") and "Without hits" in out and "films  200 searches" in out
    assert daemon.bugs() == []


@pytest.mark.slow
def test_10_000_replayed_queries_are_counted_and_a_kill_loses_the_last_second(tmp_path: Path) -> None:
    with running(tmp_path, *OPTIONS) as daemon:
        daemon.done(daemon.post("/indexes/films/documents", [{"id": 1, "title": "Star Wars"}]))
        first = replayed(daemon, 5000, 1)
        killed_at = time.monotonic()
        daemon.kill9()
        daemon.start()
        kept = counts(daemon.get("/analytics/searches?limit=1000"))
        assert kept <= Counter(q for _, q in first) and kept >= Counter(q for at, q in first if at < killed_at - 1)
        second = replayed(daemon, 5000, 2)
        expected = kept + Counter(q for _, q in second)
        deadline = time.monotonic() + 5
        while counts(found := daemon.get("/analytics/searches?limit=1000")) != expected and time.monotonic() < deadline:
            pass
        assert counts(found) == expected and found["searches"] == expected.total()
