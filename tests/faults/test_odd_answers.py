"""tests/remote/test_odd_answers.py for as many answers as there is time, with other seeds: SVCD_FAULTS_SEED is the first."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.remote.test_odd_answers import CLIENTS, deaths, no_pauses, run  # noqa: F401 (fixtures)


@pytest.mark.parametrize("name", CLIENTS)
def test_every_answer_of_another_host_is_a_result_or_a_declared_error(name: str, seed: int, amount: Callable[[int, int], int]) -> None:
    for further in range(amount(1, 100)):
        run(name, seed + further, amount(20, 500))
