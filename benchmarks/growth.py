"""Growth of the time of a search with the number of documents, as a table and a plot: `make bench-plot`.

    python -m benchmarks.growth [--films FILMS.ndjson[.gz]] [--sizes N N N] [--queries N] [--folder FOLDER]
    python -m benchmarks.growth --draw

Starts a daemon without search workers for each number of documents, imports a document for each sentence of the films, again
and again with new identifiers, waits for the precomputed postings, and asks all daemons the same searches, in turns, one by
one, over HTTP. Each search is new to its daemon, and made of documents that all daemons have. Half of the searches of a kind
are answered within p50, 95 % within p95. Both are written to benchmarks/growth.json, and from there to the table in
docs/guide/sizing.md and to docs/pictures/growth.svg. --draw writes these two from the figures that exist. --folder: keeps the
indexes, and uses those that a run left there; 5,000,000 documents take 7.3 GB.
"""
from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import platform
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.searches import FILMS, ROOT, SETTINGS, Daemon, running, searches
from svcd.reference import SNIPPET

FIGURES = Path(__file__).with_name("growth.json")
PAGE, PICTURE = ROOT / "docs" / "guide" / "sizing.md", ROOT / "docs" / "pictures" / "growth.svg"
SIZES = (100_000, 1_000_000, 5_000_000)
_UPLOAD = 100_000  # documents of a request
_IN_A_ROW = 20  # searches of a kind before the next daemon is asked
Figures = Mapping[str, Any]  # measured: when and where; sizes; kinds: kind -> [p50, p95] for each size, in milliseconds


# The documents


def sentences(films: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return a document without an identifier for each sentence of the films' extracts."""
    return [{**{key: film[key] for key in ("title", "year", "cast", "genres")}, "extract": sentence}
            for film in map(json.loads, films) for sentence in re.split(r"(?<=[.!?])\s+", film.get("extract") or "")]


def documents(texts: Sequence[Mapping[str, Any]], count: int) -> Iterator[bytes]:
    """Yield `count` documents as lines of JSON: the sentences, from the first again after the last."""
    for number, text in enumerate(islice(cycle(texts), count), 1):
        yield json.dumps({"id": number, **text}, ensure_ascii=False).encode()


def load(daemon: Daemon, lines: Iterator[bytes]) -> None:
    """Import documents, some in each request, and wait for the precomputed postings."""
    daemon.call("PATCH", "/indexes/films/settings?wait=60s", SETTINGS)
    while upload := b"\n".join(islice(lines, _UPLOAD)):
        task = daemon.call("POST", "/indexes/films/documents?primaryKey=id&wait=300s", upload)
        if task["status"] != "succeeded":
            raise SystemExit(f"the import failed or takes too long: {task}")
    daemon.settle()


# The times


def ask(daemons: Sequence[Daemon], bodies: Sequence[Any]) -> list[list[float]]:
    """Ask each daemon each search; return its times in milliseconds, in ascending order."""
    times: list[list[float]] = [[] for _ in daemons]
    for start in range(0, len(bodies), _IN_A_ROW):
        for daemon, own in zip(daemons, times, strict=True):
            for body in bodies[start:start + _IN_A_ROW]:
                begin = time.perf_counter()
                daemon.send("POST", "/indexes/films/search", body)
                own.append((time.perf_counter() - begin) * 1000)
    return list(map(sorted, times))


def measure(films: Sequence[bytes], sizes: Sequence[int], queries: int, folder: Path) -> Figures:
    """Return the figures. folder: has or gets a data folder for each size."""
    texts = sentences(films)
    known: set[str] = set()
    rounds: list[dict[str, list[Any]]] = []  # the first warms the caches
    for seed, count in (1, queries // 2), (2, queries):
        made = {kind: {json.dumps(body): body for body in bodies} for kind, bodies in
                searches(texts[:min(sizes)], count, seed).items()}
        rounds.append({kind: [body for key, body in bodies.items() if key not in known] for kind, bodies in made.items()})
        known.update(*made.values())
    with ExitStack() as stack:
        daemons = []
        for size in sizes:
            (folder / str(size)).mkdir(parents=True, exist_ok=True)
            daemons.append(daemon := stack.enter_context(running(folder / str(size))))
            if daemon.call("GET", "/stats")["indexes"].get("films", {}).get("numberOfDocuments") != size:
                print(f"importing {size:,} documents", flush=True)
                load(daemon, documents(texts, size))
        print("warming", flush=True)
        for bodies in rounds[0].values():
            ask(daemons, bodies)
        print("measuring", flush=True)
        kinds = {kind: [[round(own[int(len(own) * share)], 2) for share in (0.5, 0.95)] for own in ask(daemons, bodies)]
                 for kind, bodies in rounds[1].items()}
    return {"measured": f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.python_implementation()} "
                        f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}", "sizes": list(sizes), "kinds": kinds}


# The table


def growth(figures: Figures) -> tuple[dict[str, list[float]], list[float]]:
    """Return kind -> p50 of each larger size, and the cube root of the documents, both relative to the smallest size."""
    sizes = figures["sizes"]
    return ({kind: [p50 / points[0][0] for p50, _ in points[1:]] for kind, points in figures["kinds"].items()},
            [(size / sizes[0]) ** (1 / 3) for size in sizes[1:]])


def table(figures: Figures) -> str:
    """Return the figures in Markdown: p50 and p95 of each kind, its growth, and the kinds that grow faster than the cube root."""
    (first, *larger), (grown, roots) = figures["sizes"], growth(figures)
    heads = ["search", *(f"{size:,} documents" for size in figures["sizes"]), *(f"growth to {size:,}" for size in larger)]
    rows = [[kind, *(f"{p50:.1f} ({p95:.1f})" for p50, p95 in points),
             *(f"{ratio:.2f}" if ratio < root else f"**{ratio:.2f}**" for ratio, root in zip(grown[kind], roots, strict=True))]
            for kind, points in figures["kinds"].items()]
    rows.append(["cube root of the documents", *[""] * (len(larger) + 1), *(f"{root:.2f}" for root in roots)])
    fast = [kind for kind, ratios in grown.items() if any(ratio >= root for ratio, root in zip(ratios, roots, strict=True))]
    verdict = (f"These grow by more than the cube root of the documents: {', '.join(fast)}." if fast else
               "All of them grow by less than the cube root of the documents.")
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    return "\n".join([f"Milliseconds of a new search, p50 (p95), and the growth of p50 from {first:,} documents "
                      f"({figures['measured']}):", "", *lines, "", verdict]) + "\n"


# The plot

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 760, 460, 56, 190, 36, 48, 17
_COLOURS = ("#c0392b", "#2980b9", "#27913c", "#8e5bbf", "#d9780f", "#1795a5", "#c2479b", "#8f7a1a", "#7a7f87")
_STYLE = """.paper { fill: #ffffff } .ink { fill: #24292f } .line { stroke: #8c959f; fill: none } .grid { stroke: #d0d7de }
@media (prefers-color-scheme: dark) { .paper { fill: #0d1117 } .ink { fill: #d6dde4 } .grid { stroke: #30363d } }
text { font: 13px sans-serif }"""


def plot(figures: Figures) -> str:
    """Return an SVG of p50 by number of documents: logarithmic axes, a line per kind, a dashed line for the cube root."""
    sizes = figures["sizes"]
    curves = {kind: [p50 for p50, _ in points] for kind, points in figures["kinds"].items()}
    middle = math.exp(sum(math.log(curve[0]) for curve in curves.values()) / len(curves))
    curves["cube root"] = [middle * (size / sizes[0]) ** (1 / 3) for size in sizes]
    every = [ms for curve in curves.values() for ms in curve]
    ticks = [step * 10 ** power for power in range(-2, 5) for step in (1, 2, 5)]
    low, high = max(tick for tick in ticks if tick <= min(every)), min(tick for tick in ticks if tick >= max(every))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def across(size: float) -> float:
        return _LEFT + (right - _LEFT) * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def down(ms: float) -> float:
        return bottom - (bottom - _TOP) * math.log(ms / low) / math.log(high / low)

    parts = [f'<text class="ink" x="{_LEFT}" y="20">milliseconds of half of the searches, at most</text>',
             f'<text class="ink" x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">documents</text>']
    for tick in ticks:
        if low <= tick <= high:
            parts.append(f'<path class="grid" d="M{_LEFT} {down(tick):.1f}H{right}"/><text class="ink" x="{_LEFT - 8}" '
                         f'y="{down(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts += [f'<path class="grid" d="M{across(size):.1f} {_TOP}V{bottom}"/><text class="ink" x="{across(size):.1f}" '
              f'y="{bottom + 18}" text-anchor="middle">{size:,}</text>' for size in sizes]
    # A label is drawn at the end of its line, or as near to it as the other labels allow.
    labelled = sorted(curves, key=lambda kind: -curves[kind][-1])
    heights = [down(curves[kind][-1]) for kind in labelled]
    for place in range(1, len(heights)):
        heights[place] = max(heights[place], heights[place - 1] + _LINE)
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], bottom - _LINE * (len(heights) - 1 - place))
    label = dict(zip(labelled, heights, strict=True))
    for colour, (kind, curve) in zip((*_COLOURS, ""), curves.items(), strict=True):
        points = " ".join(f"{across(size):.1f},{down(ms):.1f}" for size, ms in zip(sizes, curve, strict=True))
        line = f'stroke="{colour}" fill="none" stroke-width="2"' if colour else 'class="line" stroke-dasharray="6 5"'
        text = f'fill="{colour}"' if colour else 'class="ink"'
        parts.append(f'<polyline {line} points="{points}"/><path {line} d="M{right} {down(curve[-1]):.1f}'
                     f'L{right + 14} {label[kind]:.1f}"/><text {text} x="{right + 18}" y="{label[kind] + 4:.1f}">{kind}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}">\n'
            f'<title>Time of a search by number of documents</title>\n<style>{_STYLE}</style>\n'
            f'<rect class="paper" width="100%" height="100%"/>\n' + "\n".join(parts) + "\n</svg>\n")


def page(text: str, figures: Figures) -> str:
    """Return the text of a page with the table in its snippet `growth`."""
    shown = re.search(SNIPPET.format(name="growth"), text, re.DOTALL)
    assert shown, f"{PAGE.name} has no snippet `growth`"
    return text[:shown.start(1)] + table(figures) + text[shown.end(1):]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and draw, or draw alone; print the table. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--films", type=Path, default=FILMS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args(arguments)
    if not options.draw:
        if not options.films.exists():
            print(f"{options.films} does not exist: give films with --films", file=sys.stderr)
            return 2
        content = options.films.read_bytes()
        films = (gzip.decompress(content) if options.films.suffix == ".gz" else content).splitlines()
        with tempfile.TemporaryDirectory(prefix="svcd-bench-") as folder:
            measured = measure(films, sorted(options.sizes), options.queries, options.folder or Path(folder))
        FIGURES.write_text(json.dumps(measured, indent=1) + "\n")
    figures = json.loads(FIGURES.read_text())
    PAGE.write_text(page(PAGE.read_text(), figures))
    PICTURE.write_text(plot(figures))
    print(table(figures), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
