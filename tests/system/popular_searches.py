"""Measure what kept answers are worth: a stream of searches of which few are asked often and most of them once.

20,000 different searches over given films (words, beginnings of words, titles, filters) are drawn by Zipf's law: the search of
rank r is asked 1/r times as often as the first one. For each size of `--search-memory` a daemon answers the same stream.

    .venv/bin/python -m tests.system.popular_searches films.ndjson.gz                 # 4,000 requests, 4 sizes
    .venv/bin/python -m tests.system.popular_searches films.ndjson --requests 20000 --memory 8MiB --memory 40MiB

Per size: searches a second, p50 and p95 in ms, the share of requests that took less than a third of the median of first-time
ones (they were kept), and the anonymous memory of all processes afterwards. The sizes are those of the option.
"""
from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.daemon import Daemon, running

DIFFERENT = 20_000
SIZES = ("1MiB", "16MiB", "40MiB", "128MiB")
Search = Mapping[str, Any]


def films(path: Path) -> list[dict[str, Any]]:
    """The documents of an NDJSON file, perhaps compressed by gzip."""
    content = path.read_bytes()
    return list(map(json.loads, (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()))


def different_searches(documents: Sequence[Mapping[str, Any]], chance: random.Random) -> list[Search]:
    """Searches as people ask them, each once, in an order that says nothing."""
    found: dict[str, Search] = {}
    for search in _searches(documents, chance):
        found.setdefault(json.dumps(search), search)
        if len(found) == DIFFERENT:
            return list(found.values())
    raise AssertionError("unreachable: there is no end of searches")


def _searches(documents: Sequence[Mapping[str, Any]], chance: random.Random) -> Iterator[Search]:
    while True:
        title = chance.choice(documents)["title"]
        words = title.split()
        word = chance.choice(words)
        yield {"q": word}
        yield {"q": title[:chance.randint(1, 12)]}
        yield {"q": " ".join(chance.choice(documents)["title"].split()[0] for _ in range(2)) + " " + word}
        yield {"q": word, "filter": f"year > {chance.randint(1900, 2020)}", "facets": ["genres"]}


def stream(searches: Sequence[Search], requests: int, chance: random.Random) -> list[Search]:
    """Requests drawn by Zipf's law."""
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(searches) + 1)))
    return chance.choices(searches, cum_weights=weights, k=requests)


def measured(daemon: Daemon, asked: Sequence[Search]) -> dict[str, float]:
    """The figures of a stream."""
    taken, first, seen = [], [], set()
    began = time.perf_counter()
    for search in asked:
        reply = daemon.post("/indexes/films/search", search)
        assert reply.status == 200, reply.body
        taken.append(reply.seconds * 1e3)
        if (text := json.dumps(search)) not in seen:
            seen.add(text)
            first.append(taken[-1])
    total = time.perf_counter() - began
    quick = statistics.median(first) / 3
    again = len(asked) - len(first)
    return {"searches/s": len(asked) / total, "p50 ms": statistics.median(taken),
            "p95 ms": statistics.quantiles(taken, n=20)[-1], "asked again, share": again / len(asked),
            "quick, share": sum(each < quick for each in taken) / len(taken)}


def main() -> None:
    """Print a table, one row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", type=Path)
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--memory", action="append")
    options = parser.parse_args()
    documents = films(options.films)
    asked = stream(different_searches(documents, random.Random(1)), options.requests, random.Random(2))
    with tempfile.TemporaryDirectory() as folder:
        for size in options.memory or SIZES:
            with running(Path(folder), "--search-memory", size, "--search-workers", "0") as daemon:
                _index(daemon, documents)
                figures = {**measured(daemon, asked), "anonymous MB": daemon.anonymous_mb()}
            print(f"{size:>8}", *(f"{name} {value:.2f}" for name, value in figures.items()), sep="  ", flush=True)


def _index(daemon: Daemon, documents: Sequence[Mapping[str, Any]]) -> None:
    if daemon.call("GET", "/indexes/films").status == 200:
        return
    settings = {"searchableAttributes": ["title", "cast", "extract"], "filterableAttributes": ["genres", "year"]}
    daemon.call("PATCH", "/indexes/films/settings", json.dumps(settings))
    daemon.call("POST", "/indexes/films/documents?primaryKey=id", "\n".join(map(json.dumps, documents)),
                {"content-type": "application/x-ndjson"})
    daemon.drain()


if __name__ == "__main__":
    main()
