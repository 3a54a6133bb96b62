"""Numbers in filters and sort expressions: parsed, and printed in messages (docs/filters-and-facets.md)."""
from __future__ import annotations

import math
import re
from decimal import Decimal

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch


def number_of(text: str) -> float | None:
    """The number that a text consists of; None when it is not a finite number."""
    number = float(text) if _NUMBER(text) else math.inf
    return number if math.isfinite(number) else None


def shown_number(number: float) -> str:
    """A number with the fewest digits that identify it, without exponent and without a final `.0`."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")
