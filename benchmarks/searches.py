"""Processor time of a search by kind, compared with the committed figures: `make bench`.

    python -m benchmarks.searches [--films FILMS.ndjson[.gz]] [--queries N] [--figures FILE] [--write]

Starts a daemon without search workers, imports the films, and asks searches that nobody asked before, one by one, over HTTP.
Machines differ in speed, and so does one machine from minute to minute. So a fixed piece of work runs between the searches, and
the figure to compare is the cost of a search: its processor time divided by that of the fixed work. A commit that makes searches
slower is noticed on any machine: the exit status is 1 if all kinds together cost more than MOST times the committed figures, or
one kind more than MOST_OF_ONE times. --write replaces the committed figures. FILMS: one JSON object a line with `id`, `title`,
`year`, `genres`, `cast`, `extract`.
"""
from __future__ import annotations

import argparse
import gzip
import http.client
import json
import math
import random
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILMS = ROOT.parent / "shared" / "data" / "movies.ndjson.gz"
FIGURES = Path(__file__).with_name("figures.json")
MOST, MOST_OF_ONE = 1.05, 1.15  # beside noise of 2 % and 5 % on a machine at rest
SETTINGS = {"searchableAttributes": ["title", "cast", "extract"], "filterableAttributes": ["genres", "year"],
            "sortableAttributes": ["year"]}
_PORTIONS = 5  # of the searches of a kind; the fixed work runs between them
_RUNS_OF_WORK = 3  # each time; the quickest counts, since single runs took up to 1.8 times as long
_READY_S = 60.0


# The searches


def searches(films: Sequence[Mapping[str, Any]], count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Return `count` searches of each kind, made of words of the films. Equal arguments give equal searches."""
    choose = random.Random(seed)
    titles = [words for film in films if (words := re.findall("[A-Za-z]{2,}", film["title"]))]
    texts = [words for film in films if len(words := re.findall("[A-Za-z]{2,}", film.get("extract") or "")) > 6]

    def words(fewest: int, most: int) -> list[str]:
        text, wanted = choose.choice(texts), choose.randint(fewest, most)
        start = choose.randrange(len(text) - wanted)
        return text[start:start + wanted]

    def misspelt(word: str) -> str:
        at = choose.randrange(1, len(word)) if len(word) > 4 else 0
        return word[:at] + choose.choice("aeinorst") + word[at + 1:] if at else word

    def typed() -> str:
        title = " ".join(choose.choice(titles)[:3])
        return title[:choose.randint(1, min(len(title), 14))]

    def years() -> str:
        first = choose.randint(1920, 2000)
        return f"year >= {first} AND year < {first + choose.randint(5, 60)}"

    kinds = {
        "as you type": lambda: {"q": typed()},
        "one word": lambda: {"q": words(1, 1)[0]},
        "title": lambda: {"q": " ".join(choose.choice(titles))},
        "typos": lambda: {"q": " ".join(map(misspelt, words(1, 2)))},
        "3 to 5 words": lambda: {"q": " ".join(words(3, 5))},
        "phrase": lambda: {"q": f'"{" ".join(words(2, 2))}"'},
        "filter and facets": lambda: {"q": words(1, 1)[0], "filter": years(), "facets": ["genres", "year"]},
        "sort": lambda: {"q": words(1, 1)[0], "sort": ["year:desc"]},
        "facets alone": lambda: {"q": "", "filter": years(), "facets": ["genres"]},
    }
    return {kind: [make() for _ in range(count)] for kind, make in kinds.items()}


# Processor time


def fixed_work() -> float:
    """Do a fixed piece of work that resembles a search, half in Python, half in SQLite; return its processor time in seconds."""
    begin = time.thread_time()
    counts: dict[str, int] = {}
    for number in range(20_000):
        word = f"word{number * 7919 % 4001}"
        counts[word] = counts.get(word, 0) + len(word.split("d"))
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE texts USING fts5(text)")
    ordered = sorted(counts)
    texts = [(" ".join(ordered[start:start + 20]),) for start in range(0, 4000, 10)]
    connection.executemany("INSERT INTO texts VALUES (?)", texts)
    for word in ordered[:300]:
        connection.execute("SELECT group_concat(rowid) FROM texts WHERE texts MATCH ?", (word,)).fetchone()
    connection.close()
    return time.thread_time() - begin


def quickest_work() -> float:
    """Do the fixed work several times; return the least processor time in seconds."""
    return min(fixed_work() for _ in range(_RUNS_OF_WORK))


def processor_seconds(pid: int) -> float:
    """Return the processor time so far of a process and of its children that still run. Linux only."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    own = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    return own + sum(map(processor_seconds, map(int, children)))


# The daemon


class Daemon:
    """A running daemon with an index `films`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def call(self, method: str, path: str, value: Any = None) -> Any:
        """Send a request and return the JSON of its answer."""
        return json.loads(self.send(method, path, value))

    def send(self, method: str, path: str, value: Any = None) -> bytes:
        """Send a request and return the body of its answer."""
        body = value if isinstance(value, (bytes, type(None))) else json.dumps(value).encode()
        self._connection.request(method, path, body, {"Content-Type": "application/json" if value is not body else
                                                      "application/x-ndjson"} if body else {})
        response = self._connection.getresponse()
        text = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:300].decode(errors='replace')}")
        return text

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def settle(self) -> None:
        """Wait until the work after an import, which begins 0.3 s later, is done: a second with next to no processor time."""
        before = processor_seconds(self.pid)
        while True:
            time.sleep(1)
            now = processor_seconds(self.pid)
            if abs(now - before) < 0.02:  # less, if a process has ended
                return
            before = now


@contextmanager
def running(folder: Path) -> Iterator[Daemon]:
    """Start a daemon for the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "svcd", "--db-path", str(folder / "data"), "--http-addr", f"127.0.0.1:{port}",
               "--no-analytics", "--search-workers", "0", "--log-level", "ERROR"]
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output) as process:
        try:
            daemon, until = Daemon(process, port), time.monotonic() + _READY_S
            while True:
                try:
                    daemon.call("GET", "/health")
                    break
                except OSError:
                    daemon.close()
                    if process.poll() is not None or time.monotonic() > until:
                        raise SystemExit(f"the daemon does not start: {log.read_text()}") from None
                    time.sleep(0.05)
            yield daemon
        finally:
            daemon.close()
            process.terminate()


# The comparison


def measure(films: Sequence[bytes], queries: int) -> dict[str, dict[str, float]]:
    """Return kind -> {"ms": processor time of a search, "cost": the same in units of fixed_work()}."""
    documents = list(map(json.loads, films))
    warm, asked = searches(documents, queries, 1), searches(documents, queries, 2)
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="svcd-bench-") as folder, running(Path(folder)) as daemon:
        daemon.call("PATCH", "/indexes/films/settings?wait=60s", SETTINGS)
        task = daemon.call("POST", "/indexes/films/documents?primaryKey=id&wait=300s", b"\n".join(films))
        if task["status"] != "succeeded":
            raise SystemExit(f"the import failed: {task.get('error')}")
        daemon.settle()
        for body in (body for bodies in warm.values() for body in bodies):
            daemon.call("POST", "/indexes/films/search", body)
        known = {json.dumps(body) for bodies in warm.values() for body in bodies}
        for kind, bodies in asked.items():
            unseen = [body for body in bodies if json.dumps(body) not in known]
            spent, costs = 0.0, []
            for portion in filter(None, (unseen[number::_PORTIONS] for number in range(_PORTIONS))):
                unit, begin = quickest_work(), processor_seconds(daemon.pid)
                for body in portion:
                    daemon.call("POST", "/indexes/films/search", body)
                took = processor_seconds(daemon.pid) - begin
                spent += took
                costs.append(took / len(portion) / min(unit, quickest_work()))
            costs.sort()
            figures[kind] = {"ms": spent / len(unseen) * 1000, "cost": costs[len(costs) // 2]}
    return figures


def slower(figures: Mapping[str, Mapping[str, float]], committed: Mapping[str, float]) -> list[str]:
    """Return what costs more than the committed costs allow, as lines for a person; nothing if all is well."""
    ratios = {kind: figure["cost"] / committed[kind] for kind, figure in figures.items() if kind in committed}
    if not ratios:
        return []
    together = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    found = [f"{kind} costs {ratio:.2f} times the committed figure (at most {MOST_OF_ONE})"
             for kind, ratio in ratios.items() if ratio > MOST_OF_ONE]
    if together > MOST:
        found.append(f"all kinds together cost {together:.2f} times the committed figures (at most {MOST})")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--films", type=Path, default=FILMS)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if not options.films.exists():
        print(f"{options.films} does not exist: give films with --films", file=sys.stderr)
        return 2
    content = options.films.read_bytes()
    films = (gzip.decompress(content) if options.films.suffix == ".gz" else content).splitlines()
    figures = measure(films, options.queries)
    committed = json.loads(options.figures.read_text()) if options.figures.exists() else {}
    print(f"{'processor time of a search':28}{'ms':>8}{'cost':>8}{'committed':>11}{'ratio':>7}")
    for kind, figure in figures.items():
        before = committed.get(kind)
        beside = f"{before:11.3f}{figure['cost'] / before:7.2f}" if before else ""
        print(f"{kind:28}{figure['ms']:8.2f}{figure['cost']:8.3f}{beside}")
    if options.write:
        costs = {kind: round(figure["cost"], 4) for kind, figure in figures.items()}
        options.figures.write_text(json.dumps(costs, indent=1) + "\n")
        return 0
    wrong = slower(figures, committed)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
