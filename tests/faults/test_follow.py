"""What must hold of programs that follow the changes of an index while the daemon is killed at any moment, again and again:

1. A follower that replays random writes has an equal index after each kill, and so has one that gets no documents.
2. It reads everything again only after its index was swapped or deleted.
"""
from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.follower import Follower, everything, random_writes

pytestmark = pytest.mark.slow

WRITES = 60, 10_000  # short and long
PER_KILL = 25, 250  # writes, on average


def test_a_follower_has_an_equal_index_after_each_kill(tmp_path: Path, amount: Callable[[int, int], int], seed: int,
                                                       figure: Callable[..., None], bytecode: Mapping[str, str]) -> None:
    chance = random.Random(seed)
    daemon = Daemon(tmp_path, ["--changes-keep", "3600"], variables=bytecode).start()

    def get(path: str) -> tuple[int, str]:
        reply = daemon.call("GET", path)
        return reply.status, reply.body.decode()

    follower, sent, kills, others, writes = Follower(get, "films"), 0, 0, 0, random_writes(chance)
    method, path, body = next(writes)
    try:
        while sent < amount(*WRITES):
            daemon.call("PATCH", "/experimental-features", '{"editDocumentsByFunction": true}')
            killer = threading.Timer(chance.uniform(0.0, 0.6), daemon.kill9)
            killer.start()
            try:
                for _ in range(chance.randrange(1, 2 * amount(*PER_KILL))):
                    others += path == "/swap-indexes" or (method, path) == ("DELETE", "/indexes/films")
                    daemon.call(method, path, None if body is None else json.dumps(body))  # again, if it was killed meanwhile
                    sent, (method, path, body) = sent + 1, next(writes)
                    if chance.random() < 0.1:
                        follower.catch_up()
            except (OSError, http.client.HTTPException):
                pass
            killer.join()
            kills += 1
            daemon.start()
            daemon.drain()
            follower.catch_up()
            assert follower.documents == {str(each["id"]): each for each in everything(get, "/indexes/films")}
            assert follower.ids == set(follower.documents)
            assert follower.reread <= others
    finally:
        daemon.kill9()
    figure("a follower that replays random writes, with a kill -9 now and then, has an equal index",
           f"after each of {kills} kills in {sent:,} writes; everything was read again {follower.reread} times", limit="always")
    assert daemon.bugs() == []
