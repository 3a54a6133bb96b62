"""What tests of the examples share: daemons with what the examples are about, and npm's packages."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemon import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder with the packages that examples/package.json names."""
    folder = EXAMPLES / "node_modules"
    if not (folder / "meilisearch").is_dir():
        pytest.skip("the packages of examples/package.json are not installed: `make examples` does that")
    return folder
