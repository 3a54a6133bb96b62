"""What users are handed, made once."""
from __future__ import annotations

from pathlib import Path

import pytest

from distribution import build


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.pyz(tmp_path_factory.mktemp("pyz"))


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package."""
    return build.debian(tmp_path_factory.mktemp("deb"))
