"""The programs with the existing clients do what they say, both the same, also where a key is needed."""
from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT, running

MASTER_KEY = "a-master-key-of-some-length"
PRINTED = """\
star wras: Star Wars, A Star Is Born
before 1970: Seven Samurai (1954), A Star Is Born (1954), The Wizard of Oz (1939), Metropolis (1927)
their genres: Action 1, Drama 3, Fantasy 1, Musical 2, Science fiction 1
genres like sci: Science fiction 6
"""


def check(folder: Path, *command: str) -> None:
    """Run a program twice against one daemon that wants a key: documents have ids, so the second time changes nothing."""
    with running(folder, "--master-key", MASTER_KEY) as daemon:
        for _ in range(2):
            ran = subprocess.run([*command, f"http://127.0.0.1:{daemon.port}", MASTER_KEY], cwd=ROOT, capture_output=True, text=True,
                                 timeout=60, check=False)
            assert (ran.returncode, ran.stdout, ran.stderr) == (0, PRINTED, "")
        assert daemon.bugs() == []


def test_python(tmp_path: Path) -> None:
    if importlib.util.find_spec("meilisearch") is None:
        pytest.skip("the client is an extra of development: `make test` installs it")
    check(tmp_path, sys.executable, "examples/python_client.py")


def test_javascript(tmp_path: Path, node_modules: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    check(tmp_path, "node", "examples/javascript_client.mjs")
