"""Receivers on loopback, and guards that let them be reached."""
from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from ipaddress import ip_network

import pytest

from svcd.remote.client import Client
from svcd.remote.guard import Guard

LOOPBACK = (ip_network("127.0.0.0/8"),)
PATIENCE_S = 20.0


class Receiver:
    """Takes connections one after the other, keeps each request whole, and answers what it was told to.

    answer: bytes to be sent, or None to hold the connection open without a word until `released`.
    """

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.requests: list[tuple[bytes, bytes]] = []  # head and body
        self.asked = threading.Event()
        self.released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self.handle(connection)
                except OSError:  # it hung up
                    pass

    def handle(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_S)
        head, body = b"", b""
        while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
            head += piece
        head, _, body = head.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(
            b"content-length:")), 0)
        while len(body) < length and (piece := connection.recv(65536)):
            body += piece
        self.requests.append((head, body))
        self.asked.set()
        if self.answer is None:
            self.released.wait(PATIENCE_S)
        else:
            connection.sendall(self.answer)


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """receive(answer) -> a receiver that listens."""
    receivers: list[Receiver] = []

    def make(answer: bytes | None = b"HTTP/1.1 204 No Content\r\n\r\n") -> Receiver:
        receivers.append(Receiver(answer))
        return receivers[-1]

    yield make
    for receiver in receivers:
        receiver.close()


@pytest.fixture
def client() -> Client:
    return Client(Guard(LOOPBACK), timeout_s=PATIENCE_S)
