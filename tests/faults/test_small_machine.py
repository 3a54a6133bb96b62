"""svcd on a machine with little memory. What must hold, of the memory of all processes:

1. Within 128 MB, the 36,273 films are imported and searched, and a setting is changed that indexes them again.
2. Within 256 MB, so are a million small documents.

Where a memory cgroup can be made, it enforces the limit, caches of files included; elsewhere anonymous memory is only measured. The short
form has fewer documents. The options are those of docs/guide/sizing.md#small-machines.
"""
from __future__ import annotations

import gzip
import json
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, memory_watched
from tests.support.shared_material import SHARED

pytestmark = pytest.mark.slow

OPTIONS = ("--search-workers", "0", "--max-indexing-threads", "1", "--search-memory", "16MiB", "--max-indexing-memory", "64MiB")
FILMS = SHARED / "data/movies.ndjson.gz"
GROUPS = {  # root of a hierarchy: (file of the limit, file of the most that was used)
    Path("/sys/fs/cgroup/memory"): ("memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    Path("/sys/fs/cgroup"): ("memory.max", "memory.peak"),
}


@contextmanager
def memory_group(megabytes: int) -> Iterator[Path | None]:
    """A cgroup with a limit, for the length of a block; None where none can be made."""
    for root, (limit, _) in GROUPS.items():
        group = root / f"svcd-test-{uuid.uuid4()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(megabytes * 1_000_000))
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


@contextmanager
def small_machine(folder: Path, megabytes: int, figure: Callable[..., None], what: str) -> Iterator[Daemon]:
    """A daemon on a machine with so much memory; checks at the end that it kept to it."""
    with memory_group(megabytes) as group:
        prelude = f"import pathlib; pathlib.Path('{group}/cgroup.procs').write_text('0')" if group else ""
        daemon = Daemon(folder, OPTIONS, prelude=prelude).start()
        try:
            with memory_watched(daemon) as memory:
                yield daemon
            figure(f"{what}: memory of all processes{'' if group else ', without a cgroup'}", memory[1], "MB",
                   limit=f"under {megabytes} MB")
            assert memory[1] < megabytes
            assert daemon.bugs() == []
        finally:
            daemon.stop()


def send(daemon: Daemon, lines: Iterator[bytes], seconds: float) -> int:
    """Send documents in portions of some megabytes, as `svcd import` does; return their number."""
    count = 0
    while portion := list(islice(lines, 20_000)):
        count += len(portion)
        reply = daemon.call("POST", "/indexes/films/documents", b"".join(portion), {"content-type": "application/x-ndjson"})
        assert daemon.done(reply, seconds)["status"] == "succeeded"
    return count


def use(daemon: Daemon, count: int, queries: list[str]) -> None:
    """Search, change settings that need all documents, and search with them."""
    for query in queries:
        assert daemon.post("/indexes/films/search", {"q": query, "attributesToHighlight": ["*"]}).json["hits"], query
    settings = {"filterableAttributes": ["year"], "sortableAttributes": ["year"], "searchableAttributes": ["title"]}
    assert daemon.done(daemon.call("PATCH", "/indexes/films/settings", json.dumps(settings)), 1800)["status"] == "succeeded"
    for query in queries:
        found = daemon.post("/indexes/films/search", {"q": query, "filter": "year > 1900", "facets": ["year"], "sort": ["year:asc"]})
        assert found.status == 200 and found.json["facetDistribution"]
    assert daemon.get("/indexes/films/stats")["numberOfDocuments"] == count


@pytest.mark.skipif(not FILMS.exists(), reason="the films are not beside the repository")
def test_the_films_in_128_mb(tmp_path: Path, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    number = amount(3_000, 36_273)
    with gzip.open(FILMS) as films, small_machine(tmp_path, 128, figure, f"{number:,} films imported, searched, settings changed") as daemon:
        assert send(daemon, islice(films, number), 1800) == number
        use(daemon, number, ["the star", "love", "a man in the night", "nihgt", "war and p"])


def test_small_documents_in_256_mb(tmp_path: Path, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    number = amount(5_000, 1_000_000)
    chosen = random.Random(30)
    words = ["".join(chosen.choices("etaoinshrdlucm", k=chosen.randint(3, 9))) for _ in range(20_000)]
    lines = (json.dumps({"id": each, "title": " ".join(chosen.choices(words, k=4)), "year": 1900 + each % 120}).encode() + b"\n"
             for each in range(number))
    with small_machine(tmp_path, 256, figure, f"{number:,} small documents imported, searched, settings changed") as daemon:
        assert send(daemon, lines, 1800) == number
        use(daemon, number, [words[0], f"{words[1]} {words[2]}", words[3][:3]])
