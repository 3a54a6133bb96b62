"""What must hold of settings:

1. An index where nothing was set has the defaults; resolving twice changes nothing.
2. A change keeps what it doesn't name; null resets; resetting all gives the defaults back.
3. Objects merge member by member, and null resets one member.
4. Sets are kept sorted without duplicates; `*` among attributes is the reset.
5. What needs the stored value is refused when it is merged.
6. Only a value that changes makes something stale, and only what it touches.
7. Details show a change in the order of answers, secrets hidden.
8. Settings of a feature that is off are left out of the answer.
9. The rows agree with the tables of the interface.
10. Lists of attributes are kept without repetitions, words as they are compared, languages by their long codes;
    details show all of them as they were given.
"""
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.schema import settings
from svcd.schema.settings import Redo
from svcd.validation import decode_body, decode_value
from tests.support.contract import table


def change_of(**members: Any) -> dict[str, Any]:
    """A change as a request decodes it."""
    change = decode_body(members, settings.FIELDS)
    settings.validate(change)
    return change


def stored_after(*changes: dict[str, Any]) -> dict[str, Any]:
    stored: dict[str, Any] = {}
    for change in changes:
        stored = settings.merged(stored, change_of(**change))
    return stored


def resolved_after(*changes: dict[str, Any]) -> dict[str, Any]:
    return settings.resolved(stored_after(*changes))


def refusal(**members: Any) -> tuple[str, str]:
    with pytest.raises(ApiError) as refused:
        change_of(**members)
    return refused.value.code, refused.value.message


EVERYTHING: dict[str, Any] = {
    "displayedAttributes": ["b", "a"],
    "searchableAttributes": ["title", "plot"],
    "filterableAttributes": ["genre", {"attributePatterns": ["*_ja"]}],
    "sortableAttributes": ["year", "price"],
    "foreignKeys": [{"foreignIndexUid": "people", "fieldName": "actor"}],
    "rankingRules": ["words", "price:asc"],
    "stopWords": ["the"],
    "nonSeparatorTokens": ["#"],
    "separatorTokens": ["|"],
    "dictionary": ["J. R. R."],
    "synonyms": {"b": ["c"], "a": ["b"]},
    "distinctAttribute": "sku",
    "proximityPrecision": "byAttribute",
    "typoTolerance": {"minWordSizeForTypos": {"oneTypo": 4}, "disableOnWords": ["b", "a", "b"]},
    "faceting": {"sortFacetValuesBy": {"genre": "count"}},
    "pagination": {"maxTotalHits": 7},
    "embedders": {"manual": {"source": "userProvided", "dimensions": 3}},
    "searchCutoffMs": 10,
    "localizedAttributes": [{"attributePatterns": ["*_ja"], "locales": ["jpn"]}],
    "facetSearch": False,
    "prefixSearch": "disabled",
    "chat": {"description": "films", "searchParameters": {"limit": 3}},
    "defaultMatchingStrategy": "bm25",
    "bm25": {"weights": {"title": 2.5}, "k1": 1.2},
    "stemming": ["eng", {"attributePatterns": ["*_fr"], "locales": ["fra"]}],
    "cjk": "bigrams",
    "infixSearch": ["title"],
    "foldWidth": True,
}
EXTENSIONS = ("defaultMatchingStrategy", "bm25", "stemming", "cjk", "infixSearch", "foldWidth")


def test_every_setting_can_be_changed_and_reset() -> None:
    assert list(EVERYTHING) == list(settings.BY_NAME)
    stored = stored_after(EVERYTHING)
    assert list(stored) == list(EVERYTHING)
    full = settings.resolved(stored)
    assert all(full[name] != default for name, default in settings.resolved({}).items())
    assert settings.merged(stored, settings.RESET_ALL) == {}


@given(st.sets(st.sampled_from(list(EVERYTHING))), st.sets(st.sampled_from(list(EVERYTHING))))
def test_a_change_touches_nothing_else(first: set[str], second: set[str]) -> None:
    stored = stored_after({name: EVERYTHING[name] for name in first})
    after = settings.merged(stored, dict.fromkeys(second))
    assert after == {name: value for name, value in stored.items() if name not in second}
    assert settings.merged(stored, {}) == stored


def test_resolving_twice_changes_nothing() -> None:
    full = resolved_after(EVERYTHING)
    assert settings.resolved(full) == full
    assert settings.resolved(settings.resolved({})) == settings.resolved({})


def test_stored_settings_survive_json() -> None:
    stored = stored_after(EVERYTHING)
    assert json.loads(json.dumps(stored)) == stored


def test_typo_tolerance_merges_member_by_member() -> None:
    full = resolved_after(
        {"typoTolerance": {"enabled": False, "minWordSizeForTypos": {"oneTypo": 3}}},
        {"typoTolerance": {"minWordSizeForTypos": {"twoTypos": 12}, "disableOnNumbers": True}},
        {"typoTolerance": {"enabled": None}},
    )
    assert full["typoTolerance"] == {
        "enabled": True, "minWordSizeForTypos": {"oneTypo": 3, "twoTypos": 12}, "disableOnWords": [],
        "disableOnAttributes": [], "disableOnNumbers": True,
    }


def test_facet_orders_are_replaced_and_keep_a_general_one() -> None:
    full = resolved_after(
        {"faceting": {"sortFacetValuesBy": {"b": "count", "*": "count"}, "maxValuesPerFacet": 3}},
        {"faceting": {"sortFacetValuesBy": {"c": "count", "a": "alpha"}}},
    )
    assert full["faceting"] == {"maxValuesPerFacet": 3, "sortFacetValuesBy": {"*": "alpha", "a": "alpha", "c": "count"}}
    assert list(full["faceting"]["sortFacetValuesBy"]) == ["*", "a", "c"]


def test_chat_merges_its_search_parameters_in_declared_order() -> None:
    full = resolved_after(
        {"chat": {"searchParameters": {"attributesToSearchOn": [], "sort": []}}},
        {"chat": {"searchParameters": {"limit": 16}, "description": "x"}},
    )
    assert list(full["chat"]) == ["description", "documentTemplate", "documentTemplateMaxBytes", "searchParameters"]
    assert list(full["chat"]["searchParameters"].items()) == [("limit", 16), ("sort", []), ("attributesToSearchOn", [])]


@pytest.mark.parametrize("name, given_value, kept", [
    ("stopWords", ["the", "of", "the"], ["of", "the"]),
    ("stopWords", [], []),
    ("sortableAttributes", ["b", "a"], ["a", "b"]),
    ("displayedAttributes", ["b", "a"], ["b", "a"]),
    ("displayedAttributes", ["b", "*"], None),
    ("searchableAttributes", ["*"], None),
    ("searchableAttributes", [], []),
    ("filterableAttributes", ["b", "a"], ["b", "a"]),
    ("synonyms", {"b": ["z", "a"], "a": []}, {"a": [], "b": ["z", "a"]}),
    ("filterableAttributes", [{"attributePatterns": ["a"], "features": {"filter": {"comparison": True}}}],
     [{"attributePatterns": ["a"],
       "features": {"facetSearch": False, "filter": {"equality": True, "comparison": True}}}]),
])
def test_values_are_kept_in_one_form(name: str, given_value: Any, kept: Any) -> None:
    assert decode_value(given_value, settings.FIELDS[name].check) == kept


@pytest.mark.parametrize("name, given_value, kept", [
    ("displayedAttributes", ["b", "a", "b"], ["b", "a"]),
    ("searchableAttributes", ["b", "a", "b"], ["b", "a"]),
    ("stopWords", ["d\u00e9j\u00e0", "The", "\ufb01n", "fin"], ["The", "de\u0301ja\u0300", "fin"]),
    ("localizedAttributes", [{"attributePatterns": ["*"], "locales": ["fr", "fra", "zh", "cmn", "fa"]}],
     [{"attributePatterns": ["*"], "locales": ["fra", "fra", "zho", "cmn", "pes"]}]),
])
def test_values_are_stored_as_used_and_shown_as_given(name: str, given_value: Any, kept: Any) -> None:
    assert stored_after({name: given_value}) == {name: kept}
    assert stored_after({name: kept}) == {name: kept}
    change = change_of(**{name: given_value})
    assert settings.changed_as_shown(change) == change and change[name] != kept


def test_words_without_typos_are_stored_as_queries_are_compared_with_them() -> None:
    stored = stored_after({"typoTolerance": {"disableOnWords": ["Zo\u00e9", "APPLE", "Apple", "ice-cream"]}})
    assert stored == {"typoTolerance": {"disableOnWords": ["apple", "ice-cream", "zoe"]}}
    assert stored_after({"typoTolerance": {"disableOnWords": ["A"]}}, {"typoTolerance": {"enabled": False}}) == {
        "typoTolerance": {"disableOnWords": ["a"], "enabled": False}}


@pytest.mark.parametrize("rule", [
    "words", "typo", "proximity", "attribute", "attributeRank", "wordPosition", "sort", "exactness",
    "price:asc", "a.b:desc", "a:b:asc", "geo:asc", ":desc", "_geoPoints:asc",
])
def test_ranking_rules_that_exist(rule: str) -> None:
    assert change_of(rankingRules=[rule]) == {"rankingRules": [rule]}


VALID = "Valid ranking rules are words, typo, sort, proximity, attribute, exactness and custom ranking rules."


@pytest.mark.parametrize("rule, reason", [
    ("custom", f"`custom` ranking rule is invalid. {VALID}"),
    ("Words", f"`Words` ranking rule is invalid. {VALID}"),
    ("price:up", f"`price:up` ranking rule is invalid. {VALID}"),
    ("asc", f"`asc` ranking rule is invalid. {VALID}"),
    ("_geo:asc", "`_geo` is a reserved keyword and thus can't be used as a ranking rule"),
    ("_geoDistance:asc", "`_geoDistance` is a reserved keyword and thus can't be used as a ranking rule"),
    ("_geoPoint:asc", "`_geoPoint` is a reserved keyword and thus can't be used as a ranking rule. "
                      "`_geoPoint` can only be used for sorting at search time"),
    ("_geoPoint(1, 2):asc", "`_geoPoint` is a reserved keyword and thus can't be used as a ranking rule. "
                            "`_geoPoint` can only be used for sorting at search time"),
    ("_geoRadius(1, 2, 3):desc", "`_geoRadius` is a reserved keyword and thus can't be used as a ranking rule. "
                                 "`_geoRadius` can only be used for filtering at search time"),
    ("_geoBoundingBox:asc", "`_geoBoundingBox` is a reserved keyword and thus can't be used as a ranking rule. "
                            "`_geoBoundingBox` can only be used for filtering at search time"),
])
def test_ranking_rules_that_do_not_exist(rule: str, reason: str) -> None:
    assert refusal(rankingRules=["words", rule]) == (
        "invalid_settings_ranking_rules", f"Invalid value at `.rankingRules[1]`: {reason}")


@pytest.mark.parametrize("other", ["attributeRank", "wordPosition"])
def test_attribute_rules_are_not_mixed(other: str) -> None:
    code, message = refusal(rankingRules=["attribute", other])
    assert code == "invalid_settings_ranking_rules"
    assert message.startswith("Mixed usage of the attribute, attributeRank, and wordPosition ranking rules. ")


def test_typo_sizes_are_compared_with_the_stored_one() -> None:
    sentence = (
        "`minWordSizeForTypos` setting is invalid. `oneTypo` and `twoTypos` fields should be between `0` and `255`, "
        "and `twoTypos` should be greater or equals to `oneTypo` but found `oneTypo: {}` and twoTypos: {}`."
    )
    assert refusal(typoTolerance={"minWordSizeForTypos": {"oneTypo": 8, "twoTypos": 7}}) == (
        "invalid_settings_typo_tolerance",
        "Invalid value at `.typoTolerance.minWordSizeForTypos`: " + sentence.format(8, 7))
    with pytest.raises(ApiError) as refused:
        stored_after({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 10}}})
    assert (refused.value.code, refused.value.message) == (
        "invalid_settings_typo_tolerance", sentence.format(10, 9))


@pytest.mark.parametrize("members, code, message", [
    ({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 256}}}, "invalid_settings_typo_tolerance",
     "Invalid value at `.typoTolerance.minWordSizeForTypos.oneTypo`: value: `256` is too large to be deserialized, "
     "maximum value authorized is `255`"),
    ({"faceting": {"sortFacetValuesBy": {"a": "alpah"}}}, "invalid_settings_faceting",
     "Unknown value `alpah` at `.faceting.sortFacetValuesBy.a`: did you mean `alpha`? expected one of `alpha`, "
     "`count`"),
    ({"filterableAttributes": [1]}, "invalid_settings_filterable_attributes",
     "Invalid value type at `.filterableAttributes[0]`: expected a string, but found a positive integer: `1`"),
    ({"filterableAttributes": [{}]}, "invalid_settings_filterable_attributes",
     "Missing field `attributePatterns` inside `.filterableAttributes[0]`"),
    ({"filterableAttributes": [{"attributePatterns": [], "features": {"filter": {"in": 1}}}]},
     "invalid_settings_filterable_attributes",
     "Unknown field `in` inside `.filterableAttributes[0].features.filter`: expected one of `equality`, `comparison`"),
    ({"foreignKeys": [{"fieldName": "a"}]}, "invalid_settings_foreign_keys",
     "Missing field `foreignIndexUid` inside `.foreignKeys[0]`"),
    ({"chat": {"descripton": ""}}, "invalid_settings_index_chat",
     "Unknown field `descripton` inside `.chat`: did you mean `description`? expected one of `description`, "
     "`documentTemplate`, `documentTemplateMaxBytes`, `searchParameters`"),
    ({"pagination": {"maxTotalHits": 0}}, "invalid_settings_pagination",
     "Invalid value at `.pagination.maxTotalHits`: a non-zero integer value lower than `18446744073709551615` was "
     "expected, but found a zero"),
    ({"prefixSearch": "off"}, "invalid_settings_prefix_search",
     "Unknown value `off` at `.prefixSearch`: expected one of `indexingTime`, `disabled`"),
])
def test_refusals_name_the_member(members: dict[str, Any], code: str, message: str) -> None:
    assert refusal(**members) == (code, message)


@pytest.mark.parametrize("members, stale", [
    ({}, set()),
    ({"stopWords": ["the"]}, {Redo.WORDS}),
    ({"stopWords": []}, set()),
    ({"searchableAttributes": ["a"]}, {Redo.WORDS, Redo.VECTORS}),
    ({"displayedAttributes": ["a"]}, set()),
    ({"sortableAttributes": ["a"]}, {Redo.FACETS}),
    ({"rankingRules": ["typo", "words"]}, set()),
    ({"rankingRules": ["a:asc"]}, {Redo.FACETS}),
    ({"proximityPrecision": "byAttribute"}, {Redo.PAIRS}),
    ({"prefixSearch": "disabled"}, {Redo.PREFIXES}),
    ({"pagination": {"maxTotalHits": 1}}, set()),
    ({"synonyms": {"a": ["b"]}}, set()),
])
def test_only_what_changes_becomes_stale(members: dict[str, Any], stale: set[Redo]) -> None:
    stored = stored_after(members)
    assert settings.redo_of({}, stored) == settings.redo_of(stored, {}) == stale
    assert settings.redo_of(stored, stored) == set()


def test_order_of_searchable_attributes_makes_nothing_stale() -> None:
    first, second = (stored_after({"searchableAttributes": names}) for names in (["a", "b"], ["b", "a"]))
    assert settings.redo_of(first, second) == set()


def test_details_show_the_change_in_the_order_of_answers() -> None:
    change = change_of(chat=None, stopWords=["b", "a"], displayedAttributes=["*"], searchableAttributes=None,
                       typoTolerance={"disableOnNumbers": True, "enabled": None})
    shown = settings.changed_as_shown(change)
    assert list(shown.items()) == [
        ("displayedAttributes", ["*"]), ("searchableAttributes", ["*"]), ("stopWords", ["a", "b"]),
        ("typoTolerance", {"enabled": None, "disableOnNumbers": True}), ("chat", None),
    ]


def test_settings_of_a_feature_that_is_off_are_left_out() -> None:
    stored = stored_after(EVERYTHING)
    assert list(settings.as_shown(stored, {"chatCompletions": True, "foreignKeys": True})) == list(EVERYTHING)
    assert list(settings.as_shown(stored, {"chatCompletions": False})) == [
        name for name in EVERYTHING if name not in ("chat", "foreignKeys")]


def test_extensions_are_shown_only_where_they_are_set() -> None:
    shown = settings.as_shown(settings.resolved({}), {})
    assert shown.keys().isdisjoint(EXTENSIONS)
    assert settings.as_shown(settings.resolved(stored_after({"stemming": ["eng"]})), {})["stemming"] == ["eng"]
    assert settings.changed_as_shown(settings.RESET_ALL).keys().isdisjoint(EXTENSIONS)
    code, message = refusal(stopWrods=[])
    assert code == "bad_request" and not any(name in message for name in EXTENSIONS)


def test_stemming_takes_short_and_long_names_and_lists_the_languages() -> None:
    assert resolved_after({"stemming": ["en", {"attributePatterns": ["a"], "locales": ["fr"]}]})["stemming"] == [
        "eng", {"attributePatterns": ["a"], "locales": ["fra"]}]
    code, message = refusal(stemming=["jpn"])
    assert code == "invalid_settings_stemming"
    assert "`jpn` is not a language with stems" in message and "`eng`" in message and "`yid`" in message


def test_parameters_of_bm25_are_bounded_and_merged() -> None:
    stored = stored_after({"bm25": {"weights": {"a": 2, "b": 3}}}, {"bm25": {"weights": {"a": None}, "k1": 1}})
    assert settings.resolved(stored)["bm25"] == {"weights": {"b": 3}, "k1": 1, "b": 0.75}
    assert settings.resolved(settings.merged(stored, {"bm25": None}))["bm25"] is None
    for value in ({"k1": -1}, {"b": 2}, {"weights": {"a": 101}}, {"weights": 1}, {"k2": 1}):
        assert refusal(bm25=value)[0] == "invalid_settings_bm25"


def test_features_are_asked_for_by_values_alone() -> None:
    assert list(settings.features_used(settings.RESET_ALL)) == []
    assert [flag for flag, _ in settings.features_used(change_of(**EVERYTHING))] == ["foreignKeys", "chatCompletions"]


def test_rows_say_what_the_contract_says() -> None:
    contract = table("settings")
    assert list(settings.BY_NAME) == [*contract["order"], *EXTENSIONS]
    shown = settings.as_shown({}, {})
    assert {name: shown[name] for name in contract["defaults"] if name in shown} == {
        name: value for name, value in contract["defaults"].items() if name in shown}
    for setting in settings.SETTINGS:
        assert setting.is_extension == (setting.name in EXTENSIONS)
        if setting.is_extension:
            continue
        row = contract["settings"][setting.name]
        assert row["route"] == setting.route
        assert set(row["methods"]) == {"GET", setting.method, "DELETE"}
        assert row["code"] == setting.code
        assert row["feature"] == (setting.feature and setting.feature[0])
