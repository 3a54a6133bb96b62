"""The interface between the runner and the replicated log of a cluster; svcd.cluster.node implements it."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from svcd.instance.applied_log import BegunBatch
from svcd.instance.task_records import Task


class Cluster(Protocol):
    """The part of svcd.cluster.node.Node that the runner uses."""

    on_begun: Callable[[BegunBatch], None]
    on_leadership: list[Callable[[], None]]

    def begun_before(self) -> Sequence[BegunBatch]:
        """Return the batches that had begun before the start."""

    def is_leading(self) -> bool:
        """Return whether this node decides which batches run."""

    def begin(self, tasks: Sequence[Task], shape: str, strategy: str) -> bool:
        """Make all nodes run a batch. Return whether the log took the entry."""

    def sealed(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """Return the end of a batch. outcome: called on the leader, to run the batch. Raises ClusterStopped."""

    def stumbled(self, reason: str) -> None:
        """Note that a batch could not be finished on this node, so that another node becomes the leader for a while."""

    def end_unless_leading(self, batch_uid: int) -> Mapping[str, Any] | None:
        """Wait for the end of a batch in the log, and return it; None as soon as this node leads. Raises ClusterStopped."""

    def share_file(self, path: Path) -> dict[str, Any]:
        """Put a file into the log; return the member `payload` of an entry. Raises OSError."""

    def take_file(self, payload: dict[str, Any], path: Path) -> None:
        """Write the file of an entry to a path. Raises OSError."""

    def ended(self, batch_uid: int, tasks: Sequence[int]) -> None:
        """Note that a batch has ended on this node."""


class SingleNode:
    """The null object for a daemon outside any cluster: it decides alone, and has no log. start: starts a batch."""

    def __init__(self, start: Callable[[Sequence[Task], str, str], bool]) -> None:
        self.on_begun: Callable[[BegunBatch], None] = lambda begun: None
        self.on_leadership: list[Callable[[], None]] = []
        self.begin = start

    def begun_before(self) -> Sequence[BegunBatch]:
        """Return no batches: the queue holds everything."""
        return ()

    def is_leading(self) -> bool:
        """Return True."""
        return True

    def sealed(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> None:
        """Return None: the caller runs the batch and stores its own end."""

    def stumbled(self, reason: str) -> None:
        """Do nothing: the caller tries again."""

    def end_unless_leading(self, batch_uid: int) -> None:
        """Return None: this node decides."""

    def share_file(self, path: Path) -> dict[str, Any]:
        """Return no members: no other node needs the file."""
        return {}

    def take_file(self, payload: dict[str, Any], path: Path) -> None:
        """Do nothing: no other node has made a file."""

    def ended(self, batch_uid: int, tasks: Sequence[int]) -> None:
        """Do nothing: no other node waits."""
