"""What must hold when writes to the data folder fail with EIO, from any one of them on, until the disk works again.

1. Nothing crashes: the daemon is the same process, before and after.
2. Searches are answered as before.
3. Requests that write are answered `io_error`, or accepted; what was accepted is done once the disk works.
4. Then all files are without fault.

The writes are made to fail by a library of 60 lines that is loaded before libc (failing_disk.c); without a C compiler these are
skipped.
"""
from __future__ import annotations

import mmap
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, Reply

SOURCE = Path(__file__).with_name("failing_disk.c")
ALL = -1  # writes succeed
DOCUMENTS = "/indexes/films/documents"

pytestmark = pytest.mark.slow


class Disk:
    """The writes of a daemon: how many more succeed, and how many were asked for."""

    def __init__(self, folder: Path) -> None:
        self.library = folder / "failing_disk.so"
        compiled = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE), "-ldl"], check=False, capture_output=True, text=True)
        assert compiled.returncode == 0, compiled.stderr
        self.control = folder / "control"
        self.control.write_bytes(ALL.to_bytes(8, sys.byteorder, signed=True) + bytes(8))
        with self.control.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 16)).cast("q")

    def fail_after(self, writes: int) -> None:
        self._numbers[0] = writes

    @property
    def writes(self) -> int:
        return self._numbers[1]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("a C compiler is needed, and the loader of Linux")
    return Disk(tmp_path)


@pytest.fixture
def daemon(disk: Disk, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, variables={"LD_PRELOAD": str(disk.library), "FAILING_CONTROL": str(disk.control),
                                         "FAILING_FOLDER": str(tmp_path / "data.ms")}).start()
    films = [{"id": number, "title": f"film {number}", "year": 1900 + number % 100} for number in range(300)]
    assert daemon.done(daemon.post(DOCUMENTS, films))["status"] == "succeeded"
    yield daemon
    daemon.kill9()


def write_everything(daemon: Daemon, number: int) -> list[Reply]:
    """One of each kind of write. number: differs each time, so that each changes something."""
    return [daemon.post(DOCUMENTS, [{"id": 1000 + number, "title": f"new {number}"}]),
            daemon.call("PATCH", "/indexes/films/settings", f'{{"stopWords": ["w{number}"], "filterableAttributes": ["year"]}}'),
            daemon.call("DELETE", f"{DOCUMENTS}/{number % 300}"),
            daemon.post("/indexes", {"uid": f"index{number}"})]


def test_each_write_may_be_the_first_that_fails(daemon: Daemon, disk: Disk, amount: Callable[[int, int], int],
                                                figure: Callable[..., None]) -> None:
    before = disk.writes
    for reply in write_everything(daemon, 0):
        assert daemon.done(reply)["status"] == "succeeded"
    writes = disk.writes - before
    pids, accepted, unfinished = daemon.pids[0], 0, []
    states = amount(6, 150)
    for number in range(1, states + 1):
        disk.fail_after(writes * (number - 1) // states)
        replies = write_everything(daemon, number)
        assert {(reply.status, reply.code) for reply in replies} <= {(202, None), (422, "io_error")}, [r.body for r in replies]
        found = daemon.post("/indexes/films/search", {"q": "film 277", "limit": 1})
        assert found.status == 200 and found.json["hits"][0]["title"] == "film 277"  # none of those that are deleted
        disk.fail_after(ALL)
        tasks = [daemon.done(reply) for reply in replies if reply.status == 202]
        accepted += len(tasks)
        unfinished += [task for task in tasks if (task["error"] or {}).get("code", "io_error") != "io_error"]
        assert daemon.done(daemon.post(DOCUMENTS, [{"id": 5000, "title": f"works {number}"}]))["status"] == "succeeded"
    figure("tasks accepted while writes fail with EIO that end with another error", f"{len(unfinished)} of {accepted}, "
           f"failing from {states} places on", limit="none")
    print(*unfinished, sep="\n")
    assert unfinished == [] and daemon.pids[0] == pids
    assert daemon.stop() == 0
    verified = subprocess.run([sys.executable, "-m", "svcd", "verify", "--full", "--folder", str(daemon.data)],
                              check=False, capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
