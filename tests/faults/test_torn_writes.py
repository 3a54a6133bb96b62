"""What must hold of a data folder whose files lost what was written last, each as much as it happens to:

1. Every prefix of a write-ahead log is a committed state: of the queue, and of an index.
2. So is a prefix whose last frame is torn, one of whose last frames are missing, stale or in another order, a log over the frames of
   the one before, and a file into which a checkpoint was written by half.
3. Queue and indexes may be of different moments. The queue goes on: every task that it knows ends, new ones are done.
4. As long as no index is older than the queue, which no honest disk leaves, nothing is lost: the documents are those of all tasks
   that either of them knows.
5. A file of an index that was copied while a checkpoint changed it may be damaged, and nothing else: `svcd verify --full` tells, its
   tasks end, and those of other indexes are done.

Taken apart is a history of two indexes, the second of which comes into being in it. The files are cut in copies of its folder, and
opened as a daemon opens them; the runner is stepped by hand.
"""
from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.index.connections import PAGE_SIZE, open_reader
from svcd.index.writer import IndexWriter
from svcd.instance.unlisted_files import read_outcomes
from svcd.tasks.indexing_client import IndexingProcessCrashed
from tests.support.verification import found_faults
from tests.tasks.conftest import LocalWriter, TaskHarness

pytestmark = pytest.mark.slow

STATES = 40, 2000
COPIES = 6, 300
_HEADER, _FRAME = 32, 24 + PAGE_SIZE
_QUEUE = "instance.sqlite"
_MOST_STEPS = 50
WORDS = "alpha beta gamma delta epsilon zeta".split()

Documents = dict[int, dict[str, Any]]


@dataclass
class Log:
    """A database file before a stretch of its history, and the write-ahead log of that.

    after: the same file with the log in it. commits: after how many frames there is a commit. states: digests of what was
    committed by then, the first for none.
    """

    before: bytes
    log: bytes
    after: bytes
    commits: Sequence[int]
    states: Sequence[str]

    @property
    def frames(self) -> int:
        """How many frames the log has."""
        return (len(self.log) - _HEADER) // _FRAME

    def prefix(self, frames: int) -> bytes:
        """The log as it was after so many frames."""
        return self.log[:_HEADER + frames * _FRAME] if frames else b""

    def committed(self, frames: int) -> int:
        """How many commits are in the first frames."""
        return sum(commit <= frames for commit in self.commits)


@dataclass
class History:
    """logs: of the queue and the indexes, by file name. names: of the files of indexes, by index uid. documents: of each index
    after each of its tasks; tasks: their uids."""

    folder: Path
    logs: dict[str, Log]
    names: dict[str, str]
    documents: dict[str, list[Documents]]
    tasks: dict[str, list[int]]


@dataclass
class Fault:
    """What is left of a file: its bytes, its log, and how many commits must be found in them."""

    file: bytes
    log: bytes
    commits: int


# The history


def record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Write a data folder, without a checkpoint after its first tasks."""
    harness = TaskHarness(folder)
    harness.queue.remove_payload = lambda payload: None  # type: ignore[method-assign]  # an older queue wants it again
    documents: dict[str, list[Documents]] = {"movies": [{}], "books": [{}]}
    tasks: dict[str, list[int]] = {"movies": [], "books": []}
    chosen = random.Random(0)

    def write(index_uid: str) -> None:
        before = documents[index_uid][-1]
        if before and chosen.random() < 0.3:
            gone = chosen.sample(sorted(before), 2)
            tasks[index_uid].append(harness.delete(gone, index_uid).uid)
            documents[index_uid].append({n: each for n, each in before.items() if n not in gone})
            return
        fresh = {n: {"id": n, "text": " ".join(chosen.choices(WORDS, k=3)), "year": chosen.randrange(9)}
                 for n in chosen.sample(range(30), 8)}
        tasks[index_uid].append(harness.add(list(fresh.values()), index_uid).uid)
        documents[index_uid].append({**before, **fresh})

    with monkeypatch.context() as patch, ExitStack() as held:
        _write_first(harness, write)
        harness.instance._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        harness.instance._writer.execute("PRAGMA wal_autocheckpoint = 0")
        patch.setattr(IndexWriter, "checkpoint", lambda self: None)
        patch.setattr(IndexWriter, "close", lambda self, close=IndexWriter.close: _hold(held, self.path) or close(self))
        for indexes in (["movies"], ["books"], ["movies", "movies"], ["books", "movies"], ["movies", "books", "books"]):
            for index_uid in indexes:
                write(index_uid)
            harness.run()
        assert harness.bugs == []
        names = {uid: f"indexes/{harness.instance.require_index(uid).uuid}.sqlite" for uid in documents}
        logs = {name: _log(folder, name) for name in [_QUEUE, *names.values()]}
        shutil.copytree(folder, folder.with_name("kept"), ignore=shutil.ignore_patterns("*.sqlite*", "LOCK"))
        harness.instance.close()
    return History(folder.with_name("kept"), logs, names, documents, tasks)


def _write_first(harness: TaskHarness, write: Callable[[str], None]) -> None:
    harness.change({"filterableAttributes": ["year"]})
    write("movies")
    harness.run()


def _hold(held: ExitStack, path: Path) -> None:
    """Keep a reader open, so that the last writer does not take the log away."""
    reader = held.enter_context(closing(open_reader(path)))
    reader.execute("SELECT 1 FROM sqlite_master").fetchall()


def _log(folder: Path, name: str) -> Log:
    before, log = (folder / name).read_bytes(), (folder / f"{name}-wal").read_bytes()
    frames = range((len(log) - _HEADER) // _FRAME)
    commits = [n + 1 for n in frames if any(log[_HEADER + n * _FRAME + 4:_HEADER + n * _FRAME + 8])]
    work = folder.with_name("work.sqlite")
    states = []
    for commit in [0, *commits]:
        _put(work, Fault(before, log[:_HEADER + commit * _FRAME], 0))
        states.append(digest(work))
    with closing(sqlite3.connect(work)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert len(set(states)) == len(states)
    return Log(before, log, work.read_bytes(), commits, states)


def _put(path: Path, fault: Fault) -> None:
    path.write_bytes(fault.file)
    path.with_name(path.name + "-wal").write_bytes(fault.log)
    path.with_name(path.name + "-shm").unlink(missing_ok=True)


def digest(path: Path) -> str:
    """All that a file holds, in a few characters. Asserts that it is sound."""
    found = hashlib.sha256()
    with closing(open_reader(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' "
                                           "ORDER BY name").fetchall():
            found.update(table.encode())
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                found.update(repr(row).encode())
    return found.hexdigest()[:16]


# The faults


def whole(log: Log, _: random.Random) -> Fault:
    """Nothing is lost."""
    return Fault(log.before, log.log, len(log.commits))


def cut(log: Log, chosen: random.Random) -> Fault:
    """The log ends after some frame."""
    frames = chosen.randint(0, log.frames)
    return Fault(log.before, log.prefix(frames), log.committed(frames))


def torn(log: Log, chosen: random.Random) -> Fault:
    """The log ends within a frame, or has other bytes there."""
    frames = chosen.randrange(log.frames)
    frame = bytearray(log.log[_HEADER + frames * _FRAME:][:_FRAME])
    at = chosen.randrange(1, _FRAME)
    frame[at:] = chosen.choice([b"", bytes(_FRAME - at), chosen.randbytes(_FRAME - at)])
    if bytes(frame) == log.log[_HEADER + frames * _FRAME:][:_FRAME]:
        frames += 1
    return Fault(log.before, log.prefix(frames) + bytes(frame), log.committed(frames))


def reordered(log: Log, chosen: random.Random) -> Fault:
    """Of the frames after some commit only some were written, in any order of time: others are empty, or in their places."""
    commits = chosen.randrange(len(log.commits))
    first = log.commits[commits - 1] if commits else 0
    frames = [log.log[_HEADER + n * _FRAME:][:_FRAME] for n in range(first, log.commits[commits])]
    chosen.shuffle(frames) if chosen.random() < 0.3 else None
    is_there = [chosen.random() < 0.7 for _ in frames]
    is_there[chosen.randrange(len(frames))] = False
    written = b"".join(frame if there else bytes(_FRAME) for frame, there in zip(frames, is_there))
    return Fault(log.before, (log.prefix(first) or log.log[:_HEADER]) + written, commits)


def checkpointed(log: Log, chosen: random.Random) -> Fault:
    """Some pages of a checkpoint were written, in any order; the log is still there."""
    size = chosen.choice([len(log.before), len(log.after)])
    file = bytearray(log.before.ljust(size, b"\0"))
    for start in range(0, size, PAGE_SIZE):
        if chosen.random() < 0.5:
            file[start:start + PAGE_SIZE] = log.after[start:start + PAGE_SIZE]
    return Fault(bytes(file), log.log, len(log.commits))


def restarted(log: Log, chosen: random.Random) -> Fault:
    """A checkpoint was complete, and the next log has only begun to be written over this one."""
    header = bytearray(log.log[:_HEADER])
    header[16:24] = chosen.randbytes(8)  # its salts; the check sum does not fit them either when the header is torn
    return Fault(log.after, bytes(header) + log.log[_HEADER:], len(log.commits))


FAULTS: Sequence[Callable[[Log, random.Random], Fault]] = (cut, torn, reordered, checkpointed, restarted)
FAULTS_WITHOUT_LOSS = (whole, checkpointed, restarted)


def faults(history: History, chosen: random.Random, count: int) -> Iterator[dict[str, Fault]]:
    """Every prefix of each log beside the others as they were, and then some fault of each file, up to a number of states."""
    made = 0
    prefixes = [(name, frames) for name, log in history.logs.items() for frames in range(log.frames + 1)]
    for name, frames in chosen.sample(prefixes, min(len(prefixes), count // 2)):
        log = history.logs[name]
        state = {each: whole(other, chosen) for each, other in history.logs.items()}
        yield {**state, name: Fault(log.before, log.prefix(frames), log.committed(frames))}
        made += 1
    for number in range(count - made):
        of_indexes = FAULTS if number % 2 else FAULTS_WITHOUT_LOSS  # no index is older than the queue then
        yield {name: chosen.choice(FAULTS if name == _QUEUE else of_indexes)(log, chosen) for name, log in history.logs.items()}


# What must hold of each

_OF_INDEX = "FROM tasks WHERE index_uid = ? AND kind <> 'settingsUpdate'"
# Is an index listed? How many of its tasks does the queue know, and how many have ended?
_KNOWN = ("SELECT count(*) FROM indexes WHERE uid = ?", f"SELECT count(*) {_OF_INDEX}",
          f"SELECT count(*) {_OF_INDEX} AND status <> 'enqueued'")


class Checked:
    """Counts of states, as they were found."""

    def __init__(self) -> None:
        self.states = self.behind = 0


def check(history: History, state: dict[str, Fault], folder: Path, checked: Checked) -> None:
    """Open a folder with such files, let its queue run empty, and write to both indexes."""
    shutil.copytree(history.folder, folder)
    for name, fault in state.items():
        _put(folder / name, fault)
        assert digest(folder / name) == history.logs[name].states[fault.commits], name
    expected, is_behind = _expected(history, folder)
    harness = TaskHarness(folder)
    try:
        harness.come_to_rest(_MOST_STEPS)
        _check_documents(harness, expected)
        for index_uid in expected:
            _check_writes(harness, index_uid)
        assert harness.bugs == []
    finally:
        harness.instance.close()
    checked.states += 1
    checked.behind += is_behind
    shutil.rmtree(folder)


def _expected(history: History, folder: Path) -> tuple[dict[str, Documents | None], bool]:
    """The documents that each index must have in the end, None where that cannot be said: the index is older than the queue."""
    expected: dict[str, Documents | None] = {}
    with closing(open_reader(folder / _QUEUE)) as queue:
        (newest,) = queue.execute("SELECT max(uid) FROM tasks").fetchone()
        for index_uid, name in history.names.items():
            outcomes = read_outcomes(folder / name)
            is_listed, known, ended = (queue.execute(query, (index_uid,)).fetchone()[0] for query in _KNOWN)
            applied = sum(uid <= outcomes.last for uid in history.tasks[index_uid]) if outcomes else 0
            if applied < ended:
                expected[index_uid] = None
            elif outcomes and not is_listed and outcomes.last > newest:  # the file is kept aside
                expected[index_uid] = history.documents[index_uid][known]
            else:
                expected[index_uid] = history.documents[index_uid][max(applied, known)]
    return expected, None in expected.values()


def _check_writes(harness: TaskHarness, index_uid: str) -> None:
    """A new document is written and found; where the file is lost that is said, until the index is deleted."""
    row = harness.instance.index(index_uid)
    if row and harness.instance.is_lost(row.uuid):
        with pytest.raises(ApiError, match="missing from the data folder, or empty"):
            harness.documents(index_uid)
        failed = harness.add([{"id": 100}], index_uid)
        harness.come_to_rest(_MOST_STEPS)
        harness.do("indexDeletion", index_uid, {"deletedDocuments": None})
        harness.come_to_rest(_MOST_STEPS)
        assert harness.task(failed).error["code"] == "io_error"
    fresh = harness.add([{"id": 100, "text": "omega"}], index_uid)
    harness.come_to_rest(_MOST_STEPS)
    assert harness.task(fresh).status == "succeeded", harness.task(fresh)
    assert len(harness.find("omega", index_uid)) == 1


def _check_documents(harness: TaskHarness, expected: dict[str, Documents | None]) -> None:
    listed = {row.uid for row in harness.instance.list_indexes()[0]}
    for index_uid, documents in expected.items():
        if documents is not None:
            found = harness.documents(index_uid) if index_uid in listed else {}
            assert {each["id"]: each for each in found.values()} == documents, index_uid


def test_torn_files_are_committed_states_and_queues_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int,
                                                         amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    history = record(tmp_path / "data", monkeypatch)
    checked = Checked()
    for number, state in enumerate(faults(history, random.Random(seed), amount(*STATES))):
        check(history, state, tmp_path / f"state-{number}", checked)
    figure("files torn apart: states that were not committed, queues that stopped", 0,
           f"of {checked.states} ({checked.behind} with an index older than the queue)", limit="none")


class CrashingWriter(LocalWriter):
    """Tells of an exception as the indexing process does."""

    def run(self, request: dict[str, Any], progress: Callable[[str, int, int], None]) -> dict[str, Any]:
        try:
            return super().run(request, progress)
        except Exception as error:
            raise IndexingProcessCrashed(repr(error)) from error


def copied(log: Log, chosen: random.Random) -> Fault:
    """A copy that began before a checkpoint and ended after it: a part of the old file, a part of the new one, and no log."""
    pages = len(log.after) // PAGE_SIZE
    changed = [n for n in range(1, pages) if log.before[n * PAGE_SIZE:][:PAGE_SIZE] != log.after[n * PAGE_SIZE:][:PAGE_SIZE]]
    border = chosen.choice(changed) * PAGE_SIZE
    parts = (log.before[:border], log.after[border:]) if chosen.random() < 0.5 else (log.after[:border], log.before[border:])
    return Fault(b"".join(parts), b"", 0)


def test_a_file_that_was_copied_while_it_changed_stops_no_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int,
                                                                amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    history, chosen = record(tmp_path / "data", monkeypatch), random.Random(seed)
    count, damaged, told = amount(*COPIES), 0, 0
    for number in range(count):
        folder = tmp_path / f"state-{number}"
        shutil.copytree(history.folder, folder)
        for name, log in history.logs.items():
            is_copied = name == history.names["movies"]
            _put(folder / name, copied(log, chosen) if is_copied else whole(log, chosen))
        movies = history.logs[history.names["movies"]]
        if _is_damaged(folder / history.names["movies"], movies.states):
            damaged += 1
            told += any(found_faults(folder, is_full=True).values())
        harness = TaskHarness(folder, CrashingWriter)
        try:
            harness.add([{"id": 100}], "movies")
            _check_writes(harness, "books")
        finally:
            harness.instance.close()
        shutil.rmtree(folder)
    figure("an index file copied while a checkpoint wrote it: queues that stopped", 0, f"of {count}", limit="none")
    figure("an index file copied while a checkpoint wrote it: damaged copies that svcd verify --full finds", f"{told} of {damaged}")
    assert told


def _is_damaged(path: Path, states: Sequence[str]) -> bool:
    try:
        return digest(path) not in states
    except (AssertionError, sqlite3.DatabaseError):
        return True
