"""What must hold of an instance of very many small indexes, with 64 descriptors, and of indexes beside each other.

1. They are created, listed, and searched at random, by one client or by several, in 100 MB of memory.
2. It starts as usual with them, and searches and writes are answered at once.
3. While one index takes in a long import, a write to another one is done as soon as without, but for a part of a second.
"""
from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.test_memory import Films
from tests.support.daemon import Daemon, memory_watched, running
from tests.support.pace import is_within

FEW = 64
LIMIT_MB = 100.0
CLIENTS = 8
DELAY_S = 0.1

pytestmark = pytest.mark.slow


def searched(daemon: Daemon, number: int) -> float:
    """The seconds that a search of one index took, which found its document."""
    reply = daemon.post(f"/indexes/i{number}/search", {"q": "kefir"})
    assert reply.status == 200 and [hit["title"] for hit in reply.json["hits"]] == [f"kefir {number}"], reply.body
    return reply.seconds


def test_ten_thousand_indexes(tmp_path: Path, seed: int, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    count, searches = amount(60, 10_000), amount(60, 5000)
    chosen = random.Random(seed)
    daemon = Daemon(tmp_path, most_files=FEW).start()
    try:
        with memory_watched(daemon, 0.2) as memory:
            begin = time.monotonic()
            for number in range(count):
                last = daemon.post(f"/indexes/i{number}/documents", [{"id": 1, "title": f"kefir {number}"}])
            daemon.done(last, 3600)
            daemon.drain()
            figure(f"{count} indexes created", count / (time.monotonic() - begin), "a second")
            took = sorted(searched(daemon, chosen.randrange(count)) for _ in range(searches))
            figure(f"searches across {count} indexes, 99th percentile", took[-searches // 100] * 1000, "ms")
            clients = [threading.Thread(target=lambda: [searched(daemon, chosen.randrange(count)) for _ in range(searches // CLIENTS)])
                       for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert daemon.get("/indexes?limit=1")["total"] == len(daemon.get("/stats")["indexes"]) == count
        figure(f"memory with {count} indexes", memory[1], "MB", limit="under 100 MB")
        assert memory[1] < LIMIT_MB
        queries = [{"indexUid": f"i{number}", "q": "kefir"} for number in range(50)]
        assert len(daemon.post("/multi-search", {"queries": queries}).json["results"]) == 50
        daemon.kill9()
        begin = time.monotonic()
        daemon.start()
        searched(daemon, count - 1)
        started = time.monotonic() - begin
        figure(f"start with {count} indexes, to the first answer", started, "s", limit="under 5 s")
        assert is_within(started, 5)
        written = daemon.done(daemon.post("/indexes/i0/documents", [{"id": 2, "title": "milk"}]))
        assert written["status"] == "succeeded" and daemon.bugs() == []
    finally:
        daemon.kill9()


def written(daemon: Daemon, number: int) -> float:
    """The seconds from a write to the end of its task."""
    begin = time.monotonic()
    assert daemon.done(daemon.post("/indexes/small/documents", [{"id": number % 50, "title": f"kefir {number}"}]))["status"] == "succeeded"
    return time.monotonic() - begin


def test_a_long_import_delays_no_other_index(tmp_path: Path, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    films = Films(amount(3_000_000, 100_000_000))
    with running(tmp_path, "--parallel-batches-after", "0") as daemon:
        alone = sorted(written(daemon, number) for number in range(20))
        imported = daemon.call("POST", "/indexes/films/documents", films.body("ndjson"), {"content-type": "application/x-ndjson"}, 300)
        beside = []
        while daemon.get(f"/tasks/{imported.json['taskUid']}")["status"] != "succeeded":
            beside.append(written(daemon, len(beside)))
            time.sleep(0.05)
        beside.sort()
        delay = beside[len(beside) // 2] - alone[len(alone) // 2]
        figure("a write is delayed by an import into another index, median", delay * 1000, "ms", limit="under 100 ms without ordering")
        figure("the same, 95th percentile", (beside[len(beside) * 95 // 100] - alone[len(alone) // 2]) * 1000, "ms")
        assert is_within(delay, DELAY_S)
        assert json.loads(daemon.call("GET", "/indexes/films/stats").body)["numberOfDocuments"] == films.count
