"""Memory and cores of the machine. What must hold:

1. There is at least one core; memory is that of the machine, or the smallest limit of the cgroups around the process.
2. Memory that cannot be known is None.
3. Freed memory goes back to the system.
"""
from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from svcd.base import machine


def test_there_is_a_core_and_some_memory() -> None:
    assert machine.cores() >= 1
    assert (machine.memory() or 0) > 1 << 20


def test_the_smallest_limit_counts(tmp_path: Path) -> None:
    membership, cgroups = tmp_path / "membership", tmp_path / "cgroups"
    membership.write_text("1:name=systemd:/elsewhere\n0::/system.slice/svcd.service\n")
    unit = cgroups / "system.slice" / "svcd.service"
    unit.mkdir(parents=True)
    (unit / "memory.max").write_text("max\n")
    (unit.parent / "memory.max").write_text("67108864\n")
    assert machine.memory(cgroups, membership) == 64 << 20


def test_memory_that_cannot_be_known_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("os.sysconf", unknown)
    assert machine.memory(tmp_path, tmp_path / "absent") is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed, and gives it back")
def test_freed_memory_is_given_back() -> None:
    blocks = [bytes(2000 + number % 100) for number in range(30_000)]  # 60 MB, each too small to be mapped by itself
    blocks = blocks[::100]  # what stays lies in between, so that glibc keeps the rest
    before = resident()
    machine.give_back_memory()
    assert resident() < before - 30e6
    assert len(blocks) == 300


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
