"""What the machine has, within the limits set for this process."""
from __future__ import annotations

from pathlib import Path

import pytest

from svcd.cli import machine


def test_there_is_a_core_and_some_memory() -> None:
    assert machine.cores() >= 1
    assert (machine.memory() or 0) > 1 << 20


def test_the_smallest_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "_own_cgroup", lambda: "system.slice/svcd.service")
    unit = tmp_path / "system.slice" / "svcd.service"
    unit.mkdir(parents=True)
    (unit / "memory.max").write_text("max\n")
    (unit.parent / "memory.max").write_text("67108864\n")
    assert machine.memory() == 64 << 20


def test_memory_that_cannot_be_known_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_physical", lambda: None)
    monkeypatch.setattr(machine, "_own_cgroup", lambda: None)
    assert machine.memory() is None
