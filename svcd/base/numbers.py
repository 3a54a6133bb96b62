"""Numbers in filters, as they are read and as messages show them (relevance.md 5.4).

Knows which texts are numbers; refuses to know what they are for.
"""
from __future__ import annotations

import math
import re
from decimal import Decimal

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch


def number_of(text: str) -> float | None:
    """The finite number that a text is as a whole; None when it is none."""
    number = float(text) if _NUMBER(text) else math.inf
    return number if math.isfinite(number) else None


def shown_number(number: float) -> str:
    """A number with the fewest digits that tell it, never with an exponent or a lone `.0`."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")
