"""A small embedding service on loopback that answers as it is told."""
from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE_S = 20.0


class Answer(NamedTuple):
    """What is sent. length: the Content-Length, when it is not that of the body. is_held: send nothing before `released`."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = {}
    length: int | None = None
    is_held: bool = False


class Service(ThreadingHTTPServer):
    """Answers requests with `answers` in turn, the last one again and again; each is an Answer or makes one of the request.

    requests: (headers, decoded body) of each request, in the order in which they came.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.asked = threading.Semaphore(0)
        self.released = threading.Event()
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/embed"

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.requests]

    def answer(self, headers: dict[str, str], body: Any) -> Answer:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.requests.append((headers, body))
            given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.asked.release()
        answer = given(body) if callable(given) else given
        if answer.is_held:
            self.released.wait(PATIENCE_S)
        with self._lock:
            self._at_once -= 1
        return answer

    def close(self) -> None:
        self.released.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(self.rfile.read(int(headers["content-length"])))
        answer = self.server.answer(headers, body)
        raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        try:
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(raw) if answer.length is None else answer.length))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)
        except OSError:  # it hung up
            pass

    def log_message(self, format: str, *args: Any) -> None:
        pass
