"""How much a search may do for search rules: limits that environment variables set (docs/search-rules.md#limits)."""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_PREFIX = "SVC_EXPERIMENTAL_DSR_FUEL_"
_LARGEST = 2**64 - 1
_MOST_WORDS = 255  # that the variable may ask for
_COUNTED_WORDS = 30  # that are counted at most, whatever it says


class Limits(NamedTuple):
    """The most that a search does for rules.

    counted_words: words of a query that are looked up. active_rules: rules in force. pin_actions: pinned documents.
    word_fuel, filter_fuel: combinations of words, and of filtered fields, that are tried.
    filter_or_fuel, filter_and_fuel: operands of a filter that are looked at; filter_depth_fuel: how deep they may be nested.
    """

    counted_words: int = 10
    active_rules: int = 1000
    pin_actions: int = 100
    word_fuel: int = 4096
    filter_fuel: int = 4096
    filter_or_fuel: int = 100
    filter_and_fuel: int = 100
    filter_depth_fuel: int = 25


# Variable without its beginning -> field.
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
    """The limits that environment variables set. Raises ValueError, with a message, for a value that is none."""
    given = {_PREFIX + name: field for name, field in _FIELDS.items() if _PREFIX + name in environ}
    limits = Limits(**{field: _number(variable, environ[variable]) for variable, field in given.items()})
    return limits._replace(counted_words=min(limits.counted_words, _COUNTED_WORDS))


def _number(variable: str, text: str) -> int:
    most = _MOST_WORDS if variable.endswith("MAX_COUNTED_WORDS") else _LARGEST
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LARGEST)) and int(digits) <= most):
        raise ValueError(f"{variable} is `{text}`, expected a whole number from 0 to {most}")
    return int(digits)
