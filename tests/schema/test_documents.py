"""What must hold of the terms of documents, their selected parts and identifiers (docs/text-analysis.md#positions-and-gaps):

1. Members of nested objects are reported whatever their type, elements of arrays only when scalar.
2. A word is 1 after the word before it, 8 after a hard separator; a stop word takes a position and leaves a gap.
3. Each further value of an attribute starts 8 after the last term, or the start, of the value before.
4. Blank words and words of more than 250 bytes are not indexed; nothing is indexed after position 65,535.
5. The fast ways to the terms of a text agree with its tokens.
6. A selection keeps the order of the document and everything beneath the selected names.
7. A hit selects by names alone: scalars, and elements without any selected member, stay.
8. The primary key is inferred from the one top-level name that ends with `id`, in any case.
9. An identifier is an integer or a text of letters, digits, hyphens and underscores, at most 511 bytes.
10. A key with dots is found in nested objects and in names that contain dots; found twice, it is rejected.
"""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.schema.attributes import is_reserved, locales_test
from svcd.schema.documents import (
    Selection,
    attribute_names,
    checked_identifier,
    document_identifier,
    infer_primary_key,
    select,
    shown_parts,
    terms_by_attribute,
    walk,
)
from svcd.text.analyzer import Analyzer
from svcd.text.term_positions import term_position_builder, terms_by_position
from tests.support.shared_material import needs_oracle, oracle
from tests.text.test_analyzer import ALPHABET, BEYOND, texts

DEFAULT = Analyzer()
ADVICE = "Please specify the primary key manually using the `primaryKey` query parameter."
RULE = (
    "A document identifier can be of type integer or string, only composed of alphanumeric characters (a-z A-Z 0-9), "
    "hyphens (-) and underscores (_), and can not be more than 511 bytes."
)


def located(document: dict[str, Any], analyzer: Analyzer = DEFAULT) -> dict[str, list[tuple[int, str]]]:
    """attribute -> (position, word), without the position gaps."""
    rows = terms_by_attribute(document, analyzer, lambda name: not is_reserved(name), lambda name: None)
    return {name: [(place, word) for place, word in enumerate(row) if word] for name, row in rows.items()}


def test_members_of_any_kind_are_reported() -> None:
    document = {"a": {"b": [1, {"c": 2}], "d": {}}, "e": [], "f": None, "_geo": {"lat": 1}}
    assert list(walk(document)) == [
        ("a.b", [1, {"c": 2}]),
        ("a.b", 1),
        ("a.b.c", 2),
        ("a.d", {}),
        ("a.d", {}),
        ("e", []),
        ("f", None),
    ]


def test_names_are_the_members_first() -> None:
    assert list(dict.fromkeys(attribute_names({"a": {"b": 1}, "c": 2, "_geo": {}}))) == ["a", "c", "_geo", "a.b"]


def test_a_hard_separator_leaves_seven_holes() -> None:
    assert located({"t": "...One two. Three, four"}) == {"t": [(0, "one"), (1, "two"), (9, "three"), (17, "four")]}


def test_stop_words_leave_holes_that_keep_no_distance_to_the_next_value() -> None:
    stopping = Analyzer(stop_words=["the", "of"])
    document = {"t": ["the end of the the the the the the the the", "the", "next"]}
    assert located(document, stopping) == {"t": [(1, "end"), (17, "next")]}


def test_an_array_in_an_object_counts_as_a_value_of_its_own() -> None:
    assert located({"t": ["x", "y"], "a": {"t": ["x", "y"]}}) == {
        "t": [(0, "x"), (8, "y")],
        "a.t": [(8, "x"), (16, "y")],
    }


def test_values_without_words_move_the_next_one() -> None:
    assert located({"t": ["a", None, "", "!", "b"]}) == {"t": [(0, "a"), (32, "b")]}


def test_numbers_and_booleans_are_read_from_their_json() -> None:
    assert located({"a": 1.5, "b": True, "c": -3, "d": 1e16, "e": None}) == {
        "a": [(0, "1"), (1, "5")],
        "b": [(0, "true")],
        "c": [(0, "3")],
        "d": [(0, "1e16")],
    }


def test_only_searchable_attributes_have_words() -> None:
    found = terms_by_attribute({"a": "x", "b": {"c": "y", "d": "z"}}, DEFAULT, lambda name: name == "b.c", lambda name: None)
    assert found == {"b.c": ["y"]}


def test_locales_are_asked_for_each_attribute() -> None:
    rules = [{"attributePatterns": ["ja*"], "locales": ["jpn"]}]
    found = terms_by_attribute({"ja_t": "東京", "t": "東京"}, DEFAULT, lambda name: True, locales_test(rules))
    assert found == {"ja_t": ["東京"], "t": ["東", "京"]}


@pytest.mark.parametrize(("length", "is_kept"), [(250, True), (251, False)])
def test_words_longer_than_250_bytes_are_not_kept(length: int, is_kept: bool) -> None:
    row = term_position_builder(DEFAULT).of("a " + "b" * length + " c")
    assert row == ["a", "b" * length if is_kept else "", "c"]
    assert term_position_builder(DEFAULT).of("ж" * 126 + " c") == ["", "c"]


def test_nothing_is_kept_after_the_last_position() -> None:
    row = terms_by_attribute({"t": "a " * 70_000}, DEFAULT, lambda name: True, lambda name: None)["t"]
    assert len(row) == 65_536
    many = terms_by_attribute({"t": ["a"] * 9_000}, DEFAULT, lambda name: True, lambda name: None)["t"]
    assert len(many) == 65_529


@settings(deadline=None)  # the first Chinese text loads the list of words, where it is installed
@given(texts, st.sampled_from([DEFAULT, Analyzer(stop_words=["a", "é", "."]), Analyzer(separator_tokens=["é", "ab"])]))
def test_the_short_ways_give_the_row_of_the_tokens(text: str, analyzer: Analyzer) -> None:
    assert term_position_builder(analyzer).of(text) == terms_by_position(analyzer.tokens(text))


@given(st.text("ab .,!\x00\x0b\x1c-", max_size=20))
def test_the_short_way_for_ascii_gives_the_row_of_the_tokens(text: str) -> None:
    assert term_position_builder(DEFAULT).of(text) == terms_by_position(DEFAULT.tokens(text))


@given(st.lists(st.text("aB9 .,;!\x1c", max_size=6), min_size=2, max_size=4))
def test_texts_of_a_list_have_the_positions_that_they_have_one_by_one(values: list[str]) -> None:
    one_by_one = Analyzer(stop_words=["never"])  # it has no short way for lists
    assert located({"t": values}) == located({"t": values}, one_by_one)


def test_a_selection_keeps_order_and_what_lies_beneath() -> None:
    document = {"z": 1, "a": {"b": {"c": 1}, "d": 2}, "l": [{"x": 1, "y": 2}, 3, [{"x": 4}], {"y": 5}]}
    assert list(select(document, ["a.b", "z"]).items()) == [("z", 1), ("a", {"b": {"c": 1}})]
    assert select(document, ["l.x"]) == {"l": [{"x": 1}, [{"x": 4}]]}
    assert select(document, ["l"]) == {"l": document["l"]}
    assert select(document, ["nope", "z.q", "a.nope"]) == {"a": {}}


@pytest.mark.parametrize(("asked", "parts"), [
    (["a.b", "z"], {"z": 1, "a": {"b": {"c": 1}}}),
    (["l.x"], {"l": [{"x": 1}, 3, [{"x": 4}, None], {}]}),
    (["z.q", "a.nope", "a.b.c"], {"z": 1, "a": {"b": {"c": 1}}}),
    (["a.nope"], {"a": {}}), (["l"], {"l": [{"x": 1, "y": 2}, 3, [{"x": 4}, None], {"y": 5}]}), (["nope", "zz"], {}),
])
def test_values_without_members_stay_in_hits(asked: list[str], parts: dict[str, Any]) -> None:
    document = {"z": 1, "a": {"b": {"c": 1}, "d": 2}, "l": [{"x": 1, "y": 2}, 3, [{"x": 4}, None], {"y": 5}]}
    assert list(shown_parts(document, Selection(asked)).items()) == list(parts.items())


scalars = st.one_of(
    st.text(ALPHABET, max_size=12), st.integers(-99, 99), st.booleans(), st.none(), st.sampled_from([1.5, -0.25])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@needs_oracle
@pytest.mark.usefixtures("no_word_lists")
@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["t", "u", "_geo"]), values, max_size=3).filter(lambda d: not BEYOND.search(str(d)))
)
def test_positions_are_those_of_the_oracle(document: dict[str, Any]) -> None:
    index = oracle("ranking").Index({"stopWords": ["a", "É"]}, [])
    try:
        index.index_doc(0, document)
    except NotImplementedError:
        return
    expected = {name: occurrences for name, occurrences in index.occ[0].items() if occurrences}
    assert located(document, Analyzer(stop_words=["a", "É"])) == expected


# Primary keys and identifiers


@pytest.mark.parametrize("name", ["id", "ID", "movieId", "primary_iD", "uuid"])
def test_the_one_name_that_ends_with_id_is_the_key(name: str) -> None:
    assert infer_primary_key({"title": 1, name: 2, "idea": {"id": 3}}) == name


def test_a_document_without_a_name_that_ends_with_id_has_no_key() -> None:
    with pytest.raises(ApiError) as caught:
        infer_primary_key({"title": "11", "desc": {"id": 1}})
    assert caught.value.code == "index_primary_key_no_candidate_found"
    reason = "The primary key inference failed as the engine did not find any field ending with `id` in its name."
    assert caught.value.message == f"{reason} {ADVICE}"


def test_two_of_several_candidates_are_named_in_order() -> None:
    with pytest.raises(ApiError) as caught:
        infer_primary_key({"primary_id": 1, "object_id": 2, "id": 3})
    assert caught.value.code == "index_primary_key_multiple_candidates_found"
    reason = (
        "The primary key inference failed as the engine found 3 fields ending with `id` in their names: 'id' and "
        "'object_id'."
    )
    assert caught.value.message == f"{reason} {ADVICE}"


@pytest.mark.parametrize(
    ("document", "key", "identifier"),
    [
        ({"id": 1}, "id", "1"),
        ({"id": -7}, "id", "-7"),
        ({"id": 2**64 - 1}, "id", "18446744073709551615"),
        ({"id": "a_B-9"}, "id", "a_B-9"),
        ({"id": "a" * 511}, "id", "a" * 511),
        ({"a": {"b": 5}}, "a.b", "5"),
        ({"a.b": "x"}, "a.b", "x"),
        ({"a": {"b.c": 5}}, "a.b.c", "5"),
        ({"a.b": {"c": 5}, "a": {"b": {"d": 6}}}, "a.b.c", "5"),
    ],
)
def test_identifiers_are_found_at_the_path_of_the_key(document: dict[str, Any], key: str, identifier: str) -> None:
    assert document_identifier(document, key) == identifier


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("foo & bar", '"foo & bar"'),
        ("", '""'),
        ("é", '"é"'),
        ("a\n", '"a\\n"'),
        ("a" * 512, '"' + "a" * 512 + '"'),
        (1.0, "1.0"),
        (1e300, "1e300"),
        (True, "true"),
        (None, "null"),
        ([1], "[1]"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_other_identifiers_are_invalid(value: Any, shown: str) -> None:
    for check in (lambda: document_identifier({"id": value}, "id"), lambda: checked_identifier(value)):
        with pytest.raises(ApiError) as caught:
            check()
        assert caught.value.code == "invalid_document_id"
        assert caught.value.message == f"Document identifier `{shown}` is invalid. {RULE}"


@pytest.mark.parametrize(
    ("document", "key"), [({"id": "11", "content": "é"}, "docid"), ({"a": {"c": 1}}, "a.b"), ({"a": 5}, "a.b"), ({"a": []}, "a.b")])
def test_a_missing_identifier_shows_the_document(document: dict[str, Any], key: str) -> None:
    with pytest.raises(ApiError) as caught:
        document_identifier(document, key)
    assert caught.value.code == "missing_document_id"
    assert caught.value.message.startswith(f"Document doesn't have a `{key}` attribute: `{{")


def test_an_identifier_found_twice_is_rejected() -> None:
    with pytest.raises(ApiError) as caught:
        document_identifier({"a.b": 1, "a": {"b": 2}}, "a.b")
    assert caught.value.code == "invalid_document_id"
    assert caught.value.message == 'Document have too many matching `a.b` attribute: `{"a.b":1,"a":{"b":2}}`.'
