"""What must hold of a daemon whose processes are killed at any moment, again and again, while all kinds of writes come in.

1. Right after the kill every database is sound: integrity_check, and that of FTS5.
2. What an index holds, every bitmap of it included, is what one holds that is made afresh from its documents.
3. After the restart no acknowledged task is lost, and no uid was given twice.
4. Every task ends, and ends as a model of the writes predicts; where only the indexing process was killed, the tasks of its batch
   may fail, and then have no effect.
5. Documents, vectors, settings and statistics are what the model says; a canceled task left no trace.
6. When the queue is empty no upload, no file of an index and no unfinished dump is left over, and every dump is whole.
7. No reader ever sees an answer above 404, and the log speaks of no bug.
8. A second after its start the daemon searches again, with a large index among its files: 36,273 films in the long form.

The victim is the daemon alone, whose processes then end by themselves, or all processes at once. Before that the indexing process
or a search worker may have been killed alone. The start that follows is killed as well now and then.
"""
from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import rebuilt
from tests.support.daemon import Daemon, Reply
from tests.support.history import DIED, INDEXES, LARGE, VECTORS, Model, Write, Writes
from tests.support.pace import is_within
from tests.support.shared_material import SHARED
from tests.support.verification import found_faults

pytestmark = pytest.mark.slow

KILLS = 5, 500  # short and long
DOCUMENTS = 4200  # of the large index in the short form: enough for materialized postings
FILMS = SHARED / "data" / "movies.ndjson.gz"
LONGEST_CYCLE_S = 0.6
ONCE_MORE = 0.35  # how often the restart is killed, too
ALONE = {"svcd.tasks.indexing_process": 0.35, "svcd.cli.search_worker": 0.15, "svcd.cli.fork_server": 0.05}  # how often one of these is killed alone
ALL_AT_ONCE = 0.5
FULL_CHECKS = 6  # of the large index, each of which takes seconds
READY_S = 30, 1  # short, where other work may keep the machine, and long
TIDY_S = 5.0
PAGE = 5000


class Story:
    """A daemon, the writes it has acknowledged, and the model of them."""

    def __init__(self, folder: Path, seed: int, large: Sequence[Mapping[str, Any]], bytecode: Mapping[str, str]) -> None:
        """large: the documents of the large index, with identifiers from 1. bytecode: variables of all processes."""
        self.random = random.Random(seed)
        self.daemon = Daemon(folder, ["--search-workers", "1"], variables=bytecode)  # compiled, as an installation is
        self.writes = Writes(seed, len(large))
        self.kills = 0
        self.ready_s: list[float] = []  # after each start, until the first search was answered
        self.model = Model()
        self.acknowledged: dict[int, Write] = {}  # by uid, as far as the model has not seen them
        self.unsure: Write | None = None  # sent when the daemon was killed
        self.newest = -1
        self.settled: dict[int, str] = {}  # uid -> status
        self.complaints: list[str] = []

        self._large = large

    def begin(self) -> None:
        """Start the daemon with the two indexes that stay."""
        self.daemon.start()
        with closing(http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)) as connection:
            for write in self.writes.first():
                self._send_write(connection, write)
            documents = json.dumps(self._large)
            self._send_write(connection, Write("documentAdditionOrUpdate", "POST", f"/indexes/{LARGE}/documents", documents, LARGE,
                                               self._large))
        self.settle()

    # Writing

    def write_until_killed(self) -> None:
        """Send writes one after the other; a timer kills processes meanwhile, the daemon as the last."""
        moment = self.random.uniform(0.0, LONGEST_CYCLE_S)
        alone = [(module, self.random.uniform(0.0, moment)) for module, share in ALONE.items() if self.random.random() < share]
        killers = [threading.Timer(moment, self.kill), *(threading.Timer(at, self._kill_alone, [module]) for module, at in alone)]
        for killer in killers:
            killer.start()
        with self._reader(), closing(http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=30)) as connection:
            try:
                while True:
                    self._send(connection)
            except (OSError, http.client.HTTPException):
                pass
        for killer in killers:
            killer.join()

    def kill(self) -> None:
        """Kill the daemon alone, or all its processes at once."""
        if self.random.random() < ALL_AT_ONCE:
            self._kill_alone("")
        self.daemon.kill9()
        self.kills += 1

    def _kill_alone(self, module: str) -> None:
        pids = self.daemon.children(module) if module else self.daemon.pids
        self.random.shuffle(pids)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.kills += bool(module and pids)

    def _send(self, connection: http.client.HTTPConnection) -> None:
        settled = [uid for uid in self.settled if uid not in self.model.forgotten]
        self._send_write(connection, self.writes.next(self.newest, settled[-50:]))

    def _send_write(self, connection: http.client.HTTPConnection, write: Write) -> None:
        self.unsure = write
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
                for path in (f"/indexes/{index}/search?q=alpha", f"/indexes/{LARGE}/search?q=a&limit=3", f"/indexes/{index}/documents?limit=5", "/tasks?limit=5",
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
            self.kill()
            check_files(self.daemon.data)
        begin = time.monotonic()
        self.daemon.start()
        self.daemon.get(f"/indexes/{LARGE}/search?q=star&limit=1")
        self.ready_s.append(time.monotonic() - begin)

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
        assert self.daemon.bugs(DIED) == []

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
            self._compare_documents(uid, expected.documents)
            settings = self.daemon.get(f"/indexes/{uid}/settings")
            assert {name: settings[name] for name in expected.settings} == expected.settings
            assert self.daemon.get(f"/indexes/{uid}/stats")["numberOfDocuments"] == len(expected.documents)
            self._compare_search(uid, [each for each in expected.documents.values() if "mark" in each])
        self._compare_vectors(self.model.indexes[VECTORS].vectors)

    def _compare_documents(self, uid: str, expected: Mapping[int, Mapping[str, Any]]) -> None:
        if uid == LARGE:
            chosen = self.random.sample(sorted(expected), 200)
            reply = self.daemon.post(f"/indexes/{uid}/documents/fetch", {"ids": chosen, "limit": len(chosen)})
            assert {each["id"]: each for each in reply.json["results"]} == {each: expected[each] for each in chosen}
            return
        shown = self.daemon.get(f"/indexes/{uid}/documents?limit=100000")["results"]
        assert {each["id"]: each for each in shown} == expected and len(shown) == len(expected), uid

    def _compare_vectors(self, expected: Mapping[int, Sequence[float]]) -> None:
        shown = self.daemon.get(f"/indexes/{VECTORS}/documents?limit=100000&retrieveVectors=true")["results"]
        assert {each["id"]: each["_vectors"]["e"]["embeddings"] for each in shown} == {n: [each] for n, each in expected.items()}

    def _compare_search(self, uid: str, documents: Sequence[Mapping[str, Any]]) -> None:
        if uid != LARGE:
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
        archives = [*self.daemon.folder.glob("dumps/.*"), *self.daemon.folder.glob("snapshots/.*")]
        return surplus + [path.name for path in (*archives, *(self.daemon.data / "payloads").iterdir())]

    def check_archives(self) -> None:
        """Each dump and snapshot under its name is whole."""
        for path in [*self.daemon.folder.glob("dumps/*"), *self.daemon.folder.glob("snapshots/*")]:
            with gzip.open(path) as archive:
                while archive.read(1 << 20):
                    pass
            path.unlink()


# The files, looked at while no daemon has them


def check_files(data: Path, is_full: bool = False) -> None:
    """A copy of the folder, with its logs, is opened as a daemon would open it, and checked.

    is_full: compare the large index with one that is made afresh, too.
    """
    copy = data.parent / "copy"
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*-shm", "reserve"))
    try:
        with closing(sqlite3.connect(copy / "instance.sqlite")) as connection:
            indexes = dict(connection.execute("SELECT uuid, uid FROM indexes"))
        for path in [copy / "instance.sqlite", *copy.glob("indexes/*.sqlite")]:
            with closing(sqlite3.connect(path)) as connection:
                is_index = _check_database(connection, path)
            if is_index and indexes.get(path.stem) != LARGE:
                assert rebuilt.differences(path, copy) == [], path
                for left in copy.glob("rebuilt.*"):
                    left.unlink()
        if is_full:
            assert not any(found_faults(copy, is_full=True).values())
    finally:
        shutil.rmtree(copy)


def _check_database(connection: sqlite3.Connection, path: Path) -> bool:
    """Is it the file of an index?"""
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "terms" not in tables:
        return False
    for table in ("terms", "term_positions"):
        connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 0)")
    return True


def _documents(is_long: bool) -> list[dict[str, Any]]:
    """Those of the large index."""
    if is_long and FILMS.exists():
        with gzip.open(FILMS) as lines:
            return [json.loads(line) for line in lines]
    count = 36_000 if is_long else DOCUMENTS
    return [{"id": n, "title": f"star {n % 97} of {n % 13}", "year": 1900 + n % 100, "genres": [f"g{n % 7}"]} for n in range(1, count + 1)]


def test_a_daemon_that_is_killed_again_and_again_loses_nothing(tmp_path: Path, amount: Callable[[int, int], int], seed: int,
                                                               bytecode: Mapping[str, str], figure: Callable[..., None]) -> None:
    wanted, ready_s = amount(*KILLS), amount(*READY_S)
    story = Story(tmp_path, seed, _documents(wanted == KILLS[1]), bytecode)
    try:
        story.begin()
        full_checks = 0
        while story.kills < wanted:
            story.write_until_killed()
            is_full = story.kills * FULL_CHECKS > full_checks * KILLS[1]
            full_checks += is_full
            check_files(story.daemon.data, is_full)
            story.restart()
            story.settle()
            story.check_archives()
        assert story.daemon.stop() == 0
        check_files(story.daemon.data, is_full=True)
    finally:
        story.daemon.kill9()
    counts = ", ".join(f"{n} {status}" for status, n in sorted(_counts(story.settled.values()).items()))
    print(f"{len(story.settled)} tasks: {counts}; {story.model.died} of a killed indexing process")
    slowest = max(story.ready_s)
    figure("kill -9 at any moment: acknowledged tasks lost, files damaged, bitmaps wrong", 0, f"after {story.kills} kills", limit="none")
    figure(f"searches answered after kill -9 with {len(story.model.indexes[LARGE].documents)} documents",
           f"{sorted(story.ready_s)[len(story.ready_s) // 2]:.2f} s, at most {slowest:.2f} s", limit=f"within {ready_s} s")
    assert is_within(slowest, ready_s)


def _counts(statuses: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    return counts
