"""Numbers, sizes in bytes, moments and durations: parsed from texts of the interface, and printed as such.

A moment is a number of nanoseconds since 1970 (UTC), a duration a number of nanoseconds. For sizes, print_size() is exact and
reads back (configuration), message_size() is exact (messages of the HTTP interface), human_size() is rounded (statistics).
"""
from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch

LARGEST_SIZE = 2**64 - 1

UNITS: dict[str, int] = {  # as printed: bytes
    "B": 1,
    "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4, "PB": 1000**5,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "PiB": 1024**5,
}
_BYTES = {unit.lower(): count for unit, count in UNITS.items()}
_LARGEST_FIRST = sorted(UNITS.items(), key=lambda row: -row[1])
# The units of messages and statistics: the configuration spells "KB" differently.
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("B", "KB", "MB", "GB", "TB", "PB")
# The number of digits is limited: int() takes time quadratic in it, and the text may come from anywhere.
_SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))?[ \t]*([A-Za-z]*)", re.ASCII)

SECOND = 1_000_000_000
MICROSECOND = 1000
DAY = 86_400 * SECOND
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:([Zz])|([+-])(\d\d):(\d\d))")
_WITHOUT_OFFSET = re.compile(r"[0-9-]{10}[T ][0-9:]{8}")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


# Numbers in filters and sort expressions (docs/filters-and-facets.md)

def number_of(text: str) -> float | None:
    """Return the number of a text; None unless the whole text is a finite number."""
    number = float(text) if _NUMBER(text) else math.inf
    return number if math.isfinite(number) else None


def shown_number(number: float) -> str:
    """Print a number with the fewest digits that identify it, without exponent and without a final `.0`."""
    text = repr(number)
    if "e" in text:
        from decimal import Decimal  # 1 MB, and few numbers are so large or small

        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


# Sizes in bytes, with or without a unit: `100 MB`, `1.5 GiB`, `4096`

def parse_size(text: str) -> int:
    """Return the number of bytes of a size; fractions of a byte are rounded up.

    Raises ValueError with a message that shows the form of a size.
    """
    match = _SIZE.fullmatch(text.strip())
    whole, fraction, unit = match.groups() if match else ("", None, "")
    if not match or unit.lower() not in _BYTES and unit or fraction and not unit:
        raise ValueError(
            "is not a size; write a number of bytes, or a number with a unit, as 100 MB or 512 KiB "
            f"(units: {', '.join(UNITS)})"
        )
    fraction, factor = fraction or "", _BYTES[unit.lower()] if unit else 1
    size = -(-int(whole + fraction) * factor // 10 ** len(fraction))  # rounded up, without the errors of floats
    if size > LARGEST_SIZE:
        raise ValueError(f"is too large a size; the largest is {LARGEST_SIZE} bytes")
    return size


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


# Moments and durations

def now() -> int:
    """The present moment."""
    return time.time_ns()


def rfc3339(moment: int) -> str:
    """`2026-11-20T07:40:09.38Z`: UTC, up to nine fractional digits without trailing zeros; exact."""
    return _nine_digits(moment).rstrip("0").rstrip(".") + "Z"


def rfc3339_micro(moment: int) -> str:
    """`2026-11-20T07:40:09.380000Z`: UTC, always six fractional digits, as in responses; finer digits are cut off."""
    return _nine_digits(moment)[:-3] + "Z"


def _nine_digits(moment: int) -> str:
    seconds, fraction = divmod(moment, SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}"


def iso_duration(nanoseconds: int) -> str:
    """`PT0.009330S`, `P1DT3.500S`: 0, 3, 6 or 9 fractional digits, as few as are exact."""
    days, rest = divmod(max(nanoseconds, 0), DAY)
    seconds, fraction = divmod(rest, SECOND)
    digits = f"{fraction:09d}"
    kept = next((n for n in (0, 3, 6) if not int(digits[n:])), 9)
    point = f".{digits[:kept]}" if kept else ""
    return f"P{f'{days}D' if days else ''}T{seconds}{point}S"


def parse_rfc3339(text: str) -> int:
    """The moment of an RFC 3339 date-time with an offset. Raises ValueError."""
    match = _RFC3339.fullmatch(text)
    if not match:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc) - _EPOCH
    offset = 0 if match[8] else (int(match[10]) * 60 + int(match[11])) * (-60 if match[9] == "-" else 60)
    fraction = int((match[7] or "").ljust(9, "0"))
    return (moment.days * 86_400 + moment.seconds - offset) * SECOND + fraction


def parse_utc(text: str) -> int:
    """The moment of an RFC 3339 date-time, of one without offset (UTC), or midnight of a date (UTC).

    Raises ValueError, also after the year 9999, which rfc3339() could not print.
    """
    is_bare = _DATE.fullmatch(text)
    moment = parse_date(text) if is_bare else parse_rfc3339(text + "Z" if _WITHOUT_OFFSET.fullmatch(text) else text)
    try:
        rfc3339(moment)
    except OverflowError:
        raise ValueError(text) from None
    return moment


def parse_date(text: str) -> int:
    """Midnight UTC of a `YYYY-MM-DD`. Raises ValueError."""
    match = _DATE.fullmatch(text)
    if not match:
        raise ValueError(text)
    year, month, day = map(int, match.groups())
    return (datetime(year, month, day, tzinfo=timezone.utc) - _EPOCH).days * DAY
