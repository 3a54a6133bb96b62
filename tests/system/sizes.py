"""Memory and disk of a daemon with so many documents (docs/guide/sizing.md). Not a test; run it as

    python -m tests.system.sizes 1000 10000 100000

Documents are made up, of some 480 bytes: a title of 4 words, a text of 40, of 30,000 words that are as frequent as in a language (Zipf's law);
a price, a category and two tags, which are filterable, the price also sortable. Times depend on the machine: see BENCHMARKS.md.
"""
from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from tests.support.daemon import Daemon, memory_watched

WORDS, SEARCHES, PORTION = 30_000, 100, 10_000
SYLLABLES = ("ka", "lo", "mi", "ten", "sur", "va", "dri", "pe", "no", "gul", "fa", "ris", "to", "be", "shan", "u", "wel", "qui")
SETTINGS = {"filterableAttributes": ["price", "category", "tags"], "sortableAttributes": ["price"]}
COLUMNS = ("documents", "MB of JSON", "disk MB", "most MB of memory while they are added", "MB after a restart and some searches")


def words() -> list[str]:
    """Different words, the commonest first."""
    chance = random.Random(1)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(chance.choices(SYLLABLES, k=chance.choice((1, 2, 2, 3, 3, 4))))] = None
    return list(found)


def documents(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(2)
    vocabulary = words()
    weights = list(accumulate(1 / (rank + 3) for rank in range(WORDS)))

    def text(length: int) -> str:
        return " ".join(chance.choices(vocabulary, cum_weights=weights, k=length))

    for number in range(count):
        yield {"id": number, "title": text(4), "text": text(40), "price": chance.randrange(100, 100_000) / 100,
               "category": f"category {chance.randrange(50)}", "tags": [f"tag {chance.randrange(500)}" for _ in range(2)]}


def measured(count: int) -> Iterator[float]:
    """The columns of one row."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).start()
        try:
            yield from _measured(daemon, count)
        finally:
            daemon.kill9()


def _measured(daemon: Daemon, count: int) -> Iterator[float]:
    daemon.done(daemon.call("PATCH", "/indexes/things/settings", json.dumps(SETTINGS)))
    lines, queries, json_bytes = [], [], 0
    with memory_watched(daemon) as seen:
        for document in documents(count):
            lines.append(json.dumps(document))
            if document["id"] % (count // SEARCHES) == 0:
                queries.append(" ".join(document["text"].split()[:2]))
            if len(lines) == PORTION or document["id"] == count - 1:
                body = "\n".join(lines)
                json_bytes += len(body)
                assert daemon.call("POST", "/indexes/things/documents", body, {"content-type": "application/x-ndjson"}).status == 202
                lines.clear()
        daemon.drain(3600)
    yield from (count, json_bytes / 1e6)
    daemon.stop()
    yield sum(path.stat().st_size for path in daemon.data.rglob("*") if path.name != "reserve" and path.is_file()) / 1e6
    yield seen[1]
    daemon.start()
    for query in queries:
        daemon.get(f"/indexes/things/search?q={quote_plus(query)}")
    yield daemon.anonymous_mb()


if __name__ == "__main__":
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for number in sys.argv[1:]:
        print("| " + " | ".join(f"{value:,.1f}".removesuffix(".0") for value in measured(int(number))) + " |", flush=True)
