"""What the tests of commands share: a command line, run in this process."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from svcd.cli import main as svcd
from tests.support.daemon import Daemon

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Run:
    """call(arguments) -> status, standard output, standard error."""
    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            svcd.main(arguments)
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called


@pytest.fixture
def run(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Run) -> Run:
    """run(arguments) -> status, standard output, standard error; in a folder of the test, with the
    daemon of its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SVC_HTTP_ADDR", f"127.0.0.1:{daemon.port}")
    return call
