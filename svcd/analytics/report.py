"""The anonymous usage report: bundled, sent once an hour or when a bundle is full, to the address that the owner gave.

A batch is one POST of JSON, of at most LARGEST_BYTES:

    {"instanceUid": "...", "sentAt": "...", "batch": [{"event": "searches", "at": "...", "properties": {...}}]}

What could not be sent stays in the bundle for the next hour; when that is full, the oldest goes. Knows when to send;
refuses to know what is told (svcd.analytics.figures) and how bytes reach another host, which it is given.

Threads: "svcd-usage-report", begun by start(), sleeps until something is due; step() does its work in any thread.
`_changed` guards the rest.
"""
from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from svcd.base import logs, times
from svcd.remote.errors import Undelivered

LARGEST_BYTES = 500_000
EVERY_S = 3600.0
STOP_S = 0.5  # longer than figures take to be asked for

Send = Callable[[str, bytes], None]  # address, JSON; raises Undelivered


class UsageReport:
    """The bundle of one instance."""

    def __init__(self, address: str, instance_uid: str, figures: Callable[[], Mapping[str, Mapping[str, Any]]],
                 send: Send, now: Callable[[], int] = times.now) -> None:
        """figures: asked once an hour for what to tell, by event. now: nanoseconds since 1970."""
        self._address = address
        self._instance_uid = instance_uid
        self._figures = figures
        self._send = send
        self._now = now
        self._due = now() + int(EVERY_S * times.SECOND)
        self._waiting: deque[bytes] = deque()  # events as JSON, the oldest first
        self._frame_bytes = len(self._batch((), 1))  # no moment has more digits
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="svcd-usage-report", daemon=True)

    def start(self) -> None:
        """Report from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Report no more; nothing is sent at the end. What is on its way is hardly waited for."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def add(self, event: str, properties: Mapping[str, Any]) -> None:
        """Into the bundle; when that is full, it is sent. An event that alone is too large is left out."""
        told = json.dumps({"event": event, "at": times.rfc3339(self._now()), "properties": properties},
                          separators=(",", ":")).encode()
        with self._changed:
            if self._size([told]) > LARGEST_BYTES:
                return
            self._waiting.append(told)
            if self._is_full():
                self._changed.notify_all()

    def step(self) -> float:
        """Send what is due; seconds until something will be."""
        if self._now() >= self._due:
            self._due = self._now() + int(EVERY_S * times.SECOND)
            for event, properties in self._figures().items():
                self.add(event, properties)
            self._send_batches(lambda: bool(self._waiting))
        else:
            self._send_batches(self._is_full)
        return max(0.0, (self._due - self._now()) / times.SECOND)

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                seconds = self.step()
            except Exception as bug:  # costs this report, and no later one
                logs.failure("no usage report could be made", bug)
                seconds = EVERY_S
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping or self._is_full(), seconds)

    def _is_full(self) -> bool:
        return self._size(self._waiting) > LARGEST_BYTES

    def _size(self, events: Iterable[bytes]) -> int:
        """Bytes of a batch of these events."""
        return self._frame_bytes + sum(len(event) + 1 for event in events)

    def _send_batches(self, is_wanted: Callable[[], bool]) -> None:
        while is_wanted() and not self._is_stopping:
            with self._changed:
                events = self._first()
            try:
                self._send(self._address, self._batch(events, self._now()))
            except Undelivered as failure:
                logs.debug("the usage report was not sent", why=failure)
                self._keep_newest()
                return
            with self._changed:
                for _ in events:
                    self._waiting.popleft()

    def _first(self) -> list[bytes]:
        """As many of those that wait as fit into a batch."""
        events: list[bytes] = []
        room = LARGEST_BYTES - self._size(())
        for event in self._waiting:
            room -= len(event) + 1
            if room < 0:
                break
            events.append(event)
        return events

    def _keep_newest(self) -> None:
        with self._changed:
            while self._is_full():
                self._waiting.popleft()

    def _batch(self, events: Iterable[bytes], moment: int) -> bytes:
        head = json.dumps({"instanceUid": self._instance_uid, "sentAt": times.rfc3339(moment)},
                          separators=(",", ":")).encode()
        return head[:-1] + b',"batch":[' + b",".join(events) + b"]}"
