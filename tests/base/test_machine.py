"""Memory, cores and files of a process. What must hold, on every version of Python:

1. There is at least one core; memory is that of the machine, or the smallest limit of the cgroups around the process. Waiting for
   cores slows down, and counts nothing where the system does not tell it.
2. Memory that cannot be known is None.
3. Freed memory goes back to the system.
4. A file that exists is found, and another one is not. When the system cannot tell, that is an error, not an absent file.
5. A failing disk gives no data folder a new identity, and is no reason to delete what is in it.
"""
from __future__ import annotations

import errno
import os
import platform
from pathlib import Path

import pytest

from svcd.base import machine
from svcd.cli import daemon
from svcd.instance.instance import Instance


def test_there_is_a_core_and_some_memory() -> None:
    assert machine.cores() >= 1
    assert (machine.memory() or 0) > 1 << 20


def test_waiting_for_cores_slows_down(tmp_path: Path) -> None:
    scheduling = tmp_path / "schedstat"
    scheduling.write_text("5000 9000 7\n")
    before = machine.core_times(scheduling)
    scheduling.write_text("6000 11000 9\n")
    assert before == (5000, 9000) and machine.slowdown(before, scheduling) == 3.0
    assert machine.slowdown((6000, 11000), scheduling) == machine.slowdown(scheduling=tmp_path / "absent") == 1.0


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


def test_files_that_exist_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nowhere")
    assert machine.file_exists(tmp_path) and machine.file_exists(str(tmp_path / "file"))
    assert not any(map(machine.file_exists, (tmp_path / "nothing", tmp_path / "file" / "below", tmp_path / "loop", tmp_path / "broken", "\0")))


def test_a_name_that_the_system_refuses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        machine.file_exists(tmp_path / ("x" * 5000))


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose files nobody can look at."""
    folder, stat = tmp_path / "data", os.stat
    Instance(folder).close()

    def refuse(path: str | Path, **options: object) -> os.stat_result:
        if str(path).startswith(str(folder)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "stat", refuse)
    return folder


def test_a_failing_disk_is_no_new_folder(failing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (failing / "instance-uid").read_bytes()
    with pytest.raises(OSError, match="Input/output"):
        Instance(failing)
    with pytest.raises(OSError, match="Input/output"), daemon.remove_on_failure(failing):
        raise ZeroDivisionError
    monkeypatch.undo()
    assert (failing / "instance-uid").read_bytes() == before
    assert (failing / "instance.sqlite").exists()
