"""Sizes in bytes, as people write them: `100 MB`, `1.5 GiB`, `4096`.

Knows units; refuses to know what the size is of. Source: options.json, rules.size.
"""
from __future__ import annotations

import re

LARGEST = 2**64 - 1

UNITS: dict[str, int] = {  # as printed: bytes
    "B": 1,
    "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4, "PB": 1000**5,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "PiB": 1024**5,
}
_BYTES = {unit.lower(): count for unit, count in UNITS.items()}
_LARGEST_FIRST = sorted(UNITS.items(), key=lambda row: -row[1])
# Digits are bounded, so that a hostile text costs nothing to convert.
_SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))?[ \t]*([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes. A part of a byte counts as a whole one. Raises ValueError with what would be right."""
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
    """The size in the largest unit that leaves a whole number; parse_size reads it back."""
    unit, factor = next(row for row in _LARGEST_FIRST if size % row[1] == 0 and (size or row[1] == 1))
    return f"{size // factor} {unit}"
