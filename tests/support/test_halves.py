"""The two processes of the whole suite. What must hold:

1. Tests of both are counted, shown and decide on the exit status, as in one run; options count in both.
2. A second process that dies is a failure, and what it said is shown.
3. Who names paths has one process.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import halves

TESTS = {
    "tests/system/test_here.py": "import os\ndef test_it_waits(): assert 'beside' not in os.environ\n",
    "tests/text/test_beside.py": """
import os, pytest
def test_it_computes(): assert os.getppid() != int(os.environ["ABOVE"])
def test_it_fails(): print("some words"); assert [1] == [2]
def test_it_is_skipped(): pytest.skip("why")
def test_it_dies(): os.environ["DIES"] == "1" and os._exit(3)
""",
    "tests/text/test_skipped.py": "import pytest\npytest.importorskip('nothing_like_this')\n",
    "tests/conftest.py": "import halves\ndef pytest_sessionstart(session): halves.split(session.config)\n",
    "halves.py": Path(halves.__file__).read_text(),
    "pytest.ini": "[pytest]\ntestpaths = tests\naddopts = --import-mode=importlib -ra -p no:cacheprovider -p no:hypothesispytest\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in TESTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(project: Path, *args: str, dies: bool = False) -> tuple[int, str]:
    """The exit status of pytest, and what it printed."""
    environ = {**os.environ, "PYTHONPATH": str(project), "DIES": str(int(dies)), "ABOVE": str(os.getpid())}
    ended = subprocess.run([sys.executable, "-m", "pytest", *args], cwd=project, env=environ, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_both_report_as_one(project: Path) -> None:
    status, said = run(project)
    assert status == 1
    assert "collected 1 item\n" in said and said.count("tests/text/test_beside.py .Fs.") == 1
    assert "assert [1] == [2]" in said and "some words" in said
    assert "SKIPPED [1] tests/text/test_beside.py:5: why" in said and "SKIPPED [1] tests/text/test_skipped.py:2: could not import" in said
    assert "FAILED tests/text/test_beside.py::test_it_fails" in said
    assert "1 failed, 3 passed, 2 skipped in " in said.splitlines()[-1]


def test_a_second_process_that_dies_is_a_failure(project: Path) -> None:
    status, said = run(project, "-k", "not fails", dies=True)
    assert status == 1 and "the second process, which said this, ended with status 3" in said
    assert "collected 4 items / 1 deselected" in said  # its own words: options count in both


def test_named_paths_have_one_process(project: Path) -> None:
    status, said = run(project, "tests/text", "-k", "dies or computes")
    assert status == 1 and "1 failed, 1 passed, 1 skipped, 2 deselected" in said, said
