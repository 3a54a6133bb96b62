"""What must hold while many write and many read at once.

1. No answer is a 5xx, whoever writes meanwhile, and whatever appears, goes, or changes places.
2. A search or a list sees one state of an index: all documents of one write, none of another.
3. The words that are searched and the documents that are shown are of the same state.
4. A swap is seen whole.
5. In the end everything is as the last acknowledged writes say.
"""
from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from tests.support.daemon import Daemon

SECONDS = 3.0
DOCUMENTS = 40


class Crowd:
    """Threads that each repeat one thing for a while, and what they complain about."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._deadline = time.monotonic() + SECONDS
        self.complaints: list[str] = []
        self.version = 0

    def run(self, actions: Sequence[Callable[[Caller], None]]) -> None:
        threads = [threading.Thread(target=self._repeat, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, action: Callable[[Caller], None]) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._daemon.port, timeout=30)) as connection:
            caller = Caller(connection, self)
            try:
                while time.monotonic() < self._deadline and not self.complaints:
                    action(caller)
            except Exception as error:
                self.complaints.append(repr(error))
                raise

    # Writers

    def replace_all(self, caller: Caller) -> None:
        """Every document of `films` gets the next version, in one task."""
        self.version += 1
        caller.send("POST", "/indexes/films/documents", films(self.version))

    def swap(self, caller: Caller) -> None:
        caller.send("POST", "/swap-indexes", [{"indexes": ["left", "right"]}])

    def come_and_go(self, caller: Caller) -> None:
        caller.send("POST", "/indexes/guest/documents", films(0))
        caller.send("DELETE", "/indexes/guest", None)

    def change_settings(self, caller: Caller) -> None:
        caller.send("PUT", "/indexes/settled/settings/stop-words", ["the", f"w{time.monotonic_ns() % 7}"])

    # Readers

    def list_films(self, caller: Caller) -> None:
        self._one_state(caller.get("/indexes/films/documents?limit=1000")["results"])

    def search_films(self, caller: Caller) -> None:
        answer = caller.get("/indexes/films/search?limit=1000&q=film")
        self._one_state(answer["hits"])
        wanted = self.version
        hits = caller.get(f"/indexes/films/search?limit=1000&q=%22version{wanted}%22")["hits"]
        if hits:
            self._one_state(hits)
            assert hits[0]["version"] == wanted

    def _one_state(self, shown: Sequence[dict[str, Any]]) -> None:
        assert len(shown) == DOCUMENTS, len(shown)
        assert len({each["version"] for each in shown}) == 1

    def search_swapped(self, caller: Caller) -> None:
        hits = caller.get("/indexes/left/search?limit=1000&q=side")["hits"]
        assert len(hits) == DOCUMENTS and len({hit["side"] for hit in hits}) == 1

    def search_guest(self, caller: Caller) -> None:
        answer = caller.get("/indexes/guest/search?limit=1000&q=film")
        assert len(answer.get("hits", ())) in (0, DOCUMENTS)
        caller.get("/indexes/guest/stats")
        caller.get("/indexes/guest/documents")

    def search_settled(self, caller: Caller) -> None:
        self._one_state(caller.get("/indexes/settled/search?limit=1000&q=film")["hits"])

    def look_around(self, caller: Caller) -> None:
        for path in ("/stats", "/tasks?limit=50", "/batches?limit=20", "/indexes", "/tasks?statuses=processing"):
            caller.get(path)


class Caller:
    """One connection; answers that must not be are complained about."""

    def __init__(self, connection: http.client.HTTPConnection, crowd: Crowd) -> None:
        self._connection = connection
        self._crowd = crowd

    def send(self, method: str, path: str, value: Any) -> Any:
        headers = {"content-type": "application/json"} if value is not None else {}
        self._connection.request(method, path, json.dumps(value) if value is not None else None, headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status not in (200, 202, 404):
            self._crowd.complaints.append(f"{method} {path}: {answer.status} {body[:300]!r}")
        return json.loads(body)

    def get(self, path: str) -> Any:
        return self.send("GET", path, None)


def films(version: int) -> list[dict[str, Any]]:
    return [{"id": n, "version": version, "text": f"film version{version} number{n}"} for n in range(DOCUMENTS)]


def sides(side: str) -> list[dict[str, Any]]:
    return [{"id": n, "side": side, "text": f"a side called {side}"} for n in range(DOCUMENTS)]


def test_many_writers_and_readers_see_one_state_each(daemon: Daemon) -> None:
    for index, documents in (("films", films(0)), ("settled", films(0)), ("left", sides("left")), ("right", sides("right"))):
        daemon.post(f"/indexes/{index}/documents", documents)
    daemon.drain()
    crowd = Crowd(daemon)
    crowd.run([crowd.replace_all, crowd.swap, crowd.come_and_go, crowd.come_and_go, crowd.change_settings,
               crowd.list_films, crowd.search_films, crowd.search_swapped, crowd.search_guest, crowd.search_guest,
               crowd.search_settled, crowd.look_around])
    assert crowd.complaints == []
    daemon.drain()
    assert daemon.get("/indexes/films/documents?limit=1000")["results"] == films(crowd.version)
    assert daemon.get("/tasks?statuses=failed&types=documentAdditionOrUpdate,indexSwap,settingsUpdate")["total"] == 0
    log = daemon.log.read_text()
    assert "locked" not in log and daemon.bugs() == []
