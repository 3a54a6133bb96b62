"""Nodes of a cluster in the process of a test, on a log in memory."""
from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.cluster import joining, members, node as node_module
from svcd.cluster.members import Members
from svcd.cluster.node import Node
from svcd.instance.instance import Instance
from svcd.instance.task_records import Task
from svcd.tasks.runner import Runner
from tests.support.memory_log import MemoryServers
from tests.tasks.conftest import LocalWriter, harness  # noqa: F401 (fixture)

KEY = "a-master-key-of-some-length"
PATIENCE_S = 20.0


def await_true(is_so: Callable[[], bool]) -> None:
    """Return when is_so() holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class LocalNode:
    """A node without HTTP. Its record and the lease are looked after when look() is called; the log is followed after start()."""

    def __init__(self, servers: MemoryServers, path: Path, name: str, unpack: joining.Unpack = shutil.copytree) -> None:
        self.servers, self.name, self.path = servers, name, path
        self.log = servers.log(0.3)
        position = joining.join(self.log, path, name, KEY, unpack)
        self.instance = Instance(path)
        self.queue = self.instance.queue
        self.node = Node(self.instance, self.log, position, name=name, timeout_s=0.6)
        self.lost: list[str] = []
        self.node.on_lost = self.lost.append
        self.node.open()
        self.members = Members(self.node, self.log, f"http://{name}.test")
        self.runner: Runner | None = None
        self.bugs: list[str] = []

    def look(self) -> None:
        """One beat of the members."""
        self.members.look()

    def start(self, has_runner: bool = True) -> LocalNode:
        """Follow the log, and run what it has begun."""
        if has_runner:
            self.runner = Runner(self.instance, make_writer=LocalWriter, on_bug=self.bugs.append, retry_s=0.01,  # type: ignore[arg-type]
                                 cluster=self.node)
            self.runner.start()
        self.node.start()
        return self

    def add(self, *documents: Any, index_uid: str = "films") -> Task:
        """Add documents through this node."""
        text = "".join(json.dumps(document) + "\n" for document in documents)
        path = self.queue.payload_folder / f"{self.name}-{time.monotonic_ns()}"
        path.write_text(text)
        return self.queue.enqueue("documentAdditionOrUpdate", index_uid, payload=path, payload_bytes=len(text),
                                  content={"method": "replace", "primaryKey": "id", "mayCreate": True},
                                  details={"receivedDocuments": len(documents), "indexedDocuments": None})

    def catch_up(self) -> None:
        """Wait until all that the log has is applied."""
        await_true(lambda: self.node.position.applied >= self.servers.last)

    def finished(self, task: Task) -> Task:
        """The task, once it has ended here."""
        await_true(lambda: self.instance.has_ended(task.uid))
        found = self.queue.task(task.uid)
        assert found is not None
        return found

    def tasks(self) -> list[Task]:
        """All tasks, oldest first."""
        return self.queue.tasks_of(range(1000))

    def documents(self, index_uid: str = "films") -> list[Any]:
        with self.instance.read(index_uid) as reader:
            return [json.loads(text) for text in reader.documents(list(reader.docids_page(0, 1000)))]

    def stop(self) -> None:
        """End, with what is under way left as it is."""
        self.node.stop()
        if self.runner is not None:
            self.runner.stop(0)
        self.instance.close()
        self.log.close()


@pytest.fixture
def servers() -> MemoryServers:
    """The servers of a log."""
    return MemoryServers()


MakeNode = Callable[..., LocalNode]


@pytest.fixture
def make_node(servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNode]:
    """make_node(name, path=..., unpack=...): a node on the log; ended with the test."""
    monkeypatch.setattr(node_module, "WAIT_S", 0.05)  # a node ends when its read does
    monkeypatch.setattr(members, "_OWN_LEASE_S", 60.0)  # nobody renews it beside the test
    monkeypatch.setattr(members, "LEASE_S", 61.0)
    made: list[LocalNode] = []

    def make(name: str, path: Path | None = None, **options: Any) -> LocalNode:
        made.append(LocalNode(servers, path or tmp_path / name, name, **options))
        return made[-1]

    yield make
    for node in made:
        node.stop()
