"""What the runner asks of the log that the nodes of a cluster share; svcd.cluster.node has it."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from svcd.instance.applied_log import BegunBatch
from svcd.instance.task_records import Task


class Cluster(Protocol):
    """The part of svcd.cluster.node.Node that the runner asks."""

    on_begun: Callable[[BegunBatch], None]
    on_leadership: list[Callable[[], None]]

    def begun_before(self) -> Sequence[BegunBatch]:
        """The batches that had begun before the start."""

    def is_leading(self) -> bool:
        """Does this node decide which batches run?"""

    def begin(self, tasks: Sequence[Task], shape: str, strategy: str) -> bool:
        """Have a batch run by all nodes; False when that could not be."""

    def sealed(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The end of a batch. Raises ClusterStopped."""

    def stumbled(self, reason: str) -> None:
        """A batch could not be finished here: another node should lead for a while."""

    def end_unless_leading(self, batch_uid: int) -> Mapping[str, Any] | None:
        """The end of a batch, once the log has it; None as soon as this node leads. Raises ClusterStopped."""

    def share_file(self, path: Path) -> dict[str, Any]:
        """Put a file into the log; the member `payload` of an entry. Raises OSError."""

    def take_file(self, payload: dict[str, Any], path: Path) -> None:
        """Put the file that an entry has into its place. Raises OSError."""

    def ended(self, batch_uid: int, tasks: Sequence[int]) -> None:
        """A batch has ended here."""
