"""Helpers of tests of the data folder."""
from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from svcd.index.connections import open_writer
from svcd.instance.instance import Instance


def unlock(instance: Instance) -> None:
    """Give the folder up as the kernel does for a killed daemon: without closing any file."""
    fcntl.flock(instance.lock_descriptor, fcntl.LOCK_UN)


def execute(instance: Instance, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """Run a statement on instance.sqlite over a connection of its own; its rows."""
    with closing(open_writer(instance.path / "instance.sqlite")) as connection:
        return connection.execute(sql, values).fetchall()


def sql_steps(instance: Instance, ask: Callable[[], object]) -> int:
    """Return how many hundred steps SQLite takes in the reads of instance.sqlite that `ask` makes."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with instance.read_instance() as connection:
        connection.set_progress_handler(count, 100)
    ask()
    with instance.read_instance() as connection:
        connection.set_progress_handler(None, 0)
    return steps
