"""What must hold of a daemon that is killed at any moment, again and again, while all kinds of writes come in.

1. Right after the kill every database is sound: integrity_check, and that of FTS5.
2. What FTS5 holds is what the forward rows say, and the set of docids is that of the documents.
3. After the restart no acknowledged task is lost, and no uid was given twice.
4. Every task ends, and ends as a model of the writes predicts.
5. Documents, settings and statistics are what the model says; a canceled task left no trace.
6. When the queue is empty no upload and no file of an index is left over.
7. No reader ever sees an answer above 404, and the log speaks of no bug.

SVC_KILL_CYCLES=200 in the environment runs more than the usual few cycles, SVC_KILL_SEED=7 another history.
"""
from __future__ import annotations

import http.client
import os
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from svcd.base.docids import from_bytes
from svcd.index import fts_encoding
from svcd.index.schema import SHARED_COLUMN
from tests.support.daemon import Daemon, Reply
from tests.support.history import INDEXES, Model, Write, Writes

CYCLES = int(os.environ.get("SVC_KILL_CYCLES", "6"))
SEED = int(os.environ.get("SVC_KILL_SEED", "1"))
LONGEST_CYCLE_S = 0.6
ONCE_MORE = 0.35  # how often the restart is killed, too
TIDY_S = 5.0
PAGE = 5000


class Story:
    """A daemon, the writes it has acknowledged, and the model of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.daemon = Daemon(folder)
        self.writes = Writes(seed)
        self.model = Model()
        self.acknowledged: dict[int, Write] = {}  # by uid, as far as the model has not seen them
        self.unsure: Write | None = None  # sent when the daemon was killed
        self.newest = -1
        self.settled: dict[int, str] = {}  # uid -> status
        self.complaints: list[str] = []

    # Writing

    def write_until_killed(self) -> None:
        """Send writes one after the other; a timer kills the daemon meanwhile."""
        killer = threading.Timer(self.random.uniform(0.0, LONGEST_CYCLE_S), self.daemon.kill9)
        killer.start()
        with self._reader(), closing(http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=30)) as connection:
            try:
                while True:
                    self._send(connection)
            except (OSError, http.client.HTTPException):
                pass
        killer.join()

    def _send(self, connection: http.client.HTTPConnection) -> None:
        settled = [uid for uid in self.settled if uid not in self.model.forgotten]
        self.unsure = self.writes.next(self.newest, settled[-50:])
        headers = {"content-type": "application/json"} if self.unsure.body else {}
        connection.request(self.unsure.method, self.unsure.path, self.unsure.body, headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, {}, answer.read(), 0.0)
        if reply.status not in (200, 202):
            self.complaints.append(f"{reply.status} for {self.unsure.method} {self.unsure.path}: {reply.body!r}")
            return
        self._acknowledge(reply.json["taskUid"])

    def _acknowledge(self, uid: int) -> None:
        if uid <= self.newest:
            self.complaints.append(f"uid {uid} again, after {self.newest}")
        self.newest = uid
        assert self.unsure
        self.acknowledged[uid] = self.unsure
        self.unsure = None

    @contextmanager
    def _reader(self) -> Iterator[None]:
        """Somebody who searches and lists all the while."""
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                index = INDEXES[int(time.monotonic() * 1000) % len(INDEXES)]
                for path in (f"/indexes/{index}/search?q=alpha", f"/indexes/{index}/documents?limit=5", "/tasks?limit=5",
                             "/stats", f"/indexes/{index}/stats", "/batches?limit=3"):
                    self._read(path)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join()

    def _read(self, path: str) -> None:
        try:
            reply = self.daemon.call("GET", path)
        except (OSError, http.client.HTTPException):
            return
        if reply.status not in (200, 404):
            self.complaints.append(f"{reply.status} for {path}: {reply.body!r}")

    # Starting again

    def restart(self) -> None:
        """Start again; now and then that is killed, too, wherever it is."""
        while self.random.random() < ONCE_MORE:
            self.daemon.spawn()
            time.sleep(self.random.uniform(0.0, 0.4))
            self.daemon.kill9()
            check_files(self.daemon.data)
        self.daemon.start()

    def settle(self) -> None:
        """Let the queue run empty, and compare everything with the model."""
        self.daemon.drain()
        tasks = self._tasks(min(self.acknowledged, default=self.newest + 1))
        self._resolve(tasks)
        lost = [uid for uid in self.acknowledged if uid not in tasks]
        assert not lost, f"lost: {lost}"
        self.model.apply([(write, tasks[uid]) for uid, write in sorted(self.acknowledged.items())])
        self.settled |= {uid: tasks[uid]["status"] for uid in self.acknowledged}
        self.acknowledged.clear()
        assert self.model.wrong == [] and self.complaints == []
        self._compare_indexes()
        self._compare_folder()
        assert self.daemon.bugs() == []

    def _tasks(self, first: int) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        following: int | None = first
        while following is not None:
            page = self.daemon.get(f"/tasks?reverse=true&from={following}&limit={PAGE}")
            found |= {task["uid"]: task for task in page["results"]}
            following = page["next"]
        return found

    def _resolve(self, tasks: Mapping[int, Mapping[str, Any]]) -> None:
        """The request that was on its way when the daemon died may be a task or not; no other can be new."""
        unknown = [uid for uid in tasks if uid > self.newest]
        assert len(unknown) <= (self.unsure is not None), f"nobody asked for {[tasks[uid] for uid in unknown]}"
        for uid in unknown:
            self._acknowledge(uid)
        self.unsure = None

    def _compare_indexes(self) -> None:
        listed = {each["uid"]: each for each in self.daemon.get("/indexes?limit=100")["results"]}
        assert set(listed) == set(self.model.indexes)
        for uid, expected in self.model.indexes.items():
            shown = self.daemon.get(f"/indexes/{uid}/documents?limit=100000")["results"]
            assert {each["id"]: each for each in shown} == expected.documents and len(shown) == len(expected.documents), uid
            settings = self.daemon.get(f"/indexes/{uid}/settings")
            assert {name: settings[name] for name in expected.settings} == expected.settings
            assert self.daemon.get(f"/indexes/{uid}/stats")["numberOfDocuments"] == len(expected.documents)
            self._compare_search(uid, list(expected.documents.values()))

    def _compare_search(self, uid: str, documents: Sequence[Mapping[str, Any]]) -> None:
        assert self.daemon.get(f"/indexes/{uid}/search?limit=0")["estimatedTotalHits"] == len(documents)
        if documents:
            chosen = self.random.choice(documents)
            hits = self.daemon.get(f"/indexes/{uid}/search?q=%22{chosen['mark']}%22")["hits"]
            assert hits == [chosen]

    def _compare_folder(self) -> None:
        """Files go after the commit that ends their task, so they may be a moment late."""
        deadline = time.monotonic() + TIDY_S
        while self._leftovers():
            assert time.monotonic() < deadline, self._leftovers()
            time.sleep(0.01)

    def _leftovers(self) -> list[str]:
        files = sorted(path.name for path in (self.daemon.data / "indexes").glob("*.sqlite"))
        surplus = files if len(files) != len(self.model.indexes) else []
        return surplus + [path.name for path in (self.daemon.data / "payloads").iterdir()]


# The files, looked at while no daemon has them


def check_files(data: Path) -> None:
    """Copies of all databases, with their logs, are opened as a daemon would open them, and checked."""
    copies = data.parent / "copies"
    for path in [*data.glob("*.sqlite"), *data.glob("indexes/*.sqlite")]:
        copies.mkdir()
        for each in (path, path.with_name(path.name + "-wal")):
            if each.exists():
                shutil.copy(each, copies / each.name)
        try:
            with closing(sqlite3.connect(copies / path.name)) as connection:
                _check_database(connection, path)
        finally:
            shutil.rmtree(copies)


def _check_database(connection: sqlite3.Connection, path: Path) -> None:
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "terms" not in tables:
        return
    connection.execute("INSERT INTO terms(terms, rank) VALUES ('integrity-check', 0)")
    docids = [row[0] for row in connection.execute("SELECT docid FROM documents ORDER BY docid")]
    kept = connection.execute("SELECT value FROM meta WHERE key = 'docids'").fetchone()
    assert list(from_bytes(kept[0]) if kept else ()) == docids, path
    assert _occurrences(connection) == _forward(connection), path


def _occurrences(connection: sqlite3.Connection) -> set[tuple[int, str, int, str]]:
    connection.execute("CREATE VIRTUAL TABLE temp.every_word USING fts5vocab(main, terms, 'instance')")
    return set(connection.execute("SELECT doc, col, offset, term FROM temp.every_word"))


def _forward(connection: sqlite3.Connection) -> set[tuple[int, str, int, str]]:
    found = set()
    for docid, forward in connection.execute("SELECT docid, words FROM forward_index"):
        for column, row in fts_encoding.forward_rows(forward).items():
            assert column < SHARED_COLUMN
            found |= {(docid, f"c{column}", offset, term) for offset, term in enumerate(fts_encoding.column_text(row).split(" "))}
    return found


def test_a_daemon_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    story = Story(tmp_path, SEED)
    try:
        for cycle in range(CYCLES):
            story.daemon.start() if not cycle else None
            story.write_until_killed()
            check_files(story.daemon.data)
            story.restart()
            story.settle()
        assert story.daemon.stop() == 0
        check_files(story.daemon.data)
        print(f"{CYCLES} cycles, seed {SEED}: {len(story.settled)} tasks, "
              + ", ".join(f"{n} {status}" for status, n in sorted(_counts(story.settled.values()).items())))
    finally:
        story.daemon.kill9()


def _counts(statuses: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    return counts
