"""A node with all its parts, from the start of the daemon to its stop, and the status of the cluster that it reports."""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.cluster import copying, joining
from svcd.cluster.content_hash import PAUSE_S, ContentHashes
from svcd.cluster.log import Log, Unavailable
from svcd.cluster.log_address import open_log
from svcd.cluster.members import Members
from svcd.cluster.node import RETRY_AFTER_S, Node
from svcd.instance.applied_log import Position
from svcd.instance.instance import Instance

_PIECE_BYTES = 1 << 18
TIMEOUT_S = 5.0
_RETRY = (("Retry-After", str(RETRY_AFTER_S)),)


class ClusterService:
    """The cluster part of the daemon. joined() creates it; open() gives it the instance."""

    def __init__(self, log: Log, position: Position, name: str, url: str) -> None:
        self._log = log
        self._position = position
        self._name, self._url = name, url
        self._stopping = threading.Event()
        self._hashing = threading.Thread(target=self._hash, name="svcd-hashes")

    def open(self, instance: Instance, on_lost: Callable[[str], None], default_keys: Callable[[], None]) -> Node:
        """Take over the writes of the instance. on_lost: called when the node has to restart, to copy another node's data.

        default_keys: creates the first keys of a new cluster; called when this node leads.
        """
        self._instance = instance
        copying.remove_leftovers(instance.path)
        self.node = Node(instance, self._log, self._position, name=self._name, timeout_s=TIMEOUT_S)
        self.node.on_lost = on_lost
        self.node.open()
        self._hashes = ContentHashes(instance)
        self._members = Members(self.node, self._log, self._url, self._hashes.all)
        self._default_keys = default_keys
        return self.node

    def start(self) -> None:
        """Start following the log, and competing for the lease."""
        self.node.start()
        self._members.start()
        self._hashing.start()

    def stop_following(self) -> None:
        """Stop following the log; must come before the runner stops, because its batch may wait for the log."""
        self._stopping.set()
        self._members.stop()
        self.node.stop()
        if self._hashing.ident is not None:
            self._hashing.join()

    def close(self) -> None:
        """Close the connections to the log."""
        self._log.close()

    def _hash(self) -> None:
        has_keys = False
        while not self._stopping.wait(PAUSE_S):
            try:
                if not has_keys and self.node.is_leading():
                    self._default_keys()
                    has_keys = True
                if not self._instance.queue.count_enqueued():
                    self._hashes.update()
            except (ApiError, sqlite3.Error) as failure:
                logs.debug("the hashes of the cluster are computed later", reason=str(failure))

    # Status

    def summary(self) -> Mapping[str, Any]:
        """Return the member `cluster` of /health."""
        return {"node": self._name, "leader": self._leader(), "hasQuorum": self._members.has_quorum(),
                "isDraining": self._members.is_draining}

    def status(self) -> Mapping[str, Any]:
        """Return the state of this node, the leader, and every node with its lag and its hashes."""
        position = self.node.position
        members = self._members.all()
        last = max([position.applied, *(member.applied for member in members)])
        nodes = []
        for member in members:
            is_self = member.name == self._name
            applied = position.applied if is_self else member.applied
            indexes = {uid: {"lastTask": last_task, "hash": text} for uid, (last_task, text) in sorted(member.hashes.items())}
            nodes.append({
                "name": member.name, "url": member.url, "version": member.version, "isLeader": member.name == self._leader(),
                "isAlive": is_self or member.is_alive, "secondsSinceSeen": round(member.age_s, 1), "applied": applied,
                "lag": last - applied, "fault": member.fault, "indexes": indexes})
        return {"uid": position.log, **self.summary(), "term": position.term, "lastEntry": last, "fault": self.node.fault,
                "nodes": nodes}

    def _leader(self) -> str | None:
        return self._name if self.node.is_leading() else self._members.leader()

    def copy(self) -> Generator[bytes]:
        """Return a snapshot of this node, in pieces. Raises ApiError."""
        with ExitStack() as stack:
            try:
                file = stack.enter_context(copying.copy_of(self._instance))
            except copying.Busy as busy:
                raise ApiError("cluster_unavailable", str(busy), _RETRY) from None
            opened = stack.pop_all()

        def pieces() -> Generator[bytes]:
            with opened:
                yield b""
                while piece := file.read(_PIECE_BYTES):
                    yield piece

        made = pieces()
        next(made)  # so that close() removes the copy even if nobody reads it
        return made

    def drain(self, is_draining: bool) -> None:
        """Leave leading to other nodes before this one stops; False: compete for the lease again."""
        self._members.is_draining = is_draining

    def remove(self, name: str) -> None:
        """Remove a node from the cluster. Raises ApiError."""
        if name == self._name:
            raise ApiError("bad_request", f"Node `{name}` is this one: ask another node to forget it, after it was stopped.")
        try:
            if not self._members.remove(name):
                raise ApiError("node_not_found", f"Node `{name}` not found.")
        except Unavailable as failure:
            raise ApiError("cluster_unavailable", f"The node could not be removed: {failure}.", _RETRY) from None


def joined(address: str, folder: Path, name: str, url: str, master_key: str, unpack: joining.Unpack) -> ClusterService:
    """Join the cluster with the log at `address`; the data folder must not be open. Raises CannotJoin, Unavailable."""
    log = open_log(address, TIMEOUT_S)
    try:
        return ClusterService(log, joining.join(log, folder, name, master_key, unpack), name, url)
    except BaseException:
        log.close()
        raise
