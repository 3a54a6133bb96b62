"""Snapshots in the object stores of others: `s3rver`, which `make store` installs, and `moto_server`, if it is on the PATH
(pip install 'moto[s3,server]': 140 MB). A test is skipped without its store; a scripted one answers in tests/tasks.

1. A snapshot arrives in parts, and a new instance can be begun with it.
40. A start with some of the options of the store is refused.
"""
from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.error import URLError

import pytest

from svcd.remote.object_store import Credentials, signed_url
from tests.support.daemon import ROOT, Daemon, running, start

pytestmark = pytest.mark.slow

REGION, BUCKET, NAME = "us-east-1", "backups", "films/data.ms.snapshot"
PART = 5 << 20  # the smallest that stores take
KEYS = Credentials("S3RVER", "S3RVER")  # the only ones that s3rver knows; moto takes any
PATIENCE_S = 30.0
MADE = str(ROOT / ".venv/store/node_modules/.bin")
SERVERS = {
    "moto_server": lambda port, folder: ["-p", str(port)],
    "s3rver": lambda port, folder: ["-d", str(folder), "-p", str(port), "-a", "127.0.0.1", "--configure-bucket", BUCKET],
}


class Store:
    """A server that speaks S3."""

    def __init__(self, command: str, folder: Path) -> None:
        name = Path(command).name
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([command, *SERVERS[name](port, folder)], stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if name == "moto_server":
                    self.ask("PUT", "")
                return
            except URLError:
                assert time.monotonic() < deadline and self._process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)

    def ask(self, method: str, path: str, **query: str) -> bytes:
        signed = signed_url(method, f"{self.url}/{BUCKET}{path}", query, KEYS, REGION, 600, datetime.now().timestamp())
        with urllib.request.urlopen(urllib.request.Request(signed, method=method), timeout=PATIENCE_S) as answer:
            content: bytes = answer.read()
            return content

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def options(self) -> list[str]:
        return [f"--s3-bucket-url={self.url}", f"--s3-bucket-region={REGION}", f"--s3-bucket-name={BUCKET}",
                "--s3-snapshot-prefix=films/", f"--s3-access-key={KEYS.access_key}", f"--s3-secret-key={KEYS.secret_key}",
                f"--experimental-s3-multipart-part-size={PART}", "--experimental-allowed-ip-networks=127.0.0.0/8"]


@pytest.fixture(params=SERVERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    command = shutil.which(request.param) or shutil.which(request.param, path=MADE)
    if command is None:
        pytest.skip(f"{request.param} is not installed: `make store` does that for s3rver")
    folder = tmp_path / "store"
    folder.mkdir()
    opened = Store(command, folder)
    yield opened
    opened.close()


def fill(daemon: Daemon) -> None:
    daemon.done(daemon.call("PUT", "/indexes/films/settings/searchable-attributes", '["title"]'))
    films = [{"id": n, "title": f"film {n}", "text": f"{n} " * 2000} for n in range(1500)]
    daemon.done(daemon.post("/indexes/films/documents", films))


def test_a_snapshot_arrives_and_is_imported(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    with running(folder, *store.options()) as daemon:
        fill(daemon)
        task = daemon.done(daemon.post("/snapshots", {}))
        assert task["status"] == "succeeded", task
        assert not (folder / "snapshots").exists() and not [*daemon.data.glob(".*copy")]
    content = store.ask("GET", f"/{NAME}")
    assert len(content) > 2 * PART
    (tmp_path / "films.snapshot").write_bytes(content)
    other = tmp_path / "other"
    other.mkdir()
    with running(other, f"--import-snapshot={tmp_path}/films.snapshot") as daemon:
        assert daemon.get("/indexes/films/stats")["numberOfDocuments"] == 1500
        assert daemon.get("/tasks?types=snapshotCreation")["total"] == 0


def test_40_a_start_with_one_option_alone_is_refused(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, ["--s3-bucket-url=http://store"])
    daemon.spawn()
    assert daemon.ended() == 2
    said = daemon.log.read_text()
    assert "--s3-bucket-url: snapshots in an object store also need --s3-bucket-region" in said


def test_40_a_start_with_keys_and_a_role_is_refused(tmp_path: Path) -> None:
    options = ["--s3-bucket-url=http://store", "--s3-bucket-region=r", "--s3-bucket-name=b", "--s3-snapshot-prefix=",
               "--s3-access-key=a"]
    for others, words in (([], "need both --s3-access-key and --s3-secret-key"),
                          (["--experimental-s3-role-arn=r"], "either by keys or by a role")):
        daemon = Daemon(tmp_path, [*options, *others])
        daemon.spawn()
        assert daemon.ended() == 2 and words in daemon.log.read_text()
    start([*options, "--s3-secret-key=s"], tmp_path).kill9()
