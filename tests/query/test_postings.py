"""The documents of pairs of words by attribute.

What must hold:
1. The first answer for a pair, within the candidates of that question, is given to all later questions.
2. A question for a prefix is one for each of its words.
"""
from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from svcd.base.docids import DocIds, union_of
from svcd.query.terms import Postings
from tests.support.dict_reader import DictReader

WORDS = ["s", "sa", "sab", "sac", "sb", "t", "tab"]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
FILM = st.fixed_dictionaries({"title": TEXT}, optional={"body": TEXT, "cast": TEXT})
CANDIDATES = st.sets(st.integers(0, 5))
QUESTION = st.tuples(st.sampled_from(["s", "t", "sab"]), st.sampled_from(["s", "sa", "sab", "t", "none"]), st.booleans(),
                     st.none() | CANDIDATES)


class PlainPairs:
    """The answers by attribute, worked out for one word after the other."""

    def __init__(self, films: list[dict[str, Any]]) -> None:
        self._films = films
        self._answers: dict[tuple[str, str], set[int]] = {}

    def pair(self, left: str, right: str, candidates: set[int] | None) -> set[int]:
        if (left, right) not in self._answers:
            found = {docid for docid, film in enumerate(self._films) if any(
                {left, right} <= set(text.split(" ")) for text in film.values())}
            self._answers[left, right] = found if candidates is None else found & candidates
        return self._answers[left, right]

    def prefix_pair(self, left: str, prefix: str, candidates: set[int]) -> set[int]:
        known = {word for film in self._films for text in film.values() for word in text.split(" ")}
        return set().union(*(self.pair(left, word, candidates) for word in known if word.startswith(prefix)))


@given(st.lists(FILM, min_size=1, max_size=6), st.lists(QUESTION, max_size=9),
       st.sampled_from([None, ["title", "cast"]]))
def test_first_answers_are_those_of_each_word(films: list[dict[str, Any]], questions: list[Any], fields: list[str] | None) -> None:
    reader = DictReader([{"id": f"n{number}", **film} for number, film in enumerate(films)], {"proximityPrecision": "byAttribute"})
    postings = Postings(reader, fields)
    plain = PlainPairs([{name: text for name, text in film.items() if fields is None or name in fields} for film in films])
    for left, right, is_prefix, candidates in questions:
        docids = None if candidates is None else DocIds(sorted(candidates))
        if is_prefix and candidates is not None and docids is not None:
            found, expected = postings.prefix_pair(1, left, right, docids), plain.prefix_pair(left, right, candidates)
        else:
            found, expected = postings.pair(1, left, right, docids), plain.pair(left, right, candidates)
        assert set(found) == expected


def test_by_word_a_prefix_is_the_union_of_its_words() -> None:
    reader = DictReader([{"id": 1, "title": "s x sab"}, {"id": 2, "title": "s sa"}, {"id": 3, "title": "s t"}])
    postings, everything = Postings(reader), reader.all_docids()
    assert postings.prefix_pair(2, "s", "sa", everything) == union_of([postings.pair(2, "s", "sa"), postings.pair(2, "s", "sab")])
