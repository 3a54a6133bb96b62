"""What must hold of three instances that share the documents of a file, by examples/three_instances.py:

1. Searches over the network, later pages of them, and merged searches of all three are answered as by one instance: totals,
   scores, order, facets.
2. Without one of them, be it stopped or hanging, the hits of the others come within the time that is set, and the answer says
   which one is missing.
"""
from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT

pytestmark = pytest.mark.slow

DOCUMENTS = 400
ADJECTIVES = ("silent", "golden", "broken", "distant", "hidden", "burning", "frozen", "lonely", "electric", "crimson")
NOUNS = ("garden", "mountain", "harbour", "machine", "orchestra", "lighthouse", "winter", "stranger", "mirror", "telescope")


def films(seed: int) -> list[dict]:
    """Documents with titles of a few words, one to three genres, a year, and an id that says nothing about the order."""
    chance = random.Random(seed)
    numbers = chance.sample(range(10 * DOCUMENTS), DOCUMENTS)
    return [{
        "id": number,
        "title": " ".join([*chance.sample(ADJECTIVES, chance.randint(0, 2)), *chance.sample(NOUNS, chance.randint(1, 2))]),
        "overview": " ".join(chance.choices(ADJECTIVES + NOUNS, k=chance.randint(3, 12))),
        "genres": chance.sample(("drama", "comedy", "crime", "war", "noir"), chance.randint(1, 3)),
        "year": chance.randint(1990, 2010),
    } for number in numbers]


def test_three_instances_answer_as_one(tmp_path: Path) -> None:
    file = tmp_path / "films.ndjson"
    file.write_text("\n".join(map(json.dumps, films(seed=14))))
    found = subprocess.run(
        [sys.executable, "examples/three_instances.py", str(file), "--facet", "genres", "--facet", "year",
         "--svcd", f"{sys.executable} -m svcd"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    *same, hangs, stopped, again = found.stdout.splitlines()
    assert same == [f"{what}: 42 of 42 answers agree with one instance" for what in ("useNetwork", "page 2 of useNetwork", "federated")]
    assert hangs.startswith("south does not answer: 2 of 2 ") and hangs.endswith("{'south': 'remote_timeout'}")
    assert stopped.startswith("south does not answer: 5 of 5 ") and stopped.endswith("{'south': 'remote_could_not_send_request'}")
    assert again == "all three again: 5 of 5 answers agree with one instance"
