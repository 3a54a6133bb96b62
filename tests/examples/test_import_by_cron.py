"""The import of examples/import-films.cron, as cron would run its line:

1. It imports a folder; while nothing changes, it does so no second time; what has changed or was moved in is there after the next.
2. The key needs no more than the file says.
3. One that failed says so, and is repeated; one at a time runs.
"""
from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import ROOT, Daemon, running

EXAMPLES = ROOT / "examples"
CRON = (EXAMPLES / "import-films.cron").read_text()
MASTER_KEY = "a-master-key-of-some-length"
ACTIONS = ("documents.add", "indexes.create", "tasks.get")  # what the file says that the key needs
FILMS = json.loads((EXAMPLES / "films.json").read_text())

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="flock (util-linux) is not installed")


class Job:
    """The line of the table, with a folder, a home and programs of its own."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.folder = folder / "films"
        self.home = folder / "home"
        programs, key = folder / "bin", folder / "import-key"
        for made in (self.folder, self.home, programs):
            made.mkdir()
        shutil.copy(EXAMPLES / "import-films.sh", programs)
        (programs / "svcd").write_text(f'#!/bin/sh\nexec {sys.executable} -m svcd "$@"\n')
        (programs / "svcd").chmod(0o755)
        assert " and ".join(", ".join(ACTIONS).rsplit(", ", 1)) in CRON
        made_key = daemon.call("POST", "/keys", json.dumps({"actions": ACTIONS, "indexes": ["films"], "expiresAt": None}),
                               {"authorization": f"Bearer {MASTER_KEY}"})
        assert made_key.status == 201, made_key.body
        key.write_text(made_key.json["key"])
        table = {"/etc/svcd/import-key": key, "/usr/local/bin:": f"{programs}:", "localhost:7700": f"127.0.0.1:{daemon.port}",
                 "/srv/films": self.folder}
        text = CRON
        for theirs, ours in table.items():
            assert theirs in text
            text = text.replace(theirs, str(ours))
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self._environment = dict(line.split("=", 1) for line in lines[:-1])
        when, self._user, self._command = re.fullmatch(r"((?:\S+ ){4}\S+) +(\S+) +(.*)", lines[-1]).groups()  # type: ignore[union-attr]
        assert when == "*/10 * * * *"

    def run(self) -> subprocess.CompletedProcess[str]:
        """As cron does it: by sh, with its own few variables."""
        environment = {"HOME": str(self.home), "PYTHONPATH": str(ROOT), **self._environment}
        return subprocess.run(["sh", "-c", self._command], cwd=self.home, env=environment, capture_output=True, text=True, timeout=60,
                              check=False)

    def succeeds(self) -> None:
        ran = self.run()
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

    def write(self, name: str, films: object) -> None:
        (self.folder / name).write_text(json.dumps(films))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "daemon").mkdir()
    with running(tmp_path / "daemon", "--master-key", MASTER_KEY) as daemon:
        yield daemon


@pytest.fixture
def job(daemon: Daemon, tmp_path: Path) -> Job:
    return Job(tmp_path, daemon)


def asked(daemon: Daemon, path: str) -> dict:
    answer: dict = daemon.call("GET", path, headers={"Authorization": f"Bearer {MASTER_KEY}"}).json
    return answer


def titles(daemon: Daemon) -> dict[int, str]:
    return {film["id"]: film["title"] for film in asked(daemon, "/indexes/films/documents?limit=100")["results"]}


def imports(daemon: Daemon) -> int:
    total: int = asked(daemon, "/tasks?types=documentAdditionOrUpdate&limit=0")["total"]
    return total


def test_what_has_changed_is_imported(job: Job, daemon: Daemon) -> None:
    job.write("films.json", FILMS[:10])
    job.succeeds()
    assert len(titles(daemon)) == 10
    first = imports(daemon)
    job.succeeds()
    assert imports(daemon) == first

    job.write("films.json", [{**FILMS[0], "title": "A New Hope"}, *FILMS[1:]])
    job.succeeds()
    assert titles(daemon)[1] == "A New Hope" and len(titles(daemon)) == len(FILMS)
    second = imports(daemon)

    moved = job.home / "late.json"
    moved.write_text(json.dumps([{"id": 99, "title": "Solaris"}]))
    os.utime(moved, (time.time() - 9999,) * 2)  # written before the last import, and moved in after it
    moved.rename(job.folder / "late.json")
    job.succeeds()
    assert imports(daemon) > second and titles(daemon)[99] == "Solaris"


def test_one_that_failed_says_so_and_is_repeated(job: Job, daemon: Daemon) -> None:
    job.write("films.json", FILMS)
    daemon.stop()
    failed = job.run()
    assert failed.returncode == 3 and failed.stdout == "" and "does not answer" in failed.stderr
    port = daemon.port
    daemon.start()
    job._environment["SVC_HTTP_ADDR"] = job._environment["SVC_HTTP_ADDR"].replace(str(port), str(daemon.port))
    job.succeeds()
    assert len(titles(daemon)) == len(FILMS)


def test_one_at_a_time_runs(job: Job, daemon: Daemon) -> None:
    job.write("films.json", FILMS)
    state = job.home / ".local/state/import-films"
    state.mkdir(parents=True)
    with (state / "films.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job.succeeds()
        assert imports(daemon) == 0
    job.succeeds()
    assert imports(daemon) > 0
