"""What must hold of memory while 100 MB come in with one request, and 1 GB with many.

1. Daemon and indexing process together hold less than 128 MB of their own for 100 MB, less than 160 MB for 1 GB, from the first byte
   to the end of the last task.
2. So it is for NDJSON, for a JSON list, and for CSV.
3. The documents are all there, and are found.

Every upload becomes the same file of lines, so all fields are indexed from one of them alone: indexing takes most of the time. In
the short form there is a tenth of the bytes. The documents are made on the way.
"""
from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, memory_watched, running

pytestmark = pytest.mark.slow

LIMIT_MB, LIMIT_OF_MANY_MB = 128.0, 160.0
PORTION = 500
MB = 1_000_000
KINDS = {"ndjson": "application/x-ndjson", "json": "application/json", "csv": "text/csv"}


class Films:
    """Documents about as long and as varied as those of a real catalogue, of about so many bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
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
        while sent < self._size - 600_000:
            lines = [",".join(map(str, each.values())) if kind == "csv" else json.dumps(each) for each in self.portion()]
            piece = ((separator if sent else "") + separator.join(lines)).encode()
            sent += len(piece)
            yield piece
        yield b"]" if kind == "json" else b"\n"


@pytest.mark.parametrize("kind", KINDS)
def test_100_mb_in_one_request(tmp_path: Path, kind: str, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    megabytes = amount(3, 100)
    films = Films(megabytes * MB)
    with running(tmp_path) as daemon:
        if kind != "ndjson":
            daemon.done(daemon.call("PUT", "/indexes/films/settings/searchable-attributes", json.dumps(["title"])))
        with memory_watched(daemon) as memory:
            reply = daemon.call("POST", "/indexes/films/documents", films.body(kind), {"content-type": KINDS[kind]}, 300)
            task = daemon.done(reply, 600)
        figure(f"{megabytes} MB of {kind} in one request: memory", memory[1], "MB", limit="under 128 MB")
        assert task["details"] == {"receivedDocuments": films.count, "indexedDocuments": films.count}, task
        assert memory[1] < LIMIT_MB
        check_last(daemon, films)


def test_1_gb_in_pieces(tmp_path: Path, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    """All pieces wait at once, and are indexed in batches of several."""
    pieces, megabytes = amount(3, 20), amount(2, 50)
    films = Films(megabytes * MB)
    with running(tmp_path) as daemon:
        with memory_watched(daemon) as memory:
            for _ in range(pieces):
                last = daemon.call("POST", "/indexes/films/documents", films.body("ndjson"), {"content-type": KINDS["ndjson"]}, 300)
            assert daemon.done(last, 3600)["status"] == "succeeded"
        figure(f"{pieces * megabytes} MB of ndjson in {pieces} requests: memory", memory[1], "MB", limit="under 160 MB")
        assert memory[1] < LIMIT_OF_MANY_MB
        assert daemon.get("/indexes/films/stats")["numberOfDocuments"] == films.count
        check_last(daemon, films)


def check_last(daemon: Daemon, films: Films) -> None:
    """The last document is there and is found."""
    last = daemon.get(f"/indexes/films/documents/{films.count - 1}")
    assert last in daemon.get(f"/indexes/films/search?q=%22{last['title'].replace(' ', '%20')}%22")["hits"]
    assert daemon.bugs() == []
