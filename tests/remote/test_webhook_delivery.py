"""What must hold of webhook delivery:

1. Each webhook gets every notice once, in the order in which batches ended, and none before its batch ended.
2. What cannot be delivered is tried again: first after a second, then after pauses that grow to five minutes.
3. After a day a notice is given up, with those as old; later ones are still delivered. Replayed, it is tried again.
4. A webhook that fails or is slow delays no other, and no task.
5. A stop at any line loses nothing; what was sent and not deleted from the outbox is sent again, and no more than that.
6. A webhook that was changed is tried at once; a deleted one gets nothing more.
7. Without anything to deliver there is no thread and no client.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.base import quantities
from svcd.instance.instance import Instance
from svcd.instance.webhooks import Webhook
from svcd.remote import Undelivered, webhook_delivery
from svcd.remote.webhook_delivery import WebhookDelivery, WebhookNotifier

PATIENCE_S = 20.0


class Mail:
    """Stands for the client: what arrived at each URL, and who does not answer.

    failing: URL -> why; before: called with each URL before anything arrives.
    """

    def __init__(self) -> None:
        self.arrived: dict[str, list[str]] = {}
        self.headers: dict[str, Mapping[str, str]] = {}
        self.tried: list[str] = []
        self.failing: dict[str, str] = {}
        self.before: Callable[[str], None] = lambda url: None
        self.aborts = 0

    def post(self, url: str, headers: Mapping[str, str], body: Iterable[bytes], length: int) -> None:
        self.tried.append(url)
        self.before(url)
        if url in self.failing:
            raise Undelivered(self.failing[url])
        text = b"".join(body)
        assert len(text) == length
        self.headers[url] = headers
        self.arrived.setdefault(url, []).append(text.decode().strip())

    def abort(self) -> None:
        self.aborts += 1


class Post:
    """An instance with deliveries that are stepped by hand, under a clock that moves by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mail = Mail()
        self.now = self.begin = quantities.now()
        self.ended = 0
        self.open()

    def open(self) -> None:
        self.instance = Instance(self.path)
        self.deliveries: dict[str, WebhookDelivery] = {}

    def restart(self) -> None:
        self.instance.close()
        self.open()

    def register(self, *names: str) -> None:
        for name in names:
            self.instance.webhooks.create(Webhook(name, f"http://{name}.test"))

    def end(self, count: int = 1) -> None:
        """Some batches end now."""
        for _ in range(count):
            with self.instance.queue.finishing() as connection:
                self.instance.outbox.append(connection, self.ended, self.now, [str(self.ended)])
            self.ended += 1

    def step(self, name: str) -> float | None:
        if name not in self.deliveries:
            self.deliveries[name] = WebhookDelivery(name, self.instance.webhooks, self.instance.outbox, self.mail, lambda: self.now)
        return self.deliveries[name].step()

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * quantities.SECOND)

    def run(self, name: str) -> None:
        """Steps until nothing waits, or the first failure."""
        while self.step(name) == 0:
            pass

    def arrived(self, name: str) -> list[int]:
        return [int(text) for text in self.mail.arrived.get(f"http://{name}.test", [])]

    def fail(self, *names: str) -> None:
        self.mail.failing = {f"http://{name}.test": "refused" for name in names}


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    post = Post(tmp_path / "data")
    yield post
    post.instance.close()


def test_each_webhook_gets_each_notice_once_and_in_order(post: Post) -> None:
    post.register("a", "b")
    post.end(5)
    post.run("a")
    post.end(2)
    post.run("a")
    post.run("b")
    assert post.arrived("a") == post.arrived("b") == list(range(7))
    assert post.step("a") is None and post.step("b") is None


def test_a_notice_is_ndjson_with_the_headers_of_its_webhook(post: Post) -> None:
    post.instance.webhooks.create(Webhook("a", "http://a.test", {"Authorization": "Bearer x", "X-Name": "1"}))
    post.end()
    post.run("a")
    assert post.mail.headers["http://a.test"] == {
        "Content-Type": "application/x-ndjson", "Authorization": "Bearer x", "X-Name": "1"}


def pauses(post: Post, name: str, within_s: float) -> list[float]:
    """The pauses of a webhook that fails for a while; the clock moves along."""
    found: list[float] = []
    begin = post.now
    while post.now - begin < within_s * quantities.SECOND:
        pause = post.step(name)
        assert pause
        found.append(pause)
        post.wait(pause)
    return found


def test_pauses_begin_at_a_second_and_grow_to_five_minutes(post: Post) -> None:
    post.register("a")
    post.end()
    post.fail("a")
    found = pauses(post, "a", 4 * 3600)
    assert found[0] == 1 and found[-1] == 300 == max(found)
    assert found == sorted(found) and all(later <= earlier * 1.5 for earlier, later in zip(found, found[1:]))


@pytest.mark.parametrize("down_s", [5, 30, 60, 120, 180])
def test_a_webhook_that_was_away_for_minutes_is_retried_within_one(post: Post, down_s: int) -> None:
    post.register("a")
    post.end(3)
    post.fail("a")
    begin = post.now
    pauses(post, "a", down_s)
    assert (post.now - begin) / quantities.SECOND - down_s < 50
    post.fail()
    post.run("a")
    assert post.arrived("a") == [0, 1, 2]


def test_later_notices_wait_for_the_one_that_fails(post: Post) -> None:
    post.register("a")
    post.end(2)
    post.fail("a")
    assert post.step("a") == post.step("a") == 1
    post.end()
    post.fail()
    post.run("a")
    assert post.arrived("a") == [0, 1, 2]


def test_a_success_forgets_the_failures(post: Post) -> None:
    post.register("a")
    post.end(2)
    post.fail("a")
    pauses(post, "a", 600)
    post.fail()
    assert post.step("a") == 0
    post.fail("a")
    assert post.step("a") == 1


def test_a_failing_webhook_does_not_delay_others(post: Post) -> None:
    post.register("a", "b")
    post.end(3)
    post.fail("a")
    for _ in range(3):
        assert post.step("a") == 1
        assert post.step("b") == 0
    assert post.arrived("b") == [0, 1, 2] and post.arrived("a") == []


def test_a_day_later_what_is_old_is_given_up_and_the_rest_delivered(post: Post) -> None:
    post.register("a")
    post.end(3)
    post.fail("a")
    pauses(post, "a", 12 * 3600)
    post.end(2)
    while post.instance.outbox.failures("a", 0, 10)[1] < 3:
        post.wait(post.step("a") or 0)
    failures, _ = post.instance.outbox.failures("a", 0, 10)
    assert [each.batch_uid for each in failures if each.given_up_at] == [0, 1, 2]
    assert failures[0].attempts > 200 and failures[0].reason == "refused"
    assert quantities.DAY <= failures[0].given_up_at - post.begin <= quantities.DAY + 301 * quantities.SECOND  # type: ignore[operator]
    post.fail()
    post.run("a")
    assert post.arrived("a") == [3, 4]


def test_what_was_given_up_can_be_replayed(post: Post) -> None:
    post.register("a")
    post.end(3)
    post.fail("a")
    post.wait(25 * 3600)
    assert post.step("a") == 1 and post.step("a") is None
    post.fail()
    post.end()
    assert post.instance.outbox.replay("a", [1, 2]) == 2
    post.run("a")
    assert post.arrived("a") == [1, 2, 3]
    post.instance.outbox.replay("a")
    post.run("a")
    assert post.arrived("a") == [1, 2, 3, 0] and post.instance.outbox.failures("a", 0, 1)[1] == 0


def test_what_waited_while_svcd_was_away_is_tried_before_it_is_given_up(post: Post) -> None:
    post.register("a")
    post.end(3)
    post.restart()
    post.wait(3 * 24 * 3600)
    post.run("a")
    assert post.arrived("a") == [0, 1, 2]


def test_a_changed_webhook_is_another_one(post: Post) -> None:
    post.register("a")
    post.end()
    post.fail("a")
    pauses(post, "a", 600)
    post.instance.webhooks.update("a", lambda row: row._replace(url="http://b.test"))
    post.deliveries["a"].reset_backoff()
    post.run("a")
    assert post.arrived("b") == [0]


def test_a_deleted_webhook_gets_no_more_notices(post: Post) -> None:
    post.register("a")
    post.end(2)
    post.mail.before = lambda url: post.instance.webhooks.delete("a")
    assert post.step("a") == 0 and post.step("a") is None
    assert post.arrived("a") == []


class Stop(BaseException):
    """The daemon is killed here."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(st.sampled_from(["end", "a", "b", "a fails", "a answers", "kill", "kill behind the post"]),
                       max_size=30))
def test_everything_arrives_in_order_despite_failures(tmp_path_factory: Any, events: list[str]) -> None:
    post = Post(tmp_path_factory.mktemp("post") / "data")
    post.register("a", "b")
    kills = 0
    for event in events:
        if event == "end":
            post.end()
        elif event in ("a", "b"):
            post.step(event)
        elif event == "a fails":
            post.fail("a")
        elif event == "a answers":
            post.fail()
        elif event == "kill":
            post.restart()
        else:
            kills += _killed_behind_the_post(post)
    post.fail()
    for name in ("a", "b"):
        post.run(name)
        arrived = post.arrived(name)
        assert list(dict.fromkeys(arrived)) == list(range(post.ended))
        assert arrived == sorted(arrived) and len(arrived) <= post.ended + kills
    post.instance.close()


def _killed_behind_the_post(post: Post) -> int:
    """A kill between the arrival of a notice and the striking out; 1 when there was one."""
    def stop(*_: object) -> None:
        raise Stop

    post.instance.outbox.mark_delivered = stop  # type: ignore[method-assign]
    try:
        post.step("a")
    except Stop:
        return 1
    finally:
        post.restart()
    return 0


# Threads


@pytest.fixture
def notifier(post: Post) -> Iterator[WebhookNotifier]:
    """A notifier over the same outbox; what it sends arrives in post.mail."""
    bugs: list[BaseException] = []
    notifier = WebhookNotifier(post.instance.webhooks, post.instance.outbox, lambda: post.mail, bugs.append)
    notifier.start()
    yield notifier
    notifier.stop()
    assert not delivery_threads() and not bugs


def delivery_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("svcd-webhook")]


def settle() -> None:
    """Wait until every delivery is home."""
    for thread in delivery_threads():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_without_anything_to_deliver_nothing_runs(post: Post) -> None:
    def fail() -> Any:
        raise AssertionError("a client was made")

    notifier = WebhookNotifier(post.instance.webhooks, post.instance.outbox, fail)
    notifier.start()
    post.end()
    notifier.wake()
    post.register("a")
    notifier.wake()
    assert not delivery_threads()
    notifier.stop()


def test_a_thread_starts_with_a_notice_and_ends_without(post: Post, notifier: WebhookNotifier) -> None:
    post.register("a")
    for _ in range(3):
        post.end(2)
        notifier.wake()
    settle()
    notifier.wake()
    settle()
    assert post.arrived("a") == list(range(6)) and not delivery_threads()


def test_what_an_earlier_daemon_left_is_delivered_at_the_start(post: Post) -> None:
    post.register("a")
    post.end(3)
    post.restart()
    notifier = WebhookNotifier(post.instance.webhooks, post.instance.outbox, lambda: post.mail)
    notifier.start()
    settle()
    assert post.arrived("a") == [0, 1, 2]
    notifier.stop()


def test_a_slow_webhook_delays_neither_others_nor_tasks(post: Post, notifier: WebhookNotifier) -> None:
    post.register("a", "b")
    begun, released = threading.Event(), threading.Event()

    def be_slow(url: str) -> None:
        if url == "http://a.test":
            begun.set()
            assert released.wait(PATIENCE_S)

    post.mail.before = be_slow
    post.end()
    notifier.wake()
    assert begun.wait(PATIENCE_S)
    post.end(3)  # the tasks end although a request is in progress
    notifier.wake()
    others = [thread for thread in delivery_threads() if thread.name.endswith("-b")]
    for thread in others:
        thread.join(PATIENCE_S)
    notifier.wake()
    for thread in others:
        assert not thread.is_alive()
    assert post.arrived("b") == [0, 1, 2, 3] and post.arrived("a") == []
    released.set()
    settle()
    assert post.arrived("a") == [0, 1, 2, 3]


def test_a_changed_webhook_does_not_wait_for_its_pause(post: Post, notifier: WebhookNotifier) -> None:
    post.register("a")
    failed = threading.Event()
    post.fail("a")
    post.end()
    original = post.instance.outbox.mark_failed

    def note(*args: Any, **others: Any) -> int:
        given_up = original(*args, **others)
        failed.set()
        return given_up

    post.instance.outbox.mark_failed = note  # type: ignore[method-assign]
    notifier.wake()
    assert failed.wait(PATIENCE_S)
    post.instance.webhooks.update("a", lambda row: row._replace(url="http://b.test"))
    settle()
    assert post.arrived("b") == [0]


def test_a_stop_does_not_wait_for_a_pause_or_a_receiver(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_delivery, "STOP_S", 0.05)
    post.register("a", "b")
    post.fail("a")
    begun, aborted = threading.Event(), threading.Event()

    def hang(url: str) -> None:
        if url == "http://b.test":
            begun.set()
            aborted.wait(PATIENCE_S)
            raise Undelivered("aborted")

    post.mail.before = hang
    post.mail.abort = aborted.set  # type: ignore[method-assign]
    post.end()
    notifier = WebhookNotifier(post.instance.webhooks, post.instance.outbox, lambda: post.mail)
    notifier.start()
    assert begun.wait(PATIENCE_S)
    notifier.stop()
    assert not delivery_threads() and aborted.is_set()
    notifier.wake()
    assert not delivery_threads()


def test_a_fault_of_the_store_ends_no_delivery(post: Post) -> None:
    bugs: list[BaseException] = []
    post.register("a")
    post.end()
    original, struck = post.instance.outbox.mark_delivered, threading.Event()

    def fail_once(*args: Any) -> None:
        post.instance.outbox.mark_delivered = lambda *args: (original(*args), struck.set())  # type: ignore
        raise OSError("the disk is full")

    post.instance.outbox.mark_delivered = fail_once  # type: ignore[method-assign]
    notifier = WebhookNotifier(post.instance.webhooks, post.instance.outbox, lambda: post.mail, bugs.append)
    notifier.start()
    while not bugs:
        delivery_threads()[0].join(0.01)
    notifier.retry_now("a")
    assert struck.wait(PATIENCE_S)
    settle()
    assert post.arrived("a") == [0, 0] and [str(bug) for bug in bugs] == ["the disk is full"]
    notifier.stop()


def test_a_thread_that_cannot_be_made_is_tried_again(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    bugs: list[BaseException] = []
    post.register("a")
    post.end()
    notifier = WebhookNotifier(post.instance.webhooks, post.instance.outbox, lambda: post.mail, bugs.append)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        notifier.start()
    assert len(bugs) == 1 and not post.arrived("a")
    notifier.wake()
    settle()
    assert post.arrived("a") == [0]
    notifier.stop()
