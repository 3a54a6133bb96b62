"""What must hold of names in requests:

1. An index uid is made of letters, digits, `-` and `_`; a pattern may end with one star, or be a star.
2. Every way to write a UUID is read; every fault has its own message.
"""
from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.validation import parse_index_uid_pattern
from svcd.validation.names import parse_uuid


@pytest.mark.parametrize("text", ["*", "films", "films*", "films_*", "0", "a-b", "a" * 400, "a" * 400 + "*"])
def test_patterns(text: str) -> None:
    assert parse_index_uid_pattern(text) == text


@pytest.mark.parametrize("text", [
    "", "**", "fi*lms", "*films", "good films", "films**", "a" * 401, "é", "films\n", "a/b"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid index uid pattern"):
        parse_index_uid_pattern(text)


PLAIN = "4d406476-7a3b-47be-8685-e9ab9bb0a4b0"


@given(st.uuids())
def test_every_way_to_write_one_is_read(one: uuid.UUID) -> None:
    for text in (str(one), one.hex, one.urn, f"{{{one}}}", str(one).upper()):
        assert parse_uuid(text) == str(one)


@pytest.mark.parametrize(("text", "reason"), [
    ("", "invalid length: found 0"),
    ("aaaaabbbbbccc", "invalid length: found 13"),
    ("0" * 33, "invalid length: found 33"),
    ("x" * 46, "invalid length: found 46"),
    ("doggo", "invalid character: found `o` at 1"),
    ("uuid-whatever", "invalid character: found `u` at 0"),
    ("aé", "invalid character: found `é` at 1"),
    ("éa-x", "invalid character: found `é` at 0"),
    ("{" + "é" * 30 + "}", "invalid length: found 62"),
    (f"{{{PLAIN[:-1]}g}}", "invalid character: found `g` at 36"),
    ("a-b", "invalid group count: expected 5, found 2"),
    (PLAIN + "-", "invalid group count: expected 5, found 6"),
    (PLAIN[1:], "invalid group length in group 0: expected 8, found 7"),
    (PLAIN + "0", "invalid group length in group 4: expected 12, found 13"),
    ("4d406476-7a3b-47b-e8685-e9ab9bb0a4b0", "invalid group length in group 2: expected 4, found 3"),
])
def test_a_fault_has_its_words(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_uuid(text)
    assert str(refused.value) == reason
