"""What must hold of primary keys:

1. A key is guessed from the one top-level name that ends with `id`, in any case.
2. An identifier is an integer or a text of letters, digits, hyphens and underscores, at most 511 bytes.
3. A key with dots is found in nested objects and in names that hold dots; found twice, it is refused.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.schema.documents import checked_identifier, document_identifier, infer_primary_key

ADVICE = "Please specify the primary key manually using the `primaryKey` query parameter."
RULE = (
    "A document identifier can be of type integer or string, only composed of alphanumeric characters (a-z A-Z 0-9), "
    "hyphens (-) and underscores (_), and can not be more than 511 bytes."
)


@pytest.mark.parametrize("name", ["id", "ID", "movieId", "primary_iD", "uuid"])
def test_the_one_name_that_ends_with_id_is_the_key(name: str) -> None:
    assert infer_primary_key({"title": 1, name: 2, "idea": {"id": 3}}) == name


def test_no_candidate() -> None:
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
def test_identifiers(document: dict[str, Any], key: str, identifier: str) -> None:
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
    for refused in (lambda: document_identifier({"id": value}, "id"), lambda: checked_identifier(value)):
        with pytest.raises(ApiError) as caught:
            refused()
        assert caught.value.code == "invalid_document_id"
        assert caught.value.message == f"Document identifier `{shown}` is invalid. {RULE}"


@pytest.mark.parametrize(
    ("document", "key"), [({"id": "11", "content": "é"}, "docid"), ({"a": {"c": 1}}, "a.b"), ({"a": 5}, "a.b"), ({"a": []}, "a.b")])
def test_a_missing_identifier_shows_the_document(document: dict[str, Any], key: str) -> None:
    with pytest.raises(ApiError) as caught:
        document_identifier(document, key)
    assert caught.value.code == "missing_document_id"
    assert caught.value.message.startswith(f"Document doesn't have a `{key}` attribute: `{{")


def test_an_identifier_found_twice_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        document_identifier({"a.b": 1, "a": {"b": 2}}, "a.b")
    assert caught.value.code == "invalid_document_id"
    assert caught.value.message == 'Document have too many matching `a.b` attribute: `{"a.b":1,"a":{"b":2}}`.'
