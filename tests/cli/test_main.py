"""The command line. What must hold:

1. --version and --help answer at once, without loading the daemon, with status 0.
2. A wrong option or value is one line on stderr, with status 2, and never repeats a secret.
3. A start that fails is one line on stderr with its reason, with status 1, and never a traceback.
"""
from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from svcd import INTERFACE_VERSION, __version__
from svcd.base.errors import ApiError
from svcd.cli import main as command
from svcd.cli.config import Config
from svcd.cli.options import OPTIONS
from svcd.instance.instance import FolderInUse
from tests.support.option_samples import WRONG

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _clean_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith(("SVC_", "MEILI_"))]:
        monkeypatch.delenv(variable)


def run(*arguments: str) -> int:
    """The exit status of the command with these arguments."""
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    return int(ended.value.code or 0)


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a refused start left on stderr."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("svcd: ") and err.endswith("\n") and err.count("\n") == 1
    return err


def test_version_names_the_interface_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    out = capsys.readouterr().out
    assert __version__ in out and INTERFACE_VERSION in out


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_ends_well(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flag) == 0
    assert "Usage: svcd" in capsys.readouterr().out


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_value_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag = next(option.flag for option in OPTIONS if option.name == name)
    assert run(f"{flag}={WRONG[name]}") == command.STATUS_MISUSE
    assert flag in refused(capsys)


@pytest.mark.parametrize(("arguments", "words"), [
    (["--db-pth", "x"], "no such option: --db-pth; did you mean --db-path?"),
    (["--dump_dir=x"], "did you mean --dump-dir?"),
    (["--s3-bucket-url=http://store"], "--s3-bucket-url: snapshots in an object store also need --s3-bucket-region and "
                                       "--s3-bucket-name and --s3-snapshot-prefix"),
    (["--experimental-dumpless-upgrade"], "--upgrade-db"),
    (["--experimental-such-things"], "no such option: --experimental-such-things; `svcd --help` shows all options"),
    (["--zzz"], "no such option: --zzz; `svcd --help` shows all options"),
    (["--task-webhook-url", "ftp://x"], "cannot be called, expected `http` or `https`"),
    (["-x"], "no such option"),
    (["verify", "--db-path", "x"], "--db-path belongs before the command: svcd --db-path ... verify"),
    (["settings", "diff", "--db-path", "x"], "--db-path belongs before the command: svcd --db-path ... settings diff"),
    (["verify", "--foldr", "x"], "no such option: --foldr; did you mean --folder?"),
    (["verify", "--zzz"], "no such option: --zzz; `svcd verify --help` shows all options"),
    (["movies"], "no such command: movies; commands are import, import-from, export"),
    (["--db-path"], "requires an argument"),
    (["--no-analytics=1"], "does not take a value"),
    (["--env", "production"], "production requires a master key"),
    (["--ssl-ocsp-path", "x"], "cannot staple OCSP responses"),
])
def test_misuse_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == command.STATUS_MISUSE
    assert words in refused(capsys)


def test_a_start_names_the_variables_of_the_reference_engine_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Config] = []
    monkeypatch.setattr(os, "environ", {"MEILI_MASTER_KEY": "a-secret-of-the-reference", "MEILI_ENV": "production",
                                        "MEILI_ADDR": "http://search.test", "MEILI_OPENAI_API_KEY": "another-secret"})
    monkeypatch.setitem(sys.modules, "svcd.cli.daemon", SimpleNamespace(run=lambda config, _reload: started.append(config) or 0))
    monkeypatch.setattr(os, "_exit", sys.exit)
    assert run() == 0
    assert started[0].master_key == "a-secret-of-the-reference" and started[0].env == "production"
    assert os.environ["SVC_OPENAI_API_KEY"] == "another-secret"
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("variables of the reference engine read: MEILI_ENV, MEILI_MASTER_KEY, MEILI_OPENAI_API_KEY; "
                         "without effect: MEILI_ADDR")


@pytest.mark.parametrize(("error", "words"), [
    (OSError(98, "Address already in use"), "Address already in use"),
    (PermissionError(13, "Permission denied", "data.ms/VERSION"), "data.ms/VERSION: Permission denied"),
    (ApiError("internal", "the folder is in use"), "the folder is in use"),
    (OSError("locked\nby another"), "locked by another"),
    (FolderInUse("the data folder x is in use"), "svcd: the data folder x is in use"),
    (ValueError("surprise"), "ValueError: surprise"),
    (sqlite3.DatabaseError("file is not a database"), "svcd: a file of the database cannot be used: file is not a database"),
])
def test_what_keeps_the_daemon_from_starting_is_one_line(
    error: Exception, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_config: object, _reload: object) -> int:
        raise error

    monkeypatch.setitem(sys.modules, "svcd.cli.daemon", SimpleNamespace(run=fail))
    monkeypatch.setenv("SVC_MASTER_KEY", "a-master-key-of-some-length")
    assert run() == command.STATUS_FAILED
    assert words in refused(capsys)


def test_nothing_heavy_is_imported_for_an_answer() -> None:
    """The daemon's parts are imported when it starts, and only then."""
    code = "import sys, svcd.cli.main; print(*sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"ssl", "sqlite3", "http.server", "tomllib", "difflib", "svcd.api", "svcd.index", "svcd.instance"}
    assert heavy.isdisjoint(made.stdout.split())
