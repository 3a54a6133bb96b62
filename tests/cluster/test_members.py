"""What must hold of the members of a cluster, with a clock that the test sets:

1. One node leads. It goes on as long as it renews the lease, and ceases before another can take it.
2. Another leads when the lease has not changed for LEASE_S by its own clock, or at once when it was given up.
3. What a replaced leader writes is ignored.
4. A node that drains, or is not fit, does not lead, and gives the lease up.
5. A node tells of itself when it has something to tell, and now and then; who is silent counts as away.
6. A name used twice is noticed by who is told first.
7. The log is trimmed when all known nodes have applied enough more, with the pieces of what is trimmed; forgetting a node frees it.
8. A node ends for what the records say only when they say so for LOST_S: a new leader of the log may have older ones at first.
"""
from __future__ import annotations

import json
import time
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.cluster import members, node as node_module
from svcd.cluster.log import Unavailable
from svcd.cluster.members import LEASE_S, LOST_S, TRIM_AFTER
from tests.cluster.conftest import LocalNode, MakeNode
from tests.support.memory_log import MemoryServers

OWN_LEASE_S = members._OWN_LEASE_S


class Clock:
    """Instead of the module time: monotonic() can be moved."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the members and of the nodes."""
    made = Clock()
    monkeypatch.setattr(members, "time", made)
    monkeypatch.setattr(node_module, "time", made)
    return made


@pytest.fixture
def pair(make_node: MakeNode, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> tuple[LocalNode, LocalNode]:
    """Two nodes that follow the log and run nothing; the first leads."""
    first, second = make_node("a"), make_node("b")
    monkeypatch.setattr(members, "_OWN_LEASE_S", OWN_LEASE_S)
    monkeypatch.setattr(members, "LEASE_S", LEASE_S)
    for each in (first, second):
        each.look()
        each.start(has_runner=False)
    assert first.node.is_leading() and not second.node.is_leading()
    return first, second


def told(servers: MemoryServers, name: str) -> Any:
    return json.loads(servers.records[f"node/{name}"].value)


def lease(servers: MemoryServers) -> Any:
    return json.loads(servers.records["lease"].value)


# -- 1. One leads


def test_1_it_leads_as_long_as_it_renews_the_lease(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, second = pair
    for _ in range(8):
        clock.ahead += LEASE_S / 2
        first.look()
        second.look()
        assert first.node.is_leading() and not second.node.is_leading()
    assert first.node.position.term == 1 and second.members.leader() == "a" == first.members.leader()


def test_1_it_ceases_before_another_can_take_it(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, second = pair
    clock.ahead += OWN_LEASE_S
    assert not first.node.is_leading() and OWN_LEASE_S < LEASE_S
    second.look()
    assert not second.node.is_leading()


def test_1_it_goes_on_after_a_pause_in_which_nobody_took_it(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, _ = pair
    clock.ahead += 100
    first.look()
    assert first.node.is_leading() and first.node.position.term == 1


def test_1_leadership_is_told(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, _ = pair
    heard: list[bool] = []
    first.node.on_leadership.append(lambda: heard.append(first.node.is_leading()))
    first.look()
    first.members.is_draining = True
    first.look()
    assert heard == [False]


# -- 2. Another leads


def test_2_another_leads_when_the_lease_has_not_changed(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, second = pair
    second.look()
    clock.ahead += LEASE_S + 0.01
    second.look()
    assert second.node.is_leading() and not first.node.is_leading() and second.node.position.term == 2
    first.look()
    first.catch_up()
    assert not first.node.is_leading() and first.members.leader() == "b" == first.node.leader


def test_2_a_node_that_starts_again_takes_its_own_lease_at_once(make_node: MakeNode, servers: MemoryServers) -> None:
    first = make_node("a")
    first.look()
    first.stop()
    again = make_node("a", first.path)
    again.look()
    again.node.start()
    again.look()
    assert again.node.is_leading() and again.node.position.term == 2


def test_2_a_lease_that_was_given_up_is_taken_at_once(pair: tuple[LocalNode, LocalNode], servers: MemoryServers) -> None:
    first, second = pair
    first.members.stop()
    assert lease(servers)["holder"] is None and not first.node.is_leading()
    second.look()
    assert second.node.is_leading()


def test_2_of_two_that_take_it_at_once_one_gets_it(make_node: MakeNode, pair: tuple[LocalNode, LocalNode], clock: Clock,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    _, second = pair
    third = make_node("c")
    third.look()
    third.start(has_runner=False)
    clock.ahead += LEASE_S + 0.01
    read = third.log.records
    old = read("")
    monkeypatch.setattr(third.log, "records", lambda prefix: {key: old[key] for key in old if key.startswith(prefix)})
    second.look()
    third.look()
    assert second.node.is_leading() and not third.node.is_leading()


# -- 3. A replaced leader


def test_3_what_a_replaced_leader_writes_is_ignored(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, second = pair
    task = first.add({"id": 1})
    second.look()
    clock.ahead += LEASE_S + 0.01
    second.look()
    first.node.renew(float("inf"))  # it was stopped for a while, and does not know
    assert not first.node.begin([task], "documents", "all")
    assert second.node.begin([task], "documents", "all")
    assert first.node.position.term == 2


# -- 4. Who may lead


def test_4_a_node_that_drains_gives_the_lease_up(pair: tuple[LocalNode, LocalNode]) -> None:
    first, second = pair
    first.members.is_draining = True
    first.look()
    assert not first.node.is_leading()
    second.look()
    assert second.node.is_leading()
    for _ in range(3):
        first.look()
    assert not first.node.is_leading()
    first.members.is_draining, second.members.is_draining = False, True
    second.look()
    first.look()
    assert first.node.is_leading()


def test_4_a_lease_that_nobody_may_take_stays_free(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    for each in pair:
        each.members.is_draining = True
    for _ in range(3):
        clock.ahead += LEASE_S + 0.01
        for each in pair:
            each.look()
            assert not each.node.is_leading()
    assert [each.members.leader() for each in pair] == [None, None]


# -- 5. What nodes tell


def test_5_a_node_tells_what_it_has(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock) -> None:
    first, second = pair
    task = second.add({"id": 1})
    first.look()
    assert told(servers, "a")["applied"] >= servers.last - 1 and told(servers, "a")["url"] == "http://a.test"
    second.look()
    second.look()
    assert [member.name for member in second.members.all()] == ["a", "b"] and task.uid == 0
    assert all(member.is_alive and member.fault is None for member in second.members.all())


def test_5_a_node_with_nothing_to_tell_is_quiet_for_a_while(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock
                                                           ) -> None:
    _, second = pair
    second.catch_up()
    second.look()
    revision = servers.records["node/b"].revision
    second.look()
    assert servers.records["node/b"].revision == revision
    clock.ahead += 2.1
    second.look()
    assert servers.records["node/b"].revision > revision


def test_5_a_silent_node_counts_as_away(pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    first, _ = pair
    for _ in range(4):
        clock.ahead += 2.0
        first.look()
    assert {member.name: member.is_alive for member in first.members.all()} == {"a": True, "b": False}


def test_5_without_an_answer_there_is_no_quorum(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock) -> None:
    first, _ = pair
    assert first.members.has_quorum()
    servers.set_majority(False)
    clock.ahead += LEASE_S
    with pytest.raises(Unavailable):
        first.look()
    assert not first.members.has_quorum() and not first.node.is_leading()


# -- 6. Names


def test_6_a_name_used_twice_is_noticed(make_node: MakeNode, pair: tuple[LocalNode, LocalNode], clock: Clock) -> None:
    _, second = pair
    twin = make_node("b", second.path.with_name("twin"))
    twin.look()
    second.look()
    assert second.lost == []
    clock.ahead += LOST_S
    second.look()
    assert second.lost == ["another node has the name b too"]
    twin.look()
    assert twin.lost == []


# -- 7. Trimming


def fill(each: LocalNode, servers: MemoryServers, count: int) -> None:
    """So many entries, with a piece that belongs to the first."""
    log = servers.log()
    log.put_piece("p", 0, b"x")
    payload = {"name": "p", "pieces": 1}
    log.append("first", json.dumps({"kind": "rows", "changes": [], "identity": "first", "payload": None, "x": payload}).encode())
    stored = {"kind": "delivered", "webhook": "w", "batch": 0, "identity": "i", "payload": payload}
    (each.queue.payload_folder / "p").touch()
    for number in range(count):
        log.append(f"e{number}", json.dumps({**stored, "identity": f"e{number}"}).encode())


def test_7_the_log_is_trimmed_when_all_have_applied_it(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock
                                                       ) -> None:
    first, second = pair
    (second.queue.payload_folder / "p").touch()
    fill(first, servers, TRIM_AFTER + 10)
    first.catch_up()
    for _ in range(2):
        clock.ahead += 5.1
        first.look()
        assert servers.trimmed == 0 and servers.pieces  # the other has not told that it has it
    second.catch_up()
    second.look()
    clock.ahead += 5.1
    first.look()
    assert servers.trimmed >= TRIM_AFTER and not servers.pieces


def test_7_forgetting_a_node_frees_the_log(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock) -> None:
    first, second = pair
    second.node.stop()
    fill(first, servers, TRIM_AFTER + 10)
    first.catch_up()
    clock.ahead += 5.1
    first.look()
    assert servers.trimmed == 0
    assert first.members.remove("b") and not first.members.remove("b")
    clock.ahead += 5.1
    first.look()
    clock.ahead += 5.1
    first.look()
    assert servers.trimmed >= TRIM_AFTER


def test_7_a_few_entries_are_not_worth_it(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock) -> None:
    first, second = pair
    (second.queue.payload_folder / "p").touch()
    fill(first, servers, 50)
    for each in (second, first, first):
        each.catch_up()
        clock.ahead += 5.1
        each.look()
    assert servers.trimmed == 0


# -- 8. Older records


@pytest.mark.parametrize("key", ["cluster", "node/b"])
def test_8_older_records_for_a_moment_end_no_node(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock, key: str
                                                  ) -> None:
    _, second = pair
    before = dict(servers.records)
    for _ in range(2):  # the second time long after the first
        if key == "cluster":
            del servers.records[key]
        else:  # as it was before this node was started again
            servers.records[key] = before[key]._replace(value=json.dumps({**told(servers, "b"), "session": "earlier"}).encode())
        second.look()
        clock.ahead += LOST_S / 2
        second.look()
        assert second.node.is_verified == (key != "cluster") and second.lost == []
        servers.records.update(before)
        second.look()
        assert second.node.is_verified and second.lost == []
        clock.ahead += LOST_S


def test_8_a_log_that_stays_without_its_record_ends_the_node(pair: tuple[LocalNode, LocalNode], servers: MemoryServers, clock: Clock) -> None:
    first, _ = pair
    del servers.records["cluster"]
    first.look()
    assert first.lost == [] and not first.node.is_leading()
    with pytest.raises(ApiError, match="whether the log is its own"):
        first.add({"id": 1})
    clock.ahead += LOST_S
    first.look()
    assert first.lost == ["the log is not, or no longer, that of this data folder"]
