"""What the tests of this folder share: how much of a thing to do, and where they note what they measured.

Each is short in every run, and long with SVCD_SOAK=1 in the environment, as `make soak` runs them. Rows are appended as JSON lines to
the file that SVCD_FIGURES names; without it they are dropped. A row has held when its test passed; a test that failed or was skipped
before it had measured anything has a row of its own, so that none is missing from the table.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

IS_LONG = os.environ.get("SVCD_SOAK") == "1"
_ROWS = pytest.StashKey[list[dict[str, Any]]]()


@pytest.fixture(scope="session")
def amount() -> Callable[[int, int], int]:
    """amount(short, long) -> the number for this run: of kills, states, clients, seconds."""
    return lambda short, long: long if IS_LONG else short


@pytest.fixture
def seed() -> int:
    """What random runs begin with: SVCD_FAULTS_SEED, or else always the same. It is shown when the test fails."""
    chosen = int(os.environ.get("SVCD_FAULTS_SEED", "1"))
    print(f"SVCD_FAULTS_SEED={chosen}")
    return chosen


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """figure(promise, measured, unit, limit=) notes one row of the table. Assert it afterwards: noting checks nothing.

    promise: what is promised, in a few words; limit: the bound with its unit, as people read it: `under 160 MB`.
    """
    rows = request.node.stash.setdefault(_ROWS, [])

    def note(promise: str, measured: float | str, unit: str = "", *, limit: str = "") -> None:
        shown = measured if isinstance(measured, str) else f"{measured:.4g}" if isinstance(measured, float) else str(measured)
        rows.append({"promise": promise, "limit": limit, "measured": f"{shown} {unit}".strip()})
        print(f"{promise}: {rows[-1]['measured']}" + (f" ({limit})" if limit else ""))

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The rows of a test go into the file when its end is known."""
    report: Any = yield
    if report.when == "call" or not report.passed:
        rows = item.stash.setdefault(_ROWS, [])
        if not report.passed and not rows:
            failure = call.excinfo.exconly().partition("\n")[0] if call.excinfo else ""
            rows.append({"promise": item.name, "limit": "", "measured": "skipped" if report.skipped else f"nothing: {failure[:100]}"})
        _write([{**row, "outcome": report.outcome, "test": item.nodeid} for row in rows])
        rows.clear()
    return report


def _write(rows: list[dict[str, Any]]) -> None:
    if path := os.environ.get("SVCD_FIGURES"):
        with Path(path).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
