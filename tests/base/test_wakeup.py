"""What must hold of wake-up pipes:

1. One is readable from the first set() to the next clear(), however often it is set.
2. set() never blocks, also after close(); several threads may call it at once.
"""
from __future__ import annotations

import select
import threading

from svcd.instance.task_changes import WakeupPipe


def is_readable(pipe: WakeupPipe) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


def test_it_is_readable_from_set_to_clear() -> None:
    pipe = WakeupPipe()
    pipe.clear()
    assert not is_readable(pipe)
    for _ in range(3):
        pipe.set()
    assert is_readable(pipe) and pipe.is_set
    pipe.clear()
    assert not is_readable(pipe) and not pipe.is_set
    pipe.set()
    assert is_readable(pipe)
    pipe.close()


def test_it_may_be_rung_after_its_end() -> None:
    pipe = WakeupPipe()
    pipe.close()
    pipe.close()
    pipe.set()


def test_one_clear_undoes_any_number_of_sets() -> None:
    pipe = WakeupPipe()
    threads = [threading.Thread(target=lambda: [pipe.set() for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        pipe.clear()
    for thread in threads:
        thread.join()
    pipe.set()
    pipe.clear()
    assert not is_readable(pipe)
    pipe.close()
