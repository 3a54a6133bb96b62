"""Print the tasks that svcd reports to a webhook, one line each; with the standard library alone.

    python3 examples/webhook_receiver.py --port 8090 --secret "Bearer some-secret"
    svcd --task-webhook-url http://127.0.0.1:8090/ --task-webhook-authorization-header "Bearer some-secret" \\
         --experimental-allowed-ip-networks 127.0.0.0/8

svcd sends the finished tasks of each batch in one POST: one line of JSON for each task. It sends them again until it gets a 2xx
status, so answer only when the work is done, or kept somewhere safe. After a crash of svcd a batch may come twice.
"""
from __future__ import annotations

import argparse
import gzip
import hmac
import json
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 64 << 20
# Tasks that are remembered so as not to be printed twice. A repeated batch is one of the newest.
REMEMBERED = 10_000


class Receiver(ThreadingHTTPServer):
    """Listens for notices. secret: required value of the header Authorization, None to accept any value."""

    def __init__(self, host: str, port: int, secret: str | None) -> None:
        super().__init__((host, port), Handler)
        self.secret = secret
        self.seen: deque[tuple[int, str]] = deque(maxlen=REMEMBERED)

    def take(self, tasks: list[dict]) -> None:
        """Do the work: here, print each task once."""
        for task in tasks:
            done = (task["uid"], task["finishedAt"])  # uids alone are not enough: the uids of a new database begin with 0
            if done in self.seen:
                continue
            self.seen.append(done)
            subject = task["indexUid"] or "the instance"
            reason = f": {task['error']['message']}" if task["error"] else ""
            print(f"task {task['uid']} {task['type']} of {subject} {task['status']}{reason}", flush=True)


class Handler(BaseHTTPRequestHandler):
    """One POST."""

    server: Receiver
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a byte

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or -1)
        if not 0 <= length <= MAX_BODY:
            self.answer(413 if length > 0 else 411)
            return
        body = self.rfile.read(length)
        given = self.headers.get("Authorization") or ""
        if self.server.secret is not None and not hmac.compare_digest(given.encode(), self.server.secret.encode()):
            self.answer(401)
            return
        try:
            # svcd sends it uncompressed; the reference engine compresses it.
            text = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            tasks = [json.loads(line) for line in text.splitlines()]
        except (OSError, EOFError, ValueError):
            self.answer(400)
            return
        self.server.take(tasks)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        if status in (411, 413):  # the body has not been read, so the next request cannot be either
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Requests are not logged: the tasks are."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090, help="0 takes a free one")
    parser.add_argument("--secret", help="required value of the header Authorization")
    options = parser.parse_args()
    with Receiver(options.host, options.port, options.secret) as server:
        print(f"listening on http://{options.host}:{server.server_port}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
