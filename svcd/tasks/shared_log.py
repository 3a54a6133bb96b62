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

    def sealed(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
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
