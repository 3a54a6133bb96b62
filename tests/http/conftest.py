"""A server on a free port of the loopback, and a client that says exactly what it is told."""
from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from svcd.http.message import Request, Response
from svcd.http.server import Server
from svcd.http.sockets import Limits

# Long enough for a busy machine, short enough to fail a hanging test.
MAX_WAIT_S = 10
QUICK = Limits(sweep_s=0.02)


class Client:
    """A raw connection."""

    def __init__(self, port: int, sock: socket.socket | None = None) -> None:
        self.sock = sock or socket.create_connection(("127.0.0.1", port), MAX_WAIT_S)
        self.file = self.sock.makefile("rb")

    def send(self, raw: bytes) -> Client:
        self.sock.sendall(raw)
        return self

    def answer(self, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """(status, headers by name in lower case, body with chunks joined) of the next answer."""
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, self._body(headers) if has_body else b""

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self.file.readline(), 16):
                pieces.append(self.file.read(size))
                assert self.file.readline() == b"\r\n"
            assert self.file.readline() == b"\r\n"
            return b"".join(pieces)
        if "content-length" in headers:
            return self.file.read(int(headers["content-length"]))
        return self.file.read() if headers.get("connection") == "close" else b""

    def is_closed(self) -> bool:
        """The server has ended the connection, and said nothing more."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.file.close()
        self.sock.close()


@dataclass
class Served:
    """A running server and what it told its callbacks."""

    server: Server
    thread: threading.Thread
    lines: list[tuple[str, int, int]]  # (verb and path, status, bytes)
    errors: list[str]
    clients: list[Client] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.server.port

    def connect(self) -> Client:
        self.clients.append(Client(self.port))
        return self.clients[-1]

    def send(self, raw: bytes) -> Client:
        return self.connect().send(raw)

    def stop(self, grace_s: float = MAX_WAIT_S) -> None:
        self.server.stop(grace_s)
        self.thread.join(MAX_WAIT_S)
        assert not self.thread.is_alive()


def echo(request: Request) -> Response:
    """Who asked for what, with which body."""
    return Response(200, b"%s %s %s" % (request.method.encode(), request.path.encode(), request.body.read()))


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(answer=echo, **options of Server) -> Served; stopped at the end of the test."""
    running: list[Served] = []

    def start(answer: Callable[[Request], Response] = echo, **options: Any) -> Served:
        lines: list[tuple[str, int, int]] = []
        errors: list[str] = []

        def on_request(request: Request, status: int, seconds: float, size: int) -> None:
            assert seconds >= 0
            lines.append((f"{request.verb} {request.path}", status, size))

        options = {"limits": QUICK, "address": ("127.0.0.1", 0)} | options
        server = Server(answer, on_request=on_request, on_error=errors.append, **options)
        thread = threading.Thread(target=server.serve)
        thread.start()
        running.append(Served(server, thread, lines, errors))
        return running[-1]

    yield start
    for served in running:
        for client in served.clients:
            client.close()
        if served.thread.is_alive():
            served.stop(0.2)
