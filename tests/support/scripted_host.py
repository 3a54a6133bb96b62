"""A host on loopback that answers requests as a test says, and keeps them: the target of exports, an object store."""
from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A request. headers: names in lower case; body: decompressed."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def documents(self) -> list[Any]:
        """The documents of the body, whatever is between them."""
        text, documents, at = self.body.decode(), [], 0
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
    """What is answered. body: JSON unless it is bytes."""

    status: int = 202
    body: Any = {}
    headers: dict[str, str] = {}


Script = Callable[[Received], Reply]


class ScriptedHost(ThreadingHTTPServer):
    """Answers what `script` says. requests: those received, in order of their ends; most_at_once: of their answers."""

    daemon_threads = True

    def __init__(self, script: Script, port: int = 0) -> None:
        self.script = script
        self.requests: list[Received] = []
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def calls(self) -> list[str]:
        """The requests as method and path."""
        return [each.call for each in self.requests]

    def of(self, method: str, end: str) -> list[Received]:
        """The requests by method whose path ends so."""
        return [each for each in self.requests if each.method == method and each.path.endswith(end)]

    def answer(self, received: Received) -> Reply:
        with self._lock:
            self.requests.append(received)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return self.script(received)
        finally:
            with self._lock:
                self._at_once -= 1

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedHost

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        reply = self.server.answer(Received(self.command, self.path, headers, body))
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        try:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # it hung up
            pass

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted(script: Script, port: int = 0) -> Iterator[ScriptedHost]:
    """A host that listens within the context."""
    host = ScriptedHost(script, port)
    try:
        yield host
    finally:
        host.close()


def in_turn(replies: Sequence[Reply], others: Script) -> Script:
    """A script that answers with some replies first, then as another does."""
    left = list(replies)
    return lambda received: left.pop(0) if left else others(received)
