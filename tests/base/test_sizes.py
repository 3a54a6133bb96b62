"""Sizes: decimal and binary units, any letter case, and nothing that only looks like one."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.sizes import LARGEST, UNITS, parse_size, print_size


@pytest.mark.parametrize(("text", "size"), [
    ("0", 0), ("4096", 4096), ("100 MB", 100_000_000), ("100MB", 100_000_000), ("1 kB", 1000),
    ("1 KiB", 1024), ("1.5 GiB", 1_610_612_736), ("512kib", 524_288), ("2 gb", 2_000_000_000),
    ("12 b", 12), (" 7 B ", 7), ("0.1 kB", 100), ("1.1 KiB", 1127), ("18446744073709551615", LARGEST),
])
def test_a_size_has_decimal_or_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("unit", UNITS)
def test_the_letter_case_of_a_unit_is_free(unit: str) -> None:
    assert parse_size(f"3 {unit.lower()}") == parse_size(f"3{unit.upper()}") == 3 * UNITS[unit]


@pytest.mark.parametrize("text", [
    "", " ", "MB", "12 parsecs", "-1", "+1", "1_000", "1.5", "1.", ".5 MB", "1,5 MB", "1e3", "0x10", "10 M",
    "10 MiBs", "٣ MB", "1 MB 2", "nan", "inf", "9" * 100_000, "1\n2",
])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_a_size_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        parse_size("18446744073709551616")


@given(st.integers(0, LARGEST))
def test_a_printed_size_reads_back(size: int) -> None:
    assert parse_size(print_size(size)) == size


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (1, "1 B"), (1000, "1 kB"), (1024, "1 KiB"), (100_000_000, "100 MB"), (1 << 30, "1 GiB"),
])
def test_a_size_is_printed_in_its_largest_whole_unit(size: int, text: str) -> None:
    assert print_size(size) == text
