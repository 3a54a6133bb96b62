"""What the main process tells a search worker at its start.

Knows the shape of it alone, so that who writes it need not load what a worker needs.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Orders:
    """What a worker has to know. Sockets and memory are descriptors, which it has inherited.

    number: its own; listeners: sockets that listen; board, tray, trays: see svcd.http.sharing.
    log_targets: what is printed of the log in place of its level; "" when nobody changed it.
    counts_usage: for the usage report.
    """

    number: int
    listeners: list[int]
    board: int
    tray: int
    trays: list[int]
    path: str
    features: Mapping[str, bool | None]
    master_key: str | None
    payload_limit: int
    threads: int
    parallel_searches: int
    queue_size: int
    drop_after_s: float
    log_level: str
    logs_mode: str
    log_targets: str = ""
    counts_usage: bool = False

    @property
    def descriptors(self) -> list[int]:
        """All that it has to inherit."""
        return [*self.listeners, self.board, self.tray, *self.trays]

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
