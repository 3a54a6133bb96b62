"""svcd's engine and store beside milli 1.8.1, in one process, on the same documents and queries.

    pip install milli==1.8.1
    python benchmarks/against_milli.py FILMS.ndjson[.gz] [--documents N] [--queries N]

Both index and search without HTTP, taking turns query by query, so the ratio does not depend on the machine.
milli's results differ from those of the interface that svcd speaks: a yardstick for speed, not for answers.
Seconds and milliseconds are CPU time. FILMS: one JSON object a line with `id`, `title`, `cast`, `extract`.
"""
from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from svcd.index.connections import open_reader
from svcd.index.read_transaction import Cache
from svcd.index.reader import IndexReader
from svcd.schema.settings import resolved
from svcd.search.search import Federation, IndexedQuery, SearchQuery, search
from svcd.tasks import batching
from svcd.tasks.indexing import IndexingTask, apply_batch
from svcd.tasks.indexing_client import MemoryBudget

WORD = re.compile(r"[A-Za-z]{2,}")
MAP_BYTES = 2**34


def main() -> None:
    """Index, search, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("films", type=Path)
    parser.add_argument("--documents", type=int, default=36_273)
    parser.add_argument("--queries", type=int, default=150)
    asked = parser.parse_args()
    documents = read(asked.films)[:asked.documents]
    with tempfile.TemporaryDirectory() as folder:
        searchers = {"svcd": make_svcd(Path(folder) / "svcd", documents), "milli": make_milli(Path(folder) / "milli", documents)}
        for name in searchers:
            size = sum(file.stat().st_blocks * 512 for file in (Path(folder) / name).rglob("*") if file.is_file())
            print(f"{name:8} disk MB {size / 1e6:8.1f}")
        for kind, queries in workloads(documents, asked.queries):
            compare(kind, queries, searchers)


def read(path: Path) -> list[dict[str, Any]]:
    """The documents of a file."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in raw.splitlines()]


def make_svcd(folder: Path, documents: list[dict[str, Any]]) -> Callable[[str], object]:
    """An index of svcd, and what searches it."""
    folder.mkdir()
    upload = folder.with_suffix(".ndjson")
    upload.write_text("".join(json.dumps(each) + "\n" for each in documents))
    path = folder / "index.sqlite"
    begin = time.process_time()
    task = IndexingTask(0, "documentAdditionOrUpdate", {"method": "replace"}, payload=str(upload),
                        payload_bytes=upload.stat().st_size)
    apply_batch(path, "films", batching.DOCUMENTS, [task], MemoryBudget())
    print(f"svcd     index s {time.process_time() - begin:8.2f}")
    connection, cache = open_reader(path), Cache(32 << 20)

    def find(q: str) -> object:
        connection.execute("BEGIN")
        reader = IndexReader(connection, "films", cache, resolved)
        answer = search({"films": reader}, [IndexedQuery("films", SearchQuery(q=q))], Federation(), lambda ms: lambda: False)
        connection.execute("ROLLBACK")
        return answer

    return find


def make_milli(folder: Path, documents: list[dict[str, Any]]) -> Callable[[str], object]:
    """An index of milli, and what searches it: the documents of the first twenty hits are read, as svcd does."""
    import milli

    folder.mkdir()
    index = milli.Index(str(folder), MAP_BYTES)
    begin = time.process_time()
    index.add_documents(documents)
    print(f"milli    index s {time.process_time() - begin:8.2f}")
    return lambda q: index.get_documents(index.search(q)[:20])


def workloads(documents: list[dict[str, Any]], count: int) -> Iterator[tuple[str, list[str]]]:
    """(kind, queries), the same at every run."""
    dice = random.Random(5)
    titles = [words for each in documents if (words := WORD.findall(each["title"]))]
    texts = [words for each in documents if len(words := WORD.findall(each.get("extract") or "")) > 6]
    started = [" ".join(dice.choice(titles)[:3]) for _ in range(count)]
    yield "as-you-type", [title[:dice.randrange(1, len(title) + 1)] for title in started]
    yield "one word", [dice.choice(dice.choice(texts)) for _ in range(count)]
    yield "title", [" ".join(dice.choice(titles)) for _ in range(count)]
    yield "3 words", [" ".join(words[start:start + 3]) for words in dice.choices(texts, k=count)
                      for start in [dice.randrange(len(words) - 3)]]


def compare(kind: str, queries: list[str], searchers: dict[str, Callable[[str], object]]) -> None:
    """Every query on each, in turn, twice; the second round counts."""
    spent: dict[str, list[float]] = {}
    for is_counted in (False, True):
        for q in queries:
            for name, find in searchers.items():
                begin = time.process_time()
                find(q)
                if is_counted:
                    spent.setdefault(name, []).append((time.process_time() - begin) * 1000)
    middle = {name: statistics.median(values) for name, values in spent.items()}
    late = {name: sorted(values)[int(len(values) * 0.95)] for name, values in spent.items()}
    figures = "  ".join(f"{name} p50 {middle[name]:6.2f} p95 {late[name]:6.2f}" for name in spent)
    print(f"{kind:12} {figures}  ratio {middle['svcd'] / middle['milli']:.2f} / {late['svcd'] / late['milli']:.2f}")


if __name__ == "__main__":
    main()
