"""The limits that environment variables set: their defaults, their bounds, and that the start checks them."""
from __future__ import annotations

import pytest

from svcd.cli import options
from svcd.cli.config import ConfigError, load
from svcd.rules.values import VARIABLES, Limits, limits_of

WORDS, FUEL = "SVC_EXPERIMENTAL_DSR_FUEL_MAX_COUNTED_WORDS", "SVC_EXPERIMENTAL_DSR_FUEL_WORD_FUEL"


def test_each_limit_has_a_variable() -> None:
    assert VARIABLES == options.RULE_VARIABLES
    assert limits_of(dict.fromkeys(VARIABLES, "7")) == Limits(*[7] * len(Limits._fields))
    assert limits_of({}) == Limits()


@pytest.mark.parametrize("text, counted", [("0", 0), ("30", 30), ("255", 30)])
def test_at_most_30_words_are_counted(text: str, counted: int) -> None:
    assert limits_of({WORDS: text}).counted_words == counted


@pytest.mark.parametrize("variable, text", [(WORDS, "256"), (WORDS, "-1"), (FUEL, "many"), (FUEL, ""), (FUEL, "1.5"), (FUEL, "9" * 30)])
def test_a_value_that_is_none_stops_the_start(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        load({}, {variable: text})
