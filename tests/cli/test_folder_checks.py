"""Data folders that a start cannot use. What must hold: the refusal is one line that says what to do.

1. A folder, or a file in it, that belongs to somebody else or is not writable is refused before anything is written.
2. A data folder of the reference engine is refused, and left as it is.
3. A folder in use, and one of a newer version, are refused; an old one is upgraded (the file of each released version).
4. Root is warned before it writes into a folder of somebody else.
"""
from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from svcd.cli import folder_checks
from svcd.index.schema import FORMAT
from tests.faults.make_format_folder import FOLDER
from tests.support.archives import unpack
from tests.support.daemon import ROOT, running

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def refusal(folder: Path, as_nobody: bool = False) -> str:
    """The only line of a start that is refused."""
    command = [sys.executable, "-m", "svcd", "--http-addr", "127.0.0.1:0", "--db-path", str(folder), "--log-level", "OFF"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=folder.parent,
                          env={"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
                          **({"user": NOBODY, "group": NOBODY} if as_nobody else {}))  # type: ignore[call-overload]
    assert made.returncode in (1, 2) and made.stderr.startswith("svcd: ") and made.stderr.count("\n") == 1, made.stderr
    return str(made.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with running(tmp_path):
        pass
    return tmp_path / "data.ms"


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        assert "is in use by another svcd; stop it, or start with another --db-path" in refusal(daemon.data)


def test_a_folder_of_a_newer_version_is_refused(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "instance.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    assert "start the svcd that wrote it, or a later one" in refusal(folder)


@pytest.mark.parametrize("name", ["tasks", "auth"])
def test_a_folder_of_the_reference_engine_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "data.ms" / name).mkdir(parents=True)
    (tmp_path / "data.ms" / name / "data.mdb").touch()
    said = refusal(tmp_path / "data.ms")
    assert "is a data folder of the reference engine" in said and "`svcd import-from`" in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["data.mdb", "data.ms", name])


@pytest.mark.parametrize("path", ["", "instance.sqlite", "indexes"])
@needs_root
def test_what_belongs_to_somebody_else_is_named(folder: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in [folder, *folder.rglob("*")]:
        os.chown(each, NOBODY, NOBODY)
    os.chown(folder / path, 1, 1)
    monkeypatch.setattr(os, "access", lambda each, mode: each != folder / path)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    said = folder_checks.why_unusable(folder)
    assert said and str(folder / path) in said and "start svcd as user daemon, or change the owner" in said and "\n" not in said


def test_a_file_system_that_is_mounted_read_only_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: type("Facts", (), {"f_flag": os.ST_RDONLY}))
    assert "mounted read-only; mount it for writing" in str(folder_checks.why_unusable(tmp_path / "data.ms"))


@needs_root
def test_root_is_warned_of_a_folder_of_somebody_else(folder: Path) -> None:
    assert folder_checks.foreign_owner(folder) is None and folder_checks.foreign_owner(folder / "nowhere") is None
    os.chown(folder, 1, 1)
    assert "start svcd as user daemon" in str(folder_checks.foreign_owner(folder))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tar.gz")), ids=lambda path: path.name)
def test_a_start_upgrades_an_old_folder(path: Path, tmp_path: Path) -> None:
    with tarfile.open(path) as archive:
        unpack(archive, tmp_path / "unpacked")
    (found,) = (each.parent for each in (tmp_path / "unpacked").rglob("instance.sqlite"))
    found.rename(tmp_path / "data.ms")
    with running(tmp_path) as daemon:
        assert {hit["title"] for hit in daemon.get("/indexes/films/search?q=m")["hits"]} >= {"Metropolis", "M"}
        with closing(sqlite3.connect(tmp_path / "data.ms/instance.sqlite")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
