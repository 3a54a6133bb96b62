"""`make bench-plot`. What must hold:

1. Documents have the identifiers 1 to their number; after the last sentence comes the first.
2. The table marks the growth that reaches the cube root of the documents, and names these kinds.
3. The plot has a line for each kind, in proportion, and a straight one for the cube root; no label covers another.
4. The committed table and plot show the committed figures.
5. Each size has a daemon with that number of documents; a folder that is kept is not filled again.
"""
from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.growth import FIGURES, PAGE, PICTURE, documents, measure, page, plot, sentences, table
from benchmarks.searches import searches
from tests.benchmarks.test_searches import FILMS

SVG = "{http://www.w3.org/2000/svg}"


def figures_of(*curves: tuple[float, ...]) -> dict[str, object]:
    """Return figures whose kinds `a`, `b` ... have these p50, and p95 twice as long."""
    return {"measured": "today", "sizes": [10 ** (3 + step) for step in range(len(curves[0]))],
            "kinds": {name: [[p50, 2 * p50] for p50 in curve] for name, curve in zip("abcdefghi", curves)}}


def test_sentences_come_again_with_new_identifiers() -> None:
    films = [{"title": "One", "year": 1, "cast": [], "genres": [], "extract": "Éa b. C? D!", "id": 7, "href": "x"},
             {"title": "Two", "year": 2, "cast": [], "genres": [], "extract": "E.", "id": 8}]
    texts = sentences([json.dumps(film).encode() for film in films])
    made = list(map(json.loads, documents(texts, 10)))
    assert [document["extract"] for document in made] == ["Éa b.", "C?", "D!", "E."] * 2 + ["Éa b.", "C?"]
    assert [document["id"] for document in made] == list(range(1, 11))
    assert set(made[0]) == {"id", "title", "year", "cast", "genres", "extract"}


def test_the_table_marks_what_grows_faster_than_the_cube_root() -> None:
    below, above = 10 ** (1 / 3) * 0.99, 10 ** (1 / 3) * 1.01
    text = table(figures_of((1, below, below ** 2), (2, 2 * above, 2 * below ** 2), (3, 3, 3 * above ** 2)))
    assert [line.count("**") // 2 for line in text.splitlines() if line.startswith(("| a", "| b", "| c |"))] == [0, 1, 1]
    assert text.endswith("more than the cube root of the documents: b, c.\n")
    assert "All of them grow by less" in table(figures_of((1, below, below ** 2)))


@pytest.mark.parametrize("seed", range(5))
def test_the_plot_shows_each_kind_in_proportion(seed: int) -> None:
    choose = random.Random(seed)
    figures = figures_of(*([choose.uniform(0.5, 3) * 2 ** step for step in range(3)] for _ in range(9)))
    root = ElementTree.fromstring(plot(figures))
    lines = [[tuple(map(float, point.split(","))) for point in line.attrib["points"].split()] for line in root.iter(f"{SVG}polyline")]
    assert len(lines) == 10
    curves = [*([p50 for p50, _ in points] for points in figures["kinds"].values()), [1, 10 ** (1 / 3), 10 ** (2 / 3)]]
    rises = [(start[1] - end[1], math.log(after / before)) for line, curve in zip(lines, curves)
             for (start, end), (before, after) in zip(pairwise(line), pairwise(curve))]
    scale = sum(pixels for pixels, _ in rises) / sum(rise for _, rise in rises)
    assert [pixels for pixels, _ in rises] == pytest.approx([scale * rise for _, rise in rises], abs=0.2)
    labels = [float(text.attrib["y"]) for text in root.iter(f"{SVG}text") if text.text in (*figures["kinds"], "cube root")]
    assert len(labels) == 10 and min(after - before for before, after in pairwise(sorted(labels))) > 13
    height = float(root.attrib["height"])
    assert all(0 < y < height for y in labels) and all(0 < y < height for line in lines for _, y in line)


def test_the_committed_table_and_plot_show_the_committed_figures() -> None:
    figures = json.loads(FIGURES.read_text())
    assert set(figures["kinds"]) == set(searches(FILMS, 1, 1))
    assert table(figures) in PAGE.read_text() == page(PAGE.read_text(), figures)
    assert PICTURE.read_text() == plot(figures) and f"(../pictures/{PICTURE.name})" in PAGE.read_text()


def test_each_size_is_measured_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    films = [json.dumps({**film, "extract": f"{film['extract']}. {film['extract']}."}).encode() for film in FILMS]
    for imports in (["importing 60 documents", "importing 240 documents"], []):
        figures = measure(films, (60, 240), 3, tmp_path)
        assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("importing")] == imports
        assert figures["sizes"] == [60, 240] and set(figures["kinds"]) == set(searches(FILMS, 1, 1))
        assert all(len(points) == 2 and 0 < p50 <= p95 for points in figures["kinds"].values() for p50, p95 in points)
