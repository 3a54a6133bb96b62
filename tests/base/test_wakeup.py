"""1. A wake-up pipe is readable from the first set() to the next clear(), however often it is set.
2. Ringing never blocks, also after the end; threads may ring at once.
"""
from __future__ import annotations

import select
import threading

from svcd.base.wakeup import WakeupPipe


def is_readable(bell: WakeupPipe) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_it_is_readable_from_set_to_clear() -> None:
    bell = WakeupPipe()
    bell.clear()
    assert not is_readable(bell)
    for _ in range(3):
        bell.set()
    assert is_readable(bell) and bell.is_set
    bell.clear()
    assert not is_readable(bell) and not bell.is_set
    bell.set()
    assert is_readable(bell)
    bell.close()


def test_it_may_be_rung_after_its_end() -> None:
    bell = WakeupPipe()
    bell.close()
    bell.close()
    bell.set()


def test_one_clear_undoes_any_number_of_sets() -> None:
    bell = WakeupPipe()
    threads = [threading.Thread(target=lambda: [bell.set() for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        bell.clear()
    for thread in threads:
        thread.join()
    bell.set()
    bell.clear()
    assert not is_readable(bell)
    bell.close()
