"""An instance on loopback that answers requests as a test says, and keeps them."""
from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE_S = 20.0


class Reply(NamedTuple):
    """What is sent. body: bytes as they are, anything else as JSON. length: the Content-Length, if it is not that of the body.

    is_held: nothing is sent before the remote is released or closed.
    """

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = {}
    length: int | None = None
    is_held: bool = False


class Call(NamedTuple):
    """A request. headers: by lower-case name. body: decoded, None without one."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class ScriptedRemote(ThreadingHTTPServer):
    """Answers with `replies` in turn, the last one again and again; each is a Reply or makes one of the Call.

    calls: what was received. most_at_once: how many calls were answered at the same time.
    """

    daemon_threads = True

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.calls: list[Call] = []
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._called = threading.Semaphore(0)
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def wait_for_call(self) -> None:
        """Return when one more call has come."""
        assert self._called.acquire(timeout=PATIENCE_S)

    def release(self) -> None:
        """Send held replies."""
        self._released.set()

    def reply(self, call: Call) -> Reply:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.calls.append(call)
            given = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        self._called.release()
        reply: Reply = given(call) if callable(given) else given
        if reply.is_held:
            self._released.wait(PATIENCE_S)
        with self._lock:
            self._at_once -= 1
        return reply

    def close(self) -> None:
        self.release()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedRemote

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        content = self.rfile.read(int(headers.get("content-length", 0)))
        reply = self.server.reply(Call(self.command, self.path, headers, json.loads(content) if content else None))
        raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        try:
            self.send_response(reply.status)
            self.send_header("Content-Length", str(len(raw) if reply.length is None else reply.length))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)
        except OSError:  # it hung up
            pass

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass
