"""What must hold of facet search:

1. When the setting is off every request is rejected; then errors of the search are reported; then the attribute must be
   matched first by a rule with facetSearch.
2. An unknown field and one without texts have no hits.
3. Texts are compared by a form without case, marks and letter variants; numbers take no part.
4. With a query: what begins with it, up to 0, 1 or 2 typos by its length in bytes, the first letter like any other; no
   typos where they are switched off, or off for the attribute, and the value alone for a word that may have none.
5. Counts are those among the documents of the search; a text is shown as the first document of the index spells it.
6. `alpha` gives the first values by form, `count` the commonest; of equal counts the last text comes first.
7. The languages of a query are those of its field that were asked for; without any for the field, they play no part.
8. The documents are those that an ordinary search counts, `distinct` applied to the first page or to all.
9. The scan of the sorted forms finds what the edit distance to every form finds.
10. Counts are the same whether they are looked up value by value or found by reading the documents.
"""
from __future__ import annotations

import heapq
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.facets import value_search
from svcd.facets.value_search import FacetQuery, search_form, search_values, values_near_prefix
from svcd.facets.values import SortedTexts, pack
from svcd.query.typos import distance
from svcd.search.request import SearchQuery
from svcd.search.search import facet_search
from tests.support.contract import table
from tests.support.dict_reader import DEFAULTS, DictReader
from tests.support.searching import never
from tests.support.sets import of_bits


def holding(*held: Any, order: str = "alpha", most: int = 100, **settings: Any) -> DictReader:
    """An index in which document n has the n-th value under `v`."""
    documents = [{"id": number, "v": value} for number, value in enumerate(held)]
    faceting = {"maxValuesPerFacet": most, "sortFacetValuesBy": {"*": order}}
    return DictReader(documents, {"filterableAttributes": ["v"], "faceting": faceting, **settings})


def hits(
    reader: DictReader, text: str | None = None, counted: DocIds | None = None, **asked: Any
) -> list[tuple[str, int]]:
    docids = reader.all_docids() if counted is None else counted
    return [tuple(hit) for hit in search_values(reader, FacetQuery("v", text, **asked), docids)]


def values(*args: Any, **asked: Any) -> list[str]:
    return [value for value, _ in hits(*args, **asked)]


def refused(reader: DictReader, field: str = "v", **asked: Any) -> tuple[str, str]:
    with pytest.raises(ApiError) as error:
        facet_search(reader, FacetQuery(field), SearchQuery(**asked), False, never)
    return error.value.code, error.value.message


# 1, 2


def rule(pattern: str, is_searched: bool) -> dict[str, Any]:
    return {"attributePatterns": [pattern], "features": {"facetSearch": is_searched, "filter": {}}}


def test_switched_off_it_refuses_first_of_all() -> None:
    reader = holding("a", facetSearch=False)
    assert refused(reader, "unknown", attributes_to_search_on=["zz"]) == (
        "facet_search_disabled", "The facet search is disabled for this index")


@pytest.mark.parametrize("held", [("a",), (1,), ()])
def test_what_the_search_refuses_comes_before_the_attribute(held: tuple[Any, ...]) -> None:
    reader = holding(*held, searchableAttributes=["title"])
    for field in ("unknown", "v"):
        assert refused(reader, field, attributes_to_search_on=["zz"])[0] == "invalid_search_attributes_to_search_on"


def test_the_first_rule_of_an_attribute_must_allow_it() -> None:
    code, message = refused(holding("a", filterableAttributes=[rule("v", False), "v"]))
    assert code == "invalid_facet_search_facet_name"
    assert message == (
        "Attribute `v` is not facet-searchable. Note: this attribute matches rule #0 in filterableAttributes, but this"
        " rule does not enable facetSearch.\nHint: enable facetSearch in rule #0 by adding `\"facetSearch\": true` to the"
        " rule.\nHint: prepend another rule matching v with facetSearch: true before rule #0")


@pytest.mark.parametrize(("filterable", "displayed", "known"), [
    ([], ["*"], "This index does not have configured facet-searchable attributes."),
    ([rule("a", False)], ["*"], "This index does not have configured facet-searchable attributes."),
    (["b", rule("a*", True)], ["*"], "Available facet-searchable attributes patterns are: `a*, b`."),
    (["b", "c"], ["c"], "Available facet-searchable attributes patterns are: `c, <..hidden-attributes>`."),
    (["b"], ["c"], "This index does not have configured facet-searchable attributes."),
])
def test_an_attribute_without_rule_is_refused(filterable: list[Any], displayed: list[str], known: str) -> None:
    reader = holding("a", filterableAttributes=filterable, displayedAttributes=displayed)
    assert refused(reader)[1] == (f"Attribute `v` is not facet-searchable. {known} To make it facet-searchable add it to"
                                  " the `filterableAttributes` index settings.")


def test_a_rule_may_allow_nothing_else() -> None:
    only_searched = {"attributePatterns": ["v"], "features": {
        "facetSearch": True, "filter": {"equality": False, "comparison": False}}}
    assert values(holding("a", filterableAttributes=[only_searched])) == ["a"]


@pytest.mark.parametrize("held", [(), (1, 2)])
def test_a_field_without_texts_has_no_hits(held: tuple[Any, ...]) -> None:
    assert hits(holding(*held), "1") == []


def test_white_space_alone_is_a_text_like_any_other() -> None:
    reader = holding("a", " ", "\t", "")
    assert hits(reader) == hits(reader, "") == [(" ", 2), ("a", 1)] and values(reader, "a") == ["a"]


# 3, 4


@pytest.mark.parametrize(("text", "form"), [
    ("Ärger", "arger"), ("Œuvre", "oeuvre"), ("a\0b", "ab"), ("ÐA", "da"), ("ΣΑΣ", "σασ"), ("İ", "i"), ("12É", "12e"),
    ("进击", "進擊"), ("ДА", "да"), ("أب", "اب"), ("", ""),
])
def test_the_form_of_a_text(text: str, form: str) -> None:
    assert search_form(text, None) == form


def test_values_of_one_form_are_all_found() -> None:
    assert hits(holding("René", "rene", "Reno", 5), "REN") == [("rene", 1), ("René", 1), ("Reno", 1)]


@pytest.mark.parametrize(("text", "found"), [
    ("adve", ["adventure"]), ("advr", []), ("advan", ["adventure"]), ("bdven", ["adventure"]), ("advanc", []),
    ("advetnuer", ["adventure"]), ("bdvetnure", ["adventure"]), ("bdvetnuer", []), ("", ["adventure"]),
    ("xadven", ["adventure"]), ("éadv", []), ("ääadv", []), ("adventures", ["adventure"]),
])
def test_typos_by_the_length_in_bytes(text: str, found: list[str]) -> None:
    assert values(holding("adventure"), text) == found


def test_letters_of_several_bytes_count_by_bytes() -> None:
    assert values(holding("даже"), "дож") == ["даже"]
    assert values(holding("dazhe"), "doz") == []


def typo_tolerance(**members: Any) -> dict[str, Any]:
    return {**DEFAULTS["typoTolerance"], **members}


def test_where_typos_are_off_values_begin_with_the_query() -> None:
    for off in (typo_tolerance(enabled=False), typo_tolerance(disableOnAttributes=["v"])):
        reader = holding("adventure", "advanced", typoTolerance=off)
        assert (values(reader, "advan"), values(reader, "adv")) == (["advanced"], ["advanced", "adventure"])
    other = holding("adventure", typoTolerance=typo_tolerance(disableOnAttributes=["w"]))
    assert values(other, "advan") == ["adventure"]


def test_a_word_without_typos_finds_itself_alone() -> None:
    reader = holding("Adven", "adventure", typoTolerance=typo_tolerance(disableOnWords=["adven", "advent"]))
    assert (values(reader, "adven"), values(reader, "ADVENT")) == (["Adven"], [])
    assert values(reader, "adve") == ["Adven", "adventure"]


# 5, 6


def test_values_whose_first_word_has_the_stem_of_the_query_are_found() -> None:
    held = ("Runs in spring", "running", "Run", "Ruin", "rung", "spring runs")
    stemmed = holding(*held, stemming=["eng"])
    assert values(stemmed, "running") == ["Run", "running", "Runs in spring"]
    assert values(holding(*held, stemming=[{"attributePatterns": ["w"], "locales": ["eng"]}]), "running") == ["running"]
    assert values(stemmed, "running in") == []


def test_counts_are_of_the_documents_and_spellings_of_the_index() -> None:
    reader = holding("É ", "é", ["é", "a"], "b")
    assert hits(reader, None, DocIds([1, 2])) == [("a", 1), ("É ", 2)]
    assert hits(reader, "E", DocIds([1, 2])) == [("É ", 2)]
    assert hits(reader, "e", DocIds()) == hits(reader, None, DocIds()) == []


def test_alpha_gives_the_first_by_form() -> None:
    held = ["é", "F", "d", "ez"]
    assert values(holding(*held, most=3), "") == ["d", "é", "ez"]
    assert values(holding(*held, most=3)) == ["d", "ez", "é"]  # without a query by the value: e, then the accent
    assert values(holding(*held, most=0), "") == values(holding(*held, most=0, order="count")) == []


def test_count_gives_the_commonest_and_the_last_text_of_equal_ones() -> None:
    held = ["a", "b", ["b", "c"], "d"]
    assert hits(holding(*held, order="count")) == [("b", 2), ("d", 1), ("c", 1), ("a", 1)]
    assert hits(holding(*held, order="count", most=2)) == [("b", 2), ("d", 1)]
    assert hits(holding("Z", "a", "b", order="count", most=2), "") == [("b", 1), ("Z", 1)]  # it came last, for "a"


# 7


def localized(*locales: str) -> dict[str, Any]:
    return {"localizedAttributes": [{"attributePatterns": ["v"], "locales": list(locales)}]}


def test_languages_are_those_of_the_field_that_were_asked_for() -> None:
    chinese, either = holding("进击的巨人", **localized("cmn")), holding("进击的巨人", **localized("zho", "jpn"))
    assert values(chinese, "進撃", locales=["cmn"]) == values(either, "進撃") == ["进击的巨人"]
    assert values(either, "进击", locales=["zh"]) == ["进击的巨人"] and values(either, "进击", locales=["ja"]) == []
    japanese = holding("进击的巨人", **localized("jpn"))
    assert values(japanese, "进击") == values(japanese, "进击", locales=["ja", "eng"]) == ["进击的巨人"]
    assert values(japanese, "进击", locales=["cmn"]) == []  # no language is left, and such letters are unified


def test_without_languages_of_the_field_those_asked_for_play_no_part() -> None:
    assert values(holding("进击的巨人"), "進撃", locales=["jpn"]) == ["进击的巨人"]


# 8


def colors(**settings: Any) -> DictReader:
    rows = [("sun", "red", 1), ("sun night", "red", 1), ("night", "blue", 2), ("sun", "blue", 1)]
    documents = [{"id": number, "title": title, "v": value, "group": group}
                 for number, (title, value, group) in enumerate(rows)]
    chosen = {"filterableAttributes": ["v", "group"], "searchableAttributes": ["title"]}
    return DictReader(documents, {**chosen, **settings})


def searched(reader: DictReader, is_exhaustive: bool = False, **asked: Any) -> list[tuple[str, int]]:
    found = facet_search(reader, FacetQuery("v"), SearchQuery(**asked), is_exhaustive, never)
    return [tuple(hit) for hit in found]


def test_the_documents_are_those_of_the_search() -> None:
    assert searched(colors(), q="sun") == [("blue", 1), ("red", 2)]
    assert searched(colors(), q="sun", ranking_score_threshold=1.0) == [("blue", 1), ("red", 1)]
    with pytest.raises(ApiError) as error:
        searched(colors(), attributes_to_search_on=["v"])
    assert error.value.message.startswith("Attribute `v` is not searchable.")  # no index opens the message


def test_distinct_is_for_the_first_page_or_for_all() -> None:
    assert searched(colors(distinctAttribute="group"), q="sun") == [("red", 1)]
    assert searched(colors(distinctAttribute="group"), q="sun", is_exhaustive=True) == [("red", 1)]
    many = DictReader([{"id": number, "v": "a", "group": number // 2} for number in range(60)],
                      {"filterableAttributes": ["v"], "distinctAttribute": "group"})
    assert searched(many, is_exhaustive=True) == [("a", 30)]
    assert searched(many)[0][1] > 30


# 9: against the definition

WORD = st.text(st.sampled_from("abcé\0"), max_size=6)


@given(texts=st.sets(WORD, max_size=60), term=WORD, most=st.integers(0, 2))
@settings(max_examples=200)
def test_the_scan_of_forms_finds_what_is_near(texts: set[str], term: str, most: int) -> None:
    listed = sorted(texts)
    expected = [text for text in listed if distance(term, text, most, True) <= most]
    assert list(values_near_prefix(SortedTexts(pack(listed)), term, most)) == expected


@given(texts=st.sets(WORD, max_size=100), asked=WORD)
def test_packed_texts_are_the_list_they_were(texts: set[str], asked: str) -> None:
    listed = sorted(texts)
    packed = SortedTexts(pack(listed))
    assert [packed[ordinal] for ordinal in range(len(packed))] == listed == list(packed.from_ordinal(0))
    ordinal = packed.ordinal(asked)
    assert listed[:ordinal] == [text for text in listed if text < asked]
    assert packed.seek(asked) == (ordinal, listed[ordinal] if ordinal < len(listed) else None)


def test_a_long_query_finds_nothing_soon() -> None:
    reader = holding(*("a" * number for number in range(1, 40)), "é" * 200)
    for text in ("a" * 1_000_000, "é" * 1_000_000, "ab" * 1_000_000):
        assert hits(reader, text) == []


def test_the_end_of_all_characters_is_no_trap() -> None:
    texts = sorted(["a", "\U0010ffff", "\U0010ffff\U0010ffffb", "\ud7ffx", "\ue000"])
    assert list(values_near_prefix(SortedTexts(pack(texts)), "\U0010ffff", 0)) == texts[-2:]
    assert list(values_near_prefix(SortedTexts(pack(texts)), "\ud7ff", 0)) == ["\ud7ffx"]


HELD = st.lists(st.sampled_from(["a", "A", "ab", "Ab", "b", "é", "E", "ea", "abc", "Zb"]), max_size=3)


@given(held=st.lists(HELD, min_size=1, max_size=30), mask=st.integers(0),
       text=st.sampled_from([None, "", "a", "e", "z"]), most=st.integers(1, 5), order=st.sampled_from(["alpha", "count"]),
       document_cost=st.sampled_from([0, value_search.DOCUMENT_COST]))
@settings(max_examples=200)
def test_hits_are_those_of_one_value_after_the_other(
    held: list[list[str]], mask: int, text: str | None, most: int, order: str, document_cost: int
) -> None:
    reader = holding(*held, order=order, most=most)
    counted = reader.all_docids() & of_bits(mask) if mask % 2 else reader.all_docids()
    forms = [(search_form(value, None), value) for value in reader.values.distinct_values("v", str)]
    listed = [value for form, value in (forms if text is None else sorted(forms)) if form.startswith(text or "")]
    found = [each for each in (_counted(reader, value, counted) for value in listed) if each[0]]
    if order == "alpha":
        expected = found[:most]
    else:
        best: list[tuple[int, str]] = []
        for each in found:
            if len(best) < most:
                heapq.heappush(best, each)
            elif best[0][0] <= each[0]:
                heapq.heapreplace(best, each)
        expected = sorted(best, reverse=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_search, "DOCUMENT_COST", document_cost)  # 0: documents are read from the first value on
        assert hits(reader, text, counted) == [(value, count) for count, value in expected]


def _counted(reader: DictReader, value: str, counted: DocIds) -> tuple[int, str]:
    docids = reader.values.value_docids("v", value)
    return len(docids & counted), reader.values.spelling("v", value, docids.min())


def test_the_cases_of_the_contract() -> None:
    for case in table("facet-cases")["cases"]:
        reader = DictReader(case["documents"], case["settings"])
        for text, expected in case["facetSearch"]:
            assert [list(hit) for hit in hits(reader, text)] == expected, (case["settings"], text)
