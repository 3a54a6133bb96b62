"""An index uid is made of letters, digits, `-` and `_`; a pattern may end with one star, or be a star."""
from __future__ import annotations

import pytest

from svcd.validation import parse_index_uid_pattern


@pytest.mark.parametrize("text", ["*", "films", "films*", "films_*", "0", "a-b", "a" * 400, "a" * 400 + "*"])
def test_patterns(text: str) -> None:
    assert parse_index_uid_pattern(text) == text


@pytest.mark.parametrize("text", [
    "", "**", "fi*lms", "*films", "good films", "films**", "a" * 401, "é", "films\n", "a/b"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid index uid pattern"):
        parse_index_uid_pattern(text)
