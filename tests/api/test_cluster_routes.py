"""1. A single instance answers the routes of a cluster with `not_in_cluster`, and `/health` as ever.
2. A node tells of itself and of the others, in the shapes that are declared.
3. A copy is for the master key alone, is a snapshot, and is gone when it has been read, or given up.
4. Draining ends leading and can be undone; a node forgets others, not itself.
5. A request waits for the task that it names.
"""
from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.api import cluster
from svcd.base import quantities
from svcd.cluster import joining
from svcd.cluster.service import ClusterService
from svcd.instance.instance import Instance
from tests.api.conftest import Client, Got, client_of
from tests.support.memory_log import MemoryServers

ROUTES = [("GET", "/cluster"), ("GET", "/cluster/copy"), ("POST", "/cluster/drain"), ("DELETE", "/cluster/drain"),
          ("DELETE", "/cluster/nodes/b")]


KEY = "a-master-key-of-some-length"
BEARER = {"authorization": f"Bearer {KEY}"}


class Nodes:
    """The service of one node, and a client of it; `b` is a record of another one."""

    def __init__(self, folder: Path) -> None:
        self.servers = MemoryServers()
        log = self.servers.log()
        position = joining.join(log, folder, "a", "k", shutil.copytree)
        self.instance = Instance(folder)
        self.service = ClusterService(log, position, "a", "http://a.test")
        self.service.open(self.instance, lambda reason: None, lambda: None)
        told = {"url": "http://b.test", "applied": 0, "version": "1", "hashes": {"films": [7, "x"]}, "fault": None, "beat": 1, "session": "s"}
        log.compare_and_set("node/b", json.dumps(told).encode(), 0)
        self.client = client_of(self.instance, KEY, quantities.now, self.instance.keys, node=self.service)
        self.service.start()
        deadline = time.monotonic() + 20
        while self.ask("GET", "/cluster").value["leader"] != "a" or len(self.ask("GET", "/cluster").value["nodes"]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def ask(self, method: str, path: str) -> Got:
        """A request with the master key."""
        return self.client.send(method, path, headers=BEARER)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path / "node")
    yield made
    made.service.stop_following()
    made.instance.close()
    made.service.close()


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_1_a_single_instance_is_none_of_a_cluster(connect: Callable[..., Client], method: str, path: str) -> None:
    assert connect(KEY).send(method, path, headers=BEARER).fault[:2] == (400, "not_in_cluster")
    assert connect(KEY).get("/health").value == {"status": "available"}


def test_2_a_node_tells_of_itself_and_of_the_others(node: Nodes, check_shape: Callable[..., None]) -> None:
    health, shown = node.client.get("/health").value, node.ask("GET", "/cluster").value
    check_shape(health, "Health")
    check_shape(shown, "Cluster")
    assert health["cluster"] == {"node": "a", "leader": "a", "hasQuorum": True, "isDraining": False}
    own, other = shown["nodes"]
    assert (own["name"], own["url"], own["isLeader"], own["isAlive"], own["lag"]) == ("a", "http://a.test", True, True, 0)
    assert (other["name"], other["isLeader"], other["lag"]) == ("b", False, shown["lastEntry"])
    assert other["indexes"] == {"films": {"lastTask": 7, "hash": "x"}}


def test_3_a_copy_is_a_snapshot(node: Nodes) -> None:
    assert node.client.get("/cluster/copy").status == 401
    body = node.client.answer("GET", "/cluster/copy", headers=BEARER).body
    content = b"".join(body)  # type: ignore[arg-type]
    body.close()  # type: ignore[union-attr]
    with closing(tarfile.open(fileobj=io.BytesIO(gzip.decompress(content)))) as archive:
        assert {"VERSION", "instance-uid", "instance.sqlite"} <= set(archive.getnames())
    assert list((node.instance.path / "cluster-copies").iterdir()) == []


def test_3_a_copy_that_is_given_up_is_gone(node: Nodes) -> None:
    for _ in range(5):  # more than there may be at once
        node.client.answer("GET", "/cluster/copy", headers=BEARER).body.close()  # type: ignore[union-attr]
    assert list((node.instance.path / "cluster-copies").iterdir()) == []


def test_4_draining_can_be_undone(node: Nodes, check_shape: Callable[..., None]) -> None:
    answer = node.ask("POST", "/cluster/drain")
    check_shape(answer.value, "ClusterSummary")
    assert answer.value["isDraining"] is True
    assert node.ask("DELETE", "/cluster/drain").value["isDraining"] is False


def test_4_a_node_forgets_others(node: Nodes) -> None:
    assert node.ask("DELETE", "/cluster/nodes/b").status == 204
    assert node.ask("DELETE", "/cluster/nodes/b").fault[:2] == (404, "node_not_found")
    assert node.ask("DELETE", "/cluster/nodes/a").fault[:2] == (400, "bad_request")


def test_4_without_the_log_nothing_is_forgotten(node: Nodes) -> None:
    node.servers.set_majority(False)
    answer = node.ask("DELETE", "/cluster/nodes/b")
    assert answer.fault[:2] == (503, "cluster_unavailable") and answer.headers["retry-after"] == "1"
    node.servers.set_majority(True)


def test_5_a_request_waits_for_its_task(client: Client, work: Callable[[], None]) -> None:
    task = client.json("POST", "/indexes/films/documents", [{"id": 1}]).value
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(client.send(
        "POST", "/indexes/films/search", b"{}", {"content-type": "application/json", "svc-after-task": str(task["taskUid"])})))
    waiting.start()
    work()
    waiting.join()
    assert [hit["id"] for hit in got[0].value["hits"]] == [1]


def test_5_a_task_that_does_not_come_is_not_waited_for_long(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_MOST_WAIT_S", 0.01)
    answer = client.get("/health", **{"svc-after-task": "7"})
    assert answer.fault[:2] == (503, "cluster_behind") and answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "12345678901", "٣"])
def test_5_a_wrong_uid_is_refused(client: Client, text: str) -> None:
    assert client.get("/health", **{"svc-after-task": text}).fault[:2] == (400, "bad_request")
