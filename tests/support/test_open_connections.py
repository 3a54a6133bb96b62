"""What must hold of the watch over SQLite connections, which fails a module of tests that leaves one open:

1. A connection is known, with the place that opened it, until it is closed; also one of a class of its own.
2. What is held until the end of a test is closed then.
"""
from __future__ import annotations

import sqlite3
from pathlib import Path

from svcd.index.connections import FullDiskReader
from tests.support import open_connections


def opened_since(before: dict[int, str]) -> list[str]:
    return [place for number, place in open_connections.unclosed().items() if number not in before]


def test_1_a_connection_is_known_until_it_is_closed() -> None:
    before = open_connections.unclosed()
    connections = [sqlite3.connect(":memory:"), sqlite3.connect(":memory:", factory=FullDiskReader)]
    assert isinstance(connections[1], FullDiskReader)
    with connections[0]:  # ends a transaction, not the connection
        pass
    assert [place.partition(":")[0] for place in opened_since(before)] == [str(Path(__file__).relative_to(open_connections.ROOT))] * 2
    for connection in connections:
        connection.close()
    assert not opened_since(before)


def test_2_what_is_held_is_closed() -> None:
    before = open_connections.unclosed()
    open_connections.until_the_end_of_the_test(sqlite3.connect(":memory:"))
    assert len(opened_since(before)) == 1
    open_connections.close_held()
    assert not opened_since(before)
