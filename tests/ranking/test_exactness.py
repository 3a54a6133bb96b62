"""The rule `exactness`.

What must hold:
1. A field that is the query comes before one that begins with it, that before all others.
2. A query word missing between others makes none exact; a last one missing goes unnoticed.
3. Among the others those with more words as typed come first.
4. Prefixes, typos, synonyms and joined words are not as typed.
5. A field of more than 30 words is never the query, though it may begin with it.
6. A position gap of a phrase takes its place.
"""
from __future__ import annotations

from tests.support.dict_reader import DictReader
from tests.support.searching import details_of, titled


def match_types(reader: DictReader, q: str) -> dict[int, str]:
    return {hit: view["exactness"]["matchType"] for hit, view in details_of(reader, q).items()}


def as_typed(reader: DictReader, q: str) -> dict[int, tuple[int, int]]:
    """id -> (words as typed, words of the query), of documents that no field of is the query."""
    shown = {hit: view["exactness"] for hit, view in details_of(reader, q).items()}
    return {hit: (view["matchingWords"], view["maxMatchingWords"]) for hit, view in shown.items()}


def test_three_kinds_of_match() -> None:
    reader = titled("the star wars", "star wars", "star wars II", "star. wars")
    assert match_types(reader, "star wars ") == {
        2: "exactMatch", 3: "matchesStart", 1: "noExactMatch", 4: "noExactMatch"}


def test_missing_words() -> None:
    assert match_types(titled("star wars"), "star wars nowhere ") == {1: "exactMatch"}
    assert match_types(titled("star starlight wars"), "star strlight wars ") == {1: "noExactMatch"}


def test_words_as_typed_are_counted() -> None:
    reader = titled("x wars starlight", "x starligt wars")
    assert as_typed(reader, "starlight wars ") == {1: (2, 2), 2: (1, 2)}


def test_only_the_word_itself_is_as_typed() -> None:
    reader = titled("x starlight", "x night", "x stars", "x star", synonyms={"star": ["night"]}, rankingRules=["exactness"])
    assert as_typed(reader, "star") == {4: (1, 1), 1: (0, 1), 2: (0, 1), 3: (0, 1)}
    assert as_typed(titled("x starwars", rankingRules=["exactness"]), "star wars ") == {1: (0, 2)}


def test_long_fields_can_only_begin_with_the_query() -> None:
    reader = titled("a " * 30, "a " * 31)
    q = '"' + "a " * 30 + '"'
    assert match_types(reader, q) == {1: "exactMatch", 2: "matchesStart"}
    assert match_types(titled("a " * 31), '"' + "a " * 31 + '"') == {1: "matchesStart"}


def test_position_gaps_take_their_place() -> None:
    reader = titled("lord of rings", "lord rings", "lord of the rings", stopWords=["of", "the"])
    # Stop words are not counted in a field, so no field has the three words of the phrase.
    assert match_types(reader, '"lord of rings"') == {1: "matchesStart", 2: "noExactMatch"}
