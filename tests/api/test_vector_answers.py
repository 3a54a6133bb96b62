"""Answers to searches by vectors of a real index are those of the plain one (tests/support/dict_reader.py).

What must hold: whatever is asked, of documents written in several batches, some replaced and some deleted, hits with their
scores, totals, facets and counts agree, for plain and quantized vectors.
"""
from __future__ import annotations

import json
import random
from contextlib import nullcontext
from typing import Any

import pytest

from svcd.api.search_parameters import FIELDS
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_from

DIMENSIONS, FILMS, QUESTIONS = 5, 60, 40
WORDS = ("sun", "sunny", "night", "dark", "flower", "and", "the")


def vector(chance: random.Random) -> list[float]:
    return [round(chance.uniform(-1, 1), 2) for _ in range(DIMENSIONS)]


def film(chance: random.Random, number: int) -> dict[str, Any]:
    vectors: Any = chance.choice([None, vector(chance), vector(chance), [vector(chance) for _ in range(3)],
                                  {"regenerate": False, "embeddings": vector(chance)}])
    return {"id": number, "title": " ".join(chance.choices(WORDS, k=3)), "year": chance.randrange(4),
            "color": chance.choice(["red", "blue", None]), "_vectors": {"e": vectors}}


def question(chance: random.Random, known: list[int]) -> tuple[str, dict[str, Any]]:
    """(the last part of the path, body)."""
    body: dict[str, Any] = {"retrieveVectors": chance.random() < 0.3, "showRankingScoreDetails": True, "showRankingScore": True,
                            "limit": chance.randrange(1, 30), "offset": chance.choice([0, 0, 3])}
    if chance.random() < 0.4:
        body["filter"] = f"year > {chance.randrange(3)}"
    if chance.random() < 0.2:
        body["rankingScoreThreshold"] = round(chance.uniform(0.2, 0.8), 2)
    if chance.random() < 0.3:
        return "similar", {"id": chance.choice(known), "embedder": "e", **body}
    body["hybrid"] = {"embedder": "e", "semanticRatio": chance.choice([0.2, 0.5, 0.8, 1.0])}
    body["vector"] = vector(chance)
    body["facets"] = ["year"]
    if chance.random() < 0.7:
        body["q"] = chance.choice(["sun", "dark nihgt", "sun -night", "flow", '"dark night"', ""])
    if chance.random() < 0.3:
        body["sort"] = [chance.choice(["year:asc", "year:desc"])]
    if chance.random() < 0.3:
        body["distinct"] = "color"
    if chance.random() < 0.3:
        body |= {"page": chance.randrange(1, 3), "hitsPerPage": chance.randrange(1, 9)}
    assert body.keys() <= FIELDS.keys()
    return "search", body


@pytest.mark.parametrize("quantized", [False, True], ids=["plain", "quantized"])
@pytest.mark.parametrize("seed", range(2))
def test_a_real_index_answers_as_the_plain_one(client, work, monkeypatch, seed: int, quantized: bool) -> None:
    chance = random.Random(seed)
    settings = {"searchableAttributes": ["title"], "filterableAttributes": ["year", "color"], "sortableAttributes": ["year"],
                "embedders": {"e": {"source": "userProvided", "dimensions": DIMENSIONS, "binaryQuantized": quantized}}}
    client.json("PATCH", "/indexes/films/settings", settings)
    films = [film(chance, number) for number in range(FILMS)]
    for start in (0, 20, 40):
        client.json("POST", "/indexes/films/documents", films[start:start + 20])
        work()
    for number in chance.sample(range(FILMS), 10):
        films[number] = film(chance, number)
        client.json("POST", "/indexes/films/documents", [films[number]])
    work()
    known = [each["id"] for each in films]
    questions = [question(chance, known) for _ in range(QUESTIONS)]

    def answers() -> list[Any]:
        got = [client.json("POST", f"/indexes/films/{path}", body).value for path, body in questions]
        return [{name: value for name, value in each.items() if name not in ("processingTimeMs", "requestUid")} for each in got]

    real = answers()
    plain = DictReader(films, settings)
    read_from(monkeypatch, lambda _instance, _uid: nullcontext(plain))
    for asked, left, right in zip(questions, real, answers()):
        assert json.dumps(left) == json.dumps(right), asked
    assert any("hits" in each and each["hits"] for each in real) and all("code" not in each for each in real)
