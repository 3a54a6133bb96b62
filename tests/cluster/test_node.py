"""What must hold of a node:

1. What any node accepts is applied by all: the same tasks, with the same outcomes and moments, the same documents.
2. A write whose answer was lost is stored once; one that no majority stored is refused, and its payload is not kept.
3. Rows that two nodes change at once have both changes.
4. A batch goes on after a restart at whatever step: with the end that the log has, or with its own.
5. A node that cannot follow says why, and follows again when it can; so does a leader whose batch could not begin. One whose log
   is gone asks for a start.
6. A node that reported a failure leaves it to others to lead for a while.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.cluster import entries, node as node_module
from svcd.cluster.log import Unavailable
from svcd.instance.applied_log import ClusterStopped
from svcd.instance.rows import Row
from svcd.instance.task_records import Task
from tests.cluster.conftest import LocalNode, MakeNode, await_true
from tests.support.memory_log import MemoryServers

FILMS = [{"id": 1, "title": "Alien"}, {"id": 2, "title": "Brazil"}]


@pytest.fixture
def nodes(make_node: MakeNode) -> list[LocalNode]:
    """Three that follow the log; the first leads."""
    made = [make_node(name) for name in "abc"]
    for node in made:
        node.look()
        node.start()
    return made


def shown(task: Task) -> Task:
    """A task but for where its payload was."""
    return replace(task, payload=None, content={})


# -- 1. The same everywhere


def test_1_what_any_node_accepts_is_done_by_all(nodes: list[LocalNode]) -> None:
    made = [node.add(film) for node, film in zip(nodes, [*FILMS, {"id": 3}], strict=True)]
    assert [task.uid for task in made] == [0, 1, 2]
    ended = [[shown(node.finished(task)) for task in made] for node in nodes]
    assert ended[0] == ended[1] == ended[2] and {task.status for task in ended[0]} == {"succeeded"}
    assert nodes[0].documents() == nodes[1].documents() == nodes[2].documents() == [*FILMS, {"id": 3}]
    batches = [node.queue.batch(ended[0][0].batch_uid or 0) for node in nodes]
    assert batches[0] == batches[1] == batches[2]
    await_true(lambda: not any(list(node.queue.payload_folder.iterdir()) for node in nodes))
    assert not any(node.bugs for node in nodes)


def test_1_a_failure_is_the_same_everywhere(nodes: list[LocalNode]) -> None:
    nodes[0].finished(nodes[0].add(*FILMS))
    failed = nodes[1].add({"name": "without id"})
    assert len({str(shown(node.finished(failed)).error) for node in nodes}) == 1
    assert nodes[2].finished(failed).status == "failed"


def test_1_global_tasks_run_everywhere_in_their_place(nodes: list[LocalNode]) -> None:
    nodes[0].add(*FILMS)
    nodes[1].queue.enqueue("indexSwap", None, details={"swaps": [{"indexes": ["films", "movies"], "rename": True}]},
                           content={"swaps": [{"indexes": ["films", "movies"], "rename": True}]})
    last = nodes[2].add({"id": 9}, index_uid="movies")
    for node in nodes:
        node.finished(last)
        assert node.documents("movies") == [*FILMS, {"id": 9}] and node.instance.index("films") is None


# -- 2. Lost answers, no majority


@pytest.mark.parametrize("lost", [1, 2])
def test_2_a_write_whose_answer_was_lost_is_stored_once(nodes: list[LocalNode], servers: MemoryServers, lost: int,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "RETRY_S", 0.01)
    nodes[0].finished(nodes[0].add(*FILMS))
    servers.lost_answers = lost
    task = nodes[1].add({"id": 3})
    nodes[2].finished(task)
    assert [each.uid for each in nodes[2].tasks()] == [0, 1] and len(nodes[2].documents()) == 3


def test_2_without_a_majority_writes_are_refused(nodes: list[LocalNode], servers: MemoryServers) -> None:
    servers.set_majority(False)
    with pytest.raises(ApiError) as refused:
        nodes[0].add(*FILMS)
    assert refused.value.code == "cluster_unavailable" and dict(refused.value.headers) == {"Retry-After": "1"}
    assert list(nodes[0].queue.payload_folder.iterdir()) == []
    with pytest.raises(ApiError):
        nodes[0].instance.update_features({"metrics": True})
    assert not nodes[0].instance.features().get("metrics")
    servers.set_majority(True)

    def is_led() -> bool:
        for node in nodes:
            node.look()
        return any(node.node.is_leading() for node in nodes)

    await_true(is_led)
    task = nodes[0].add(*FILMS)
    assert nodes[2].finished(task).status == "succeeded" and task.uid == 0


def test_2_a_node_does_not_write_before_it_has_seen_its_log(make_node: MakeNode) -> None:
    node = make_node("a")
    with pytest.raises(ApiError, match="does not know at the moment whether the log is its own"):
        node.add(*FILMS)


# -- 3. Rows


def test_3_both_changes_of_a_row_are_made(nodes: list[LocalNode]) -> None:
    def count(node: LocalNode) -> None:
        def more(before: Row | None) -> Row:
            return {"value": str(1 + int(before["value"])) if before else "1"}

        for _ in range(10):
            node.instance.rows.change("network", 1, more)

    threads = [threading.Thread(target=count, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in nodes:
        node.catch_up()
        with node.instance.read_instance() as connection:
            assert connection.execute("SELECT value FROM network WHERE id = 1").fetchone() == ("30",)


# -- 4. Restarts


@pytest.mark.parametrize("is_known", [True, False])
def test_4_a_batch_goes_on_after_a_restart(make_node: MakeNode, servers: MemoryServers, is_known: bool) -> None:
    """is_known: whether the log has the end of the batch."""
    leader, follower = make_node("a"), make_node("b")
    for node in (leader, follower):
        node.look()
    leader.start()
    follower.start(has_runner=False)  # as if it were killed before it began
    task = leader.add(*FILMS)
    if is_known:
        leader.finished(task)
    else:
        await_true(lambda: len(servers.entries) >= 3)  # term, task, begin
    follower.catch_up()
    assert follower.queue.tasks_of([0])[0].status == "enqueued"
    follower.stop()
    again = make_node("b", follower.path)
    again.look()
    again.start()
    assert again.finished(task) == leader.finished(task)
    assert again.documents() == FILMS and again.node.begun_before()


def test_4_a_batch_that_waits_for_its_end_is_left_when_the_node_stops(make_node: MakeNode) -> None:
    node = make_node("a")
    stopped: list[type[BaseException]] = []

    def wait(outcome: Callable[[], Any]) -> None:
        with pytest.raises(ClusterStopped):
            outcome()
        stopped.append(ClusterStopped)

    threads = [threading.Thread(target=wait, args=(call,)) for call in (
        lambda: node.node.committed_end(0, dict), lambda: node.node.end_unless_leading(0))]
    for thread in threads:
        thread.start()
    node.node.stop()
    for thread in threads:
        thread.join()
    assert len(stopped) == 2


# -- 5. Faults


def test_5_a_node_that_cannot_follow_says_why_and_follows_again(make_node: MakeNode, servers: MemoryServers) -> None:
    node = make_node("a")
    node.look()
    node.start()
    node.log.is_cut_off = True
    await_true(lambda: node.node.fault is not None)
    assert node.node.fault == "Unavailable: no majority of the servers answers" and not node.node.is_fit()
    node.log.is_cut_off = False
    await_true(lambda: node.node.fault is None)


def test_5_a_batch_that_could_not_begin_begins_when_the_log_can_be_written(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else wakes the runner when the lease outlasts the failure."""
    node = make_node("a")
    node.look()
    node.start()
    node.finished(node.add({"id": 1}))
    runner, append, failures = node.runner, node.log.append, iter(range(5))
    assert runner is not None
    await_true(lambda: runner._stale == {})  # until then it looks for tasks again and again

    def failing(identity: str, body: bytes) -> int:
        if entries.decode(node.log, body)["kind"] == "begin" and next(failures, None) is not None:
            raise Unavailable("the stream currently lacks a leader")
        return append(identity, body)

    monkeypatch.setattr(node.log, "append", failing)
    assert node.finished(node.add({"id": 2})).status == "succeeded"
    assert next(failures, None) is None and node.bugs == []


def test_5_a_node_whose_log_is_trimmed_asks_for_a_start(make_node: MakeNode, servers: MemoryServers) -> None:
    node, other = make_node("a"), make_node("b")
    other.look()
    other.start()
    for number in range(3):
        other.add({"id": number})
    other.catch_up()
    node.look()
    servers.log().trim(3)
    node.start()
    await_true(lambda: bool(node.lost))
    assert node.lost == ["the log begins with entry 4, this node has applied 0"]


def test_5_a_node_whose_log_is_another_asks_for_a_start(make_node: MakeNode, servers: MemoryServers) -> None:
    node = make_node("a")
    node.look()
    assert node.node.is_leading()
    servers.records["cluster"] = servers.records["cluster"]._replace(value=b'{"uid": "other", "seed": null}')
    node.look()
    assert node.lost == ["the log is not, or no longer, that of this data folder"] and not node.node.is_leading()


# -- 6. Stumbling


def test_6_a_node_that_reported_a_failure_does_not_lead_for_a_while(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_node("a"), make_node("b")
    for node in (first, second):
        node.look()
    assert first.node.is_leading()
    first.node.report_failure("the disk is full")
    assert first.node.fault == "the disk is full"
    first.look()
    second.look()
    assert not first.node.is_leading() and second.node.is_leading()
    monkeypatch.setattr(node_module, "UNFIT_S", 0.0)
    assert first.node.is_fit() and first.node.fault is None


def test_6_a_term_that_could_not_be_written_is_not_led(make_node: MakeNode, servers: MemoryServers) -> None:
    first, second = make_node("a"), make_node("b")
    for node in (first, second):
        node.look()
    servers.set_majority(False)
    with pytest.raises(Unavailable):
        second.node.lead(9, float("inf"))
    assert not second.node.is_leading()
