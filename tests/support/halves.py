"""The whole suite runs in two processes, and reports as one.

The folders of WAIT start daemons and wait for them; the others compute, and do so beside them, with what these leave of the
processor. The reports of the second process come last: failures, summary and exit status are those of one run. Whoever names paths, or
chooses tests by what failed before, has one process.
"""
from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT = ("cli", "cluster", "commands", "conformance", "distribution", "examples", "faults", "system")
# Options that read what an earlier run left, ask at a terminal, or run nothing.
_ALONE = ("lf", "failedfirst", "newfirst", "stepwise", "usepdb", "trace", "collectonly", "setuponly", "setupplan")
_REPORTS = "SVCD_TEST_REPORTS"  # in the environment of the second process: the file that takes its reports


def split(config: pytest.Config) -> None:
    """Before tests are collected: leave some folders to a second process, or be the second process."""
    if path := os.environ.pop(_REPORTS, None):
        config.pluginmanager.register(_Sender(config, Path(path)))
    elif config.args_source is config.ArgsSource.TESTPATHS and not any(config.getoption(name, False) for name in _ALONE):
        config.pluginmanager.register(_Second(config))


class _Sender:
    """In the second process: writes each report to a file."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config, self._file = config, path.open("wb", buffering=0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:  # a module that is skipped, or cannot be imported
            self._send(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._send(report)

    def _send(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        pickle.dump(self._config.hook.pytest_report_to_serializable(config=self._config, report=report), self._file)

    def pytest_unconfigure(self) -> None:
        self._file.close()


class _Second:
    """In the first process: the other one, and its reports when the own tests have ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._folder = config, tempfile.TemporaryDirectory(prefix="svcd-tests-")
        self._reports, self._said = (Path(self._folder.name, name) for name in ("reports", "said"))
        folders = sorted({path.parent for path in (config.rootpath / "tests").glob("*/test_*.py")})
        config.args[:] = [str(folder) for folder in folders if folder.name in WAIT]
        others = [str(folder) for folder in folders if folder.name not in WAIT]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                ["nice", sys.executable, "-m", "pytest", *config.invocation_params.args, "-p", "no:cacheprovider", *others],
                env={**os.environ, _REPORTS: str(self._reports)}, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        ran = yield
        status = self._process.wait()
        received = [*self._received()]
        session.testscollected += sum(getattr(report, "when", "") == "setup" for report in received)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        terminal.ensure_newline()
        for report in received:
            self._replay(report)
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            terminal.write_line(f"\n{self._said.read_text(errors='replace')}")
            session.shouldfail = f"the second process, which said this, ended with status {status}"
            raise session.Failed(session.shouldfail)
        return ran

    def _received(self) -> Iterator[Any]:
        with self._reports.open("rb") as file:
            while True:
                try:
                    sent = pickle.load(file)
                except EOFError:
                    return
                yield self._config.hook.pytest_report_from_serializable(config=self._config, data=sent)

    def _replay(self, report: Any) -> None:
        hook = self._config.hook
        if isinstance(report, pytest.CollectReport):
            hook.pytest_collectreport(report=report)
            return
        if report.when == "setup":
            hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def pytest_unconfigure(self) -> None:
        """A run that is given up leaves no process."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._folder.cleanup()
