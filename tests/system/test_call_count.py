"""How much code a warm search of two words runs through, over HTTP. What must hold:

1. It stays within so many modules of svcd.
2. It stays within so many calls of functions of svcd.

Both are ceilings, not goals: who needs more lifts them on purpose. `count_calls.py --verbose` tells where the calls are.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST_MODULES = 42
MOST_CALLS = 650


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    """Modules, functions and calls, counted in a process of its own, where nothing else has set a profile function."""
    script = Path(__file__).with_name("count_calls.py")
    counted = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=120)
    assert counted.returncode == 0, counted.stderr
    figures: dict[str, int] = json.loads(counted.stdout)
    return figures


def test_a_search_runs_through_few_modules(figures: dict[str, int]) -> None:
    assert figures["modules"] <= MOST_MODULES


def test_a_search_needs_few_calls(figures: dict[str, int]) -> None:
    assert figures["calls"] <= MOST_CALLS
