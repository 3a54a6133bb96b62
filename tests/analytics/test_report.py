"""What must hold of sending the usage report:

1. A report is sent once an hour, to the sink, and not before; nothing is sent at a stop.
2. No batch is larger than 500 kB; a full one is sent at once.
3. What could not be sent is sent with the next; when the batch is full, the oldest events are dropped.
4. An error while collecting figures costs one report.
"""
from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from svcd.analytics.report import EVERY_S, LARGEST_BYTES, UsageReport
from svcd.base import quantities
from svcd.remote import Undelivered

UID = "b5a0c5b4-0000-4000-8000-000000000000"
HOUR = int(EVERY_S * quantities.SECOND)


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.moment = 1_700_000_000_123_456_789

    def __call__(self) -> int:
        return self.moment


class Sink:
    """Takes batches; `fails` of them do not arrive."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.batches: list[Any] = []
        self.fails = 0

    def take(self, _address: str, content: bytes) -> None:
        if self.fails:
            self.fails -= 1
            raise Undelivered("refused")
        self.sizes.append(len(content))
        self.batches.append(json.loads(content))

    def events(self) -> list[tuple[str, Any]]:
        return [(event["event"], event["properties"]) for batch in self.batches for event in batch["batch"]]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def report(sink: Sink, clock: Clock) -> UsageReport:
    return UsageReport("http://sink", UID, lambda: {"searches": {"q": 1}, "tasks": {"t": 2}}, sink.take, clock)


def test_it_goes_out_once_an_hour(report: UsageReport, sink: Sink, clock: Clock) -> None:
    assert report.step() == EVERY_S and sink.batches == []
    clock.moment += HOUR - quantities.SECOND
    assert report.step() == 1.0 and sink.batches == []
    for hour in (1, 2, 3):
        clock.moment += HOUR if hour > 1 else quantities.SECOND
        assert report.step() == EVERY_S
        assert report.step() == EVERY_S
        assert len(sink.batches) == hour
    assert sink.events() == [("searches", {"q": 1}), ("tasks", {"t": 2})] * 3
    assert {batch["instanceUid"] for batch in sink.batches} == {UID}
    assert sink.batches[0]["sentAt"] == quantities.rfc3339(clock.moment - 2 * HOUR) == sink.batches[0]["batch"][0]["at"]


def test_a_sleep_of_days_is_one_report(report: UsageReport, sink: Sink, clock: Clock) -> None:
    clock.moment += 50 * HOUR
    report.step()
    report.step()
    assert len(sink.batches) == 1


def test_no_batch_is_larger_than_allowed(sink: Sink, clock: Clock) -> None:
    report = UsageReport("http://sink", UID, dict, sink.take, clock)
    for number in range(3000):
        report.add("event", {"number": number, "filler": "x" * (number % 1000)})
        clock.moment += 1  # the digits of a moment vary
    assert report.step() > 0
    early = len(sink.batches)
    assert early >= 3 and all(size <= LARGEST_BYTES for size in sink.sizes) and min(sink.sizes) > LARGEST_BYTES - 2000
    clock.moment += HOUR
    report.step()
    assert len(sink.batches) == early + 1 and max(sink.sizes) <= LARGEST_BYTES
    assert [properties["number"] for _, properties in sink.events()] == list(range(3000))


def test_a_bundle_that_is_not_full_waits(report: UsageReport, sink: Sink) -> None:
    report.add("event", {"filler": "x" * (LARGEST_BYTES - 1000)})
    report.step()
    assert sink.batches == []


def test_a_bundle_fits_to_the_byte(sink: Sink, clock: Clock) -> None:
    clock.moment = 1_700_000_000_123_456_789
    report = UsageReport("http://sink", UID, dict, sink.take, clock)
    overhead = LARGEST_BYTES - report.batch_bytes([b""])
    empty = len(json.dumps({"event": "e", "at": quantities.rfc3339(clock.moment), "properties": {"f": ""}},
                           separators=(",", ":")))
    report.add("e", {"f": "x" * (overhead - empty)})
    clock.moment += HOUR
    report.step()
    assert sink.sizes and LARGEST_BYTES - 2 <= sink.sizes[0] <= LARGEST_BYTES
    report.add("e", {"f": "x" * (overhead - empty + 1)})
    clock.moment += HOUR
    report.step()
    assert len(sink.batches) == 1


def test_what_did_not_arrive_goes_with_the_next(report: UsageReport, sink: Sink, clock: Clock) -> None:
    sink.fails = 1
    clock.moment += HOUR
    report.step()
    assert sink.batches == []
    report.step()
    assert sink.batches == []  # not before the next hour
    clock.moment += HOUR
    report.step()
    assert len(sink.batches) == 1 and len(sink.events()) == 4


def test_a_sink_that_is_away_costs_no_more_than_a_bundle(sink: Sink, clock: Clock) -> None:
    sink.fails = 100
    report = UsageReport("http://sink", UID, lambda: {"event": {"filler": "x" * 200_000}}, sink.take, clock)
    for hour in range(10):
        clock.moment += HOUR
        report.step()
        assert report.batch_bytes(report._waiting) <= LARGEST_BYTES
    sink.fails = 0
    clock.moment += HOUR
    report.step()
    assert 1 <= len(sink.batches) <= 2 and max(sink.sizes) <= LARGEST_BYTES


def test_a_figure_that_cannot_be_asked_for_ends_nothing(sink: Sink, clock: Clock, monkeypatch: Any) -> None:
    failed = threading.Event()
    monkeypatch.setattr("svcd.base.logs.failure", lambda *_, **__: failed.set())

    def figures() -> dict[str, Any]:
        raise OSError("closed")

    report = UsageReport("http://sink", UID, figures, sink.take, clock)
    clock.moment += HOUR
    report.start()
    assert failed.wait(10)
    report.stop()
    assert not is_running() and sink.batches == []


def test_the_thread_sends_a_full_bundle_at_once_and_nothing_at_the_stop(sink: Sink, clock: Clock) -> None:
    arrived = threading.Event()

    def take(address: str, content: bytes) -> None:
        sink.take(address, content)
        arrived.set()

    report = UsageReport("http://sink", UID, dict, take, clock)
    report.start()
    for _ in range(3):
        report.add("event", {"filler": "x" * 200_000})
    assert arrived.wait(10)
    report.stop()
    assert len(sink.batches) == 1 and not is_running()


def is_running() -> bool:
    """Is the thread of a report alive?"""
    return any(thread.name == "svcd-usage-report" for thread in threading.enumerate())
