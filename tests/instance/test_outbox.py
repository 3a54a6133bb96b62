"""What must hold of the outbox:

1. A notice is there exactly when its batch has ended: one transaction, every webhook, no matter what.
2. Its lines are those of the tasks at their end, in order, whatever becomes of the tasks.
3. A webhook's notices come in the order in which batches ended.
4. Delivered notices, and those of deleted webhooks, take no space.
5. What was given up can be listed and replayed, and is deleted after a week.
6. The outbox never grows beyond its bound.
"""
from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.base import quantities
from svcd.instance import webhooks
from svcd.instance.instance import Instance
from svcd.instance.webhooks import LAUNCH_UUID, Notice, NoticeRemoved, Webhook
from tests.instance.helpers import execute, sql_steps, unlock

HOUR = 3_600 * quantities.SECOND
DAY = quantities.DAY


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data")
    yield opened
    opened.close()


def end(instance: Instance, batch_uid: int, lines: list[str] | None = None, ended_at: int | None = None) -> None:
    """A batch ends."""
    with instance.queue.finishing() as connection:
        instance.outbox.append(connection, batch_uid, quantities.now() if ended_at is None else ended_at, lines or ["{}"])


def register(instance: Instance, *uuids: str) -> None:
    for uuid in uuids:
        instance.webhooks.create(Webhook(uuid, "http://hook.test"))


def head(instance: Instance, uuid: str) -> Notice:
    notice = instance.outbox.head(uuid)
    assert notice is not None
    return notice


def count(instance: Instance, table: str) -> int:
    return execute(instance, f"SELECT count(*) FROM {table}")[0][0]


def test_each_webhook_has_a_notice_of_a_batch(instance: Instance) -> None:
    register(instance, "a", "b")
    instance.webhooks.set_launch_webhook("http://launch.test")
    end(instance, 7, ['{"uid":1}', '{"uid":2}'])
    for uuid in ("a", "b", LAUNCH_UUID):
        notice = head(instance, uuid)
        assert (notice.batch_uid, notice.tasks, notice.attempts, notice.given_up_at) == (7, 2, 0, None)
        assert b"".join(instance.outbox.lines(notice)) == b'{"uid":1}\n{"uid":2}\n' and notice.length == 20
    assert count(instance, "notice_parts") == 1


def test_a_batch_that_does_not_end_leaves_no_notice(instance: Instance) -> None:
    register(instance, "a")
    with pytest.raises(ZeroDivisionError), instance.queue.finishing() as connection:
        instance.outbox.append(connection, 1, 1, ["{}"])
        raise ZeroDivisionError
    assert instance.outbox.head("a") is None and not count(instance, "notices")


def test_without_a_webhook_no_line_is_made(instance: Instance) -> None:
    def lines() -> Iterator[str]:
        raise AssertionError("asked")
        yield ""

    with instance.queue.finishing() as connection:
        instance.outbox.append(connection, 1, 1, lines())
    assert not count(instance, "notices")


def test_a_notice_survives_a_kill(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data")
    register(first, "a")
    end(first, 3, ["kept"])
    unlock(first)  # as after a kill: nothing else is closed
    second = Instance(tmp_path / "data")
    assert b"".join(second.outbox.lines(head(second, "a"))) == b"kept\n"
    second.close()
    first.close()


def test_a_large_notice_is_kept_and_read_in_small_parts(instance: Instance) -> None:
    register(instance, "a")
    dice = random.Random(7)
    lines = [f'{{"uid":{n},"text":"{"é" * dice.randrange(2_000)}"}}' for n in range(3_000)]
    end(instance, 1, lines)
    notice = head(instance, "a")
    parts = list(instance.outbox.lines(notice))
    assert b"".join(parts) == "".join(line + "\n" for line in lines).encode()
    assert sum(map(len, parts)) == notice.length and notice.tasks == 3_000
    assert max(map(len, parts)) < webhooks.PART_BYTES + 5_000


def test_odd_text_does_not_keep_a_batch_from_ending(instance: Instance) -> None:
    register(instance, "a")
    end(instance, 1, ["\udcff"])
    assert b"".join(instance.outbox.lines(head(instance, "a"))) == b"?\n"


def test_notices_come_in_the_order_in_which_batches_ended(instance: Instance) -> None:
    register(instance, "a")
    for batch_uid in (5, 3, 4):
        end(instance, batch_uid)
    seen = []
    while notice := instance.outbox.head("a"):
        seen.append(notice.batch_uid)
        instance.outbox.mark_delivered("a", notice)
    assert seen == [5, 3, 4]


def test_a_later_webhook_gets_later_batches(instance: Instance) -> None:
    register(instance, "a")
    end(instance, 1)
    register(instance, "b")
    end(instance, 2)
    assert (head(instance, "a").batch_uid, head(instance, "b").batch_uid) == (1, 2)


def test_the_last_webhook_takes_the_notice_away(instance: Instance) -> None:
    register(instance, "a", "b")
    end(instance, 1)
    instance.outbox.mark_delivered("a", head(instance, "a"))
    assert count(instance, "notices") == 1
    instance.outbox.mark_delivered("b", head(instance, "b"))
    assert [count(instance, table) for table in ("outbox", "notices", "notice_parts")] == [0, 0, 0]


def test_a_deleted_webhook_takes_its_notices_away(instance: Instance) -> None:
    register(instance, "a", "b")
    end(instance, 1)
    instance.outbox.mark_delivered("b", head(instance, "b"))
    notice = head(instance, "a")
    instance.webhooks.delete("a")
    assert count(instance, "notices") == 0
    with pytest.raises(NoticeRemoved):
        list(instance.outbox.lines(notice))
    end(instance, 2)
    instance.outbox.mark_delivered("a", notice)  # it arrived after all: no later notice is struck out for it
    assert head(instance, "b").number > notice.number


def test_notices_of_a_webhook_that_is_not_configured_any_more_go(instance: Instance) -> None:
    instance.webhooks.set_launch_webhook("http://launch.test")
    end(instance, 1)
    instance.outbox.prune_unknown_webhooks()
    assert count(instance, "notices") == 1
    instance.webhooks.set_launch_webhook(None)
    instance.outbox.prune_unknown_webhooks()
    assert count(instance, "notices") == 0


def test_what_is_old_is_given_up_with_all_that_is_as_old(instance: Instance) -> None:
    register(instance, "a", "b")
    now = 10 * DAY
    for batch_uid, hours in enumerate((30, 25, 24, 23, 0)):
        end(instance, batch_uid, ended_at=now - hours * HOUR)
    assert instance.outbox.mark_failed("a", head(instance, "a"), "refused", now=now, given_up_after=DAY) == 3
    assert head(instance, "a").batch_uid == 3
    assert instance.outbox.mark_failed("a", head(instance, "a"), "refused", now=now, given_up_after=DAY) == 0
    assert head(instance, "a").attempts == 1 and head(instance, "b").batch_uid == 0
    failures, total = instance.outbox.failures("a", 1, 2)
    assert total == 4 and [(each.batch_uid, each.attempts, each.reason) for each in failures] == [
        (1, 0, "refused"), (2, 0, "refused")]
    assert instance.outbox.failures("b", 0, 10) == ([], 0)


def test_a_replay_delivers_in_the_first_order(instance: Instance) -> None:
    register(instance, "a")
    for batch_uid in range(4):
        end(instance, batch_uid, ended_at=batch_uid)
    instance.outbox.mark_failed("a", head(instance, "a"), "refused", now=2 + DAY, given_up_after=DAY)
    assert head(instance, "a").batch_uid == 3
    assert instance.outbox.replay("a", [1, 3, 99]) == 1
    assert head(instance, "a").batch_uid == 1
    assert instance.outbox.replay("a") == 2 and head(instance, "a").batch_uid == 0
    assert instance.outbox.replay("a") == 0


def test_what_was_given_up_goes_after_a_while(instance: Instance) -> None:
    register(instance, "a")
    long_ago = quantities.now() - webhooks.GIVEN_UP_RETENTION - DAY
    end(instance, 1, ended_at=long_ago - DAY)
    instance.outbox.mark_failed("a", head(instance, "a"), "refused", now=long_ago, given_up_after=HOUR)
    assert instance.outbox.failures("a", 0, 10)[1] == 1
    end(instance, 2)
    assert instance.outbox.failures("a", 0, 10)[1] == 0 and count(instance, "notices") == 1


def test_the_oldest_go_when_the_outbox_is_full(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(webhooks, "MAX_OUTBOX_BYTES", 10_000)
    monkeypatch.setattr(webhooks, "TRIMMED_BYTES", 9_000)
    register(instance, "a", "b")
    for batch_uid in range(200):
        end(instance, batch_uid)
        assert execute(instance, "SELECT sum(stored) FROM notices")[0][0] <= 10_000
    assert head(instance, "a").batch_uid == head(instance, "b").batch_uid > 150
    assert "its oldest notices were deleted notices=" in capsys.readouterr().err


def test_what_was_delivered_does_not_fill_the_outbox(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_OUTBOX_BYTES", 2_000)
    register(instance, "a")
    end(instance, 0)
    for batch_uid in range(1, 100):
        end(instance, batch_uid)
        notice = head(instance, "a")
        assert notice.batch_uid == batch_uid - 1
        instance.outbox.mark_delivered("a", notice)


def test_the_next_notice_is_found_at_once_after_many_given_up(instance: Instance) -> None:
    register(instance, "a")
    end(instance, 0)
    execute(instance, "WITH RECURSIVE more(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM more WHERE n < 20000) "
                             "INSERT INTO notices(number, batch_uid, tasks, length, stored, ended_at) SELECT n, n, 1, 1, 1, 1 FROM more")
    execute(instance, "INSERT INTO outbox(webhook, number, given_up_at) SELECT 'a', number, "
                             "CASE WHEN number < 20000 THEN ? END FROM notices WHERE number > 1", (quantities.now(),))
    instance.outbox.mark_delivered("a", head(instance, "a"))

    def find() -> None:
        assert head(instance, "a").number == 20000

    assert sql_steps(instance, find) < 5
