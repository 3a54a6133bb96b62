"""A server on loopback that keeps requests and answers them as a test says: embedding services, remotes, targets of exports, object
stores."""
from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE_S = 20.0


class Received(NamedTuple):
    """A request. headers: names in lower case; content: decompressed."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        """What its JSON says; None without a body."""
        return json.loads(self.content) if self.content else None

    @property
    def documents(self) -> list[Any]:
        """The documents of the body, whatever is between them."""
        text, documents, at = self.content.decode(), [], 0
        while at < len(text):
            document, at = json.JSONDecoder().raw_decode(text, at)
            documents.append(document)
            at += len(text[at:]) - len(text[at:].lstrip())
        return documents

    @property
    def call(self) -> str:
        """`GET /indexes/a`."""
        return f"{self.method} {self.path}"


class Reply(NamedTuple):
    """What is answered. body: JSON unless it is bytes. length: the Content-Length, if it is not that of the body.

    is_held: nothing is sent before the server is released or closed.
    """

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = {}
    length: int | None = None
    is_held: bool = False


Script = Callable[[Received], Reply]


class ScriptedServer(ThreadingHTTPServer):
    """Answers with `replies` in turn, the last one again and again; each is a Reply or makes one of the request.

    requests: what was received, in the order in which it came; most_at_once: how many were answered at the same time.
    """

    daemon_threads = True

    def __init__(self, *replies: Reply | Script, port: int = 0, path: str = "") -> None:
        """path: with which `url` ends."""
        self._path = path
        self.replies = list(replies)
        self.requests: list[Received] = []
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        self._called = threading.Semaphore(0)
        self._released = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, and the path."""
        return f"http://127.0.0.1:{self.server_port}{self._path}"

    @property
    def calls(self) -> list[str]:
        """The requests as method and path."""
        return [each.call for each in self.requests]

    @property
    def bodies(self) -> list[Any]:
        """The JSON of the requests."""
        return [each.body for each in self.requests]

    def of(self, method: str, end: str) -> list[Received]:
        """The requests by method whose path ends so."""
        return [each for each in self.requests if each.method == method and each.path.endswith(end)]

    def wait_for_call(self) -> None:
        """Return when one more request has come."""
        assert self._called.acquire(timeout=PATIENCE_S)

    def release(self) -> None:
        """Send held replies."""
        self._released.set()

    def reply(self, received: Received) -> Reply:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.requests.append(received)
            given = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        self._called.release()
        try:
            reply = given(received) if callable(given) else given
            if reply.is_held:
                self._released.wait(PATIENCE_S)
            return reply
        finally:
            with self._lock:
                self._at_once -= 1

    def close(self) -> None:
        self.release()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        content = self.rfile.read(int(headers.get("content-length", 0)))
        if headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        reply = self.server.reply(Received(self.command, self.path, headers, content))
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

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted(*replies: Reply | Script, port: int = 0) -> Iterator[ScriptedServer]:
    """A server that listens within the context."""
    server = ScriptedServer(*replies, port=port)
    try:
        yield server
    finally:
        server.close()


def in_turn(replies: Sequence[Reply], others: Script) -> Script:
    """A script that answers with some replies first, then as another does."""
    left = list(replies)
    return lambda received: left.pop(0) if left else others(received)


def by_body(script: Callable[[Any], Reply]) -> Script:
    """A script that wants the JSON of the body alone."""
    return lambda received: script(received.body)
