"""What must hold of answers of JetStream: each is an object, or an attempt that has failed, which is repeated."""
from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.support.odd_answers import odd_json

nats = pytest.importorskip("svcd.cluster.nats", exc_type=ImportError)
GOOD = {"type": "t", "error": {"code": 503, "err_code": 10008, "description": "d"}, "state": {"first_seq": 1, "last_seq": 2}}


def test_every_answer_is_an_object_or_a_failed_attempt() -> None:
    print("seed 28")
    choose = random.Random(28)
    for _ in range(2000):
        try:
            assert isinstance(nats._decoded(SimpleNamespace(headers=None, data=odd_json(choose, GOOD))), dict)
        except nats._Failed:
            pass
