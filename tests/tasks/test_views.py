"""What must hold of the views of batches:

1. Durations are shown in the largest unit of which there is at least one, with two decimals.
"""
from __future__ import annotations

import pytest

from svcd.tasks.views import duration_text, parse_duration


@pytest.mark.parametrize(("nanoseconds", "text"), [
    (0, "0.00ns"), (999, "999.00ns"), (1_230, "1.23µs"), (4_560_000, "4.56ms"), (7_890_000_000, "7.89s"),
])
def test_a_duration_has_two_decimals_of_its_unit(nanoseconds: int, text: str) -> None:
    assert duration_text(nanoseconds) == text
    assert parse_duration(text) == nanoseconds
