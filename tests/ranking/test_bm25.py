"""The strategy and the rule `bm25` (docs/ranking.md#bm25).

What must hold:
1. random searches equal a plain exhaustive BM25, in order and ranks: with stored counts, and with documents that are read;
2. the early end of the search finds the best documents;
3. every document with a word is found, however many words the query has; all of them count;
4. a repeated word counts as often; stop words of the languages do not count while other words remain;
5. an exact word counts more than a typo, a synonym and a prefix; the last word of a long query is not a prefix;
6. a quoted phrase must match, excluded words exclude;
7. rules that sort, filters, thresholds and pages work as with other strategies;
8. `bm25` as a ranking rule sorts the buckets of other rules.
"""
from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from svcd.base.docids import DocIds
from svcd.index.reader import IndexReader
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.query.reader import Reader
from svcd.ranking import bm25, scores
from svcd.ranking.bucket_sort import RankingLimits
from svcd.schema.word_weights import LENGTHS, frequency_code, length_code
from svcd.search.keyword import keyword_search
from svcd.search.request import SearchQuery
from tests.support import plain_bm25
from tests.support.dict_reader import DictReader
from tests.support.searching import details_of, found_ids, hits, titled

WORDS = ("run running runs runner happy happiness wing wings flow flows flowing pressure pressures boundary the of a in layer "
         "supersonic hypersonic aerodynamic aerodynamics heat heated heating").split()
MISSPELT = ("presure", "bondary", "hapy", "supersonik", "aerodinamic", "layr", "unknown")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"defaultMatchingStrategy": "bm25"},
    {"defaultMatchingStrategy": "bm25", "stemming": ["eng"]},
    {"defaultMatchingStrategy": "bm25", "stemming": ["eng"], "bm25": {"weights": {"title": 2.5}, "k1": 0.9, "b": 0.4}},
)
BM25 = {"matching_strategy": "bm25"}


def _seeds() -> range:
    first, _, last = os.environ.get("SVCD_FUZZ_SEEDS", "0:4").partition(":")
    return range(int(first), int(last))


def _documents(chosen: random.Random, count: int) -> dict[int, dict[str, list[str]]]:
    return {docid: {"title": chosen.choices(WORDS, k=chosen.randint(1, 4)), "text": chosen.choices(WORDS, k=chosen.randint(0, 90))}
            for docid in range(count)}


def _queries(chosen: random.Random) -> Iterator[str]:
    for _ in range(12):
        words = chosen.choices(WORDS + list(MISSPELT), k=chosen.choice((1, 1, 2, 2, 5, 12)))
        if chosen.random() < 0.2:
            words[0] = f'"{chosen.choice(WORDS)} {chosen.choice(WORDS)}"'
        if chosen.random() < 0.2:
            words.insert(0, f"-{chosen.choice(WORDS)}")
        # The typos of a prefix are those of its words: tests/query/test_typos.py.
        yield " ".join(words) + (" " if words[-1] in MISSPELT else chosen.choice(("", " ")))


@contextmanager
def _stored(path: Path, documents: dict[int, dict[str, list[str]]], settings: dict[str, Any]) -> Iterator[IndexReader]:
    with closing(IndexWriter(path)) as writer, writer.transaction():
        writer.settings = settings
        writer.match_word_counts()
        writer.write([DocumentChange(docid, f"d{docid}", "{}", fields, ("title", "text"), is_new=True)
                      for docid, fields in documents.items()])
        yield writer.reader()


def _found(reader: Reader, text: str) -> list[tuple[int, int]]:
    ranking = keyword_search(reader, SearchQuery(q=text), RankingLimits(1000), lambda: False).ranking
    assert ranking.counted == DocIds([hit.docid for hit in ranking.hits])
    return [(hit.docid, hit.details[0].rank) for hit in ranking.hits]  # type: ignore[union-attr]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", _seeds())
def test_random_searches_equal_a_plain_ranking(seed: int, settings: dict[str, Any], tmp_path: Path) -> None:
    chosen = random.Random(seed)
    documents = _documents(chosen, chosen.choice((3, 40, 300)))
    read = DictReader([{field: " ".join(words) for field, words in fields.items()} for fields in documents.values()],
                      {**settings, "searchableAttributes": ["title", "text"]})
    with _stored(tmp_path / "index.sqlite", documents, settings) as stored:
        for text in _queries(chosen):
            expected = plain_bm25.ranking(documents, text, settings)
            assert _found(stored, text) == expected, (seed, text)
            assert _found(read, text) == expected, (seed, text)


@pytest.mark.parametrize("seed", _seeds())
def test_the_best_documents_are_found_without_scoring_all(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    weights = [1 / (place + 1) for place in range(len(WORDS))]
    documents = {docid: {"title": chosen.choices(WORDS, weights, k=chosen.randint(1, 30))} for docid in range(1500)}
    with _stored(tmp_path / "index.sqlite", documents, SETTINGS[0]) as reader, patch.object(bm25, "_REACHED", 1.0):
        for _ in range(10):
            query = SearchQuery(q=" ".join(chosen.choices(WORDS, k=10)))
            best, everything = (keyword_search(reader, query, RankingLimits(limit), lambda: False).ranking.hits[:20]
                                for limit in (20, 1500))
            assert best == everything, (seed, query.q)


def test_every_document_with_any_word_is_found() -> None:
    reader = titled("wing", "flow", "wing flow", "heat")
    assert found_ids(reader, "what about the wing or flow ", **BM25) == [3, 1, 2]


def test_all_words_of_a_long_query_count() -> None:
    reader = titled(*(f"w{number}x" for number in range(300)))
    text = " ".join(f"w{number}x" for number in range(300)) + " "
    assert len(found_ids(reader, text, **BM25)) == 300
    assert len(found_ids(reader, text)) == 1


def test_a_repeated_word_counts_as_often() -> None:
    reader = titled("wing", "flow", "heat", "heat")
    assert found_ids(reader, "wing flow flow ", **BM25) == [2, 1]
    assert found_ids(reader, "wing wing flow ", **BM25) == [1, 2]


def test_stop_words_do_not_count_while_other_words_remain() -> None:
    reader = titled("the of", "the wing", "of the flow", stemming=["eng"])
    assert found_ids(reader, "the wing of ", **BM25) == [2]
    assert found_ids(reader, "the ", **BM25) == [1, 2, 3]
    own = titled("the of", "the wing", stemming=["eng"], stopWords=["wing"])
    assert found_ids(own, "the wing of ", **BM25) == [1, 2]


def test_exact_words_count_more_than_derived_ones() -> None:
    reader = titled("presure", "pressure", "pressures")
    assert found_ids(reader, "presure wing flow ", **BM25) == [1]
    reader = titled("automobile", "car", synonyms={"car": ["automobile"]})
    assert found_ids(reader, "car ", **BM25) == [2, 1]
    reader = titled("starship", "star", "star")
    assert found_ids(reader, "star", **BM25) == [2, 3, 1]
    assert found_ids(reader, "a b star", **BM25) == [2, 3]


def test_words_that_the_index_lacks_have_typos_or_a_split() -> None:
    reader = titled("pressure", "pressures", "star wars", "flow")
    assert found_ids(reader, "presure flow ", **BM25) == [4, 1]
    assert found_ids(reader, "starwars ", **BM25) == [3]
    assert found_ids(titled("pressure", typoTolerance={"enabled": False}), "presure ", **BM25) == []


def test_synonyms_of_several_words_are_found() -> None:
    reader = titled("sf", "san francisco", "new york", synonyms={"san francisco": ["sf"], "nyc": ["new york"]})
    assert found_ids(reader, "san francisco ", **BM25) == [2, 1]
    assert found_ids(reader, "nyc ", **BM25) == [3]


def test_a_phrase_must_match_and_excluded_words_exclude() -> None:
    reader = titled("wing flow", "flow wing", "flow", "wing flow heat")
    assert found_ids(reader, '"wing flow" heat ', **BM25) == [4, 1]
    assert found_ids(reader, "flow -wing ", **BM25) == [3]


def test_stems_are_counted_as_the_word() -> None:
    reader = titled("run", "running", "runs", "walk", stemming=["eng"])
    assert sorted(found_ids(reader, "running ", **BM25)) == [1, 2, 3]


def test_fields_have_weights() -> None:
    documents = [{"id": 1, "title": "flow", "text": "wing heat layer"}, {"id": 2, "title": "wing", "text": "flow heat layer"}]
    settings = {"searchableAttributes": ["title", "text"]}
    assert found_ids(DictReader(documents, settings), "flow ", **BM25) == [1, 2]
    assert found_ids(DictReader(documents, {**settings, "bm25": {"weights": {"text": 3}, "k1": 1.6, "b": 0.75}}), "flow ", **BM25) == [2, 1]
    assert found_ids(DictReader(documents, {**settings, "bm25": {"weights": {"text": 0}, "k1": 1.6, "b": 0.75}}), "layer flow ", **BM25)[0] == 1


def test_searched_attributes_restrict_the_score() -> None:
    documents = [{"id": 1, "title": "flow", "text": "wing"}, {"id": 2, "title": "wing", "text": "flow"}]
    reader = DictReader(documents, {"searchableAttributes": ["title", "text"]})
    assert found_ids(reader, "flow ", attributes_to_search_on=["text"], **BM25) == [2]


def test_sort_rules_before_and_after() -> None:
    documents = [{"id": number, "title": title, "year": year}
                 for number, title, year in ((1, "wing", 3), (2, "wing", 2), (3, "wing flow", 1), (4, "wing", 1))]
    settings = {"sortableAttributes": ["year"], "searchableAttributes": ["title"]}
    after = DictReader(documents, {**settings, "rankingRules": ["words", "sort"]})
    assert found_ids(after, "wing flow ", sort=["year:asc"], **BM25) == [3, 4, 2, 1]
    before = DictReader(documents, {**settings, "rankingRules": ["sort", "words"]})
    assert found_ids(before, "wing flow ", sort=["year:asc"], **BM25) == [3, 4, 2, 1]
    assert found_ids(before, "wing flow ", sort=["year:desc"], **BM25) == [1, 2, 3, 4]


def test_as_a_rule_it_orders_the_buckets_of_other_rules() -> None:
    reader = titled("wing flow heat layer", "wing flow heat", "wing", "flow wing", rankingRules=["words", "bm25"])
    assert found_ids(reader, "wing flow ") == [4, 2, 1, 3]
    details = details_of(reader, "wing flow ")[3]
    assert list(details) == ["words", "bm25"]


def test_scores_are_comparable_and_details_name_each_word() -> None:
    reader = titled("wing flow", "wing", "heat", "heat")
    for hit in hits(reader, "wing flow unknown ", show_ranking_score=True, show_ranking_score_details=True, **BM25):
        details = hit["_rankingScoreDetails"]["bm25"]
        assert 0 < hit["_rankingScore"] == details["score"] < 1
        assert details["words"].keys() == {"wing", "flow"}
        assert sum(details["words"].values()) == pytest.approx(details["score"], abs=1e-4)
    best, other = (hits(reader, text, show_ranking_score=True, **BM25)[0]["_rankingScore"] for text in ("wing flow ", "wing layer "))
    assert best > other


def test_a_threshold_cuts_the_hits_and_their_number() -> None:
    reader = titled("wing flow", "wing", "flow flow")
    (best,) = (hit["_rankingScore"] for hit in hits(reader, "wing flow ", show_ranking_score=True, **BM25)[:1])
    assert found_ids(reader, "wing flow ", ranking_score_threshold=best - 0.01, **BM25) == [1]


def test_a_placeholder_search_has_no_scores_by_words() -> None:
    assert found_ids(titled("wing", "flow"), "", **BM25) == [1, 2]


def test_levels_are_exact_for_usual_frequencies_and_lengths() -> None:
    assert [frequency_code(quarter / 4) for quarter in range(65)] == list(range(65))
    assert [length_code(length) for length in range(65)] == list(range(65))
    assert LENGTHS[length_code(1000)] == pytest.approx(1000, rel=0.04)
    assert length_code(1e9) == 255


def test_the_rank_of_a_document_without_score_is_zero() -> None:
    assert scores.score((scores.Ranked("bm25", 0, bm25.MOST_RANK),)) == 0
