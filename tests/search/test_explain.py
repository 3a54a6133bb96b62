"""Explanations, against searches themselves. What must hold of every document of an index and any query:

1. It is explained as a hit at place n exactly when the search has it there, with the score and the score details of the search.
2. Otherwise the first cause is true: the search, or a search without the cause, shows it (TRUTHS, one check for each cause).
3. The place beyond the page is that in a search with a longer page.
4. Matches are words of the document; the next better bucket is that of a hit before.
5. Attributes that are not displayed are not named, and their words are not shown.
"""
from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import pytest

from svcd.base.docids import DocIds
from svcd.filters.evaluation import read_filter
from svcd.ranking import bucket_sort
from svcd.search.explain import Question, clauses_of, explain
from svcd.search.request import Federation, IndexedQuery, SearchQuery, no_embedding
from svcd.search.search import search
from tests.support.dict_reader import DictReader
from tests.support.searching import UID, never

WORDS = "star stars stair wars war galaxy galaxies gallery night knight the of dark darkness trek".split()
SETTINGS: dict[str, Any] = {"searchableAttributes": ["title", "text"], "filterableAttributes": ["year", "kind"],
                            "sortableAttributes": ["year"], "stopWords": ["the"],
                            "synonyms": {"trek": ["journey"], "journey": ["trek"]}}
SEED = 33


def made(dice: random.Random, count: int = 14) -> list[dict[str, Any]]:
    def text(most: int) -> str:
        return " ".join(dice.choices(WORDS, k=dice.randint(1, most)))

    return [{"id": number, "title": text(3), "text": text(6), "notes": text(3), "year": 1970 + number % 6,
             "kind": dice.sample(["drama", "noir", "war"], dice.randint(0, 2))} for number in range(count)]


def asked_at_random(dice: random.Random) -> tuple[SearchQuery, Any, Federation]:
    """(query without filter, filter, page)"""
    parts = dice.sample([*WORDS, "satr", "galaxz", "kniht", "journey", "zebra", "gal", '"star wars"', '"dark night"', "-war"],
                         k=dice.randint(0, 4))
    query = SearchQuery(
        q=" ".join(parts) if parts or dice.random() < 0.5 else None,
        matching_strategy=dice.choice([None, "last", "all", "frequency", "bm25"]),
        attributes_to_search_on=dice.choice([None, None, ["title"], ["text"]]),
        ranking_score_threshold=dice.choice([None, None, None, 0.5, 0.9]),
        sort=dice.choice([None, None, ["year:desc"]]), distinct=dice.choice([None, None, None, "year", "kind"]))
    condition = dice.choice([None, None, ["year > 1971", "kind = drama"], "year < 1975 AND NOT kind = noir", ["kind EXISTS"]])
    return query, condition, dice.choice([Federation(), Federation(limit=3), Federation(offset=2, limit=3), Federation(
        page=2, hits_per_page=2), Federation(limit=0)])


def found(reader: DictReader, query: SearchQuery, page: Federation | None = None, **changed: Any) -> list[int]:
    """The docids of the hits."""
    asked = query._replace(show_ranking_score_details=True, **changed)
    ranked = search({UID: reader}, [IndexedQuery(UID, asked)], page or Federation(limit=1000), never).ranked
    return [hit.docid for hit in ranked]


def explained(reader: DictReader, docid: int, query: SearchQuery, condition: Any = None, page: Federation | None = None,
              timer: Any = never, visible: DocIds | None = None) -> dict[str, Any]:
    parsed = read_filter(condition, "invalid_search_filter")
    clauses = list(clauses_of(parsed, "filter", lambda each: each))
    indexed = IndexedQuery(UID, query._replace(filter=parsed))
    return explain(reader, Question(indexed, page or Federation(), docid, clauses, visible, timer, never, no_embedding))


def asked(reader: DictReader, docid: int, q: str | None, page: Federation | None = None, **members: Any) -> dict[str, Any]:
    return explained(reader, docid, SearchQuery(q=q, **members), page=page)


# -- Every document, any query


class Case:
    """One document that is not a hit, and what the search does with it."""

    def __init__(self, documents: Sequence[Mapping[str, Any]], docid: int, query: SearchQuery, told: Mapping[str, Any]) -> None:
        self.documents, self.docid, self.query, self.cause, self.place = documents, docid, query, told["cause"], told["place"]

    def has(self, **changed: Any) -> bool:
        """Does a changed search have the document?"""
        return self.docid in found(self.reader(), self.query, **changed)

    def has_word(self, settings: str = "", **changed: Any) -> bool:
        """Does a search for the word that is missing have it, without the rest of the search?"""
        word, q = self.cause["word"], self.query.q or ""
        word = f'"{word}"' if self.cause["missing"][0].startswith('"') and word[0] != '"' else word
        strategy = "bm25" if self.query.matching_strategy == "bm25" and settings != "any typos" else "last"
        alone = SearchQuery(q=word if q.split()[-1:] == [word] else f"{word} zzzz", matching_strategy=strategy,
                            attributes_to_search_on=changed.get("on", self.query.attributes_to_search_on))
        return self.docid in found(self.reader(settings), alone)

    def reader(self, settings: str = "") -> DictReader:
        """The index with settings of CHANGES."""
        key = id(self.documents), settings
        if key not in READERS:
            READERS[key] = DictReader(self.documents, {**SETTINGS, **CHANGES.get(settings, {})})
        return READERS[key]


READERS: dict[tuple[int, str], DictReader] = {}
CHANGES: dict[str, dict[str, Any]] = {
    "all searchable": {"searchableAttributes": ["*"]}, "no stop words": {"stopWords": []},
    "any typos": {"typoTolerance": {"enabled": True, "minWordSizeForTypos": {"oneTypo": 1, "twoTypos": 1}, "disableOnWords": [],
                                    "disableOnAttributes": [], "disableOnNumbers": False}}}


def without_failing(case: Case) -> bool:
    clauses = list(clauses_of(case.query.filter, "filter", lambda each: each))
    left = [clause.text for clause in clauses if clause.text not in case.cause["clauses"]]
    reader = case.reader()
    meets = [case.docid in found(reader, SearchQuery(filter=read_filter(text, "x"))) for text in case.cause["clauses"]]
    return not any(meets) and case.docid in found(reader, SearchQuery(filter=read_filter(left, "x")))


TRUTHS: dict[str, Callable[[Case], bool]] = {
    "filter": without_failing,
    "excludedWord": lambda case: not case.has() and any(
        case.cause["word"] in str(case.documents[case.docid][name]).split() for name in ("title", "text")),
    "attributesToSearchOn": lambda case: not case.has_word() and case.has_word(on=None),
    "searchableAttributes": lambda case: not case.has_word() and case.has_word("all searchable", on=None),
    "stopWord": lambda case: not case.has_word() and case.has_word("no stop words"),
    "typoLimit": lambda case: not case.has_word() and case.has_word("any typos"),
    "wordNotFound": lambda case: not found(case.reader(), SearchQuery(q=f"{case.cause['word']} zzzz")),
    "phrase": lambda case: not case.has_word() and all(
        case.docid in found(case.reader(), SearchQuery(q=f"{word} zzzz"))
        for word in case.cause["word"].strip('"').split()),
    "matchingStrategy": lambda case: not case.has() and all(
        case.has(matching_strategy=each, ranking_score_threshold=None, distinct=None) for each in case.cause["strategies"]),
    "wordMissing": lambda case: not case.has_word() and not case.has(distinct=None, ranking_score_threshold=None),
    "threshold": lambda case: not case.has() and case.has(ranking_score_threshold=None, distinct=None),
    "distinct": lambda case: not case.has() and case.has(distinct=None) and int(case.cause["documentId"]) in [
        document["id"] for document in case.documents
        if as_list(document[case.query.distinct]) & as_list(case.documents[case.docid][case.query.distinct])],
    "pagination": lambda case: case.has() and case.place in (
        None, 1 + found(case.reader(), case.query).index(case.docid)),
}


def as_list(value: Any) -> set[Any]:
    return set(value) if isinstance(value, list) else {value}


def test_every_document_is_where_the_search_has_it_or_has_a_true_cause() -> None:
    dice, causes = random.Random(SEED), Counter[str]()
    for _ in range(4):
        documents = made(dice)
        READERS.clear()
        reader = DictReader(documents, SETTINGS)
        for _ in range(30):
            query, condition, page = asked_at_random(dice)
            query = query._replace(filter=read_filter(condition, "invalid_search_filter"))
            shown = search({UID: reader}, [IndexedQuery(UID, query._replace(
                show_ranking_score_details=True, show_ranking_score=True))], page, never).hits
            hits = {hit["id"]: (page.window[0] + number, hit) for number, hit in enumerate(map(json.loads, shown), 1)}
            for docid in range(len(documents)):
                told = explained(reader, docid, query, condition, page)
                about = (query, condition, page, documents[docid], told)
                assert told["isHit"] == (docid in hits) == (told["cause"] is None), about
                if told["isHit"]:
                    place, hit = hits[docid]
                    assert (told["place"], told["score"]) == (place, hit["_rankingScore"]), about
                    assert told["rules"] == hit["_rankingScoreDetails"], about
                else:
                    kind = told["cause"]["kind"]
                    causes[kind] += 1
                    assert TRUTHS[kind](Case(documents, docid, query, told)), about
                for match in (match for word in told["words"] for match in word["matches"]):
                    assert any(match["text"].split()[0] in documents[docid][field] for field in match["fields"]), about
    assert set(causes) == set(TRUTHS), causes


# -- Parts of an explanation


FILMS = DictReader([
    {"id": 1, "title": "Star Wars", "text": "a young farmer", "secret": "galaxies"},
    {"id": 2, "title": "A Star Is Born", "text": "wars of fame", "secret": "stars"},
    {"id": 3, "title": "Dark Star", "text": "bored astronauts", "secret": "wart"},
], {"displayedAttributes": ["id", "title", "text"], "searchableAttributes": ["title", "text", "secret"]})


def test_matches_have_their_kind_typos_and_attributes() -> None:
    words = asked(FILMS, 1, "satr wars fame")["words"]
    assert [(word["word"], word["matches"]) for word in words] == [
        ("satr", []), ("wars", [{"text": "wars", "kind": "exact", "typos": 0, "fields": ["text"]}]),
        ("fame", [{"text": "fame", "kind": "exact", "typos": 0, "fields": ["text"]}])]
    prefix, = asked(FILMS, 0, "far")["words"]
    assert prefix["matches"] == [{"text": "farmer", "kind": "prefix", "typos": 0, "fields": ["text"]}]
    joined = asked(FILMS, 2, "astro nauts")["words"]
    assert joined[-1] == {"word": "astro nauts", "matches": [{"text": "astronauts", "kind": "joined", "typos": 2, "fields": ["text"]}]}
    (phrase,) = asked(FILMS, 0, '"star wars"')["words"]
    assert phrase == {"word": '"star wars"', "matches": [{"text": "star wars", "kind": "phrase", "typos": 0, "fields": ["title"]}]}


def test_the_next_better_bucket_is_that_of_a_better_hit() -> None:
    told = asked(FILMS, 1, "star wars")
    assert (told["place"], told["next"]["rule"], told["next"]["documents"]) == (2, "proximity", 1)
    assert told["next"]["here"] == told["rules"]["proximity"]
    assert told["next"]["there"] == asked(FILMS, 0, "star wars")["rules"]["proximity"]
    assert asked(FILMS, 1, "star wars", Federation(limit=1))["next"] == told["next"]  # beyond the page, too
    assert asked(FILMS, 0, "star wars")["next"] is None


def test_a_place_that_needs_many_documents_compared_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Federation(limit=1)
    known = asked(FILMS, 1, "star wars", page)
    monkeypatch.setattr(bucket_sort, "MOST_COMPARED", 1)
    told = asked(FILMS, 1, "star wars", page)
    assert (known["place"], told["place"], told["rules"], told["score"]) == (2, None, known["rules"], known["score"])
    assert told["cause"]["kind"] == "pagination"
    assert asked(FILMS, 1, "star", page)["place"] == 2  # a single word has no neighbours to compare


class Hurried(DictReader):
    """Its time is always over."""

    def limited(self, expired: Callable[[], bool]) -> NoReturn:
        raise TimeoutError


def test_a_place_and_strategies_that_take_too_long_are_left_open() -> None:
    documents = [{"id": 0, "title": "star wars"}, {"id": 1, "title": "wars"}, {"id": 2, "title": "star of wars"},
                 {"id": 3, "title": "star"}, {"id": 4, "title": "star"}]
    patient, hurried = (kind(documents, {"searchableAttributes": ["title"]}) for kind in (DictReader, Hurried))
    page = Federation(limit=1)
    known, told = (asked(reader, 2, "star wars", page) for reader in (patient, hurried))
    assert (known["place"], told["place"], told["next"]) == (2, None, None)
    assert [told[name] for name in ("isHit", "score", "rules", "words")] == [known[name] for name in ("isHit", "score", "rules", "words")]
    assert told["cause"]["kind"] == "pagination"
    known, told = (asked(reader, 1, "star wars", matching_strategy="all")["cause"] for reader in (patient, hurried))
    assert (known["kind"], known["strategies"], told["kind"]) == ("matchingStrategy", ["frequency"], "wordMissing")
    assert told["text"].endswith("whether `frequency` requires it, too, was not found out in time.")


def test_hidden_attributes_and_their_words_are_not_shown() -> None:
    told = asked(FILMS, 0, "galaxies")
    assert told["isHit"] and told["words"][0]["matches"] == [{"text": "<hidden>", "kind": "exact", "typos": 0, "fields": []}]
    assert asked(FILMS, 0, "stas", matching_strategy="all")["cause"]["nearest"] == ["star"]
    assert "galaxies" not in json.dumps(asked(FILMS, 1, "galaxis wars"))


def test_nearest_words_are_those_of_documents_that_the_bearer_sees() -> None:
    query = SearchQuery(q="farmxr x")
    assert explained(FILMS, 0, query._replace(q="fxrmxr x"))["cause"]["kind"] == "typoLimit"
    assert explained(FILMS, 1, query._replace(q="fxrmxr x"))["cause"]["nearest"] == ["farmer"]
    assert explained(FILMS, 1, query._replace(q="fxrmxr x"), visible=DocIds([1, 2]))["cause"]["nearest"] == []


def test_a_search_that_ran_out_of_time_says_so() -> None:
    documents = [{"id": number, "title": "star " * (number % 2) + "dark star"} for number in range(9)]
    reader = DictReader(documents, {"searchableAttributes": ["title"], "rankingRules": ["exactness", "wordPosition"]})
    page = Federation(limit=4)
    for docid in range(9):
        told = explained(reader, docid, SearchQuery(q="dark star"), page=page, timer=lambda milliseconds: lambda: True)
        assert (told["cause"] or {}).get("kind") == (
            None if docid < 4 else "cutOff" if docid in found(reader, SearchQuery(q="dark star"), page) else "pagination"), docid
