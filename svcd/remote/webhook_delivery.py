"""Delivers batch notifications to webhooks, in order, at least once.

A thread per webhook with waiting notices sends the oldest first; a failing webhook delays only its own later notices. Pauses
between retries grow with the time for which the webhook has been failing; after a day the daemon gives up a notice, and all
notices as old. svcd.remote.client sends the requests, and is imported with the first notice; notices come from
svcd.instance.webhooks. See docs/tasks-and-batches.md#webhooks-and-outbox.

Threads: "svcd-webhook-...", one per webhook with waiting notices, started by wake() and ended when no notice is left, so a daemon
without webhooks runs none of them. `_changed` guards `_deliveries`, `_sender` and `_is_stopping`. A thread deletes a notice from
the outbox after its delivery: only a crash in between delivers it twice.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from svcd.base import logs, quantities
from svcd.instance.webhooks import NoticeRemoved, Outbox, Webhooks
from svcd.remote import Undelivered

if TYPE_CHECKING:
    from svcd.remote.client import Client

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
# Pause as a fraction of the time for which the webhook has been failing: at most half a minute after an outage of two minutes.
PAUSE_SHARE = 1 / 4
GIVEN_UP_AFTER = quantities.DAY
# Seconds for which a stop lets requests in progress finish, and for which it waits for their threads after aborting them.
STOP_S = 1.0
NDJSON = "application/x-ndjson"


class WebhookDelivery:
    """Delivers the notices of one webhook, one per step(). now: returns the present moment."""

    def __init__(self, webhook_uuid: str, webhooks: Webhooks, outbox: Outbox, sender: Client,
                 now: Callable[[], int] = quantities.now) -> None:
        self._uuid = webhook_uuid
        self._webhooks, self._outbox, self._sender, self._now = webhooks, outbox, sender, now
        self._failing_since: int | None = None

    def step(self) -> float | None:
        """Send the oldest waiting notice. Returns seconds until the next step is due; None if no notice waits."""
        webhook, notice = self._webhooks.get(self._uuid), self._outbox.head(self._uuid)
        if webhook is None or notice is None:
            return None
        headers = {"Content-Type": NDJSON, **webhook.headers}
        try:
            self._sender.post(webhook.url, headers, self._outbox.lines(notice), notice.length)
        except NoticeRemoved:
            return 0.0
        except Undelivered as failure:
            note = logs.debug if self._failing_since is not None else logs.warn
            note("webhook not reached, will be retried", webhook=self._uuid, batch=notice.batch_uid, reason=str(failure))
            given_up = self._outbox.mark_failed(self._uuid, notice, str(failure), now=self._now(), given_up_after=GIVEN_UP_AFTER)
            if given_up:
                logs.error("webhook not reached, given up; it can be replayed", webhook=self._uuid, batches=given_up,
                           reason=str(failure))
            return self.pause_s()
        self._outbox.mark_delivered(self._uuid, notice)
        if self._failing_since is not None:
            logs.info("webhook reached again", webhook=self._uuid,
                      seconds=(self._now() - self._failing_since) // quantities.SECOND)
        self._failing_since = None
        return 0.0

    def reset_backoff(self) -> None:
        """Forget past failures, because the webhook has changed."""
        self._failing_since = None

    def pause_s(self) -> float:
        """Seconds to wait after a failure."""
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        failing_s = (now - self._failing_since) / quantities.SECOND
        return min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, failing_s * PAUSE_SHARE))


@dataclass
class _DeliveryThread:
    """The thread of one delivery. is_woken: a notice was added since its last step; is_due_now: retry without pause."""

    thread: threading.Thread
    is_woken: bool = False
    is_due_now: bool = False


class WebhookNotifier:
    """Starts and ends delivery threads. make_sender: called once, at the first delivery; on_bug: takes unexpected errors."""

    def __init__(self, webhooks: Webhooks, outbox: Outbox, make_sender: Callable[[], Client],
                 on_bug: Callable[[BaseException], None] = lambda bug: None) -> None:
        self.may_deliver: Callable[[], bool] = lambda: True  # False on a node of a cluster that does not lead it
        self._webhooks, self._outbox, self._make_sender, self._on_bug = webhooks, outbox, make_sender, on_bug
        self._sender: Client | None = None
        self._changed = threading.Condition()
        self._deliveries: dict[str, _DeliveryThread] = {}
        self._is_stopping = False
        self._is_closed = False  # the outbox may be closed

    def start(self) -> None:
        """Deliver the notices that an earlier daemon left, and all later ones."""
        self._outbox.prune_unknown_webhooks()
        self._webhooks.on_change = self.retry_now
        self.wake()

    def wake(self) -> None:
        """Check for new notices. Cheap, because the runner calls it after each batch."""
        for webhook in self._webhooks.all():
            self._wake(webhook.uuid)

    def retry_now(self, webhook_uuid: str) -> None:
        """Retry a webhook without pause: it has changed, or notices are replayed."""
        self._wake(webhook_uuid, is_due_now=True)

    def _wake(self, webhook_uuid: str, is_due_now: bool = False) -> None:
        with self._changed:
            under_way = self._deliveries.get(webhook_uuid)
            if under_way:
                under_way.is_woken = True
                under_way.is_due_now |= is_due_now
                if is_due_now:
                    self._changed.notify_all()
            elif not self._is_stopping and self.may_deliver() and self._outbox.head(webhook_uuid):
                thread = threading.Thread(target=self._deliver, args=(webhook_uuid,), daemon=True,
                                          name=f"svcd-webhook-{webhook_uuid[:8]}")
                self._deliveries[webhook_uuid] = _DeliveryThread(thread)
                try:
                    thread.start()
                except RuntimeError as refused:  # too many threads: tried again after the next batch
                    del self._deliveries[webhook_uuid]
                    self._on_bug(refused)

    def stop(self) -> None:
        """Let requests in progress finish within STOP_S; other notices wait for the next start."""
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
        """The main function of a delivery thread."""
        with self._changed:
            sender = self._sender = self._sender or self._make_sender()
        delivery = WebhookDelivery(webhook_uuid, self._webhooks, self._outbox, sender)
        has_next = True
        while has_next:
            pause_s = None
            try:
                pause_s = delivery.step() if self.may_deliver() else None
            except Exception as bug:  # or a full disk
                if not self._is_closed:
                    self._on_bug(bug)
                    pause_s = delivery.pause_s()
            has_next = self._wait_for_next_step(webhook_uuid, delivery, pause_s)

    def _wait_for_next_step(self, webhook_uuid: str, delivery: WebhookDelivery, pause_s: float | None) -> bool:
        """Wait until the next step is due. Returns False if the thread has to end."""
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


def _join(threads: Iterable[threading.Thread], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
