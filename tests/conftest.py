"""What tests of more than one package share: a daemon in a process of its own."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon import Daemon, running


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for the tests of one file. Its log must not speak of a bug when they have ended."""
    with running(tmp_path_factory.mktemp("daemon")) as started:
        yield started
        assert started.bugs() == []
