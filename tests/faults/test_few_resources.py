"""A daemon that may have few files open, and one that can start neither threads nor processes.

1. With 64 files it answers every search over more indexes than it can have open, from one client or from many at once.
2. One request that needs more of them open at a time than there can be is told so, and the next one is answered.
3. With fewer than it needs it does not start, and says so in one line.
4. Without a further thread or process it answers all searches, accepts writes, and does them once it can start a process again.
"""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
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


# While the file exists, the system refuses threads and processes, as with `ulimit -u` or a limit of a cgroup (which does not bind root).
PRELUDE = """
import os, subprocess, threading
start_thread, start_process = threading.Thread.start, subprocess.Popen.__init__
def refuse_thread(*args):
    if os.path.exists("none"):
        raise RuntimeError("can't start new thread")
    return start_thread(*args)
def refuse_process(*args, **kwargs):
    if os.path.exists("none"):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return start_process(*args, **kwargs)
threading.Thread.start, subprocess.Popen.__init__ = refuse_thread, refuse_process
"""


def test_without_threads_and_processes_searches_go_on(tmp_path: Path, figure: Callable[..., None]) -> None:
    documents = [{"id": number, "title": f"kefir {number}", "text": "milk " * 200} for number in range(2000)]
    first = Daemon(tmp_path).start()
    first.done(first.post("/indexes/i0/documents", documents))
    assert first.stop() == 0
    daemon = Daemon(tmp_path, prelude=PRELUDE).start()
    try:
        daemon.get("/indexes/i0/search?q=kefir")
        daemon.done(daemon.post("/swap-indexes", []))  # the runner has started, too, and no process
        (tmp_path / "none").touch()
        answered: list[int] = []
        clients = [threading.Thread(target=lambda number=number: answered.append(
            daemon.post("/indexes/i0/search", {"q": f"kefir {number}"}).status)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert answered == [200] * CLIENTS
        assert len(daemon.get("/indexes/i0/documents?limit=20")["results"]) == 20
        accepted = daemon.post("/indexes/i0/documents", [{"id": 5000, "title": "skyr"}])
        assert accepted.status == 202
        assert len(daemon.get("/indexes/i0/documents?limit=2000")["results"]) == 2000  # else delivered by a thread of its own
        assert daemon.get("/health") == {"status": "available"}
        (tmp_path / "none").unlink()
        begin = time.monotonic()
        assert daemon.done(accepted)["status"] == "succeeded"
        figure("a write is done after processes can be started again", time.monotonic() - begin, "s", limit="under 10 s")
        assert len(daemon.get("/indexes/i0/documents?limit=2001")["results"]) == 2001
    finally:
        daemon.kill9()
