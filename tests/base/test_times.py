"""What must hold of moments as texts:

1. A date-time with an offset, one without, and a date are parsed; the last two are in UTC.
2. In responses a moment always has six fractional digits; elsewhere it is exact.
3. Dates that do not exist, or are not in the years 1 to 9999, are rejected.
"""
from __future__ import annotations

import pytest

from svcd.base.quantities import SECOND, parse_utc, rfc3339, rfc3339_micro


@pytest.mark.parametrize(("text", "shown"), [
    ("2050-11-13T00:00:00Z", "2050-11-13T00:00:00Z"),
    ("2050-11-13T02:00:00.5+02:00", "2050-11-13T00:00:00.5Z"),
    ("2050-11-13T00:00:00", "2050-11-13T00:00:00Z"),
    ("2050-11-13 00:00:00", "2050-11-13T00:00:00Z"),
    ("2050-11-13", "2050-11-13T00:00:00Z"),
    ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
    ("0001-01-01", "0001-01-01T00:00:00Z"),
])
def test_forms(text: str, shown: str) -> None:
    assert rfc3339(parse_utc(text)).lstrip("0") == shown.lstrip("0")


@pytest.mark.parametrize("text", [
    "", "doggo", "2050", "2050-11", "2050-13-01", "2050-02-30", "2050-11-13T25:00:00", "2050-11-13T00:00",
    "2050-11-13T00:00:00.5", "2050-11-13t00:00:00", " 2050-11-13", "2050-11-13\n", "9999-12-31T23:59:59-01:00",
    "0001-01-01T00:00:00+01:00", "10000-01-01", "٢٠٥٠-11-13T00:00:00", "0000-01-01",
])
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(ValueError):
        parse_utc(text)


def test_a_second_is_a_second() -> None:
    assert parse_utc("1970-01-01T00:00:01") == SECOND


@pytest.mark.parametrize(("nanoseconds", "shown", "whole"), [
    (0, "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00Z"),
    (1, "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000001Z"),
    (SECOND - 1, "1970-01-01T00:00:00.999999Z", "1970-01-01T00:00:00.999999999Z"),
    (SECOND * 3 // 2, "1970-01-01T00:00:01.500000Z", "1970-01-01T00:00:01.5Z"),
    (-1, "1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999999Z"),
])
def test_answers_have_microseconds(nanoseconds: int, shown: str, whole: str) -> None:
    assert (rfc3339_micro(nanoseconds), rfc3339(nanoseconds)) == (shown, whole)
