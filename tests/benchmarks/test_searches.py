"""`make bench`. What must hold:

1. Equal arguments give equal searches, of all kinds.
2. It tells when one kind, or all kinds together, cost more than the committed figures allow, and then only.
3. It measures a daemon of its own, and writes figures that the next run compares with.
"""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.searches import MOST, MOST_OF_ONE, main, searches, slower

FILMS = [{"id": number, "title": f"Title {'ABCDEFG'[number % 7]}lpha {'UVWXYZ'[number % 6]}ord", "year": 1920 + number,
          "genres": ["Drama", "War"][: number % 3], "cast": ["Ada Byron"],
          "extract": " ".join(f"{'bcdfgh'[(number + step) % 6]}er{'aeiou'[step % 5]}nd" for step in range(20))} for number in range(60)]


def test_equal_seeds_give_equal_searches() -> None:
    assert searches(FILMS, 4, 7) == searches(FILMS, 4, 7) != searches(FILMS, 4, 8)
    assert {kind: len(bodies) for kind, bodies in searches(FILMS, 4, 7).items()} == dict.fromkeys(searches(FILMS, 1, 1), 4)


@pytest.mark.parametrize(("ratios", "told"), [
    ((1, 1, 1), []), ((MOST_OF_ONE - 0.01, 1, 0.9), []), ((MOST_OF_ONE + 0.01, 1, 0.7), ["a"]),
    ((MOST + 0.01, MOST + 0.01, MOST + 0.01), ["all"]), ((2, 2, 2), ["a", "b", "c", "all"]), ((0.1, 0.1, 0.1), []),
])
def test_a_slower_kind_is_named(ratios: tuple[float, ...], told: list[str]) -> None:
    figures = {kind: {"cost": 0.3 * ratio, "ms": 1.0} for kind, ratio in zip("abc", ratios)}
    found = slower(figures, dict.fromkeys("abc", 0.3))
    assert [line.split()[0] for line in found] == told
    assert slower(figures, {}) == []  # a kind without a committed figure is compared with nothing


def test_it_compares_with_the_figures_that_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    films, figures = tmp_path / "films.ndjson", tmp_path / "figures.json"
    films.write_text("\n".join(map(json.dumps, FILMS)))
    arguments = ["--films", str(films), "--figures", str(figures), "--queries", "5"]
    assert main([*arguments, "--write"]) == 0
    written = json.loads(figures.read_text())
    assert set(written) == set(searches(FILMS, 1, 1)) and all(0 < cost < 100 for cost in written.values())
    figures.write_text(json.dumps({kind: cost / 100 for kind, cost in written.items()}))
    capsys.readouterr()
    assert main(arguments) == 1
    assert "all kinds together cost" in capsys.readouterr().out


def test_missing_films_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--films", str(tmp_path / "none")]) == 2
    assert "none does not exist" in capsys.readouterr().err
