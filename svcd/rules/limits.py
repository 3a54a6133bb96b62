"""Limits on the work of a search for search rules, set by environment variables (docs/search-rules.md#limits)."""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_PREFIX = "SVC_EXPERIMENTAL_DSR_FUEL_"
_LARGEST = 2**64 - 1
_MOST_WORDS = 255  # highest value of the variable
_COUNTED_WORDS = 30  # maximum number of counted words; a higher value of the variable has the same effect


class Limits(NamedTuple):
    """The maximum work of a search for rules.

    counted_words: words of a query to look up. active_rules: rules in force. pin_actions: pinned documents.
    word_fuel, filter_fuel: combinations of words, and of filtered fields, to try.
    filter_or_fuel, filter_and_fuel: operands of a filter to expand. filter_depth_fuel: depth of nesting.
    """

    counted_words: int = 10
    active_rules: int = 1000
    pin_actions: int = 100
    word_fuel: int = 4096
    filter_fuel: int = 4096
    filter_or_fuel: int = 100
    filter_and_fuel: int = 100
    filter_depth_fuel: int = 25


# Variable without _PREFIX -> field.
_FIELDS = {
    "MAX_COUNTED_WORDS": "counted_words",
    "MAX_ACTIVE_RULES": "active_rules",
    "MAX_PIN_ACTIONS": "pin_actions",
    "WORD_FUEL": "word_fuel",
    "FILTER_FUEL": "filter_fuel",
    "FILTER_OR_FUEL": "filter_or_fuel",
    "FILTER_AND_FUEL": "filter_and_fuel",
    "FILTER_DEPTH_FUEL": "filter_depth_fuel",
}
VARIABLES = tuple(_PREFIX + name for name in _FIELDS)


def limits_of(environ: Mapping[str, str]) -> Limits:
    """Return the limits that environment variables set. Raises ValueError, with a message, for an invalid value."""
    given: dict[str, int] = {}
    for variable, field in zip(VARIABLES, _FIELDS.values()):
        text = environ.get(variable)
        if text is None:
            continue
        most = _MOST_WORDS if field == "counted_words" else _LARGEST
        digits = text.removeprefix("+")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LARGEST)) and int(digits) <= most):
            raise ValueError(f"{variable} is `{text}`, expected a whole number from 0 to {most}")
        given[field] = int(digits)
    limits = Limits(**given)
    return limits._replace(counted_words=min(limits.counted_words, _COUNTED_WORDS))
