"""A daemon that may have few files open.

1. With 64 it answers every search over more indexes than it can have open, from one client or from many at once.
2. One request that needs more of them open at a time than there can be is told so, and the next one is answered.
3. With fewer than it needs it does not start, and says so in one line.
"""
from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.support.daemon import Daemon

FEW = 64
INDEXES = 24
CLIENTS = 24


def searched(daemon: Daemon, number: int) -> list[str]:
    reply = daemon.post(f"/indexes/i{number}/search", {"q": "kefir"})
    return [hit["title"] for hit in reply.json["hits"]] if reply.status == 200 else [f"{reply.status} {reply.code}"]


def test_more_indexes_than_descriptors_are_all_searched(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, most_files=FEW).start()
    try:
        for number in range(INDEXES):
            last = daemon.post(f"/indexes/i{number}/documents", [{"id": 1, "title": f"kefir {number}"}])
        daemon.done(last)
        expected = {number: [f"kefir {number}"] for number in range(INDEXES)}
        for _ in range(2):
            assert {number: searched(daemon, number) for number in range(INDEXES)} == expected
        queries = [{"indexUid": f"i{number}", "q": "kefir"} for number in range(INDEXES)]
        reply = daemon.call("POST", "/multi-search", json.dumps({"federation": {}, "queries": queries}))
        assert (reply.status, reply.code) == (422, "too_many_open_files")
        found: dict[int, list[str]] = {}
        clients = [threading.Thread(target=lambda number=number: found.update({number: searched(daemon, number)}))
                   for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert found == {number: expected[number] for number in range(CLIENTS)}
        assert daemon.bugs() == []
    finally:
        daemon.kill9()


def test_too_few_descriptors_prevent_the_start_with_a_clear_error(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, ["--max-indexing-threads", "1"], most_files=40)
    daemon.spawn()
    assert daemon.ended() == 1
    assert daemon.log.read_text().splitlines()[-1] == (
        "svcd: only 40 files may be open at once, and 51 are needed: raise the limit (`ulimit -n`, or `LimitNOFILE=` of "
        "the unit)")
    assert not daemon.data.exists()
