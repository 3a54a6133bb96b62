"""The receiver of examples/webhook_receiver.py:

1. It prints each task that a daemon finishes, with the reason where one failed.
2. It prints what comes twice once, and takes packed notices as well.
3. Without the secret, or with something else than a notice, it prints nothing and answers so.
"""
from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.daemon import ROOT, running

SECRET = "Bearer for-the-receiver-only"


class Receiver:
    """The program, with what it prints."""

    def __init__(self, process: subprocess.Popen[str], lines: IO[str]) -> None:
        self._process = process
        self._lines = lines
        self.url = lines.readline().rpartition(" ")[2].strip()

    def line(self) -> str:
        """The next line; waits for it."""
        return self._lines.readline().rstrip("\n")

    def post(self, body: bytes, **headers: str) -> int:
        sent = {"Authorization": SECRET, **{name.replace("_", "-"): value for name, value in headers.items()}}
        try:
            with urlopen(Request(self.url, body, sent), timeout=20) as answer:
                status: int = answer.status
        except HTTPError as refusal:
            status = refusal.code
            refusal.close()
        return status


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    command = [sys.executable, "examples/webhook_receiver.py", "--port", "0", "--secret", SECRET]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Receiver(process, process.stdout)
        finally:
            process.kill()


def test_tasks_of_a_daemon_are_printed(receiver: Receiver, tmp_path: Path) -> None:
    options = ("--task-webhook-url", receiver.url, "--experimental-allowed-ip-networks", "127.0.0.0/8")
    with running(tmp_path, *options, variables={"SVC_TASK_WEBHOOK_AUTHORIZATION_HEADER": SECRET}) as daemon:
        daemon.post("/indexes/films/documents", [{"id": 1}])
        assert receiver.line() == "task 0 documentAdditionOrUpdate of films succeeded"
        daemon.post("/snapshots", {})
        assert receiver.line() == "task 1 snapshotCreation of the instance succeeded"
        daemon.call("DELETE", "/indexes/books")
        assert receiver.line() == "task 2 indexDeletion of books failed: Index `books` not found."


def notice(uid: int) -> bytes:
    task = {"uid": uid, "type": "indexCreation", "indexUid": "films", "status": "succeeded", "error": None, "finishedAt": "today"}
    return json.dumps(task).encode() + b"\n"


def test_what_comes_twice_is_printed_once_and_packed_notices_are_read(receiver: Receiver) -> None:
    assert [receiver.post(notice(1)), receiver.post(notice(1)), receiver.post(gzip.compress(notice(2)), Content_Encoding="gzip")] \
        == [204, 204, 204]
    assert [receiver.line(), receiver.line()] == [f"task {uid} indexCreation of films succeeded" for uid in (1, 2)]


def test_what_is_no_notice_is_refused(receiver: Receiver) -> None:
    assert receiver.post(notice(1), Authorization="Bearer another") == 401
    assert receiver.post(b"{\n") == 400
    assert receiver.post(b"x", Content_Encoding="gzip") == 400
    assert receiver.post(b"", Content_Length="99999999999") == 413
    assert receiver.post(notice(2)) == 204
    assert receiver.line() == "task 2 indexCreation of films succeeded"
