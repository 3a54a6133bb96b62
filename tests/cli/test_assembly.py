"""What the options become when the parts are put together."""
from __future__ import annotations

import os
import signal
from dataclasses import astuple
from pathlib import Path

import pytest

from svcd.cli import daemon, machine
from svcd.cli.config import load
from svcd.tasks.indexing import Budget


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_indexing_has_its_usual_budget_where_memory_is_plenty() -> None:
    assert daemon._budget(None, 1) == daemon._budget(8 << 30, 4) == Budget()


def test_less_memory_is_a_smaller_budget_of_the_same_shape() -> None:
    full, small = astuple(Budget()), astuple(daemon._budget(50 << 20, 1))
    assert all(0 < less < part for less, part in zip(small, full, strict=True))
    assert small[0] / small[1] == pytest.approx(full[0] / full[1], rel=0.01)


def test_each_indexing_process_has_its_part_of_the_memory() -> None:
    assert daemon._budget(100 << 20, 2) == daemon._budget(50 << 20, 1)


def test_a_budget_never_vanishes() -> None:
    assert all(part > 64 << 10 for part in astuple(daemon._budget(0, 4)))


def test_threads_hold_running_and_waiting_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 2)
    given = {"experimental_nb_searches_per_core": "3", "experimental_search_queue_size": "10"}
    assert daemon._threads(load(given, {})) == 2 * 3 + 10 + daemon.OTHER_THREADS
    huge = load({"experimental_search_queue_size": "1000000"}, {})
    assert daemon._threads(huge) == 2 * 4 + daemon.MOST_WAITING_THREADS + daemon.OTHER_THREADS


@pytest.mark.parametrize("number", daemon.STOP_SIGNALS)
def test_a_signal_stops_once(number: int) -> None:
    stops: list[str] = []
    with daemon.StopSignals() as signals:
        signals.call(lambda: stops.append("stopped"))
        os.kill(os.getpid(), number)
    assert stops == ["stopped"]


def test_a_signal_before_the_server_is_there_is_not_lost() -> None:
    stops: list[str] = []
    with daemon.StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        signals.call(lambda: stops.append("stopped"))
    assert stops == ["stopped"]


def test_a_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(daemon.os, "_exit", ends.append)
    with daemon.StopSignals():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    assert ends == [128 + signal.SIGTERM]


def test_signals_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in daemon.STOP_SIGNALS]
    with daemon.StopSignals():
        pass
    assert [signal.getsignal(number) for number in daemon.STOP_SIGNALS] == before


@pytest.mark.parametrize(("limits", "raised"), [
    ((1024, 4096), [(4096, 4096)]), ((1024, 1 << 30), [(daemon.MOST_FILES, 1 << 30)]), ((4096, 4096), []),
    ((100_000, 100_000), []),
])
def test_the_limit_of_open_files_is_raised(
    limits: tuple[int, int], raised: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(daemon.resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(daemon.resource, "setrlimit", lambda _which, both: given.append(both))
    daemon._allow_many_files()
    assert given == raised
