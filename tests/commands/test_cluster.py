"""`svcd cluster`, against a server that plays one node, and against a log in memory. What must hold:

1. status shows each node: who leads, how far each is behind, whether the contents agree.
2. verify waits until all that are up agree, else names the indexes and ends with status 1.
3. drain waits until another node leads; forget refuses a node that is up.
4. join makes a folder one of the cluster, once, and says what it did; a folder in use, or of another cluster, is refused.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.cluster import joining

from svcd.instance.instance import Instance
from tests.commands.conftest import Run
from tests.support.memory_log import MemoryServers
from tests.support.scripted_server import Received, Reply, ScriptedServer

KEY = "a-master-key-of-some-length"


def indexes(**hashes: str) -> dict[str, Any]:
    return {uid: {"lastTask": 7, "hash": text * 8} for uid, text in hashes.items()}


def node(name: str, contents: dict[str, Any], is_alive: bool = True, lag: int = 0, leader: str = "a") -> dict[str, Any]:
    return {"name": name, "url": f"http://{name}:7700", "version": "1.2.3", "isLeader": name == leader, "isAlive": is_alive,
            "secondsSinceSeen": 0.3 if is_alive else 65.0, "applied": 12 - lag, "lag": lag, "fault": None, "indexes": contents}


def cluster(*nodes: dict[str, Any], leader: str | None = "a", has_quorum: bool = True) -> dict[str, Any]:
    return {"uid": "u", "node": "a", "leader": leader, "hasQuorum": has_quorum, "isDraining": False, "term": 3, "lastEntry": 12,
            "fault": None, "nodes": list(nodes)}


AGREED = cluster(node("a", indexes(films="x")), node("b", indexes(films="x")))
DIFFERING = cluster(node("a", indexes(films="x", books="z")), node("b", indexes(films="y")),
                    node("c", indexes(films="q"), is_alive=False, lag=5))


class Played(ScriptedServer):
    """A node. statuses: what it answers to GET /cluster, the last one again and again; uids: its indexes; waiting: its tasks."""

    def __init__(self) -> None:
        self.statuses: list[Any] = [AGREED]
        self.uids, self.waiting = ["films"], [0]
        super().__init__(self._answer)

    def _answer(self, request: Received) -> Reply:
        if request.path.startswith("/indexes"):
            return Reply({"results": [{"uid": uid} for uid in self.uids]})
        turn = self.waiting if request.path.startswith("/tasks") else self.statuses
        found = turn.pop(0) if len(turn) > 1 else turn[0]
        return Reply({"total": found} if turn is self.waiting else found)


@pytest.fixture
def played() -> Iterator[Played]:
    server = Played()
    yield server
    server.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Run) -> Run:
    """run(arguments) -> status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    return call


@pytest.fixture
def ask(run: Run, played: ScriptedServer) -> Run:
    """ask(command, arguments): of the node that is played."""
    return lambda command, *arguments: run("cluster", command, *arguments, "--url", played.url, "--key", KEY)


# -- 1. status


def test_1_status_shows_each_node(ask: Run, played: ScriptedServer) -> None:
    played.replies = [Reply(DIFFERING)]
    status, out, err = ask("status")
    assert (status, err) == (0, "")
    first, a, b, c, last = out.splitlines()
    assert first == "cluster u: a leads, 12 entries applied"
    assert a.split("  ")[:2] == ["a", "leads"] and "up to date" in a and "http://a:7700" in a
    assert "follows" in b and "silent for 1:05" in c and "5 behind" in c
    assert last.startswith("indexes: 0 of 2 agree, not yet books, films")
    assert played.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(ask("status", "--json")[1]) == DIFFERING


def test_1_status_tells_of_a_log_without_majority(ask: Run, played: ScriptedServer) -> None:
    played.replies = [Reply(cluster(node("a", {}), leader=None, has_quorum=False))]
    status, out, _ = ask("status")
    assert status == 0 and "nobody leads" in out and "The log has lost its majority: reads work, writes are refused." in out


def test_1_a_single_instance_is_none_of_a_cluster(ask: Run, played: ScriptedServer) -> None:
    played.replies = [Reply({"message": "This instance is not a node.", "code": "not_in_cluster", "type": "invalid_request"}, 400)]
    for command in ("status", "verify", "drain"):
        assert ask(command) == (1, "", "svcd: This instance is not a node.\n")


def test_1_a_node_that_does_not_answer(run: Run) -> None:
    assert run("cluster", "status", "--url", "http://127.0.0.1:1")[0] == 3


# -- 2. verify


def test_2_verify_waits_until_all_agree(ask: Run, played: Played) -> None:
    played.statuses = [DIFFERING, cluster(*AGREED["nodes"], has_quorum=False), AGREED]
    assert ask("verify") == (0, "a, b: 1 of 1 indexes agree\n", "")
    assert played.calls.count("GET /cluster") == 3


def test_2_verify_waits_for_tasks(ask: Run, played: Played) -> None:
    played.waiting = [2, 0]
    assert ask("verify")[0] == 0
    assert played.calls.count("GET /cluster") == 2


def test_2_verify_names_what_differs(ask: Run, played: Played) -> None:
    played.statuses = [DIFFERING]
    status, out, err = ask("verify", "--within", "0")
    assert status == 1 and err == "not compared, because silent: c\n"
    assert out == ("books: a zzzzzzzz after task 7, b has no hash\nfilms: a xxxxxxxx after task 7, b yyyyyyyy after task 7\n"
                   "a, b: 0 of 2 indexes agree\n")
    status, out, _ = ask("verify", "--within", "0", "--json")
    found = json.loads(out)
    assert status == 1 and found["agree"] is False and found["nodes"] == ["a", "b"] and found["silent"] == ["c"]
    assert found["differing"]["books"] == {"a": {"lastTask": 7, "hash": "z" * 8}, "b": None}


def test_2_hashes_of_different_tasks_do_not_agree(ask: Run, played: Played) -> None:
    older = {"films": {"lastTask": 6, "hash": "x" * 8}}
    played.statuses = [cluster(node("a", indexes(films="x")), node("b", older))]
    status, out, _ = ask("verify", "--within", "0")
    assert status == 1 and "after task 6" in out and "after task 7" in out


def test_2_an_index_without_a_hash_does_not_agree_yet(ask: Run, played: Played) -> None:
    played.uids = ["films", "new"]
    status, out, _ = ask("verify", "--within", "0")
    assert status == 1 and out.startswith("new: a has no hash, b has no hash\n")


# -- 3. drain, forget


def test_3_drain_waits_until_another_node_leads(ask: Run, played: ScriptedServer) -> None:
    leaders = iter(["a", None, "b"])

    def answer(request: Received) -> Reply:
        summary = {"node": "a", "leader": "a", "hasQuorum": True, "isDraining": request.method == "POST"}
        return Reply(summary) if request.path == "/cluster/drain" else Reply(cluster(leader=next(leaders)))

    played.replies = [answer]
    assert ask("drain") == (0, "b leads: a may be stopped\n", "")
    assert played.calls == ["POST /cluster/drain", *["GET /cluster"] * 3]
    assert ask("drain", "--undo") == (0, "a may lead again\n", "")
    assert played.calls[-1] == "DELETE /cluster/drain"


def test_3_drain_fails_when_no_other_node_takes_over(ask: Run, played: ScriptedServer) -> None:
    played.replies = [Reply({**cluster(), "isDraining": True})]
    status, out, err = ask("drain", "--within", "0")
    assert (status, out) == (1, "") and "no other node leads after 0 s" in err and err.count("\n") == 1


def test_3_forget_refuses_a_node_that_is_up(ask: Run, played: ScriptedServer) -> None:
    played.replies = [Reply(DIFFERING)]
    assert ask("forget", "b") == (1, "", "svcd: node b is up: stop it first\n")
    played.replies = [Reply(DIFFERING), Reply(status=204)]
    assert ask("forget", "c") == (0, "c is forgotten\n", "")
    assert played.calls[-1] == "DELETE /cluster/nodes/c"
    played.replies = [Reply(DIFFERING), Reply({"message": "Node `d` not found.", "code": "node_not_found"}, 404)]
    assert ask("forget", "d") == (1, "", "svcd: Node `d` not found.\n")


# -- 4. join


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> MemoryServers:
    """The log that --cluster names."""
    made = MemoryServers()
    monkeypatch.setattr("svcd.cluster.service.open_log", lambda address, timeout_s: made.log(0.1))
    for name, value in {"CLUSTER": "rqlite://log", "NODE_NAME": "a", "MASTER_KEY": KEY, "DB_PATH": "data"}.items():
        monkeypatch.setenv(f"SVC_{name}", value)
    return made


def test_4_join_makes_a_folder_one_of_the_cluster(run: Run, servers: MemoryServers, tmp_path: Path) -> None:
    assert run("cluster", "join") == (0, "data is now of the cluster; start the node with `svcd`\n", "")
    uid = json.loads(servers.records["cluster"].value)["uid"]
    status, out, _ = run("cluster", "join", "--json")
    assert status == 0 and json.loads(out) == {"folder": "data", "cluster": uid, "applied": 0, "isCopied": False}
    assert run("cluster", "join")[1] == "data has applied 0 entries, and gets the others from the log; start the node with `svcd`\n"


def test_4_join_refuses_a_folder_of_another_cluster(run: Run, servers: MemoryServers) -> None:
    assert run("cluster", "join")[0] == 0
    servers.records.clear()
    servers.log().compare_and_set("cluster", json.dumps({"uid": "another", "seed": None}).encode(), 0)
    status, out, err = run("cluster", "join")
    assert (status, out) == (1, "") and "is of another cluster" in err and err.count("\n") == 1


def test_4_join_refuses_a_folder_in_use(run: Run, servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.instance.instance.LOCK_TIMEOUT_S", 0.0)
    with closing(Instance(tmp_path / "data")):
        status, _, err = run("cluster", "join")
    assert status == 1 and "in use by another svcd" in err and not servers.records


def test_4_join_tells_when_the_log_does_not_answer(run: Run, servers: MemoryServers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_WAIT_S", 0.0)
    servers.set_majority(False)
    assert run("cluster", "join") == (3, "", "svcd: the log does not answer: no majority of the servers answers\n")


def test_4_join_needs_the_options_of_a_node(run: Run) -> None:
    status, _, err = run("cluster", "join")
    assert status == 2 and "--cluster is missing in the configuration" in err
    status, _, err = run("--cluster", "rqlite://a", "cluster", "join")
    assert status == 2 and "--node-name" in err
