"""What must hold of the question whether a file is there, on every version of Python:

1. What is there is there, and what is not is not.
2. When the system cannot tell, that is an error, not an absent file.
3. A failing disk gives no data folder a new identity, and is no reason to delete what is in it.
"""
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from svcd.base import files
from svcd.cli import first_start
from svcd.instance.instance import Instance


def test_1_what_is_there_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nowhere")
    assert files.exists(tmp_path) and files.exists(str(tmp_path / "file"))
    assert not any(map(files.exists, (tmp_path / "nothing", tmp_path / "file" / "below", tmp_path / "loop", tmp_path / "broken", "\0")))


def test_2_a_name_that_the_system_refuses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        files.exists(tmp_path / ("x" * 5000))


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


def test_3_a_failing_disk_is_no_new_folder(failing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (failing / "instance-uid").read_bytes()
    with pytest.raises(OSError, match="Input/output"):
        Instance(failing)
    with pytest.raises(OSError, match="Input/output"), first_start.remove_on_failure(failing):
        raise ZeroDivisionError
    monkeypatch.undo()
    assert (failing / "instance-uid").read_bytes() == before
    assert (failing / "instance.sqlite").exists()
