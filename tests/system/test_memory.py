"""What must hold of memory while 100 MB come in with one request.

1. Daemon and indexing process together hold less than 128 MB of their own, from the first byte to the end of the task.
2. So it is for NDJSON, for a JSON list, and for CSV.
3. The documents are all there, and are found.

Every upload becomes the same file of lines, so all fields are indexed from one of them alone: indexing takes most of the time.

The documents are made on the way; `pytest -s` shows the peak.
"""
from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import memory_watched, running

pytestmark = pytest.mark.slow

SIZE = 100_000_000
LIMIT_MB = 128.0
PORTION = 500
KINDS = {"ndjson": "application/x-ndjson", "json": "application/json", "csv": "text/csv"}


class Films:
    """Some 100 MB of documents about as long and as varied as those of a real catalogue."""

    def __init__(self) -> None:
        chosen = random.Random(7)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        self._words = ["".join(chosen.choices(letters, range(26, 0, -1), k=chosen.randint(2, 11))) for _ in range(60_000)]
        # A few words are frequent, most are rare.
        self._weights = [1 / (rank + 3) for rank in range(len(self._words))]
        self._random = chosen
        self.count = 0

    def portion(self) -> list[dict[str, str | int]]:
        """The next documents."""
        drawn = self._random.choices(self._words, self._weights, k=PORTION * 124)
        first, self.count = self.count, self.count + PORTION
        return [{"id": first + n, "title": " ".join(drawn[n * 124:n * 124 + 4]),
                 "extract": " ".join(drawn[n * 124 + 4:n * 124 + 124]), "year": 1900 + n % 120}
                for n in range(PORTION)]

    def body(self, kind: str) -> Iterator[bytes]:
        """All of them, as one body."""
        sent = 0
        separator = {"ndjson": "\n", "json": ",", "csv": "\n"}[kind]
        yield {"ndjson": b"", "json": b"[", "csv": b"id,title,extract,year:number\n"}[kind] or b"\n"
        while sent < SIZE - 600_000:
            lines = [",".join(map(str, each.values())) if kind == "csv" else json.dumps(each) for each in self.portion()]
            piece = ((separator if sent else "") + separator.join(lines)).encode()
            sent += len(piece)
            yield piece
        yield b"]" if kind == "json" else b"\n"


@pytest.mark.parametrize("kind", KINDS)
def test_100_mb_in_one_request_need_less_than_128_mb(tmp_path: Path, kind: str) -> None:
    films = Films()
    with running(tmp_path) as daemon:
        if kind != "ndjson":
            daemon.done(daemon.call("PUT", "/indexes/films/settings/searchable-attributes", json.dumps(["title"])))
        begin = time.monotonic()
        with memory_watched(daemon) as memory:
            reply = daemon.call("POST", "/indexes/films/documents", films.body(kind), {"content-type": KINDS[kind]}, 300)
            received = time.monotonic()
            task = daemon.done(reply, 600)
        print(f"{kind}: {films.count} documents, received in {received - begin:.0f} s, "
              f"indexed in {time.monotonic() - received:.0f} s, {memory[0]:.0f} MB -> {memory[1]:.0f} MB")
        assert task["details"] == {"receivedDocuments": films.count, "indexedDocuments": films.count}, task
        assert memory[1] < LIMIT_MB
        last = daemon.get(f"/indexes/films/documents/{films.count - 1}")
        hits = daemon.get(f"/indexes/films/search?q=%22{last['title'].replace(' ', '%20')}%22")["hits"]
        assert last in hits
        assert daemon.bugs() == []
