"""What must hold of the pre-scan, which finds an error at the end of a long filter before all of it is parsed:

1. A filter is parsed, or rejected with the same message, with the pre-scan and without.
2. Conditions in their usual spelling are passed over, so that a megabyte of any kind of condition with an error after
   it is rejected within a tenth of a second.
3. It never passes over what exceeds the depth limit.
"""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.filters import lexer
from svcd.filters.canonical_text import canonical_text
from svcd.filters.lexer import FilterError
from svcd.filters.parser import parse
from tests.filters.test_parser import SIZE, takes_a_tenth_of_a_second

# Parts of filters, valid and not, with and without blanks around them.
PIECES = st.sampled_from([
    "a", "b.c", "_geo", "_geox", "_geoPolygon", "_geoRadius", "_vectors", "_vectorsx", "_foreign", "_shard", "NOTa", "1AND",
    "été", "-1.5", '"x y"', "'z'", '"\\""', "'\\n'", "'\\x'", "'\\u12'", '"', "'", "\\", "\u00a0", " ", " ", "\n", ",", "(", "(",
    ")", ")", "[", "]", "[1, 'x']", "[,]", "[a AND]", "=", "!=", "<", ">=", "TO", " TO ", "IN", "NOT", " NOT ", "NOT ", "IS",
    "NULL", "EMPTY", "EXISTS", "CONTAINS", "STARTS WITH", "STARTS  WITH", "AND", "OR", " AND ", " OR ", " AND ", " OR ",
])
CONDITIONS = st.sampled_from([
    "a = 1", "a=1", "'b c' != \"x\\\"y\"", "a > été", "a IN [1, 'x', y,]", "a NOT IN[]", "a IS NULL", "a IS NOT EMPTY",
    "a EXISTS", "a NOT EXISTS", "a 1 TO 2", "a CONTAINS b", "a NOT STARTS WITH 'b'", "_geoRadius(1, -2.5, 3)",
    "_geoBoundingBox([1, 2], [3, 4])", "NOT a = 1", "NOT NOT (a = 1)", "(a = 1 OR b = 2)", "((a = 1) AND NOT (b = 2 OR c = 3))",
    "_shard = x", "_vectors EXISTS", "_vectors.e.regenerate EXISTS", "_geo.lat = 1", "a = _geoPolygon",
])
CONNECTIVES = st.sampled_from([" AND ", " OR ", "AND ", " OR\n", " and "])


def verdict(text: str) -> str:
    try:
        condition = parse(text)
    except FilterError as error:
        return error.message
    return canonical_text(condition) if condition else ""


def check_same(text: str) -> None:
    plain = verdict(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexer, "LEAST_LENGTH", 1)
        assert verdict(text) == plain


@settings(max_examples=2_000)
@given(st.lists(st.one_of(PIECES, CONDITIONS), max_size=20).map("".join))
def test_the_prescan_changes_no_result(text: str) -> None:
    check_same(text)


@settings(max_examples=2_000)
@given(st.lists(st.tuples(CONDITIONS, CONNECTIVES).map("".join), max_size=8), st.lists(PIECES, max_size=6))
def test_the_error_after_valid_conditions_is_the_same(valid: list[str], after: list[str]) -> None:
    check_same("".join([*valid, *after]))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(["1", "x", "'y z'", '"\\""', "AND", "'\\x'", "_geo", "_geoRadius", "é", "(", "'"]), max_size=8),
       st.sampled_from([", ", ",", " ,\n", " "]), st.sampled_from(["]", "", ",]", "] AND", ")"]))
def test_the_error_after_valid_values_is_the_same(values: list[str], comma: str, end: str) -> None:
    check_same(f"a IN [{comma.join(values)}{end}")


@pytest.mark.parametrize("depth", range(25, 37))
def test_what_is_too_deep_is_not_passed_over(depth: int) -> None:
    check_same("(" * depth + "NOT NOT NOT NOT (NOT NOT (a = 1)) AND " * 3 + "$")


FORMS = ["a = 1", "a = 'x\\'y'", "a IS NOT NULL", "a EXISTS", "a 1 TO 2", "a IN [1, 2]", "a CONTAINS b", "NOT a = 1", "(a = 1 OR b = 2)",
         "((a = 1 OR b = 2) AND c = 3)", "_geoRadius(1, 2, 3)", "_geoBoundingBox([1, 2], [3, 4])"]


@pytest.mark.parametrize("form", FORMS)
def test_every_usual_spelling_is_passed_over(form: str) -> None:
    text = f"{form} AND {form} OR " * 1_000
    assert lexer.end_of_valid_conditions(text, 0) == len(text)


@pytest.mark.parametrize("text", [
    *(f"{form} AND " * (SIZE // (len(form) + 5)) for form in FORMS),
    "(" + "a = 1 OR " * (SIZE // 9) + "b = 2",
    "a IN [" + "value, " * (SIZE // 7),
    "a IN [" + '"\\"", ' * (SIZE // 6) + "(",
    "'" * SIZE,
    "\x01" * (SIZE // 6),
    "\x80" * (SIZE // 2),
], ids=lambda text: text[:20])
def test_a_megabyte_is_rejected_within_a_tenth_of_a_second(text: str) -> None:
    assert takes_a_tenth_of_a_second(text)
