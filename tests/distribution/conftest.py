"""What users are handed, made once."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from distribution import build
from tests.support.daemon import ROOT

OFFLINE = re.compile(r"Failed to establish a new connection|NameResolutionError|Temporary failure in name resolution|"
                     r"Network is unreachable|Connection (refused|timed out)|ProxyError")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package."""
    return build.debian(tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="session")
def release_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all targets."""
    folder = tmp_path_factory.mktemp("files")
    build_apart(folder, "1")
    return folder


def build_apart(folder: Path, seed: str, *targets: str) -> None:
    """Build in a process of its own. seed: of the order of sets."""
    run([sys.executable, "-m", "distribution.build", "--into", str(folder), *targets],
        {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": f"{folder}-home"})


def run_pip(command: Sequence[str], **variables: str) -> None:
    """Run pip with further variables."""
    # With the sources in PYTHONPATH pip would take svcd for installed.
    run(command, {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **variables})


def run(command: Sequence[str], environ: dict[str, str]) -> None:
    """Run what calls pip; skips the test where pip cannot reach its registry."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environ)
    if ran.returncode and OFFLINE.search(ran.stderr):
        pytest.skip("pip cannot reach its registry")
    assert ran.returncode == 0, ran.stderr
