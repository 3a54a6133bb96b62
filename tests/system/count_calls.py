"""Count the modules, functions and calls of svcd that answer one warm search over HTTP.

The daemon runs in the main thread of this process, as `python -m svcd` would run it; a client in a thread of its own
indexes the films of `examples/films.json`, searches once to warm up, and then asks the same with another limit, so that
no cached response answers. A profile function counts the frames of svcd in all other threads during that search: from
the accepted request to the moment when the server waits for the next one.

    .venv/bin/python tests/system/count_calls.py            # the figures, as JSON
    .venv/bin/python tests/system/count_calls.py --verbose  # also calls by module and by function
"""
from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = f"{ROOT / 'svcd'}{os.sep}"
FILMS = ROOT / "examples" / "films.json"
SEARCH = {"q": "star wars"}
START_S = 30.0
# After the response the server thread still gives the connection back to the poller.
AFTERWARDS_S = 0.3


class CallCounter:
    """Counts the calls of functions of svcd while `is_counting` is set; one for all threads."""

    def __init__(self) -> None:
        self.is_counting = False
        self.calls: Counter[tuple[str, str]] = Counter()  # (module path, qualified name) -> calls

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """The profile function of each thread. A generator that is resumed counts as called again."""
        if event == "call" and self.is_counting and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls[frame.f_code.co_filename[len(PACKAGE):], frame.f_code.co_qualname] += 1

    def figures(self) -> dict[str, int]:
        """Distinct modules and functions, and the sum of all calls."""
        return {"modules": len({module for module, _ in self.calls}), "functions": len(self.calls),
                "calls": self.calls.total()}


class _Client(threading.Thread):
    """Waits for the daemon, indexes, searches, and ends the daemon whatever happened."""

    def __init__(self, counter: CallCounter, log: Path) -> None:
        super().__init__(name="counting-client")
        self._counter = counter
        self._log = log
        self.failure: BaseException | None = None

    def run(self) -> None:
        sys.setprofile(None)  # its own calls are no part of a search
        try:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port(), timeout=START_S)
            task = self._ask("POST", "/indexes/films/documents", json.loads(FILMS.read_text()))["taskUid"]
            while self._ask("GET", f"/tasks/{task}")["status"] not in ("succeeded", "failed"):
                time.sleep(0.02)
            for limit in (18, 19):
                self._search(limit)
            time.sleep(AFTERWARDS_S)
            self._counter.is_counting = True
            self._search(20)
            time.sleep(AFTERWARDS_S)
            self._counter.is_counting = False
        except BaseException as failure:
            self.failure = failure
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _search(self, limit: int) -> None:
        found = self._ask("POST", "/indexes/films/search", {**SEARCH, "limit": limit})
        assert found.get("hits"), found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {"content-type": "application/json"})
        return json.loads(self._connection.getresponse().read())

    def _port(self) -> int:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.search(r"address\s+http://127\.0\.0\.1:(\d+)", self._log.read_text())
            if found:
                return int(found[1])
            time.sleep(0.01)
        raise TimeoutError(f"the daemon does not listen: {self._log.read_text()}")


def count() -> CallCounter:
    """Run a daemon in this process and count one search; must be called in the main thread, once for each process."""
    sys.path.insert(0, str(ROOT))
    counter = CallCounter()
    with tempfile.TemporaryDirectory(prefix="svcd-count-") as folder:
        log = Path(folder) / "log"
        log.touch()
        kept = os.dup(2)
        os.dup2(os.open(log, os.O_WRONLY), 2)  # the daemon says on stderr on which port it listens
        threading.setprofile(counter.profile)
        client = _Client(counter, log)
        client.start()
        from svcd.cli.main import main

        setattr(os, "_exit", sys.exit)  # noqa: B010  # the daemon ends its process at once; this one has to count
        try:
            main(["--http-addr", "127.0.0.1:0", "--db-path", f"{folder}/data", "--no-analytics"])
        except SystemExit:
            pass
        finally:
            threading.setprofile(None)
            os.dup2(kept, 2)
        client.join()
        if client.failure:
            raise client.failure
    return counter


if __name__ == "__main__":
    counted = count()
    print(json.dumps(counted.figures()))
    if "--verbose" in sys.argv:
        by_module: Counter[str] = Counter()
        for (module, _), calls in counted.calls.items():
            by_module[module] += calls
        for module, calls in by_module.most_common():
            print(f"{calls:6} {module}")
        for (module, name), calls in counted.calls.most_common():
            print(f"{calls:6} {module} {name}")
