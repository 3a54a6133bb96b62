"""What must hold of a daemon whose webhook is down for a while, and that is killed meanwhile:

1. Once the receiver is back it has every batch within a minute, in the order in which they ended.
2. Hardly any comes twice: those that were on their way when the daemon was killed.
3. A receiver that is up all the time is told meanwhile, and no task waits for either.
4. Each line is the task as the daemon shows it; nothing of it, nor of the headers, is in the log.

SVC_TELLING_TASKS=2000 SVC_TELLING_DOWN_S=120 in the environment runs more than the usual few tasks, spread over
an outage of two minutes.
"""
from __future__ import annotations

import http.server
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from svcd.base.quantities import parse_rfc3339
from tests.support.daemon import Daemon

TASKS = int(os.environ.get("SVC_TELLING_TASKS", "40"))
DOWN_S = float(os.environ.get("SVC_TELLING_DOWN_S", "0"))
WITHIN_S = 60.0
SECRET = "Bearer not-for-the-log"
# Each task a batch of its own: as many notices as there can be.
OPTIONS = ("--experimental-allowed-ip-networks", "127.0.0.0/8", "--experimental-max-number-of-batched-tasks", "1",
           "--task-webhook-authorization-header", SECRET)


class Receiver:
    """Keeps the notices that arrive at a port, each as the list of its tasks."""

    def __init__(self, port: int) -> None:
        self.notices: list[list[dict[str, Any]]] = []
        self.changed = threading.Condition()
        self.secrets: set[str | None] = set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert body.endswith(b"\n") and self.headers["Content-Type"] == "application/x-ndjson"
                outer._take([json.loads(line) for line in body.splitlines()], self.headers["Authorization"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def _take(self, tasks: list[dict[str, Any]], secret: str | None) -> None:
        with self.changed:
            self.notices.append(tasks)
            self.secrets.add(secret)
            self.changed.notify_all()

    @property
    def uids(self) -> list[int]:
        """The tasks that arrived, in the order in which they did."""
        return [task["uid"] for tasks in self.notices for task in tasks]

    def wait_for(self, uids: set[int], within_s: float) -> float:
        """How long it took until all of these tasks had arrived."""
        begin = time.monotonic()
        with self.changed:
            assert self.changed.wait_for(lambda: set(self.uids) >= uids, within_s), (
                f"after {within_s} s {len(uids - set(self.uids))} of {len(uids)} tasks have not arrived")
        return time.monotonic() - begin

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving(port: int) -> Iterator[Receiver]:
    receiver = Receiver(port)
    try:
        yield receiver
    finally:
        receiver.close()


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _write(daemon: Daemon, numbers: range, pause_s: float) -> None:
    for number in numbers:
        assert daemon.post(f"/indexes/films{number % 3}/documents", [{"id": number}]).status == 202
        time.sleep(pause_s)


def _check(receiver: Receiver, daemon: Daemon) -> int:
    """Order, contents and repetitions of what arrived; how many came twice."""
    ends = [parse_rfc3339(tasks[0]["finishedAt"]) for tasks in receiver.notices]
    assert ends == sorted(ends)
    shown = {task["uid"]: task for task in daemon.get(f"/tasks?limit={TASKS}")["results"]}
    for tasks in receiver.notices:
        assert tasks == [shown[task["uid"]] for task in tasks]
    return len(receiver.uids) - len(set(receiver.uids))


def test_who_was_away_gets_everything_in_order(tmp_path: Path) -> None:
    down, up = free_ports(2)
    daemon = Daemon(tmp_path, (*OPTIONS, "--task-webhook-url", f"http://127.0.0.1:{down}/")).start()
    pause_s, every = DOWN_S * 0.7 / TASKS, set(range(TASKS))
    begin = time.monotonic()
    try:
        with receiving(up) as other:
            assert daemon.post("/webhooks", {"url": f"http://127.0.0.1:{up}/"}).status == 201
            _write(daemon, range(TASKS // 2), pause_s)
            daemon.kill9()
            daemon.start()
            _write(daemon, range(TASKS // 2, TASKS), pause_s)
            daemon.drain()
            other.wait_for(every, WITHIN_S)
            time.sleep(max(0.0, DOWN_S - (time.monotonic() - begin)))
            with receiving(down) as receiver:
                seconds = receiver.wait_for(every, WITHIN_S)
                twice = [_check(each, daemon) for each in (receiver, other)]
                assert all(count <= max(1, TASKS / 100) for count in twice)
                assert receiver.secrets == {SECRET} and other.secrets == {None}
                print(f"{TASKS} tasks, down for {time.monotonic() - begin - seconds:.0f} s: all there {seconds:.1f} s "
                      f"after its return, {twice[0]} twice; elsewhere {twice[1]} twice")
        assert daemon.stop() == 0
        assert not daemon.bugs() and "not-for-the-log" not in daemon.log.read_text()
    finally:
        daemon.kill9()


def test_a_daemon_killed_during_a_delivery_continues_it(tmp_path: Path) -> None:
    down, = free_ports(1)
    daemon = Daemon(tmp_path, (*OPTIONS, "--task-webhook-url", f"http://127.0.0.1:{down}/")).start()
    every = set(range(TASKS))
    try:
        _write(daemon, range(TASKS), 0)
        daemon.drain()
        with receiving(down) as receiver:
            for part in (TASKS // 4, TASKS // 2):
                receiver.wait_for(set(range(part)), WITHIN_S)
                daemon.kill9()
                daemon.start()
            receiver.wait_for(every, WITHIN_S)
            assert _check(receiver, daemon) <= 2
    finally:
        daemon.kill9()
