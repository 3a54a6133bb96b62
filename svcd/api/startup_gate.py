"""The way in while the application is still being loaded.

`/health` is answered at once; every other request waits for the application. So a daemon listens before it has
read the two thirds of its own code that only requests need. Refuses to know how an application is made.

Threads: those of requests come through `answer`; another one calls `open`, once.
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
    """Gives each request to the application, once there is one."""

    def __init__(self) -> None:
        self.wanted = threading.Event()  # somebody waits for the application
        self._is_open = threading.Event()
        self._application: Callable[[Request], Response] | None = None

    def open(self, application: Callable[[Request], Response]) -> None:
        """From now on, this answers: those that wait, and all that come."""
        self._application = application
        self._is_open.set()

    def answer(self, request: Request) -> Response:
        """The response to a request; waits as long as it needs the application and that is not there."""
        application = self._application
        if application is None:
            if request.method == "GET" and request.segments == ("health",):
                return Response(200, AVAILABLE)
            application = self._awaited()
        return application(request)

    def _awaited(self) -> Callable[[Request], Response]:
        self.wanted.set()
        self._is_open.wait()
        assert self._application is not None
        return self._application
