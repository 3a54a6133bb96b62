"""What must hold of texts that should be UUIDs: every way to write one is read, every fault has its words."""
from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.validation.names import parse_uuid

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
