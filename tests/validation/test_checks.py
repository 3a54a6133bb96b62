"""What must hold of checks on JSON values:

1. A wrong type names the accepted kinds in one order, merges integers, and shows what was found.
2. Places are dotted paths with indexes; nothing is said of the root.
3. Unknown, missing and immutable members name the enclosing object and list the declared members.
4. A suggestion is made within the allowed typos only, and the first of the nearest names wins.
5. Only the first error in the order of the body is told.
6. An error takes the code of the nearest enclosing field that has one.
7. A decoded object has its members in declared order; absent ones are absent unless they have a default.
8. Every check describes itself as a JSON schema.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.validation import (
    Field,
    array_of,
    boolean,
    bounded,
    checked_index_uid,
    decode_body,
    decode_value,
    did_you_mean,
    index_uid,
    integer,
    map_of,
    non_zero,
    nullable,
    number,
    object_of,
    object_or,
    one_of,
    parsed,
    positive_integer,
    string,
)
from svcd.validation.messages import KINDS, edit_distance, expected, found, is_near, kind_of


def refusal(value: Any, check: Any) -> str:
    with pytest.raises(ApiError) as refused:
        decode_value(value, check)
    return refused.value.message


@pytest.mark.parametrize("value, kind", [
    (None, "null"), (True, "a boolean"), (5, "a positive integer"), (-5, "a negative integer"),
    (1.0, "a number"), (2**64, "a number"), ("", "a string"), ([], "an array"), ({}, "an object"),
])
def test_every_json_value_has_one_kind(value: Any, kind: str) -> None:
    assert kind_of(value) == kind


@pytest.mark.parametrize("kinds, phrase", [
    (["a string"], "a string"),
    (["an array", "a string"], "a string or an array"),
    (["a negative integer", "a positive integer"], "an integer"),
    (["a number", "a positive integer", "a negative integer"], "a number"),
    (["an object", "null", "an array", "a negative integer", "a positive integer"],
     "null, an integer, an array, or an object"),
])
def test_accepted_kinds_are_sorted_and_merged(kinds: list[str], phrase: str) -> None:
    assert expected(kinds) == phrase
    assert expected(reversed(kinds)) == phrase


def test_found_value_is_compact_json_and_null_stands_alone() -> None:
    assert found({"a": [1, "é", None]}) == 'an object: `{"a":[1,"é",null]}`'
    assert found(None) == "null"
    assert found(True) == "a boolean: `true`"


@pytest.mark.parametrize("value, check, message", [
    (1, string, "Invalid value type: expected a string, but found a positive integer: `1`"),
    (None, string, "Invalid value type: expected a string, but found null"),
    ("x", nullable(boolean), 'Invalid value type: expected a boolean, but found a string: `"x"`'),
    (-1, positive_integer, "Invalid value type: expected a positive integer, but found a negative integer: `-1`"),
    (1.5, integer, "Invalid value type: expected an integer, but found a number: `1.5`"),
    ([], number, "Invalid value type: expected a number, but found an array: `[]`"),
    ([[1]], array_of(array_of(string)),
     "Invalid value type at `[0][0]`: expected a string, but found a positive integer: `1`"),
    ({"a b": 1}, map_of(string), "Invalid value type at `.a b`: expected a string, but found a positive integer: `1`"),
    (256, bounded(255), "Invalid value: value: `256` is too large to be deserialized, "
                        "maximum value authorized is `255`"),
    (1, bounded(9, 2), "Invalid value: value: `1` is too small to be deserialized, minimum value authorized is `2`"),
    (0, non_zero, "Invalid value: a non-zero integer value lower than `18446744073709551615` was expected, "
                  "but found a zero"),
    ("alhpa", one_of("alpha", "count"),
     "Unknown value `alhpa`: did you mean `alpha`? expected one of `alpha`, `count`"),
    (["a"], array_of(string, length=2), 'Invalid array len. Received 1 elements instead of 2: `["a"]`'),
    ("a b", index_uid, "Invalid value: `a b` is not a valid index uid. Index uid can be an integer or a string "
                       "containing only alphanumeric characters, hyphens (-) and underscores (_), and can not be "
                       "more than 512 bytes."),
    (3, object_or(object_of({}), string), "Invalid value type: expected a string, but found a positive integer: `3`"),
])
def test_refusal_says_what_was_wrong_and_where(value: Any, check: Any, message: str) -> None:
    assert refusal(value, check) == message


FIELDS = {
    "uid": Field(string, "invalid_index_uid", required=True, missing_code="missing_index_uid"),
    "primaryKey": Field(nullable(string), "invalid_index_primary_key"),
    "limit": Field(positive_integer, default=20),
}


def body_refusal(value: Any) -> tuple[str, str]:
    with pytest.raises(ApiError) as refused:
        decode_body(value, FIELDS, immutable={"createdAt": "immutable_index_created_at"})
    return refused.value.code, refused.value.message


def test_members_absent_from_the_body_are_absent_or_default() -> None:
    decoded = decode_body({"limit": 3, "uid": "a"}, FIELDS)
    assert list(decoded.items()) == [("uid", "a"), ("limit", 3)]
    assert decode_body({"uid": "a"}, FIELDS) == {"uid": "a", "limit": 20}


@pytest.mark.parametrize("body, code, message", [
    ({}, "missing_index_uid", "Missing field `uid`"),
    ([], "bad_request", "Invalid value type: expected an object, but found an array: `[]`"),
    ({"uid": 1}, "invalid_index_uid",
     "Invalid value type at `.uid`: expected a string, but found a positive integer: `1`"),
    ({"uid": "a", "createdAt": 1}, "immutable_index_created_at",
     "Immutable field `createdAt`: expected one of `uid`, `primaryKey`, `limit`"),
    ({"primarykey": 1, "uid": 1}, "bad_request",
     "Unknown field `primarykey`: did you mean `primaryKey`? expected one of `uid`, `primaryKey`, `limit`"),
    ({"uid": 1, "primarykey": 1}, "invalid_index_uid",
     "Invalid value type at `.uid`: expected a string, but found a positive integer: `1`"),
    ({"uid": "a", "limit": "x"}, "bad_request",
     'Invalid value type at `.limit`: expected a positive integer, but found a string: `"x"`'),
])
def test_first_error_of_the_body_is_reported_with_its_code(body: Any, code: str, message: str) -> None:
    assert body_refusal(body) == (code, message)


def test_inner_errors_take_the_code_of_the_nearest_field() -> None:
    inner = object_of({"embedder": Field(string, required=True)})
    fields = {"hybrid": Field(inner, "invalid_search_hybrid_query")}
    with pytest.raises(ApiError) as refused:
        decode_body({"hybrid": {}}, fields)
    assert (refused.value.code, refused.value.message) == (
        "invalid_search_hybrid_query", "Missing field `embedder` inside `.hybrid`")


def test_parser_reason_is_reported_with_the_position() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value // 2

    assert decode_value([4], array_of(parsed(integer, even))) == [2]
    assert refusal([4, 3], array_of(parsed(integer, even))) == "Invalid value at `[1]`: odd"


@pytest.mark.parametrize("name, suggestion", [
    ("uid", ""),  # three bytes allow no typo
    ("uids", "did you mean `uids`? "),
    ("udis", "did you mean `uids`? "),
    ("udisx", ""),
    ("indexUid", "did you mean `indexUids`? "),
    ("indxUids", "did you mean `indexUids`? "),
    ("x" * 100_000, ""),
])
def test_suggestion_stays_within_the_allowed_typos(name: str, suggestion: str) -> None:
    assert did_you_mean(name, ["uids", "indexUids", "afterEnqueuedAt"]) == suggestion


def test_first_of_the_nearest_names_is_suggested() -> None:
    assert did_you_mean("lamit", ["limat", "limit", "lamat"]) == "did you mean `limit`? "
    assert did_you_mean("limt", ["lim", "limit"]) == "did you mean `lim`? "


@pytest.mark.parametrize("left, right, distance", [
    ("", "abc", 3), ("abc", "abc", 0), ("ab", "ba", 1), ("ca", "abc", 2), ("kitten", "sitting", 3),
])
def test_edit_distance_counts_a_swap_as_one(left: str, right: str, distance: int) -> None:
    assert edit_distance(left, right) == edit_distance(right, left) == distance
    assert is_near(left, right) == is_near(right, left) == (distance <= 2)


def test_checks_describe_themselves() -> None:
    check = object_of({
        "mode": Field(one_of("a", "b"), required=True, about="How."),
        "sizes": Field(nullable(array_of(bounded(255), length=2)), default=[]),
    })
    assert check.describe() == {
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": {"type": "string", "enum": ["a", "b"], "description": "How."},
            "sizes": {
                "type": ["array", "null"], "minItems": 2, "maxItems": 2, "default": [],
                "items": {"type": "integer", "minimum": 0, "maximum": 255},
            },
        },
        "additionalProperties": False,
    }
    assert nullable(one_of("a")).describe() == {"oneOf": [{"type": "null"}, {"type": "string", "enum": ["a"]}]}


def test_index_uid_has_at_most_400_bytes() -> None:
    assert checked_index_uid("a" * 400) == "a" * 400
    for text in ("", "é", "a.b", "a" * 401, "a\n"):
        with pytest.raises(ApiError) as refused:
            checked_index_uid(text)
        assert refused.value.code == "invalid_index_uid"


def test_kinds_are_eight() -> None:
    assert len(set(KINDS)) == 8
