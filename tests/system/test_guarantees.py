"""What must hold of the table that `make soak` prints, and of the page that tells what it showed:

1. Each figure that a test of tests/faults notes is a row; it has held when its test passed.
2. A test that failed or was skipped before it had measured anything is a row, too.
3. Short and long amounts go by SVCD_SOAK, the seed by SVCD_FAULTS_SEED.
4. `make soak` runs each module once.
5. docs/guarantees.md has a row for each module of tests/faults, and for no other.
"""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.faults.soak import FAULTS, PROPERTIES, runs, table

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_holds(figure, amount, seed):
    figure("how many", amount(2, 200), "files", limit="at most 300")
    figure("share", 1 / 3)
    assert seed == 7

def test_does_not_hold(figure):
    figure("so long", 1.5, "s", limit="under 1 s")
    assert False

def test_breaks_before(figure):
    raise ValueError("it broke")

@pytest.fixture
def absent():
    pytest.skip("not installed")

def test_needs_more(absent, figure):
    figure("never", 1)
"""


def test_soak_runs_each_module_once() -> None:
    modules = {f"{FAULTS}/{path.name}" for path in (ROOT / FAULTS).glob("test_*.py")}
    ran: list[str] = []
    for at_once in runs([FAULTS, "-k", "kill"]):
        for args in at_once:
            assert args[-2:] == ["-k", "kill"] or "--ignore" in args and "-k" in args
            if args[:len(PROPERTIES)] == [*PROPERTIES]:
                continue
            ignored = {args[n + 1] for n, each in enumerate(args) if each == "--ignore"}
            ran += modules - ignored if FAULTS in args else [each for each in args if each in modules]
    assert sorted(ran) == sorted(modules)
    assert runs(["tests/cluster", "-x"]) == [[["tests/cluster", "-x"]]]


def test_each_test_has_its_rows(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.faults.conftest import *\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SVCD_SOAK": "1", "SVCD_FAULTS_SEED": "7", "SVCD_FIGURES": str(tmp_path / "figures")}
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", tmp_path,
                          tmp_path], check=False, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in (tmp_path / "figures").read_text().splitlines()]
    assert table(rows) == """\
| promise            | limit       | measured                      | held    |
|--------------------|-------------|-------------------------------|---------|
| how many           | at most 300 | 200 files                     | yes     |
| share              |             | 0.3333                        | yes     |
| so long            | under 1 s   | 1.5 s                         | NO      |
| test_breaks_before |             | nothing: ValueError: it broke | NO      |
| test_needs_more    |             | skipped                       | skipped |"""


def test_the_page_of_guarantees_names_each_test_module() -> None:
    named = set(re.findall(r"\| `(test_\w+\.py)` \|$", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE))
    assert named == {path.name for path in (ROOT / "tests" / "faults").glob("test_*.py")}
