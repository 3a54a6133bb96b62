"""Sends the anonymous usage report to the configured address: events in batches, once an hour or when a batch is full.

A batch is one POST of JSON, of at most LARGEST_BYTES:

    {"instanceUid": "...", "sentAt": "...", "batch": [{"event": "searches", "at": "...", "properties": {...}}]}

Events that could not be sent are kept for the next hour, up to one batch; the oldest are dropped first. The figures are those
of svcd.analytics.figures.

Threads: "svcd-usage-report", started by start(), sleeps until something is due; step() does its work in any thread.
`_changed` guards the state.
"""
from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from svcd.base import logs, quantities
from svcd.remote import Undelivered

LARGEST_BYTES = 500_000
EVERY_S = 3600.0
STOP_S = 0.5  # longer than collecting the figures takes

Send = Callable[[str, bytes], None]  # address, JSON; raises Undelivered


class UsageReport:
    """The report of one instance."""

    def __init__(self, address: str, instance_uid: str, figures: Callable[[], Mapping[str, Mapping[str, Any]]],
                 send: Send, now: Callable[[], int] = quantities.now) -> None:
        """figures: returns event -> properties, called once an hour. now: nanoseconds since 1970."""
        self._address = address
        self._instance_uid = instance_uid
        self._figures = figures
        self._send = send
        self._now = now
        self._due = now() + int(EVERY_S * quantities.SECOND)
        self._waiting: deque[bytes] = deque()  # events as JSON, the oldest first
        self._frame_bytes = len(self._batch((), 1))  # the longest text of a moment
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="svcd-usage-report", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; nothing is sent at the end, and a request in progress is waited for briefly."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def add(self, event: str, properties: Mapping[str, Any]) -> None:
        """Add an event; a full batch is sent at once. An event larger than a batch is dropped."""
        encoded = json.dumps({"event": event, "at": quantities.rfc3339(self._now()), "properties": properties},
                          separators=(",", ":")).encode()
        with self._changed:
            if self.batch_bytes([encoded]) > LARGEST_BYTES:
                return
            self._waiting.append(encoded)
            if self._is_full():
                self._changed.notify_all()

    def step(self) -> float:
        """Send the reports that are due. Return the seconds until the next one."""
        if self._now() >= self._due:
            self._due = self._now() + int(EVERY_S * quantities.SECOND)
            for event, properties in self._figures().items():
                self.add(event, properties)
            self._send_batches(lambda: bool(self._waiting))
        else:
            self._send_batches(self._is_full)
        return max(0.0, (self._due - self._now()) / quantities.SECOND)

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                seconds = self.step()
            except Exception as bug:  # this report is lost, later ones are not
                logs.failure("no usage report could be made", bug)
                seconds = EVERY_S
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping or self._is_full(), seconds)

    def _is_full(self) -> bool:
        return self.waiting_bytes > LARGEST_BYTES

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a batch of all events that are not sent yet."""
        return self.batch_bytes(self._waiting)

    def batch_bytes(self, events: Iterable[bytes]) -> int:
        """Bytes of a batch of these events, given as JSON."""
        return self._frame_bytes + sum(len(event) + 1 for event in events)

    def _send_batches(self, is_wanted: Callable[[], bool]) -> None:
        while is_wanted() and not self._is_stopping:
            events: list[bytes] = []  # the oldest that fit into a batch
            room = LARGEST_BYTES - self.batch_bytes(())
            with self._changed:
                for event in self._waiting:
                    room -= len(event) + 1
                    if room < 0:
                        break
                    events.append(event)
            try:
                self._send(self._address, self._batch(events, self._now()))
            except Undelivered as failure:
                logs.debug("the usage report was not sent", why=failure)
                with self._changed:
                    while self._is_full():
                        self._waiting.popleft()
                return
            with self._changed:
                for _ in events:
                    self._waiting.popleft()

    def _batch(self, events: Iterable[bytes], moment: int) -> bytes:
        head = json.dumps({"instanceUid": self._instance_uid, "sentAt": quantities.rfc3339(moment)},
                          separators=(",", ":")).encode()
        return head[:-1] + b',"batch":[' + b",".join(events) + b"]}"
