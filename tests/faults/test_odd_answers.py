"""tests/remote/test_odd_answers.py for as many answers as there is time, with other seeds: SVCD_FAULTS_SEED is the first."""
from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

import pytest

from tests.remote.test_odd_answers import CLIENTS, deaths, no_pauses, run  # noqa: F401 (fixtures)


@pytest.mark.parametrize("name", CLIENTS)
def test_every_answer_of_another_host_is_a_result_or_a_declared_error(name: str, seed: int, amount: Callable[[int, int], int],
                                                                      figure: Callable[..., None]) -> None:
    calls, end = amount(20, 500), time.monotonic() + amount(0, 60)
    for further in count():
        run(name, seed + further, calls)
        if time.monotonic() >= end:
            break
    figure(f"odd answers to {name}", f"no undeclared exception in {(further + 1) * calls} calls", limit="none")
