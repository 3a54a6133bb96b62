"""A data folder whose tasks run in this process, one step after the other: fixtures for tests of routes that write."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.instance.instance import Instance
from svcd.tasks import indexing
from svcd.tasks.runner import Runner


class LocalWriter:
    """Writes batches in this process."""

    def run(self, request: dict[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
        return indexing.handle_request(request, progress)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data.svcd")
    yield opened
    opened.close()


@pytest.fixture
def work(instance: Instance) -> Callable[[], None]:
    """work() runs all enqueued tasks."""
    runner = Runner(instance, make_writer=lambda _: LocalWriter())

    def run() -> None:
        while runner.step():
            pass

    return run
