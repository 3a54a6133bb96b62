"""A data folder whose tasks run in this process, one step after the other: fixtures for tests of routes that write."""
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
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


@cache
def _empty_folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="svcd-empty-")
    Instance(Path(folder.name)).close()
    Path(folder.name, "instance-uid").unlink()
    return folder


def new_instance(path: Path) -> Instance:
    """An instance in a new folder: a copy of an empty one. To make all tables takes three times as long, and longer than most tests."""
    shutil.copytree(_empty_folder().name, path, ignore=shutil.ignore_patterns("*-shm"), copy_function=shutil.copyfile,
                    dirs_exist_ok=True)
    return Instance(path)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = new_instance(tmp_path / "data.svcd")
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
