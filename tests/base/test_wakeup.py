"""1. A bell is readable from its first ring to the next silence, however often it is rung.
2. Ringing never blocks, also after the end; threads may ring at once.
"""
from __future__ import annotations

import select
import threading

from svcd.base.wakeup import WakeupPipe


def is_readable(bell: WakeupPipe) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_it_is_readable_from_a_ring_to_a_silence() -> None:
    bell = WakeupPipe()
    bell.silence()
    assert not is_readable(bell)
    for _ in range(3):
        bell.ring()
    assert is_readable(bell) and bell.is_rung
    bell.silence()
    assert not is_readable(bell) and not bell.is_rung
    bell.ring()
    assert is_readable(bell)
    bell.close()


def test_it_may_be_rung_after_its_end() -> None:
    bell = WakeupPipe()
    bell.close()
    bell.close()
    bell.ring()


def test_many_may_ring_and_one_silence_brings_silence() -> None:
    bell = WakeupPipe()
    threads = [threading.Thread(target=lambda: [bell.ring() for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        bell.silence()
    for thread in threads:
        thread.join()
    bell.ring()
    bell.silence()
    assert not is_readable(bell)
    bell.close()
