"""The nodes of a cluster as this node sees them, the lease of the leader, and the trimming of the log.

Records beside the log: `cluster` (its uid, see svcd.cluster.joining), `lease` (the leader, with a number that grows with each
renewal) and `node/NAME` of every node. Nodes do not compare clocks: a record counts as alive while it changes, by the monotonic
clock of the reader. A leader that could not renew its lease in time stops leading before another node takes the lease; even if it
did not notice, nodes ignore its entries after the entry `term` of its successor.

Thread: "svcd-members", between start() and stop().
"""
from __future__ import annotations

import json
import threading
import time
import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from svcd import __version__
from svcd.base import logs
from svcd.base.json_text import loads_wrapped
from svcd.cluster.entries import payloads_of
from svcd.cluster.log import Log, Record, Trimmed, Unavailable
from svcd.cluster.node import MOST_ENTRIES, Node
from svcd.validation.answers import MISFITS

CLUSTER, LEASE, NODES = "cluster", "lease", "node/"
# The members of records that are read, with their types.
_MEMBERS: Mapping[str, Mapping[str, Any]] = {
    CLUSTER: {"uid": str}, LEASE: {"holder": (str, type(None)), "session": (str, type(None)), "term": int}}
_NODE_MEMBERS: Mapping[str, Any] = {"url": str, "applied": int, "version": str, "session": str}
# A leader renews the lease every BEAT_S. Another node takes a lease that has not changed for LEASE_S; the leader stops earlier.
BEAT_S, LEASE_S = 0.4, 2.0
_OWN_LEASE_S = 1.6
# A node without news writes its record this often.
_QUIET_S = 2.0
# A node ends only if it reads the reason for this many seconds: a new leader of the log may give older records, or none.
LOST_S = 10.0
# The leader trims the log when all nodes have applied TRIM_AFTER entries since the last trim; it checks every _TRIM_S.
TRIM_AFTER, _TRIM_S = 1000, 5.0


@dataclass
class Member:
    """A node by its record. applied: number of the newest entry that it has applied; age_s: seconds since its record changed."""

    name: str
    url: str
    applied: int
    version: str
    age_s: float
    hashes: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its record changed recently."""
        return self.age_s < 3 * _QUIET_S


class Members:
    """Publishes the record of this node, and watches the records of the others. url: the address of this node for all others.

    hashes: returns the hashes of the content of the indexes, which the record contains.
    """

    def __init__(self, node: Node, log: Log, url: str, hashes: Callable[[], Mapping[str, Any]] = dict) -> None:
        self._node, self._log, self._url, self._hashes = node, log, url, hashes
        self.is_draining = False  # this node leaves leading to others
        self._session = uuids.uuid4().hex
        self._beat = 0
        self._seen: dict[str, tuple[int, float]] = {}  # key of a record -> its revision, and since when
        self._records: Mapping[str, Record] = {}
        self._told: dict[str, Any] = {}
        self._told_at = self._trimmed_at = float("-inf")
        self._trimmed = 0
        self._reached_at = time.monotonic()
        self._doubted_since: float | None = None  # when the records began to say that this node has to end
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="svcd-members")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and give up the lease."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._node.is_leading():
            self._node.renew(0.0)
            try:
                self._resign()
            except Unavailable:  # it runs out by itself
                pass

    # The known nodes

    def all(self) -> list[Member]:
        """Return the nodes, ordered by name."""
        now = time.monotonic()
        members = []
        for key, record in sorted(self._records.items()):
            if key.startswith(NODES):
                told = loads_wrapped(record.value)
                members.append(Member(key.removeprefix(NODES), told["url"], told["applied"], told["version"],
                                      now - self._seen[key][1], told.get("hashes", {}), told.get("fault")))
        return members

    def leader(self) -> str | None:
        """Return the node that holds the lease, as far as this node knows; None while the lease is free."""
        found = self._records.get(LEASE)
        if found is None or time.monotonic() - self._seen[LEASE][1] > LEASE_S:
            return None
        holder: str | None = loads_wrapped(found.value)["holder"]
        return holder

    def has_quorum(self) -> bool:
        """Return whether the servers of the log replied recently."""
        return time.monotonic() - self._reached_at < LEASE_S

    def remove(self, name: str) -> bool:
        """Remove a node, so that trimming does not wait for it. Returns False for an unknown node. Raises Unavailable."""
        record = self._log.records(NODES).get(NODES + name)
        return record is not None and self._log.compare_and_set(NODES + name, None, record.revision) is not None

    # The beat

    def _run(self) -> None:
        while not self._stopping.wait(BEAT_S):
            try:
                self.look()
            except Unavailable:
                self._node.renew(min(time.monotonic(), self._reached_at + _OWN_LEASE_S))
            except Exception as bug:  # continue: without the beat the node would lose its lease for good
                logs.failure("bug", bug)

    def look(self) -> None:
        """Read all records, renew or take the lease, write the record of this node, trim. Raises Unavailable."""
        begun = time.monotonic()
        records = self._log.records("")
        for key, record in records.items():
            needed = _NODE_MEMBERS if key.startswith(NODES) else _MEMBERS.get(key, {})
            try:
                told = loads_wrapped(record.value)
                is_good = all(isinstance(told[name], kind) for name, kind in needed.items())
            except MISFITS:
                is_good = False
            if not is_good:
                raise Unavailable(f"the record {key} of the log cannot be read")
        self._note(records)
        self._reached_at = time.monotonic()
        # This node must have applied entries of this log: it could be new, or belong to another cluster.
        found = self._records.get(CLUSTER)
        self._node.is_verified = found is not None and loads_wrapped(found.value)["uid"] == self._node.position.log
        if not self._node.is_verified:
            self._node.renew(0.0)
            reason = "the log is not, or no longer, that of this data folder"
            if found is None:
                self._end_if_lasting(reason)
            else:
                self._node.on_lost(reason)
            return
        self._hold_or_take(begun)
        self._tell()
        if self._node.is_leading() and time.monotonic() - self._trimmed_at > _TRIM_S:
            self._trimmed_at = time.monotonic()
            self._trim()

    def _note(self, records: Mapping[str, Record]) -> None:
        """Replace the known records. Sets _seen first, where other threads look up each of them."""
        now = time.monotonic()
        for key, record in records.items():
            if self._seen.get(key, (0, 0.0))[0] != record.revision:
                self._seen[key] = record.revision, now
        self._records = records

    def _end_if_lasting(self, reason: str) -> None:
        now = time.monotonic()
        if self._doubted_since is None:
            self._doubted_since = now
        if now - self._doubted_since >= LOST_S:
            self._node.on_lost(reason)

    def _hold_or_take(self, begun: float) -> None:
        found = self._records.get(LEASE)
        lease: dict[str, Any] = loads_wrapped(found.value) if found else {"holder": None, "session": None, "term": 0}
        if lease["session"] == self._session:
            if not self._may_lead():
                self._node.renew(0.0)
                self._resign()
            elif self._write_lease(int(lease["term"]), found):
                self._node.renew(begun + _OWN_LEASE_S)
                if not self._node.is_leading():  # its first entry could not be written at once
                    self._lead(int(lease["term"]) + 1, begun)
            return
        self._node.renew(0.0)
        is_free = lease["holder"] in (None, self._node.name)
        if self._may_lead() and (is_free or begun - self._seen[LEASE][1] > LEASE_S):
            self._lead(int(lease["term"]) + 1, begun)

    def _may_lead(self) -> bool:
        return self._node.is_fit() and not self.is_draining

    def _lead(self, term: int, begun: float) -> None:
        found = self._records.get(LEASE)
        revision = self._write_lease(term, found)
        if revision:
            self._node.lead(term, begun + _OWN_LEASE_S)

    def _write_lease(self, term: int, found: Record | None) -> int | None:
        self._beat += 1
        value = {"holder": self._node.name, "session": self._session, "term": term, "beat": self._beat}
        revision = self._log.compare_and_set(LEASE, json.dumps(value).encode(), found.revision if found else 0)
        if revision:
            self._note({**self._records, LEASE: Record(json.dumps(value).encode(), revision)})
        return revision

    def _resign(self) -> None:
        found = self._log.records(LEASE).get(LEASE)
        if found and loads_wrapped(found.value)["session"] == self._session:
            value = {**loads_wrapped(found.value), "holder": None, "session": None}
            self._log.compare_and_set(LEASE, json.dumps(value).encode(), found.revision)

    def _tell(self) -> None:
        told = {"url": self._url, "applied": self._node.position.applied, "version": __version__, "hashes": dict(self._hashes()),
                "fault": self._node.fault}
        key = NODES + self._node.name
        found = self._records.get(key)
        if self._told and found and loads_wrapped(found.value)["session"] != self._session:
            self._end_if_lasting(f"another node has the name {self._node.name} too")
            return
        self._doubted_since = None
        now = time.monotonic()
        if told == self._told and now - self._told_at < _QUIET_S:
            return
        self._beat += 1
        value = json.dumps({**told, "beat": self._beat, "session": self._session}).encode()
        if self._log.compare_and_set(key, value, found.revision if found else 0):
            self._told, self._told_at = told, now

    def _trim(self) -> None:
        """Delete the entries that all nodes have applied, and their pieces."""
        upto = min((member.applied for member in self.all()), default=0)
        if upto - self._trimmed < TRIM_AFTER:
            return
        after = self._trimmed
        while after < upto:
            try:
                found = [(number, body) for number, body in self._log.read(after, MOST_ENTRIES, 0) if number <= upto]
            except Trimmed as trimmed:
                after = trimmed.first - 1
                continue
            for _, body in found:
                for name in payloads_of(body):
                    self._log.drop_pieces(name)
            after = found[-1][0] if found else upto
        self._log.trim(upto)
        self._trimmed = upto
