"""Answers `/health` and holds all other requests until the application is loaded.

So a daemon listens before it has loaded the two thirds of its code that only requests need.
Threads: request threads call `answer`; the loading thread calls `open`, once.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from svcd.http.message import Response

if TYPE_CHECKING:
    from svcd.http.message import Request

AVAILABLE = b'{"status":"available"}'  # a test compares it with the answer of the route


class StartupGate:
    """Passes each request to the application, once it is loaded."""

    def __init__(self) -> None:
        self.wanted = threading.Event()  # a request waits for the application
        self._is_open = threading.Event()
        self._application: Callable[[Request], Response] | None = None

    def open(self, application: Callable[[Request], Response]) -> None:
        """Answer all waiting and future requests with this application."""
        self._application = application
        self._is_open.set()

    def answer(self, request: Request) -> Response:
        """The response to a request; blocks until the application is loaded, except for `/health`."""
        application = self._application
        if application is None:
            if request.method == "GET" and request.segments == ("health",):
                return Response(200, AVAILABLE)
            application = self._wait_for_application()
        return application(request)

    def _wait_for_application(self) -> Callable[[Request], Response]:
        self.wanted.set()
        self._is_open.wait()
        assert self._application is not None
        return self._application
