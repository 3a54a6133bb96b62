"""What must hold of a daemon that works for long: 100 writes and 50 searches that nobody searched before each second, for 30 minutes.

1. Once they are warm its processes grow little: by less than 10 MB an hour, all of them together. What is kept between searches is
   full by then; docs/guarantees.md has what else grows. A search worker ends when there is little to do and another begins later:
   each process is compared with itself, from when it has run for ten minutes.
2. It has no more descriptors and threads at the end than when it was warm.
3. The logs of SQLite stay as small as they were.
4. Searches are as fast at the end as when it was warm: their 99th percentile grows by less than a tenth.
5. No request fails, every task succeeds, and the log speaks of no bug.

The documents are replaced, not added, so that the index stays as it is. The short form takes some seconds: it shows that what is measured
is there, and has bounds that hold on a busy machine, too. With SVCD_TRACE a file gets a line per second with all that is measured, by process.
"""
from __future__ import annotations

import http.client
import json
import os
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, processor_seconds, running

pytestmark = pytest.mark.slow

WRITES, SEARCHES = 100, 50  # each second
CONNECTIONS = 5  # for each of the two
LONG_S = 120  # a run of so many seconds is compared with itself
WARM = 1 / 3  # this part of the time passes before anything is compared
PARTS = 12  # of the rest, to compare
KINDS = {"indexing_process": "indexing", "search_worker": "searching", "fork_server": "searching"}  # part of a command: its kind
MOST_MB, MOST_LOG_MB, MOST_GROWTH_MB = 300, 200, 10
MORE_DESCRIPTORS, MORE_THREADS = 16, 4  # connections and threads come and go with the load


class Words:
    """Requests with texts of made-up words, of which a few are frequent, and most rare."""

    def __init__(self, seed: int, documents: int) -> None:
        self.documents = documents
        self._random = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        self._words = ["".join(self._random.choices(letters, range(26, 0, -1), k=self._random.randint(2, 11))) for _ in range(20_000)]
        self._sums = list(accumulate(1 / (rank + 3) for rank in range(len(self._words))))

    def text(self, length: int) -> str:
        """So many words."""
        return " ".join(self._random.choices(self._words, cum_weights=self._sums, k=length))

    def document(self, number: int) -> dict[str, Any]:
        """A film that nobody made."""
        return {"id": number, "title": self.text(4), "extract": self.text(30), "year": 1900 + self._random.randrange(120)}

    def replacement(self) -> tuple[str, str, Any]:
        """A request that replaces a document."""
        return "POST", "/indexes/films/documents", [self.document(self._random.randrange(self.documents))]

    def search(self) -> tuple[str, str, Any]:
        """A search for some words, the last one perhaps as it is being typed."""
        words = self.text(self._random.randint(2, 4))
        return "POST", "/indexes/films/search", {"q": words[:-1] if self._random.random() < 0.3 else words}


class Paced:
    """A thread that repeats a request so many times each second. What waits for those before it counts from when it was due."""

    def __init__(self, daemon: Daemon, rate: float, make: Callable[[], tuple[str, str, Any]], ended: threading.Event) -> None:
        self.took: list[tuple[float, float]] = []  # (when since the beginning, seconds)
        self.failed: list[str] = []
        self._daemon, self._rate, self._make, self._ended = daemon, rate, make, ended
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begin = time.monotonic()
        with closing(http.client.HTTPConnection("127.0.0.1", self._daemon.port, timeout=60)) as connection:
            count = 0
            while not self._ended.wait(max(0.0, begin + count / self._rate - time.monotonic())):
                due = begin + count / self._rate
                method, path, body = self._make()
                try:
                    connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
                    answer = connection.getresponse()
                    content = answer.read()
                    if answer.status not in (200, 202):
                        self.failed.append(f"{answer.status} for {path}: {content[:200]!r}")
                except (OSError, http.client.HTTPException) as error:
                    self.failed.append(f"{error!r} for {path}")
                    connection.close()
                self.took.append((due - begin, time.monotonic() - due))
                count += 1

    def join(self) -> None:
        self._thread.join()


@dataclass(frozen=True)
class Sample:
    """What the processes hold at a moment, in seconds since the beginning."""

    at: float
    memory: dict[str, float]  # MB of what belongs to a process, by its kind and number: {"main 4711": 71.5}
    processor: dict[str, float]  # seconds of processor time so far, of the same
    descriptors: int
    threads: int
    log_mb: float  # of all logs of SQLite
    data_mb: float

    @property
    def memory_mb(self) -> float:
        return sum(self.memory.values())

    def memory_of(self, kind: str) -> float:
        return sum(mb for process, mb in self.memory.items() if process.startswith(kind))


def sample(daemon: Daemon, at: float) -> Sample:
    memory: dict[str, float] = {}
    processor: dict[str, float] = {}
    descriptors = threads = 0
    for pid in daemon.pids:
        folder = Path(f"/proc/{pid}")
        try:
            command = (folder / "cmdline").read_bytes().decode()
            rollup = (folder / "smaps_rollup").read_text()
            seconds = processor_seconds(pid)
            descriptors += len(os.listdir(folder / "fd"))
            threads += len(os.listdir(folder / "task"))
        except OSError:  # it ended
            continue
        kind = next((kind for module, kind in KINDS.items() if module in command), "main")
        processor[f"{kind} {pid}"] = seconds
        memory[f"{kind} {pid}"] = sum(int(kb) for kb in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", rollup, re.MULTILINE)) * 1024 / 1e6
    sizes = {path: path.stat().st_size / 1e6 for path in daemon.data.rglob("*.sqlite*")}
    return Sample(at, memory, processor, descriptors, threads, sum(mb for path, mb in sizes.items() if path.name.endswith("-wal")),
                  sum(mb for path, mb in sizes.items() if path.suffix == ".sqlite"))


def slope_per_hour(points: Sequence[tuple[float, float]]) -> float:
    """How much a value grows in an hour: the median of the slopes between all pairs of points (seconds, value)."""
    return 3600 * statistics.median((v - u) / (t - s) for n, (t, v) in enumerate(points) for s, u in points[:n])


def percentile_99(took: Sequence[float]) -> float:
    return sorted(took)[int(0.99 * len(took))]


def parts(points: Sequence[tuple[float, Any]], seconds: float) -> list[list[Any]]:
    """The values of points (seconds, value) in equal parts of the time, without those before it was warm."""
    found: list[list[Any]] = [[] for _ in range(PARTS)]
    warm = seconds * WARM
    for at, value in points:
        if warm <= at < seconds:
            found[int((at - warm) / (seconds - warm) * PARTS)].append(value)
    return found


def drift(of_parts: Sequence[float]) -> float:
    """How much greater the median of the later half is than that of the earlier one, in percent."""
    half = len(of_parts) // 2
    return 100 * (statistics.median(of_parts[half:]) / statistics.median(of_parts[:half]) - 1)


def growth(samples: Sequence[Sample], seconds: float) -> dict[str, float]:
    """How much each process grows once it is warm, in MB an hour, if it then works for another quarter of the time that is compared.

    It is the growth of the least memory in each part of the time, since what batches take for a moment comes and goes.
    """
    grows = {}
    for process in {process: None for one in samples for process in one.memory}:
        points = [(one.at, one.memory[process]) for one in samples if process in one.memory]
        warm = points[0][0] + seconds * WARM
        least = [(number * seconds * (1 - WARM) / PARTS, min(part))
                 for number, part in enumerate(parts([point for point in points if point[0] >= warm], seconds)) if part]
        if len(least) >= PARTS / 4:
            grows[process] = slope_per_hour(least)
    return grows


class LongRun:
    """What was measured of a daemon that was written and searched for so many seconds."""

    def __init__(self, daemon: Daemon, seconds: float, words: Words) -> None:
        ended = threading.Event()
        self.seconds = seconds
        self.writes = [Paced(daemon, WRITES / CONNECTIONS, words.replacement, ended) for _ in range(CONNECTIONS)]
        self.searches = [Paced(daemon, SEARCHES / CONNECTIONS, words.search, ended) for _ in range(CONNECTIONS)]
        self.samples = watched(daemon, seconds)
        ended.set()
        for each in self.writes + self.searches:
            each.join()
        self.failed = [failed for each in self.writes + self.searches for failed in each.failed]
        warm = [one for one in self.samples if one.at >= seconds * WARM]
        self._earlier, self._later = warm[:len(warm) // 2], warm[len(warm) // 2:]

    def most(self, kind: str) -> float:
        """The most memory that the processes of a kind had, in MB."""
        return max(one.memory_of(kind) for one in self.samples)

    def more(self, count: Callable[[Sample], int]) -> int:
        """How many more there are at most in the later half than in the earlier one."""
        return max(map(count, self._later)) - max(map(count, self._earlier))

    def rate(self, group: Sequence[Paced]) -> float:
        """Requests each second."""
        return sum(len(each.took) for each in group) / self.seconds

    def of_parts(self, group: Sequence[Paced]) -> list[float]:
        """The 99th percentile of each part of the time that is compared, in seconds."""
        took = [point for each in group for point in each.took]
        return [percentile_99(part) for part in parts(took, self.seconds) if part]

    def slower(self, group: Sequence[Paced]) -> float:
        """How much the 99th percentile grows, in percent."""
        return drift(self.of_parts(group))

    def __str__(self) -> str:
        lines = [f"{kind}: at most {self.most(kind):.1f} MB" for kind in ("main", "indexing", "searching")]
        for name, group in (("writes", self.writes), ("searches", self.searches)):
            took = [seconds for each in group for _, seconds in each.took]
            lines.append(f"{name}: p50 {1000 * statistics.median(took):.1f} ms, p99 {1000 * percentile_99(took):.1f} ms")
            lines.append(f"  p99 of the parts compared, in ms: {[round(1000 * each) for each in self.of_parts(group)]}")
        return "\n".join(lines)


def test_it_stays_as_it_is(tmp_path: Path, amount: Callable[[int, int], int], figure: Callable[..., None], seed: int) -> None:
    words = Words(seed, amount(1000, 10_000))
    with running(tmp_path) as daemon:
        daemon.done(daemon.post("/indexes/films/documents", [words.document(n) for n in range(words.documents)]))
        ran = LongRun(daemon, amount(6, 1800), words)
        daemon.drain()
        assert ran.failed == []
        assert daemon.get("/tasks?statuses=failed,canceled&limit=1")["total"] == 0
        assert daemon.bugs() == []
    print(ran)
    figure("long run: memory of all processes, at most", most_mb := max(one.memory_mb for one in ran.samples), "MB", limit=f"under {MOST_MB} MB")
    figure("long run: logs of SQLite, at most", log_mb := max(one.log_mb for one in ran.samples), "MB", limit=f"under {MOST_LOG_MB} MB")
    assert most_mb < MOST_MB and log_mb < MOST_LOG_MB
    if ran.seconds < LONG_S:  # caches still fill, and other work of the machine counts
        return
    writes, searches = ran.rate(ran.writes), ran.rate(ran.searches)
    figure("long run: writes and searches each second", f"{writes:.0f} and {searches:.0f}", limit=f"{WRITES} and {SEARCHES}")
    grows = growth(ran.samples, ran.seconds)
    print("memory grows by, in MB an hour:", grows)
    figure("long run: memory grows by", more := sum(grows.values()), "MB an hour", limit=f"under {MOST_GROWTH_MB} MB an hour; meant was 1")
    figure("long run: descriptors, more than earlier", files := ran.more(lambda one: one.descriptors), limit=f"at most {MORE_DESCRIPTORS}")
    figure("long run: threads, more than earlier", threads := ran.more(lambda one: one.threads), limit=f"at most {MORE_THREADS}")
    figure("long run: p99 of searches grows by", slower := ran.slower(ran.searches), "%", limit="under 10 %")
    assert writes > 0.99 * WRITES and searches > 0.99 * SEARCHES
    assert more < MOST_GROWTH_MB and slower < 10
    assert files <= MORE_DESCRIPTORS and threads <= MORE_THREADS


def watched(daemon: Daemon, seconds: float) -> list[Sample]:
    """A sample each second."""
    begin = time.monotonic()
    samples = []
    while (at := time.monotonic() - begin) < seconds:
        samples.append(sample(daemon, at))
        if path := os.environ.get("SVCD_TRACE"):
            with Path(path).open("a") as file:
                file.write(json.dumps({**vars(samples[-1]), "memory_mb": samples[-1].memory_mb}) + "\n")
        time.sleep(1)
    return samples


# What is measured


def test_a_slope_is_that_of_most_points() -> None:
    noisy = [(second, second * 2 / 3600 + (50 if second % 10 == 3 else 0)) for second in range(100)]
    assert abs(slope_per_hour(noisy) - 2) < 0.1


def test_drift_compares_the_halves() -> None:
    assert drift([10, 10, 99, 12, 12, 12]) == pytest.approx(20)


def test_parts_begin_when_it_is_warm() -> None:
    points = [(at, at) for at in range(36)]
    found = parts(points, 36)
    assert found[0] == [12, 13] and found[-1] == [34, 35] and len(found) == PARTS


def test_each_process_is_compared_from_when_it_is_warm() -> None:
    def memory(at: int) -> dict[str, float]:
        found = {"main 1": 60 + at / 360}
        if at < 700:
            found["searching 2"] = 70.0
        if at >= 900:
            found["searching 3"] = min(10 + (at - 900) / 5, 70.0)
        return found

    samples = [Sample(at, memory(at), {}, 0, 0, 0, 0) for at in range(1800)]
    assert growth(samples, 1800) == pytest.approx({"main 1": 10, "searching 3": 0}, abs=0.1)


def test_memory_logs_and_descriptors_are_seen(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.done(daemon.post("/indexes/films/documents", [{"id": 1}]))
        one = sample(daemon, 0)
    assert one.memory_of("main") > 5 and one.memory_of("indexing") > 5
    assert one.descriptors > 10 and one.threads > 2 and one.log_mb > 0 and one.data_mb > 0
