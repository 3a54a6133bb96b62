"""Questions to a running svcd: sentences of the films' texts with `bm25`, beside two words with the default strategy.

    python benchmarks/questions.py URL FILMS.ndjson[.gz] [--queries N] [--seed N] [--load]

--load creates the index `questions` and adds the films: one JSON object a line with `id`, `title`, `cast`, `extract`. No search
is asked twice. Prints milliseconds through HTTP, and the share of the first 20 places that equal the exhaustive ranking.
"""
from __future__ import annotations

import argparse
import gzip
import http.client
import json
import random
import re
import statistics
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

INDEX = "/indexes/questions"
PART = 100_000  # documents in a request
SETTINGS = {"searchableAttributes": ["title", "cast", "extract"], "defaultMatchingStrategy": "bm25", "stemming": ["eng"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("films")
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", action="store_true")
    options = parser.parse_args()
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(options.url).netloc, timeout=900)

    def call(method: str, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        return json.loads(connection.getresponse().read())

    with (gzip.open if options.films.endswith(".gz") else open)(options.films, "rt", encoding="utf-8") as lines:
        films = list(map(json.loads, lines))
    if options.load:
        call("PATCH", f"{INDEX}/settings?wait=60s", SETTINGS)
        begin = time.perf_counter()
        for first in range(0, len(films), PART):
            task = call("POST", f"{INDEX}/documents?primaryKey=id", films[first:first + PART])
        while task["status"] != "succeeded":
            time.sleep(0.1)
            task = call("GET", f"/tasks/{task.get('uid', task.get('taskUid'))}")
            assert task["status"] in ("processing", "enqueued", "succeeded"), task
        print(f"import: {time.perf_counter() - begin:.1f} s")
    chosen = random.Random(options.seed)
    texts = [tokens for film in films if len(tokens := re.findall(r"\w+", film.get("extract") or "")) > 25]

    def words(fewest: int, most: int) -> str:
        text, count = chosen.choice(texts), chosen.randint(fewest, most)
        start = chosen.randrange(len(text) - count)
        return " ".join(text[start:start + count])

    def found(q: str, strategy: str, limit: int = 20) -> list[int]:
        asked = {"q": q, "matchingStrategy": strategy, "limit": limit, "attributesToRetrieve": ["id"]}
        return [hit["id"] for hit in call("POST", f"{INDEX}/search", asked)["hits"]]

    def measured(name: str, q: Callable[[], str], strategy: str) -> None:
        times = []
        for text in [q() for _ in range(options.queries)]:
            begin = time.perf_counter()
            found(text, strategy)
            times.append((time.perf_counter() - begin) * 1e3)
        print(f"{name:28} p50 {statistics.median(times):6.1f}  p95 {statistics.quantiles(times, n=20)[-1]:6.1f} ms")

    for _ in range(2):  # the first round warms up
        measured("two words, last", lambda: words(2, 2), "last")
        measured("question, bm25", lambda: words(8, 20), "bm25")
        measured("question, last", lambda: words(8, 20), "last")
    begin = time.perf_counter()
    call("POST", f"{INDEX}/documents?wait=60s", [{"id": 0, "title": "Added", "extract": "A zyzzyva was never found here."}])
    assert 0 in found("was a zyzzyva ever found", "bm25")
    print(f"one document added and found: {(time.perf_counter() - begin) * 1e3:.0f} ms")
    equal = total = 0
    for text in [words(8, 20) for _ in range(options.queries)]:
        exhaustive = found(text, "bm25", 1000)[:20]
        equal += sum(ours == theirs for ours, theirs in zip(found(text, "bm25"), exhaustive))
        total += len(exhaustive)
    print(f"equal places {equal / total:.4f}")


if __name__ == "__main__":
    main()
