"""A language model's service on loopback, which speaks the protocol of chat completions and plays scripts.

A script is a list of rounds, one for each request; the last one is played again and again. The functions `c`, `f`, `t`, `u` make
chunks in the shortest notation: content, end, call of a tool, figures.
"""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE_S = 20.0
EVENTS = "text/event-stream"
DONE = "[DONE]"
SEARCH = "_meiliSearchInIndex"

Event = dict[str, Any] | str


def _chunk(choices: list[Any], **others: Any) -> dict[str, Any]:
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **others}


def c(**delta: Any) -> dict[str, Any]:
    """A chunk with this delta."""
    return _chunk([{"index": 0, "delta": delta, "finish_reason": None}])


def f(reason: str) -> dict[str, Any]:
    """The chunk that ends a choice."""
    return _chunk([{"index": 0, "delta": {}, "finish_reason": reason}])


def t(place: int, call_id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    """A part of a call of a tool."""
    called = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return c(tool_calls=[{"index": place, **({"id": call_id, "type": "function"} if call_id else {}), "function": called}])


def u(prompt: int, completion: int, total: int) -> dict[str, Any]:
    """The chunk with the figures of a round."""
    return _chunk([], usage={"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total})


@dataclass(frozen=True)
class Round:
    """One answer. events: chunks, or the texts of events. body: sent instead of events. gap_s: before each event but the first.

    is_broken: the connection ends in the middle.
    """

    events: Sequence[Event] | Iterator[Event] = ()
    status: int = 200
    content_type: str = f"{EVENTS}; charset=utf-8"
    body: bytes | None = None
    gap_s: float = 0.0
    is_broken: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class Received(NamedTuple):
    """One request. headers: names in lower case."""

    path: str
    headers: dict[str, str]
    body: Any


class Source(ThreadingHTTPServer):
    """Plays `script`. requests: in their order; sent_at: when the first event of each round was sent; left: set when a client hung
    up before its answer ended."""

    daemon_threads = True

    def __init__(self, script: Sequence[Round | Sequence[Event]] = ()) -> None:
        self.script = list(script)
        self.requests: list[Received] = []
        self.sent_at: list[float] = []
        self.left = threading.Event()
        self.sent = 0
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def bodies(self) -> list[Any]:
        return [received.body for received in self.requests]

    def told(self) -> list[str]:
        """What the model was told of its searches, as the last request has it."""
        return [message["content"] for message in self.bodies[-1]["messages"] if message["role"] == "tool"]

    def next_round(self, received: Received) -> Round:
        with self._lock:
            self.requests.append(received)
            played = self.script[min(len(self.requests), len(self.script)) - 1]
        return played if isinstance(played, Round) else Round(played)

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Source
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(self.rfile.read(int(headers["content-length"])))
        played = self.server.next_round(Received(self.path, headers, body))
        self.send_response(played.status)
        self.send_header("Content-Type", played.content_type)
        for name, value in played.headers:
            self.send_header(name, value)
        if played.body is not None:
            self.send_header("Content-Length", str(len(played.body)))
            self.end_headers()
            self.wfile.write(played.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._play(played)
        except OSError:
            self.server.left.set()
            self.close_connection = True

    def _play(self, played: Round) -> None:
        for place, event in enumerate(played.events):
            if place and played.gap_s:
                time.sleep(played.gap_s)
            if not place:
                self.server.sent_at.append(time.perf_counter())
            text = event if isinstance(event, str) else json.dumps(event)
            self._send(f"data: {text}\n\n".encode())
            self.server.sent += 1
        if played.is_broken:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass
