"""Counters in shared memory. What must hold:

1. They are those of an ordinary Traffic, and another process reads them in the same memory.
2. The next process that counts there goes on with the figures of the last one.
3. A process that ends while it adds a row leaves no part of it.
4. Without room for a row its requests are not counted, and nothing else changes.
"""
from __future__ import annotations

from svcd.api.traffic import DEGRADED, REGION_BYTES, SharedTraffic, Traffic

SEARCH = ("POST", "/indexes/{index_uid}/search")


def region() -> memoryview:
    return memoryview(bytearray(REGION_BYTES))


def count_some(traffic: Traffic) -> None:
    for status, seconds in ((200, 0.004), (200, 0.3), (400, 99.0)):
        traffic.count(*SEARCH, status)
        traffic.note(traffic.timing(*SEARCH), seconds)
    traffic.timing("GET", "/multi-search")
    traffic.count_search(DEGRADED)


def test_another_process_reads_the_same_figures() -> None:
    memory, plain = region(), Traffic()
    for traffic in (SharedTraffic(memory), plain):
        count_some(traffic)
    assert SharedTraffic(memory).as_json() == plain.as_json()


def test_a_reader_sees_what_is_counted_later() -> None:
    memory = region()
    counting = SharedTraffic(memory)
    counting.count(*SEARCH, 200)
    reading = SharedTraffic(memory)
    counting.count(*SEARCH, 200)
    assert reading.answered() == {(*SEARCH, 200): 2}


def test_the_next_process_goes_on() -> None:
    memory, plain = region(), Traffic()
    for _ in range(2):
        count_some(SharedTraffic(memory))
        count_some(plain)
    assert SharedTraffic(memory).as_json() == plain.as_json()


def test_half_a_row_does_not_count() -> None:
    memory = region()
    SharedTraffic(memory).count(*SEARCH, 200)
    rest = bytes(memory).index(b"\n") + 1
    memory[rest:rest + 5] = b'["GET'
    following = SharedTraffic(memory)
    assert following.answered() == {(*SEARCH, 200): 1}
    following.count("GET", "/", 404)
    assert SharedTraffic(memory).answered() == {(*SEARCH, 200): 1, ("GET", "/", 404): 1}


def test_without_room_nothing_else_changes() -> None:
    traffic = SharedTraffic(region())
    for number in range(2000):
        traffic.count("GET", f"/{number}", 200)
        traffic.note(traffic.timing("GET", f"/{number}"), 0.1)
    traffic.count("GET", "/0", 200)
    answered = traffic.answered()
    assert answered["GET", "/0", 200] == 2 and 20 < len(answered) < 2000
    assert traffic.timings()["GET", "/0"].cumulative()[-1] == 1
