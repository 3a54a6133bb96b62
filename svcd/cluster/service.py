"""A node with all its parts, from the start of the daemon to its stop; the status of the cluster, and the hashes of its content.

The hashes of the documents and settings of each index compare the nodes, whose index files differ. Each hash belongs to the last
task that changed the index; only hashes of the same task are comparable. After a change, when no task waits, the node hashes all
documents again, at most every PAUSE_S.
"""
from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.cluster import joining
from svcd.cluster.log import Log, Unavailable, parsed_address
from svcd.cluster.members import Members
from svcd.cluster.node import RETRY_AFTER_S, Node
from svcd.index.connections import open_reader
from svcd.instance.applied_log import Position
from svcd.instance.instance import Instance
from svcd.instance.unlisted_files import stored_outcomes

_PIECE_BYTES = 1 << 18
TIMEOUT_S = 5.0
PAUSE_S = 1.0
_HASH_BYTES = 16
_MODULUS = 1 << 8 * _HASH_BYTES
_SETTINGS = "SELECT value FROM meta WHERE key IN ('settings', 'primary_key') ORDER BY key"
_RETRY = (("Retry-After", str(RETRY_AFTER_S)),)


def open_log(address: str, timeout_s: float) -> Log:
    """Return the log at an address that parsed_address() reads. The log calls the servers at its first use, not here.

    timeout_s: limit of each call; read() may wait wait_s longer.
    Raises ValueError if the address is wrong, or an extra is not installed.
    """
    parsed = parsed_address(address)
    # Imported late: a node needs one backend only, and NATS needs an extra.
    if parsed.scheme == "rqlite":
        from svcd.cluster.rqlite import RqliteLog

        return RqliteLog(parsed, timeout_s)
    try:
        from svcd.cluster.nats import NatsLog
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "nats":
            raise
        raise ValueError("a log in NATS needs an extra: pip install 'svcd[nats]'") from None
    return NatsLog(parsed, timeout_s)


class ContentHashes:
    """The newest hash of each index: uid -> [last task, hash]."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._states: dict[str, tuple[str, int]] = {}
        self._hashes: dict[str, list[object]] = {}

    def all(self) -> dict[str, list[object]]:
        """Return the latest hashes; after a change of an index its previous one, until update()."""
        return dict(self._hashes)

    def update(self) -> None:
        """Hash the indexes that have changed."""
        rows, _ = self._instance.list_indexes(with_hidden=True)
        for row in rows:
            path = self._instance.index_path(row.uuid)
            try:
                found = _content_hash(path, self._states.get(row.uid))
            except sqlite3.Error:  # deleted meanwhile
                continue
            if found is not None:
                self._states[row.uid], self._hashes[row.uid] = found
        for uid in self._hashes.keys() - {row.uid for row in rows}:
            self._hashes.pop(uid)
            self._states.pop(uid, None)


def _content_hash(path: Path, known: tuple[str, int] | None) -> tuple[tuple[str, int], list[object]] | None:
    """Return the state (name of the file, last task) and the hash of an index; None if its state is `known`."""
    with closing(open_reader(path)) as reader:
        reader.execute("BEGIN")
        outcomes = stored_outcomes(reader)
        state = path.name, -1 if outcomes is None else outcomes.last
        if state == known:
            return None
        total = 0
        for document_id, text in reader.execute("SELECT document_id, json FROM documents"):
            digest = hashlib.blake2b(f"{document_id}\n{text}".encode(), digest_size=_HASH_BYTES).digest()
            total = (total + int.from_bytes(digest)) % _MODULUS  # in any order
        whole = hashlib.blake2b(f"{total}".encode(), digest_size=_HASH_BYTES)
        for (value,) in reader.execute(_SETTINGS):
            whole.update(value if isinstance(value, bytes) else str(value).encode())
        return state, [state[1], whole.hexdigest()]


class ClusterService:
    """The cluster part of the daemon. joined() creates it; open() gives it the instance."""

    def __init__(self, log: Log, position: Position, name: str, url: str) -> None:
        self._log, self._position = log, position
        self._name, self._url = name, url
        self._stopping = threading.Event()
        self._hashing = threading.Thread(target=self._hash, name="svcd-hashes")

    def open(self, instance: Instance, on_lost: Callable[[str], None], default_keys: Callable[[], None]) -> Node:
        """Take over the writes of the instance. on_lost: called when the node has to restart, to copy another node's data.

        default_keys: creates the first keys of a new cluster; called when this node leads.
        """
        self._instance = instance
        joining.remove_leftovers(instance.path)
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
                file = stack.enter_context(joining.copy_of(self._instance))
            except joining.Busy as busy:
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
