"""Sizes in bytes as texts with a unit, such as `100 MB`, `1.5 GiB`, `4096`: parsed, and printed for three uses.

print_size() is exact and reads back (configuration); message_size() is exact (messages of the HTTP interface);
human_size() is rounded (statistics).
"""
from __future__ import annotations

import re
from collections.abc import Sequence

LARGEST = 2**64 - 1

UNITS: dict[str, int] = {  # as printed: bytes
    "B": 1,
    "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4, "PB": 1000**5,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "PiB": 1024**5,
}
_BYTES = {unit.lower(): count for unit, count in UNITS.items()}
_LARGEST_FIRST = sorted(UNITS.items(), key=lambda row: -row[1])
# As messages and statistics print them: the spelling of "KB" differs from that of the configuration.
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("B", "KB", "MB", "GB", "TB", "PB")
# The number of digits is limited: int() takes time quadratic in it, and the text may come from anywhere.
_SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))?[ \t]*([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """The number of bytes that a text means; fractions of a byte are rounded up.

    Raises ValueError, whose message says what a size looks like.
    """
    match = _SIZE.fullmatch(text.strip())
    whole, fraction, unit = match.groups() if match else ("", None, "")
    if not match or unit.lower() not in _BYTES and unit or fraction and not unit:
        raise ValueError(
            "is not a size; write a number of bytes, or a number with a unit, as 100 MB or 512 KiB "
            f"(units: {', '.join(UNITS)})"
        )
    size = _scaled(whole, fraction or "", _BYTES[unit.lower()] if unit else 1)
    if size > LARGEST:
        raise ValueError(f"is too large a size; the largest is {LARGEST} bytes")
    return size


def _scaled(whole: str, fraction: str, factor: int) -> int:
    """whole.fraction times factor, rounded up, without the errors of floats."""
    return -(-int(whole + fraction) * factor // 10 ** len(fraction))


def print_size(size: int) -> str:
    """A size in the largest unit in which it is a whole number; parse_size() reads it back."""
    unit, factor = next(row for row in _LARGEST_FIRST if size % row[1] == 0 and (size or row[1] == 1))
    return f"{size // factor} {unit}"


def message_size(size: int) -> str:
    """A size without rounding: in binary units when it is a multiple of 1024 (`10 MiB`), else in decimal ones (`1.5 KB`)."""
    factor, units = (1000, _DECIMAL) if size % 1024 else (1024, _BINARY)
    amount, unit = _scaled_down(size, factor, units)
    return f"{str(amount).removesuffix('.0')} {unit}"


def human_size(size: int) -> str:
    """A size in binary units with at most two decimals: `176 KiB`, `1.25 MiB`."""
    amount, unit = _scaled_down(size, 1024, _BINARY)
    return f"{amount:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def _scaled_down(size: int, factor: int, units: Sequence[str]) -> tuple[float, str]:
    """A size as (number, unit) with the largest of the units, each `factor` times the one before, that leaves at least 1."""
    amount, place = float(size), 0
    while amount >= factor and place < len(units) - 1:
        amount, place = amount / factor, place + 1
    return amount, units[place]
