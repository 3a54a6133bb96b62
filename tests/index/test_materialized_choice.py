"""Which sets are materialized.

What must hold:
1. Chosen are the terms with so many documents, and the prefixes of so many occurrences; long ones of many words only.
2. The group of a word is its term if that is common, else its longest chosen prefix, else its letter; the union of the groups of a prefix
   are the words that begin with it.
3. Families part no prefix of two characters, and each group is in one of them.
4. A choice comes back as it was stored.
"""
from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.index.materialized_choice import Choice, chosen_from_vocabulary, plain_start
from svcd.index.materialized_pairs import ChosenPairs, pair_keys
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
