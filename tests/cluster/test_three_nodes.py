"""What must hold of three nodes with a real log:

1. A write accepted by any node has its uid from the log, and is done by all; tasks and batches are the same on all nodes.
2. Features, keys, webhooks and the network are the same on all nodes, also when two change them at once.
3. A request that names a task waits until the node has run it.
4. Embedding services are asked once, by the leader; a failure is the same on all nodes.
5. A dump is written once; a notice is sent once.
6. When the leader is killed, another leads, and nothing acknowledged is lost; the killed one catches up.
7. Without a majority of the log, writes get 503, Retry-After and a code; reads go on; afterwards all goes on.
8. A new node gets everything, from the log or, once that is trimmed, from a copy of a peer.
"""
from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.faults.conftest import IS_LONG
from tests.support.cluster import Node, Nodes
from tests.support.log_servers import LogServers, running_servers
from tests.support.scripted_server import Received, Reply, ScriptedServer

pytestmark = pytest.mark.slow

FILMS = [{"id": 1, "title": "Alien"}, {"id": 2, "title": "Aliens"}, {"id": 3, "title": "Brazil"}]


# What the log itself must do is tested with both in every run.
_WITH_NATS = pytest.param("nats", marks=pytest.mark.skipif(not IS_LONG, reason="takes half a minute: with SVCD_SOAK=1"))


@pytest.fixture(scope="module", params=["rqlite", _WITH_NATS])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServers]:
    with running_servers(request.param, tmp_path_factory.mktemp("log")) as running:
        yield running


@pytest.fixture(scope="module")
def nodes(servers: LogServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    made = Nodes(tmp_path_factory.mktemp("nodes"), servers.address,
                 arguments=("--experimental-allowed-ip-networks", "127.0.0.0/8"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def everywhere(nodes: Nodes, path: str) -> Any:
    """What all nodes answer to a GET, which must become the same."""
    def answers() -> list[Any]:
        return [node.ok("GET", path) for node in nodes.all]

    nodes.await_true(lambda: all(answer == answers()[0] for answer in answers()))
    return answers()[0]


def answers(node: Node, path: str, expected: tuple[int, Any]) -> bool:
    return node.call("GET", path) == expected


def done(nodes: Nodes, task: Any, status: str = "succeeded") -> Any:
    """The task, once all nodes have run it, as all show it."""
    shown = [node.finished(task["taskUid"]) for node in nodes.all]
    assert shown[0]["status"] == status and all(each == shown[0] for each in shown), shown
    return shown[0]


def test_1_a_write_accepted_anywhere_is_done_by_all(nodes: Nodes) -> None:
    for number, film in enumerate(FILMS):
        task = nodes[number].ok("POST", "/indexes/films/documents", [film])
        assert task["taskUid"] == number
    done(nodes, task)
    for path in ("/tasks", "/batches", "/indexes", "/indexes/films/documents", "/indexes/films/settings"):
        everywhere(nodes, path)
    done(nodes, nodes[1].ok("PATCH", "/indexes/films/settings", {"filterableAttributes": ["title"]}))
    done(nodes, nodes[2].ok("POST", "/swap-indexes", [{"indexes": ["films", "movies"], "rename": True}]))
    done(nodes, nodes[0].ok("POST", "/indexes/none/documents/delete-batch", [1]), "failed")
    for node in nodes.all:
        assert [hit["id"] for hit in node.ok("POST", "/indexes/movies/search", {"q": "alien"})["hits"]] == [1, 2]
    done(nodes, nodes[1].ok("DELETE", "/tasks?uids=0,1"))
    everywhere(nodes, "/tasks")
    everywhere(nodes, "/batches")


def test_1_hashes_of_all_nodes_are_equal(nodes: Nodes) -> None:
    def hashes() -> list[Any]:
        return [node["indexes"] for node in nodes[0].ok("GET", "/cluster")["nodes"]]

    nodes.await_true(lambda: len(hashes()) == 3 and bool(hashes()[0]) and hashes()[0] == hashes()[1] == hashes()[2])


def test_2_small_things_are_the_same_everywhere(nodes: Nodes) -> None:
    nodes[1].ok("PATCH", "/experimental-features", {"metrics": True, "network": True})
    assert everywhere(nodes, "/experimental-features")["metrics"] is True
    nodes[2].ok("PATCH", "/network", {"remotes": {"x": {"url": "http://x.test"}}})
    assert everywhere(nodes, "/network")["remotes"]["x"]["url"] == "http://x.test"
    made = nodes[0].ok("POST", "/keys", {"actions": ["search"], "indexes": ["*"], "expiresAt": None, "name": "one"})
    assert made["key"] in [key["key"] for key in everywhere(nodes, "/keys?limit=100")["results"]]
    threads = [threading.Thread(target=node.ok, args=("PATCH", f"/keys/{made['uid']}", {member: node.name}))
               for node, member in zip(nodes.all, ("name", "description", "name"), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changed = next(key for key in everywhere(nodes, "/keys?limit=100")["results"] if key["uid"] == made["uid"])
    assert changed["description"] == "b" and changed["name"] in ("a", "c")
    nodes[1].ok("DELETE", f"/keys/{made['uid']}")
    assert made["uid"] not in str(everywhere(nodes, "/keys?limit=100"))


def test_3_a_request_waits_for_the_task_that_it_names(nodes: Nodes) -> None:
    for number in range(6):
        task = nodes[number % 3].ok("POST", "/indexes/movies/documents", [{"id": 100 + number, "title": f"Wait {number}"}])
        found = nodes[(number + 1) % 3].ok("POST", "/indexes/movies/search", {"q": f'"wait {number}"'},
                                           headers={"Svc-After-Task": str(task["taskUid"])})
        assert [hit["id"] for hit in found["hits"]] == [100 + number]


def test_4_services_are_asked_once(nodes: Nodes, service: ScriptedServer) -> None:
    def answer(request: Received) -> Reply:
        return Reply(b"no", 404) if "refused" in str(request.body) else Reply([len(str(request.body)), 1])

    service.replies = [answer]
    settings = {"embedders": {"e": {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}",
                                    "documentTemplate": "{{ doc.title }}"}}}
    done(nodes, nodes[0].ok("PATCH", "/indexes/vectors/settings", settings))
    asked = len(service.requests)
    assert asked == 1  # for the number of dimensions
    done(nodes, nodes[1].ok("POST", "/indexes/vectors/documents", FILMS))
    assert len(service.requests) == asked + len(FILMS)
    vectors = everywhere(nodes, "/indexes/vectors/documents?retrieveVectors=true")["results"]
    assert [each["_vectors"]["e"]["embeddings"][0][1] for each in vectors] == [1, 1, 1]
    failed = done(nodes, nodes[2].ok("POST", "/indexes/vectors/documents", [{"id": 9, "title": "refused"}]), "failed")
    assert failed["error"]["code"] == "vector_embedding_error"
    assert everywhere(nodes, "/indexes/vectors/stats")["numberOfDocuments"] == 3


def test_5_dumps_and_notices_are_made_once(nodes: Nodes, service: ScriptedServer) -> None:
    service.replies = [Reply()]
    hook = nodes[0].ok("POST", "/webhooks", {"url": service.url})
    task = done(nodes, nodes[1].ok("POST", "/dumps"))
    folder = nodes[0].folder.parent / "dumps"
    assert [file.name for file in folder.iterdir()] == [f"{task['details']['dumpUid']}.dump"]
    nodes.await_true(lambda: any(f'"uid":{task["uid"]},' in request.content.decode() for request in service.requests))
    nodes[2].ok("DELETE", f"/webhooks/{hook['uuid']}")
    uids = [json.loads(line)["uid"] for request in service.requests for line in request.content.decode().splitlines()]
    assert len(uids) == len(set(uids))


def test_6_another_leads_when_the_leader_is_killed(nodes: Nodes) -> None:
    first = nodes.leader()
    assert first is not None
    last = first.ok("POST", "/indexes/movies/documents", [{"id": 200, "title": "Before"}])
    first.kill()
    others = [node for node in nodes.all if node is not first]
    for node in others:
        assert node.finished(last["taskUid"])["status"] == "succeeded"
    after = others[0].ok("POST", "/indexes/movies/documents", [{"id": 201, "title": "After"}])
    assert others[1].finished(after["taskUid"])["status"] == "succeeded"
    assert nodes.leader() in others
    first.start()
    nodes.await_true(first.is_ready)
    done(nodes, after)
    everywhere(nodes, "/tasks?limit=1000")
    everywhere(nodes, "/batches?limit=1000")


def test_7_without_a_majority_of_the_log(nodes: Nodes, servers: LogServers) -> None:
    servers.kill(0, 1)
    status, error = nodes[0].call("POST", "/indexes/movies/documents", [{"id": 300, "title": "Lost"}])
    assert (status, error["code"]) == (503, "cluster_unavailable")
    assert nodes[1].ok("POST", "/indexes/movies/search", {"q": "alien"})["hits"]
    assert nodes[1].ok("GET", "/health")["status"] == "available"
    assert nodes[1].ok("GET", "/health")["cluster"]["hasQuorum"] is False
    servers.heal()
    servers.await_ready()

    def is_accepted() -> bool:
        return nodes[2].call("POST", "/indexes/movies/documents", [{"id": 301, "title": "Healed"}])[0] == 202

    nodes.await_true(is_accepted)
    done(nodes, {"taskUid": nodes[2].ok("GET", "/tasks?limit=1")["results"][0]["uid"]})
    everywhere(nodes, "/tasks?limit=1000")


def test_8_a_new_node_gets_everything(nodes: Nodes, servers: LogServers) -> None:
    folder = nodes[0].folder.parent
    new = Node("d", folder, servers.address)
    try:
        new.start()
        nodes.await_true(new.is_ready)
        for path in ("/indexes/movies/documents?limit=1000", "/tasks?limit=1000", "/keys?limit=100", "/batches?limit=1000"):
            expected = 200, everywhere(nodes, path)
            nodes.await_true(partial(answers, new, path, expected))
    finally:
        new.kill()
    assert nodes[0].call("DELETE", "/cluster/nodes/d")[0] == 204
    assert nodes[0].call("DELETE", "/cluster/nodes/d")[0] == 404
