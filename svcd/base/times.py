"""Moments and durations as texts of the interface.

A moment is a number of nanoseconds since 1970 (UTC), a duration a number of nanoseconds.
"""
from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

SECOND = 1_000_000_000
MICROSECOND = 1000
DAY = 86_400 * SECOND
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:([Zz])|([+-])(\d\d):(\d\d))"
)
_WITHOUT_OFFSET = re.compile(r"[0-9-]{10}[T ][0-9:]{8}")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
