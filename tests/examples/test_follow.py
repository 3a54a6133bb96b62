"""The follower of examples/follow.py has the documents of the index:

1. From the beginning, and after writes.
2. After it and the daemon were killed, and written to meanwhile.
3. After a swap, when it has to read everything again.
"""
from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.daemon import ROOT, Daemon

KEY = "a-master-key-of-16-bytes"
LIMIT_S = 30.0


@contextmanager
def following(daemon: Daemon, file: Path) -> Iterator[None]:
    """The program, killed at the end of the block."""
    process = subprocess.Popen([sys.executable, "examples/follow.py", f"http://127.0.0.1:{daemon.port}", "films", str(file), KEY], cwd=ROOT)
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def write(daemon: Daemon, method: str, path: str, value: Any = None) -> None:
    body = None if value is None else json.dumps(value)
    assert daemon.call(method, f"{path}?wait=30s", body, {"authorization": f"Bearer {KEY}"}).json["status"] == "succeeded"


def wait_for(file: Path, *documents: Mapping[str, Any]) -> None:
    """Wait until the copy has exactly these documents."""
    deadline, held = time.monotonic() + LIMIT_S, None
    while held != {str(each["id"]): each for each in documents}:
        assert time.monotonic() < deadline, held
        time.sleep(0.02)
        held = json.loads(file.read_text())["documents"] if file.exists() else None


def test_the_copy_has_what_the_index_has(tmp_path: Path, bytecode: Mapping[str, str]) -> None:
    file, documents = tmp_path / "copy.json", "/indexes/films/documents"
    daemon = Daemon(tmp_path, ["--changes-keep", "--master-key", KEY], variables=bytecode).start()
    try:
        write(daemon, "POST", documents, [{"id": 1}, {"id": 2}, {"id": 3}])
        with following(daemon, file):
            wait_for(file, {"id": 1}, {"id": 2}, {"id": 3})
            write(daemon, "PUT", documents, [{"id": 1, "title": "a"}])
            write(daemon, "DELETE", f"{documents}/2")
            wait_for(file, {"id": 1, "title": "a"}, {"id": 3})
        daemon.kill9()
        daemon.start()
        write(daemon, "DELETE", documents)
        write(daemon, "POST", documents, [{"id": 4}])
        with following(daemon, file):
            wait_for(file, {"id": 4})
            write(daemon, "POST", "/indexes/books/documents", [{"id": 5}])
            write(daemon, "POST", "/swap-indexes", [{"indexes": ["films", "books"]}])
            wait_for(file, {"id": 5})
            write(daemon, "POST", documents, [{"id": 6}])
            wait_for(file, {"id": 5}, {"id": 6})
    finally:
        daemon.kill9()
    assert daemon.bugs() == []
