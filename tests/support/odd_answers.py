"""A host on loopback that answers whatever it is asked with what it should not: other shapes, no JSON, broken framing, odd statuses.

Each answer is made from a good one by a random generator, so that a run can be repeated by its seed.
"""
from __future__ import annotations

import copy
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**25, 0.5, -1e300, "", "x", "\ud800", "1" * 5000, [], [[]], [None], ["x"], [1, "x"],
    {}, {"": None}, {"message": 5}, {"code": ["x"]}, {"index": -1}, "not found", [{"a": []}],
)
STATUSES = (200, 200, 200, 200, 200, 200, 201, 202, 204, 206, 300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 405, 408, 412, 418,
            429, 499, 500, 502, 503, 504, 599, 600, 999)
# None has a name that would have to be resolved.
PLACES = ("/", "", "//", "http://", "http://[", "ftp://127.0.0.1/b", "http://127.0.0.1:99999/", "\\\\127.0.0.1:1", "?x",
          "http://127.0.0.1:1 /", "%zz", "http://127.0.0.1:x/\xff")
PATIENCE_S = 5.0


def odd_json(choose: random.Random, good: Any) -> bytes:
    """The text of a good answer in which something is wrong; now and then nothing is."""
    kind = choose.randrange(15)
    text = json.dumps(_odd_value(choose, good) if kind < 7 else good)
    if kind == 7:
        text = text[:choose.randrange(len(text) + 1)]
    elif kind == 8:
        text = "[" * choose.choice((130, 5000)) + "]" * choose.choice((0, 130, 5000))
    elif kind == 9:
        text = choose.choice(("", " ", "NaN", "[NaN]", '{"a": Infinity}', "<html>", "null", "0", '"x"', "{", '{"error": {"a":', text + text))
    elif kind == 10 and text.startswith("{") and len(text) > 2:  # repeated names: the last one counts
        text = f'{text[:-1]}, {text[1:text.find(":")]}: {json.dumps(choose.choice(ODD_VALUES))}}}'
    raw = text.encode()
    if kind == 11:
        at = choose.randrange(len(raw) + 1)
        raw = raw[:at] + bytes(choose.randrange(256) for _ in range(choose.randrange(1, 20))) + raw[at:]
    return raw


def _odd(choose: random.Random) -> Any:
    return copy.deepcopy(choose.choice(ODD_VALUES))  # it may be changed


def _odd_value(choose: random.Random, good: Any) -> Any:
    """A copy of a value in which up to three parts are replaced or missing."""
    value = copy.deepcopy(good)
    for _ in range(choose.randrange(1, 4)):
        places: list[tuple[Any, Any]] = [*_places(value)]
        if not places:
            return _odd(choose)
        holder, key = choose.choice(places)
        if holder is None:
            value = _odd(choose)
        elif choose.random() < 0.25:
            del holder[key]
        else:
            holder[key] = _odd(choose)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of all parts, of the value itself (None, None)."""
    yield None, None
    waiting = [value]
    while waiting:
        each = waiting.pop()
        for key in each if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ():
            yield each, key
            waiting.append(each[key])


def odd_answer(choose: random.Random, good: bytes | Any, kind: str = "application/json") -> bytes:
    """The bytes of a whole answer. good: the body, JSON unless it is bytes. kind: its media type."""
    body = good if isinstance(good, bytes) else odd_json(choose, good)
    if isinstance(good, bytes) and choose.random() < 0.7:
        body = bytearray(body)
        for _ in range(choose.randrange(4)):
            at = choose.randrange(len(body) + 1)
            body[at:at + choose.randrange(12)] = bytes(choose.randrange(256) for _ in range(choose.randrange(8)))
        body = bytes(body)
    status = choose.choice(STATUSES) if choose.random() < 0.5 else 200
    head = [f"HTTP/1.1 {status} x", f"Content-Type: {kind if choose.random() < 0.9 else 'text/html'}"]
    if 300 <= status < 400 or choose.random() < 0.02:
        head.append(f"Location: {choose.choice(PLACES)}")
    if choose.random() < 0.1:
        head.append(choose.choice(("Retry-After: x", "Retry-After: 0", "Retry-After: " + "9" * 40, "ETag: \"\xff\"", "X: " + "y" * 70_000,
                                   *["\r\n".join(f"X-{n}: {n}" for n in range(150))], "no colon", ": empty", "Content-Encoding: gzip")))
    framing = choose.randrange(14)
    if framing < 7:
        head.append(f"Content-Length: {len(body)}")
    elif framing < 11:
        head.append(f"Content-Length: {choose.choice((len(body) + 5, max(0, len(body) - 3), -1, 10**30, 'x', '1' * 5000))}")
    elif framing == 11:
        head.append("Transfer-Encoding: chunked")
        size = choose.choice((f"{len(body):x}", "-5", "zz", "f" * 40, "0", f"{len(body):x};a=b"))
        body = f"{size}\r\n".encode() + body + b"\r\n" + choose.choice((b"0\r\n\r\n", b"", b"x"))
    elif framing == 12:
        return choose.choice((b"", b"\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"\x00" * 100,
                              b"HTTP/1.1 100 Continue\r\n\r\n" * 3, b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"GET / HTTP/1.1\r\n\r\n"))
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


class OddServer:
    """Answers each request with odd_answer() of what `good` makes of its method, path and body; then it closes the connection."""

    def __init__(self, choose: random.Random, good: Callable[[str, str, bytes], Any], kind: str = "application/json") -> None:
        self._choose, self._good, self._kind = choose, good, kind
        self.answered = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE_S)
                try:
                    self._answer(connection)
                except OSError:
                    pass

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as file:
            method, path = (file.readline().decode("latin-1").split() + ["", ""])[:2]
            length = 0
            while (line := file.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = file.read(length)
            good = self._good(method, path, body)
            self.answered += 1
            connection.sendall(odd_answer(self._choose, good, self._kind))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def odd_server(choose: random.Random, good: Any, kind: str = "application/json") -> Iterator[OddServer]:
    """A server within the context. good: an answer, or a function of method, path and body."""
    server = OddServer(choose, good if callable(good) else lambda method, path, body: good, kind)
    try:
        yield server
    finally:
        server.close()
