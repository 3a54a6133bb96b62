"""Helpers of tests of the data folder."""
from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from svcd.instance.instance import Instance


def unlock(instance: Instance) -> None:
    """Give the folder up as the kernel does for a killed daemon: without closing any file."""
    fcntl.flock(instance.lock_descriptor, fcntl.LOCK_UN)


def execute(instance: Instance, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """Run a statement on instance.sqlite over a connection of its own; its rows."""
    with closing(sqlite3.connect(instance.path / "instance.sqlite", isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()
