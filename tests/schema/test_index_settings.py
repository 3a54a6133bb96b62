"""What must hold of the typed settings of an index:

1. Defaults are those of the resolved settings, and answers show the resolved settings.
2. Synonyms are tokenized as queries are; keys with the same words are one, empty and long ones have no effect.
3. The typo budget of a word follows its length and the list of exact words.
4. Of several foreign keys for one attribute the first counts.
5. Indexes with equal settings of the tokenizer share it, and a cache knows the size of synonyms.
6. Decisions about attributes are right for any number of names.
"""
from __future__ import annotations

import sys
from typing import Any

import pytest

from svcd.schema import settings
from svcd.schema.index_settings import IndexSettings


def synonyms(setting: dict[str, list[str]], **others: Any) -> Any:
    return IndexSettings.of({"synonyms": setting, **others}).synonyms


def test_defaults_are_those_of_the_settings() -> None:
    made = IndexSettings.of({})
    assert made.resolved == settings.resolved({})
    assert made.searchable.is_everything and "any" not in made.filterable
    assert (made.max_total_hits, made.search_cutoff_ms, made.distinct_attribute) == (1000, None, None)
    assert made.has_prefix_search and made.has_facet_search and not made.is_proximity_by_attribute
    assert (made.faceting.max_values, made.faceting.order_of("any")) == (100, "alpha")
    assert made.localized_attributes == [] and made.locales_of("any") is None


def test_what_was_set_is_found_in_its_type() -> None:
    made = IndexSettings.of({
        "searchableAttributes": ["b", "a"], "filterableAttributes": ["c"], "prefixSearch": "disabled", "facetSearch": False,
        "proximityPrecision": "byAttribute", "pagination": {"maxTotalHits": 5}, "searchCutoffMs": 7, "distinctAttribute": "d",
        "localizedAttributes": [{"attributePatterns": ["x*"], "locales": ["fra"]}],
        "faceting": {"sortFacetValuesBy": {"c": "count"}}})
    assert (made.searchable.weight("a"), made.searchable.weight("z"), made.searchable.heaviest) == (1, None, 1)
    assert "c.d" in made.filterable and "a" not in made.filterable
    assert not made.has_prefix_search and not made.has_facet_search and made.is_proximity_by_attribute
    assert (made.max_total_hits, made.search_cutoff_ms, made.distinct_attribute) == (5, 7, "d")
    assert (made.locales_of("xy"), made.locales_of("y")) == (["fra"], None)
    assert (made.faceting.order_of("c"), made.faceting.order_of("d"), made.faceting.max_values) == ("count", "alpha", 100)


def test_synonyms_are_phrases_by_words() -> None:
    assert synonyms({"NYC": ["New-York", "big apple"], "nyc!": ["new york", "gotham"]}) == {
        ("nyc",): [("big", "apple"), ("gotham",), ("new", "york")]}
    assert synonyms({"the king": ["of the queen", "the"]}, stopWords=["the", "of"]) == {("king",): [("queen",)]}


def test_synonym_keys_too_long_or_empty_are_ignored() -> None:
    assert synonyms({"!": ["a"], "b": ["?"], "c" * 499: ["d"]}) == {}
    assert list(synonyms({"c" * 498: ["d"]})) == [("c" * 498,)]


@pytest.mark.parametrize(("word", "budget"), [
    ("four", 0), ("fives", 1), ("eightlet", 1), ("ninechars", 2), ("a" * 99, 2), ("exactwords", 0),
])
def test_the_typo_budget_follows_length_and_exact_words(word: str, budget: int) -> None:
    tolerance = IndexSettings.of({"typoTolerance": {"disableOnWords": ["Exact Words", "exactwords"]}}).typo_tolerance
    assert tolerance.budget(word) == budget


def test_the_lengths_for_typos_can_be_set_and_typos_forbidden() -> None:
    sizes = {"minWordSizeForTypos": {"oneTypo": 2, "twoTypos": 3}}
    tolerance = IndexSettings.of({"typoTolerance": sizes}).typo_tolerance
    assert [tolerance.budget("a" * length) for length in range(1, 5)] == [0, 1, 2, 2]
    assert IndexSettings.of({"typoTolerance": {**sizes, "enabled": False}}).typo_tolerance.budget("abcdefghijk") == 0


def test_the_first_foreign_key_of_an_attribute_counts() -> None:
    keys = [{"fieldName": "by", "foreignIndexUid": uid} for uid in ("people", "places")]
    keys.append({"fieldName": "at", "foreignIndexUid": "places"})
    assert list(IndexSettings.of({"foreignKeys": keys}).foreign_keys.items()) == [("by", "people"), ("at", "places")]


def test_equal_settings_share_a_tokenizer() -> None:
    first, second = (IndexSettings.of({"stopWords": ["the"], "pagination": {"maxTotalHits": most}}) for most in (1, 2))
    assert first.analyzer is second.analyzer is not IndexSettings.of({}).analyzer


def test_a_cache_knows_the_size_of_synonyms() -> None:
    many = IndexSettings.of({"synonyms": {f"w{number}": ["a", "b"] for number in range(1000)}})
    assert sys.getsizeof(many) > sys.getsizeof(IndexSettings.of({})) + 100_000


def test_decisions_are_right_for_any_number_of_names() -> None:
    made = IndexSettings.of({"searchableAttributes": ["a"], "filterableAttributes": ["a"],
                             "localizedAttributes": [{"attributePatterns": ["a.*"], "locales": ["fra"]}]})
    for _ in range(2):
        for number in range(10_000):
            assert made.searchable.weight(f"a.{number}") == 0 and f"b{number}" not in made.searchable
            assert f"a.{number}" in made.filterable and f"b{number}" not in made.filterable
            assert made.locales_of(f"a.{number}") == ["fra"] and made.locales_of(f"b{number}") is None
