"""Terms, their derivations and the documents of subsets.

What must hold:
1. The split of a word is the cut whose parts are adjacent in most documents, the leftmost of equals.
2. An n-gram is never split into the words it was made of.
3. Synonyms are in every subset; an n-gram has those of its joined text and of the sequence of its words.
4. Words reached by typos, and all of an n-gram, are looked up in tolerant occurrences only; words as typed in all.
5. Under `attributesToSearchOn` only the literal names of `disableOnAttributes` forbid typos.
6. Words longer than 250 bytes have no derivation.
7. A short prefix of a hundred words is a cached prefix; the words of others are listed, a thousand at most.
"""
from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from svcd.query.terms import EXACT, NONE, Postings, Subset, Term, Terms
from tests.support.dict_reader import DictReader
from tests.support.searching import titled


def terms_of(reader: DictReader, fields: list[str] | None = None) -> Terms:
    return Terms(Postings(reader, fields), reader.settings.typo_tolerance, reader.settings.synonyms)


def made(term: Term | None) -> Term:
    assert term is not None
    return term


def test_the_best_split_wins() -> None:
    terms = terms_of(titled("ab cd", "a bcd", "ab x cd", "ab cd"))
    assert terms.derivations(Subset(terms.word("abcd", False))).phrases == [("ab", "cd")]
    terms = terms_of(titled("ab cd", "a bcd"))
    assert terms.derivations(Subset(terms.word("abcd", False))).phrases == [("a", "bcd")]
    assert terms.derivations(Subset(terms.word("xy", False))).phrases == []


CUTS = [("a", "bcd"), ("ab", "cd"), ("abc", "d")]


@given(st.lists(st.lists(st.sampled_from(["a", "ab", "abc", "b", "bcd", "cd", "d", "x"]), min_size=1, max_size=5).map(" ".join),
                min_size=1, max_size=8), st.sampled_from([None, *CUTS]))
def test_the_best_split_is_that_of_a_count_of_all(titles: list[str], components: tuple[str, str] | None) -> None:
    counts = [sum(f" {left} {right} " in f" {title} " for title in titles) for left, right in CUTS]
    best = CUTS[counts.index(max(counts))] if any(counts) else None
    terms = terms_of(titled(*titles))
    term = terms.word("abcd", False) if components is None else made(terms.ngram(components, False))
    assert terms.derivations(Subset(term)).phrases == ([] if best in (None, components) else [best])


def test_an_ngram_is_not_split_into_its_words() -> None:
    terms = terms_of(titled("sun day", "sun day", "su nday"))
    assert terms.derivations(Subset(made(terms.ngram(["sun", "day"], False)))).phrases == []
    assert terms.derivations(Subset(made(terms.ngram(["s", "unday"], False)))).phrases == [("sun", "day")]


def test_synonyms_are_in_every_subset() -> None:
    terms = terms_of(titled("x", synonyms={"new": ["big apple"], "newyork": ["nyc"], "new york": ["gotham"]}))
    term = terms.word("new", False)
    for subset in (Subset(term), Subset(term, EXACT), Subset(term, NONE, True, False), Subset(term, NONE, False, True)):
        assert terms.derivations(subset).phrases == [("big", "apple")]
    assert terms.derivations(Subset(made(terms.ngram(["new", "york"], False)))).phrases == [("nyc",), ("gotham",)]


def docs_of(terms: Terms, term: Term | None) -> list[int]:
    return list(terms.docids(Subset(made(term))))


def test_ngrams_and_typos_reach_tolerant_occurrences_only() -> None:
    settings: dict[str, Any] = {"typoTolerance": {"disableOnAttributes": ["title"]}}
    terms = terms_of(DictReader([{"id": 1, "title": "sunday"}, {"id": 2, "body": "sunday"}], settings))
    assert docs_of(terms, terms.word("sunday", False)) == [0, 1]
    assert docs_of(terms, terms.word("sund", True)) == [0, 1]
    assert docs_of(terms, terms.word("sundya", False)) == [1]
    assert docs_of(terms, terms.ngram(["sun", "day"], False)) == [1]
    assert docs_of(terms, terms.ngram(["sun", "d"], True)) == [1]


def test_in_chosen_fields_only_literal_names_forbid_typos() -> None:
    settings: dict[str, Any] = {"typoTolerance": {"disableOnAttributes": ["body"]}}
    reader = DictReader([{"id": 1, "body": {"x": "sunday"}}, {"id": 2, "title": "sunday"}], settings)
    everywhere, chosen = terms_of(reader), terms_of(reader, ["body.x"])
    assert docs_of(everywhere, everywhere.ngram(["sun", "day"], False)) == [1]
    assert docs_of(chosen, chosen.ngram(["sun", "day"], False)) == [0]


def test_words_too_long_have_no_derivation() -> None:
    long = "x" * 251
    terms = terms_of(titled(long, "x" * 250))
    assert docs_of(terms, terms.word(long, True)) == []
    assert docs_of(terms, terms.word("x" * 250, False)) == [1]
    assert terms.ngram(["x" * 200, "x" * 51], False) is None


def test_prefixes() -> None:
    terms = terms_of(titled(*(f"sun{number:04}" for number in range(1100))))
    cached, listed = terms.word("sun", True), terms.word("sun01", True)
    assert (cached.cached_prefix, len(cached.prefix_words)) == ("sun", 0)
    assert (listed.cached_prefix, len(listed.prefix_words)) == (None, 100)
    assert len(docs_of(terms, cached)) == 1100
    terms = terms_of(titled(*(f"sunny{number:04}" for number in range(1100))))
    longer = terms.word("sunny", True)  # five bytes
    assert (longer.cached_prefix, len(longer.prefix_words), longer.has_all_prefix_words) == (None, 1000, False)
    assert len(docs_of(terms, longer)) == 1000
