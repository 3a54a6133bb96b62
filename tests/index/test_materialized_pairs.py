"""Which pairs of terms stand side by side.

What must hold:
1. Two terms are a pair when the second directly follows the first in one field: gaps, hard separators and fields part them.
2. The documents of a pair, and of a term before a prefix, are those found by looking at each pair of each document.
3. For complete terms, pairs that were not chosen have sets too.
4. Common pairs are found in a sample; rare ones are not.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from svcd.index import fts_encoding
from svcd.index.materialized_pairs import ChosenPairs, adjacent_docids, common_pairs, pair_keys, pairs_in

TERMS = ["of", "the", "then", "theme", "t", "~41b"]
FIELDS = st.dictionaries(st.integers(0, 2), st.lists(st.sampled_from([*TERMS, "", *[""] * 3]), min_size=1, max_size=20), max_size=3)


def forward_text(fields: Mapping[int, Sequence[str]]) -> str:
    return fts_encoding.forward_text({column: " ".join(terms) for column, terms in fields.items()})


def pairs_of(fields: Mapping[int, Sequence[str]]) -> set[tuple[str, str]]:
    return {(left, right) for terms in fields.values() for left, right in zip(terms, terms[1:]) if left and right}


@given(FIELDS)
def test_pairs_of_a_document(fields: dict[int, list[str]]) -> None:
    found = {(left, right) for left, right in pairs_in(forward_text(fields)) if left and right}
    assert found == pairs_of(fields)


def test_a_pair_counts_for_the_prefixes_of_its_second_term() -> None:
    assert pair_keys("of", "theme") == ["a:of theme", "a*:of t", "a*:of th", "a*:of the", "a*:of them"]
    assert pair_keys("of", "a") == ["a:of a", "a*:of a"]


@given(st.lists(FIELDS, max_size=8), st.sets(st.sampled_from(TERMS)), st.sets(st.tuples(*[st.sampled_from(TERMS)] * 2)))
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
