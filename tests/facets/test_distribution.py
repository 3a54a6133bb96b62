"""What must hold of facet distribution and facet stats:

1. A pattern must meet a rule that allows filtering before one that forbids it for all that the pattern means.
2. Patterns select filterable fields that match, and those beneath them; in byte order, `{}` for one without values.
3. Each counted document adds 1 to each number and to each text in its normal form, shown as the first one spells it.
4. `alpha` of at most 3000 documents: numbers as texts, then texts; more documents: numbers by value, then texts.
5. `count`: descending counts, of equal ones the largest value first; with 20 values of a kind or more as the tree says.
6. A number and a text that are shown alike have one place and the count of the text.
7. Numbers that fill the limit let all texts in, and so does a limit of 0, but for 4.
8. `facetStats` spans the numbers of the counted documents, and leaves fields out that have none.
9. All counting strategies give the same answer.
10. Documents that `distinct` rejects are subtracted from the counts.
11. The facets of all documents of an index are cached until it is written to.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.base.errors import ApiError
from svcd.base.quantities import shown_number
from svcd.facets import counting, distribution, values
from svcd.facets.distribution import check_facets, facets_of, selected_fields, subtract
from svcd.schema.index_settings import IndexSettings
from svcd.search.request import Federation
from tests.support.contract import table
from tests.support.dict_reader import DictReader
from tests.support.searching import UID, answer
from tests.support.sets import of_bits

ALL, NONE = {"equality": True, "comparison": True}, {"equality": False, "comparison": False}


def rule(*patterns: str, allowed: dict[str, bool] = ALL) -> dict[str, Any]:
    return {"attributePatterns": list(patterns), "features": {"facetSearch": True, "filter": allowed}}


def holding(*held: Any, order: str = "alpha", most: int = 100, **settings: Any) -> DictReader:
    """An index in which document n has the n-th value under `v`."""
    documents = [{"id": number, "v": value} for number, value in enumerate(held)]
    faceting = {"maxValuesPerFacet": most, "sortFacetValuesBy": {"*": order}}
    return DictReader(documents, {"filterableAttributes": ["v"], "faceting": faceting, **settings})


def shown(reader: DictReader, counted: DocIds | None = None) -> list[tuple[str, int]]:
    facets = facets_of(reader, ["v"], reader.all_docids() if counted is None else counted)
    return list(facets.distribution["v"].items())


def refused(filterable: list[Any], *patterns: str) -> str:
    with pytest.raises(ApiError) as error:
        check_facets(IndexSettings.of({"filterableAttributes": filterable}), patterns)
    assert error.value.code == "invalid_search_facets"
    return error.value.message.removeprefix("Invalid facet distribution: ")


# 1, 2: which fields


def test_a_pattern_that_meets_no_rule_is_refused() -> None:
    assert refused([], "a") == (
        "Pattern `a` is not filterable. This index does not have configured filterable attributes.")
    assert refused(["*", "a*"], "a") == (
        "Pattern `a` is not filterable. Available filterable attributes patterns are: `*, a*`.")
    listed = ["title", rule("x*", "genre"), rule("no", allowed=NONE)]
    assert refused(listed, "title", "a", "b") == (
        "Pattern `a` is not filterable. Available filterable attributes patterns are: `genre, title, x*`.")


def test_the_error_names_a_rule_that_forbids_filtering() -> None:
    assert refused(["title", rule("a*", allowed=NONE), rule("*")], "ab") == (
        "Attribute `ab` matched rule #1 in filterableAttributes, but this rule does not enable filtering.\n"
        "Hint: enable filtering in rule #1 by modifying the features.filter object\n"
        "Hint: prepend another rule matching `ab` with appropriate filter features before rule #1")


@pytest.mark.parametrize("pattern", ["*", "dog", "dog.name", "d*", "*me", "*og.n*", "dog.name.first"])
def test_a_pattern_may_match_a_rule_or_be_about_a_part_of_it(pattern: str) -> None:
    check_facets(IndexSettings.of({"filterableAttributes": [rule("cat", allowed=NONE), "dog.name"]}), [pattern])


@pytest.mark.parametrize(("filterable", "patterns", "selected"), [
    (["dog"], ["dog"], ["dog", "dog.name", "dog.name.first"]),
    (["dog"], ["dog.name"], ["dog.name", "dog.name.first"]),
    (["dog.name"], ["dog"], []),
    (["dog.name"], ["dog*"], ["dog.name", "dog.name.first"]),
    ([rule("dog")], ["*"], ["dog"]),
    ([rule("dog.name", allowed=NONE), "dog"], ["dog"], ["dog", "dog.name.first"]),
    (["*"], ["z", "*"], []),
    ([rule("*")], ["z", "a"], ["a", "z"]),
    (["unknown"], ["unknown"], []),
])
def test_the_fields_that_patterns_select(filterable: list[Any], patterns: list[str], selected: list[str]) -> None:
    known = ["z", "dog", "a", "dog.name", "dog.name.first"]
    assert selected_fields(IndexSettings.of({"filterableAttributes": filterable}), known, patterns) == selected


def test_the_order_of_a_field_is_its_own_then_that_of_all() -> None:
    faceting = IndexSettings.of({"faceting": {"sortFacetValuesBy": {"a": "count", "*": "alpha"}}}).faceting
    assert (faceting.order_of("a"), faceting.order_of("b")) == ("count", "alpha")
    assert IndexSettings.of({"faceting": {"sortFacetValuesBy": {}}}).faceting.order_of("a") == "alpha"


def test_a_selected_field_without_values_is_empty() -> None:
    reader = holding("a", {"k": 1})
    assert facets_of(reader, ["v"], DocIds([1])).distribution == {"v": {}, "v.k": {"1": 1}}
    assert facets_of(holding("a"), ["v*"], EMPTY).stats == {}


# 3 to 7: values, orders, limits


def test_texts_are_counted_by_their_normal_form_and_shown_as_first_spelled() -> None:
    reader = holding("É ", "é", ["é", "É"], "e")
    assert shown(reader) == [("e", 1), ("É ", 3)]
    assert shown(reader, DocIds([1, 2, 3])) == [("e", 1), ("é", 2)]


def test_white_space_alone_is_counted_as_it_is_spelled() -> None:
    assert shown(holding("  ", "\t", "", "a", 1)) == [("1", 1), ("  ", 2), ("a", 1)]


@pytest.mark.parametrize(("number", "text"), [
    (1.0, "1"), (-3.0, "-3"), (0.5, "0.5"), (1e20, "100000000000000000000"), (1e-07, "0.0000001"), (-0.0, "-0"),
    (1.5e300, "15" + "0" * 299), (123456789.125, "123456789.125"),
])
def test_numbers_are_shown_in_digits(number: float, text: str) -> None:
    assert shown_number(number) == text


def test_few_documents_sort_numbers_as_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(holding(10, 9, -1, "b", "A")) == [("-1", 1), ("10", 1), ("9", 1), ("A", 1), ("b", 1)]
    monkeypatch.setattr(distribution, "SORTED_AS_TEXTS", 4)
    assert shown(holding(10, 9, -1, "b", "A")) == [("-1", 1), ("9", 1), ("10", 1), ("A", 1), ("b", 1)]


def test_count_prefers_the_larger_of_equal_values() -> None:
    reader = holding("a", "b", ["b", "c"], 1, 2, order="count")
    assert shown(reader) == [("2", 1), ("1", 1), ("b", 2), ("c", 1), ("a", 1)]


def test_of_many_values_those_wait_whose_group_counts_no_more() -> None:
    # Groups: 0-3, 4-7 ... Of the values counted, 4 and 5 share a group, 8 and 12 have theirs to themselves.
    reader = holding(*range(20), order="count")
    assert [text for text, _ in shown(reader, DocIds([4, 5, 8, 12]))] == ["5", "4", "12", "8"]
    assert [text for text, _ in shown(holding(*range(19), order="count"), DocIds([4, 5, 8, 12]))] == ["12", "8", "5", "4"]


def test_a_text_like_a_number_has_its_place() -> None:
    assert shown(holding(9, "9", "9", 10, "a", most=3)) == [("10", 1), ("9", 2)]
    assert shown(holding(9, "9", "9", 10, "a", most=3, order="count")) == [("10", 1), ("9", 2), ("a", 1)]


def test_numbers_that_fill_the_limit_let_all_texts_in(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [1, 2, "a", "b", "c"]
    assert len(shown(holding(*held, most=2))) == 2
    assert len(shown(holding(*held, most=2, order="count"))) == 5
    assert len(shown(holding(*held, most=3, order="count"))) == 3
    assert (shown(holding(*held, most=0)), len(shown(holding(*held, most=0, order="count")))) == ([], 5)
    monkeypatch.setattr(distribution, "SORTED_AS_TEXTS", 4)
    assert len(shown(holding(*held, most=2))) == len(shown(holding(*held, most=0))) == 5


# 8, 10


def test_stats_span_the_numbers() -> None:
    reader = holding(3, [-1.5, "a"], "b", 99)
    assert facets_of(reader, ["v"], DocIds([0, 1, 2])).stats == {"v": {"min": -1.5, "max": 3.0}}
    assert facets_of(reader, ["v"], DocIds([2])).stats == {}


def test_a_search_has_facets_only_if_it_asks_for_some() -> None:
    documents = [{"id": 1, "t": "sun", "v": "a"}, {"id": 2, "t": "moon", "v": "b"}]
    reader = DictReader(documents, {"filterableAttributes": ["v"]})
    assert answer(reader, "sun").facets == {}
    found = answer(reader, "sun", Federation(limit=0, facets={UID: ["v"]})).facets[UID]
    assert (found.distribution, found.stats, found.orders) == ({"v": {"a": 1}}, {}, {"v": "alpha"})
    with pytest.raises(ApiError) as error:
        answer(reader, "sun", Federation(facets={UID: ["t"]}))
    assert error.value.code == "invalid_search_facets"


def test_what_is_rejected_is_taken_out() -> None:
    reader = holding(["a", 1], ["A ", 2], "b")
    facets = facets_of(reader, ["v"], DocIds([0, 1, 2]))
    subtract(facets, reader, 1)
    assert facets.distribution == {"v": {"1": 1, "a": 1, "b": 1}}
    subtract(facets, reader, 0)
    assert facets.distribution == {"v": {"b": 1}}


# 9: against the definition

NUMBERS = st.one_of(st.integers(-2, 30), st.sampled_from([0.5, -0.0, 1e21, 2.0]))
ODD_TEXTS = ["1", "2", " 2", "true", "\0x"]
TEXTS = st.sampled_from([f"{letter}{digit}" for letter in "abABé" for digit in range(8)] + ODD_TEXTS)
HELD = st.one_of(st.none(), NUMBERS, TEXTS, st.booleans(), st.lists(st.one_of(NUMBERS, TEXTS), max_size=5))
CASES = st.tuples(st.lists(HELD, min_size=1, max_size=40), st.integers(min_value=0))


def plain(reader: DictReader, counted: DocIds, order: str, most: int, is_few: bool) -> dict[str, int]:
    """The distribution by its definition: every document, every value, the whole tree."""
    numbers, texts = (list(_counts(reader, kind, counted)) for kind in (float, str))
    found: dict[str, int] = {}
    if order == "alpha" and is_few:
        found.update(sorted((shown_number(value), len(docids)) for value, docids in numbers if docids)[:most])
        kept = [each for each in texts if each[1]][: most - len(found)]
        found.update((_spelled(reader, value, docids), len(docids)) for value, docids in kept)
        return found
    for entries in (numbers, texts):
        ordered = [each for each in entries if each[1]] if order == "alpha" else _popped(entries)
        for value, docids in ordered:
            text = shown_number(value) if isinstance(value, float) else _spelled(reader, value, docids)
            found[text] = len(docids)
            if len(found) == most:
                break
    return found


def _counts(reader: DictReader, kind: type, counted: DocIds) -> Iterator[tuple[Any, DocIds]]:
    return ((value, docids & counted) for value, docids in reader.values.ordered_values("v", kind))


def _spelled(reader: DictReader, value: str, docids: DocIds) -> str:
    return reader.values.spelling("v", value, docids.min())


def _popped(entries: Sequence[tuple[Any, DocIds]]) -> Iterator[tuple[Any, DocIds]]:
    """The values as they leave the heap: (count, lower level, larger left bound) first."""
    levels: list[list[tuple[int, DocIds]]] = [[(place, docids) for place, (_, docids) in enumerate(entries)]]
    while len(levels[-1]) >= 20:
        below = levels[-1]
        levels.append([(start, union_of(docids for _, docids in below[start : start + 4])) for start in range(0, len(below), 4)])
    top = len(levels) - 1

    def entry(level: int, place: int, start: int) -> tuple[int, int, int, int]:
        return -len(levels[level][place][1]), level, -start, place

    heap = [entry(top, place, place) for place in range(len(levels[top]))]
    heapq.heapify(heap)
    while heap:
        count, level, _, place = heapq.heappop(heap)
        if not count:
            return
        if level == 0:
            yield entries[place]
            continue
        for member in range(4 * place, min(4 * place + 4, len(levels[level - 1]))):
            heapq.heappush(heap, entry(level - 1, member, member))


# strategy: (values of a small field, bytes of cached sets, candidates that are read, cost of reading one)
FORCED = {
    "as chosen": (values.FEW_VALUES, values.MOST_BYTES, 4, counting.DOCUMENT_COST),
    "by documents": (values.FEW_VALUES, values.MOST_BYTES, 1000, 0),
    "by value sets": (values.FEW_VALUES, values.MOST_BYTES, 0, 1000),
    "by scan of few values": (values.FEW_VALUES, 0, 0, 1000),
    "by scan": (3, 0, 0, 1000),
    "by scan, given up": (3, 0, 0, 0),
    "by ordinal": (3, 0, 0, 1),
}


def _force(patch: pytest.MonkeyPatch, few: int, cached_bytes: int, candidates: int, cost: int) -> None:
    patch.setattr(values, "FEW_VALUES", few)
    patch.setattr(values, "MOST_BYTES", cached_bytes)
    patch.setattr(counting, "FEW_CANDIDATES", candidates)
    patch.setattr(counting, "SURELY_FEW", 0)
    patch.setattr(counting, "DOCUMENT_COST", cost)


@pytest.mark.parametrize("strategy", FORCED)
@pytest.mark.parametrize("order", ["alpha", "count"])
@given(case=CASES, most=st.integers(0, 30), threshold=st.sampled_from([0, 3000]))
@settings(max_examples=60, deadline=None)
def test_all_counting_strategies_give_the_same_answer(
    strategy: str, order: str, case: tuple[list[Any], int], most: int, threshold: int
) -> None:
    held, mask = case
    reader = holding(*held, order=order, most=most)
    reader.values.least_for_doc_values = 0 if strategy == "by ordinal" else 1000
    counted = reader.all_docids() & of_bits(mask) if mask % 3 else reader.all_docids()
    expected = plain(reader, counted, order, most, len(counted) <= threshold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "SORTED_AS_TEXTS", threshold)
        _force(patch, *FORCED[strategy])
        found = facets_of(reader, ["v"], counted)
    assert list(found.distribution["v"].items()) == list(expected.items())
    numbers = [value for value, docids in reader.values.ordered_values("v", float) if docids & counted]
    assert found.stats == ({"v": {"min": numbers[0], "max": numbers[-1]}} if numbers else {})


def _clustered(size: int) -> st.SearchStrategy[list[list[int]]]:
    """Documents whose values lie together here and there, so that many groups count no more than a value."""
    near = st.tuples(st.integers(0, size - 1), st.sampled_from([0, 1, 2, 5, 17, 70])).map(lambda each: sum(each) % size)
    return st.lists(st.lists(near, min_size=1, max_size=6), min_size=1, max_size=6)


@pytest.mark.parametrize("strategy", FORCED)
@given(asked=st.sampled_from([19, 20, 76, 77, 300]).flatmap(lambda size: st.tuples(st.just(size), _clustered(size))),
       most=st.sampled_from([0, 1, 3, 100]))
@settings(max_examples=15, deadline=None)
def test_the_tree_is_opened_level_by_level(strategy: str, asked: tuple[int, list[list[int]]], most: int) -> None:
    size, held = asked
    numbered = [[f"{number:03}" for number in numbers] for numbers in held]
    reader = holding(*numbered, [f"{number:03}" for number in range(size)], order="count", most=most)
    counted = DocIds(range(len(held)))
    with pytest.MonkeyPatch.context() as patch:
        _force(patch, *FORCED[strategy])
        assert shown(reader, counted) == list(plain(reader, counted, "count", most, False).items())


@given(candidates=st.sets(st.integers(20, 99), min_size=1), partner=st.integers(0, 40))
@settings(max_examples=25, deadline=None)
def test_extremes_far_from_both_ends(candidates: set[int], partner: int) -> None:
    # Documents in no order of their numbers, each with two of them.
    held = [[float(number * 37 % 120), float(number * 37 % 120 + partner)] for number in range(120)]
    counted = DocIds([docid for docid, own in enumerate(held) if own[0] in candidates])
    with pytest.MonkeyPatch.context() as patch:
        _force(patch, *FORCED["by scan"])
        patch.setattr(distribution, "SORTED_AS_TEXTS", 0)
        found = facets_of(holding(*held, most=1), ["v"], counted).stats["v"]
    assert found == {"min": min(candidates), "max": max(candidates) + partner}


def test_the_cases_of_the_contract() -> None:
    for case in table("facet-cases")["cases"]:
        reader = DictReader(case["documents"], case["settings"])
        found = facets_of(reader, ["v"], reader.all_docids())
        assert [list(each) for each in found.distribution.get("v", {}).items()] == case["facetDistribution"]
        assert found.stats.get("v") == case["facetStats"]


@pytest.mark.parametrize("order", ["alpha", "count"])
def test_what_all_documents_have_is_found_once(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = holding("a", "b", "a", 3, order=order)
    first = facets_of(reader, ["v"], reader.all_docids())
    monkeypatch.setattr(distribution, "FieldCounter", None)
    again = facets_of(reader, ["v"], reader.all_docids())
    assert (again.distribution, again.stats) == (first.distribution, first.stats)


def test_what_is_taken_out_of_an_answer_stays_in_the_next_one() -> None:
    reader = holding("a", "b")
    subtract(facets_of(reader, ["v"], reader.all_docids()), reader, 0)
    assert shown(reader) == [("a", 1), ("b", 1)]
