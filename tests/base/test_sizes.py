"""What must hold of sizes as texts:

1. A text has a decimal or binary unit, in any letter case, or none; nothing that only looks like a size is taken.
2. A printed size reads back, and has the largest unit in which it is a whole number.
3. Sizes in messages are exact, in binary units where they are multiples of 1024.
4. Sizes in statistics are rounded to two decimals, in binary units.
"""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.quantities import LARGEST_SIZE, UNITS, human_size, message_size, parse_size, print_size


@pytest.mark.parametrize(("text", "size"), [
    ("0", 0), ("4096", 4096), ("100 MB", 100_000_000), ("100MB", 100_000_000), ("1 kB", 1000),
    ("1 KiB", 1024), ("1.5 GiB", 1_610_612_736), ("512kib", 524_288), ("2 gb", 2_000_000_000),
    ("12 b", 12), (" 7 B ", 7), ("0.1 kB", 100), ("1.1 KiB", 1127), ("18446744073709551615", LARGEST_SIZE),
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


@given(st.integers(0, LARGEST_SIZE))
def test_a_printed_size_reads_back(size: int) -> None:
    assert parse_size(print_size(size)) == size


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (1, "1 B"), (1000, "1 kB"), (1024, "1 KiB"), (100_000_000, "100 MB"), (1 << 30, "1 GiB"),
])
def test_a_size_is_printed_in_its_largest_whole_unit(size: int, text: str) -> None:
    assert print_size(size) == text


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1 KB"), (1500, "1.5 KB"), (1024, "1 KiB"), (10 << 20, "10 MiB"),
    (100 << 20, "100 MiB"), (100_000_000, "100 MB"), (100_000_001, "100.000001 MB"),
    (1536, "1.536 KB"), (1536 << 10, "1.5 MiB"), (1 << 40, "1 TiB"), (10_000, "10 KB"),
])
def test_sizes_in_messages_are_exact(size: int, text: str) -> None:
    assert message_size(size) == text


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (1023, "1023 B"), (4096, "4 KiB"), (1536, "1.5 KiB"), (5 << 30, "5 GiB"), (1 << 60, "1024 PiB"),
    (1_000_000, "976.56 KiB"), (1280 << 10, "1.25 MiB"),
])
def test_sizes_in_statistics_are_rounded(size: int, text: str) -> None:
    assert human_size(size) == text
