"""Which sets are materialized.

What must hold:
1. Chosen are the terms with so many documents, and the prefixes of so many occurrences; long ones of many words only.
2. The group of a word is its term if that is common, else its longest chosen prefix, else its letter; the union of the groups of a prefix
   are the words that begin with it.
3. Families part no prefix of two characters, and each group is in one of them.
4. A choice comes back as it was stored.

Which pairs of terms stand side by side.

What must hold:
5. Two terms are a pair when the second directly follows the first in one field: gaps, hard separators and fields part them.
6. The documents of a pair, and of a term before a prefix, are those found by looking at each pair of each document.
7. For complete terms, pairs that were not chosen have sets too.
8. Common pairs are found in a sample; rare ones are not.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given, settings, strategies as st

from svcd.index import fts
from svcd.index.materialized_choice import (
    Choice, ChosenPairs, adjacent_docids, chosen_from_vocabulary, common_pairs, pair_keys, pairs_in, plain_start,
)
from svcd.index.writer import IndexWriter
from tests.index.conftest import change

TERMS = st.sampled_from(["a", "ab", "abc", "abcd", "abcde", "abd", "b", "ba", "~41b", "ab~41", "é", "éa", "7"])


def written(writer: IndexWriter, documents: list[list[str]]) -> None:
    with writer.transaction():
        writer.write([change(docid, {"f": words}) for docid, words in enumerate(documents)])


def choice_of(writer: IndexWriter, least: int) -> Choice:
    found = list(chosen_from_vocabulary(writer._connection, "", "\U0010ffff", least))
    return Choice({term: count for term, count, is_prefix in found if not is_prefix},
                  {term: count for term, count, is_prefix in found if is_prefix})


def test_common_terms_and_prefixes_are_chosen(writer: IndexWriter) -> None:
    written(writer, [["the", "them"], ["the", "these"], ["then", "X"], ["tall", "the"]])
    choice = choice_of(writer, 3)
    assert choice.terms == {"the": 3}
    assert choice.prefixes == {"th": 6, "the": 6}  # of "tall" and "X" there are too few


def test_long_prefixes_of_many_words_are_chosen(writer: IndexWriter) -> None:
    written(writer, [[f"catal{number}"] for number in range(101)] + [[f"plane{number}"] for number in range(100)])
    assert set(choice_of(writer, 50).prefixes) == {"ca", "cat", "cata", "catal", "pl", "pla", "plan"}


@given(st.dictionaries(TERMS, st.integers(1, 9)), st.integers(1, 5))
@settings(deadline=None)
def test_leaves_make_up_terms_and_prefixes(documents: dict[str, int], least: int) -> None:
    weights: Counter[str] = Counter()
    for term, count in documents.items():
        plain = plain_start(term)
        weights.update({plain[:size]: count for size in range(2, min(len(plain), 4) + 1)})
    choice = Choice({term: count for term, count in documents.items() if count >= least},
                    {prefix: weight for prefix, weight in weights.items() if weight >= least})
    groups = {term: choice.group(term, least) for term in documents}
    for term, group in groups.items():
        nodes = set() if group is None else set(choice.nodes(group))
        assert nodes == {(term, False) for _ in range(term in choice.terms)} | {
            (prefix, True) for prefix in choice.prefixes if plain_start(term).startswith(prefix)}
        assert group is not None or plain_start(term)[:1] in ("", "é")
    families: dict[str, int] = {}
    for term, group in groups.items():
        if group is not None and len(plain_start(term)) > 1:
            assert families.setdefault(term[:2], choice.families.of_group(group)) == choice.families.of_group(group)
    assert Choice.parse(choice.as_json()).as_json() == choice.as_json()


def test_leaves_of_pairs() -> None:
    pairs = ChosenPairs([*pair_keys("of", "them"), "a*:of s"], ["of", "the"])
    choice = Choice({"of": 9, "the": 8}, {}, pairs)
    groups = choice.families.pairs["of"]
    assert [groups.group(right) for right in ("them", "theme", "the", "sea", "man")] == [
        "of them", "of them ", "of the", "of s ", None]
    assert set(groups.nodes("of them")) == {("of them", False), *((f"of {'them'[:size]}", True) for size in range(1, 5))}
    assert set(groups.nodes("of them ")) == {(f"of {'them'[:size]}", True) for size in range(1, 5)}
    assert set(groups.nodes("of the")) == {("of the", False), ("of t", True), ("of th", True), ("of the", True)}
    number = choice.families.of_pairs("of")
    assert choice.families.pair_groups(number) is groups and choice.families.pair_groups(0) is None
    assert Choice.parse(choice.as_json()).families.pairs["of"].group("theme") == "of them "


PAIR_TERMS = ["of", "the", "then", "theme", "t", "~41b"]
FIELDS = st.dictionaries(st.integers(0, 2), st.lists(st.sampled_from([*PAIR_TERMS, "", *[""] * 3]), min_size=1, max_size=20), max_size=3)


def forward_text(fields: Mapping[int, Sequence[str]]) -> str:
    return fts.forward_text({column: " ".join(terms) for column, terms in fields.items()})


def pairs_of(fields: Mapping[int, Sequence[str]]) -> set[tuple[str, str]]:
    return {(left, right) for terms in fields.values() for left, right in zip(terms, terms[1:]) if left and right}


@given(FIELDS)
def test_pairs_of_a_document(fields: dict[int, list[str]]) -> None:
    found = {(left, right) for left, right in pairs_in(forward_text(fields)) if left and right}
    assert found == pairs_of(fields)


def test_a_pair_counts_for_the_prefixes_of_its_second_term() -> None:
    assert pair_keys("of", "theme") == ["a:of theme", "a*:of t", "a*:of th", "a*:of the", "a*:of them"]
    assert pair_keys("of", "a") == ["a:of a", "a*:of a"]


@given(st.lists(FIELDS, max_size=8), st.sets(st.sampled_from(PAIR_TERMS)), st.sets(st.tuples(*[st.sampled_from(PAIR_TERMS)] * 2)))
def test_documents_of_pairs(
    documents: list[dict[int, list[str]]], complete: set[str], chosen: set[tuple[str, str]]
) -> None:
    keys = sorted({key for pair in chosen for key in pair_keys(*pair)})
    found = adjacent_docids(enumerate(map(forward_text, documents)), ChosenPairs(keys, complete))
    expected: dict[str, set[int]] = {}
    for docid, fields in enumerate(documents):
        for left, right in pairs_of(fields):
            for key in pair_keys(left, right):
                if key in keys or (key.startswith("a:") and {left, right} <= complete):
                    expected.setdefault(key, set()).add(docid)
    assert {key: set(docids) for key, docids in found.items()} == expected


def test_common_pairs_are_found_in_a_sample() -> None:
    often, seldom = forward_text({0: ["of", "the", "sea"]}), forward_text({0: ["of", "man"]})
    keys = common_pairs([often] * 100 + [seldom], {"of"}, 4, 404)
    assert keys == ["a*:of t", "a*:of th", "a*:of the", "a:of the"]
    assert common_pairs([often] * 10, {"of"}, 4, 40) == []
