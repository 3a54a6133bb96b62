"""Sent unasked: to each webhook a notice of every batch that ended, in order, until it has it.

A delivery carries the notices of one webhook, the oldest first: what cannot be delivered holds the later ones back,
and nobody else. It tries again after pauses that grow with the time that the webhook has been failing; after a day
a notice is given up, and those as old with it. Knows when to send what; refuses to know how (svcd.remote.client,
imported when the first notice goes out), and where notices come from (svcd.instance.outbox).

Threads: one a webhook that has something waiting ("svcd-webhook-..."), begun by wake() and ended when nothing is
left, so that a daemon without webhooks has none. `_changed` guards `_rounds`, `_sender` and `_is_stopping`. A notice
is struck out after it was delivered: a crash in between, and nothing else, delivers it twice.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from svcd.base import logs, times
from svcd.instance.outbox import Notice, NoticeRemoved, Outbox
from svcd.instance.webhooks import Webhooks
from svcd.remote.errors import Undelivered

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
# Of the time that a webhook has been failing: whoever was away for two minutes is told half a minute after its return.
PAUSE_SHARE = 1 / 4
GIVEN_UP_AFTER = times.DAY
# A stop lets what is being sent arrive for so long, and waits as long for the end of what did not.
STOP_S = 1.0
NDJSON = "application/x-ndjson"


class Sender(Protocol):
    """What svcd.remote.client.Client is to a delivery."""

    def post(self, url: str, headers: Mapping[str, str], body: Iterable[bytes], length: int) -> None:
        """Send; raises Undelivered."""

    def abort(self) -> None:
        """End what is under way: it is Undelivered."""


class WebhookDelivery:
    """Carries the notices of one webhook, one a step. now: the present moment."""

    def __init__(self, webhook_uuid: str, webhooks: Webhooks, outbox: Outbox, sender: Sender,
                 now: Callable[[], int] = times.now) -> None:
        self._uuid = webhook_uuid
        self._webhooks = webhooks
        self._outbox = outbox
        self._sender = sender
        self._now = now
        self._failing_since: int | None = None

    def step(self) -> float | None:
        """Send the oldest notice that waits. Seconds until the next step is due; None when nothing waits."""
        webhook, notice = self._webhooks.get(self._uuid), self._outbox.head(self._uuid)
        if webhook is None or notice is None:
            return None
        headers = {"Content-Type": NDJSON, **webhook.headers}
        try:
            self._sender.post(webhook.url, headers, self._outbox.lines(notice), notice.length)
        except NoticeRemoved:
            return 0.0
        except Undelivered as failure:
            return self._failed(notice, str(failure))
        self._outbox.mark_delivered(self._uuid, notice)
        self._note_success()
        return 0.0

    def reset_backoff(self) -> None:
        """The webhook is another one now: what was before says nothing about it."""
        self._failing_since = None

    def pause_s(self) -> float:
        """How long to wait after a failure."""
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        failing_s = (now - self._failing_since) / times.SECOND
        return min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, failing_s * PAUSE_SHARE))

    def _failed(self, notice: Notice, reason: str) -> float:
        note = logs.debug if self._failing_since is not None else logs.warn
        note("webhook not reached, tried again later", webhook=self._uuid, batch=notice.batch_uid, reason=reason)
        given_up = self._outbox.mark_failed(self._uuid, notice, reason, now=self._now(), given_up_after=GIVEN_UP_AFTER)
        if given_up:
            logs.error("webhook not reached, given up; it can be replayed", webhook=self._uuid, batches=given_up,
                       reason=reason)
        return self.pause_s()

    def _note_success(self) -> None:
        if self._failing_since is not None:
            logs.info("webhook reached again", webhook=self._uuid,
                      seconds=(self._now() - self._failing_since) // times.SECOND)
        self._failing_since = None


@dataclass
class _DeliveryThread:
    """A delivery under way. is_woken: something came since its last step; is_due_now: it shall not wait."""

    thread: threading.Thread
    is_woken: bool = False
    is_due_now: bool = False


class WebhookNotifier:
    """Sends couriers out. make_sender: called once, for the first of them; on_bug is told of tracebacks."""

    def __init__(self, webhooks: Webhooks, outbox: Outbox, make_sender: Callable[[], Sender],
                 on_bug: Callable[[BaseException], None] = lambda bug: None) -> None:
        self._webhooks = webhooks
        self._outbox = outbox
        self._make_sender = make_sender
        self._on_bug = on_bug
        self._sender: Sender | None = None
        self._changed = threading.Condition()
        self._deliveries: dict[str, _DeliveryThread] = {}
        self._is_stopping = False
        self._is_closed = False  # the store may be gone

    def start(self) -> None:
        """Deliver what an earlier daemon left, and whatever comes."""
        self._outbox.prune_unknown_webhooks()
        self._webhooks.on_change = self.retry_now
        self.wake()

    def wake(self) -> None:
        """There may be something to deliver. Costs little: the caller is what ends tasks."""
        for webhook in self._webhooks.all():
            self._wake(webhook.uuid)

    def retry_now(self, webhook_uuid: str) -> None:
        """A webhook has changed, or has something again that was given up: try it now."""
        self._wake(webhook_uuid, is_due_now=True)

    def _wake(self, webhook_uuid: str, is_due_now: bool = False) -> None:
        with self._changed:
            under_way = self._deliveries.get(webhook_uuid)
            if under_way:
                under_way.is_woken = True
                under_way.is_due_now |= is_due_now
                if is_due_now:
                    self._changed.notify_all()
            elif not self._is_stopping and self._outbox.head(webhook_uuid):
                self._start_thread(webhook_uuid)

    def _start_thread(self, webhook_uuid: str) -> None:
        thread = threading.Thread(target=self._deliver, args=(webhook_uuid,), daemon=True,
                                  name=f"svcd-webhook-{webhook_uuid[:8]}")
        self._deliveries[webhook_uuid] = _DeliveryThread(thread)
        try:
            thread.start()
        except RuntimeError as refused:  # too many threads: the next batch tries again
            del self._deliveries[webhook_uuid]
            self._on_bug(refused)

    def stop(self) -> None:
        """Let what is being sent arrive, for a moment; the rest waits for the next start."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            threads = [each.thread for each in self._deliveries.values()]
        _join(threads, STOP_S)
        if self._sender:
            self._sender.abort()
        _join(threads, STOP_S)
        self._is_closed = True

    def _deliver(self, webhook_uuid: str) -> None:
        """The life of a thread."""
        delivery = WebhookDelivery(webhook_uuid, self._webhooks, self._outbox, self._shared_sender())
        while self._wait_for_next_step(webhook_uuid, delivery, self._guarded_step(delivery)):
            pass

    def _guarded_step(self, delivery: WebhookDelivery) -> float | None:
        try:
            return delivery.step()
        except Exception as bug:  # or a full disk
            if self._is_closed:
                return None
            self._on_bug(bug)
            return delivery.pause_s()

    def _wait_for_next_step(self, webhook_uuid: str, delivery: WebhookDelivery, pause_s: float | None) -> bool:
        """Wait for the next step; False, and the round is over, when there is none."""
        with self._changed:
            current = self._deliveries[webhook_uuid]
            if pause_s:
                self._changed.wait_for(lambda: self._is_stopping or current.is_due_now, pause_s)
            if self._is_stopping or pause_s is None and not current.is_woken:
                del self._deliveries[webhook_uuid]
                return False
            if current.is_due_now:
                delivery.reset_backoff()
            current.is_woken = current.is_due_now = False
            return True

    def _shared_sender(self) -> Sender:
        with self._changed:
            self._sender = self._sender or self._make_sender()
            return self._sender


def _join(threads: Iterable[threading.Thread], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
