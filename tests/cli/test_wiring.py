"""The parts of a daemon, made from its options, and its stop signals. What must hold:

1. Indexing processes share --max-indexing-memory; without a limit each has the default budget, and no budget vanishes.
2. There are threads for running and waiting searches, streams and other requests.
3. The first stop signal stops the daemon once, also if it comes before the server; a second one ends it at once.
4. The limit of open files is raised as far as the system allows.
5. If a part cannot be started, the daemon ends with the reason.
6. The flag of a feature turns it on.
7. A start names the word lists that are not installed in one line.
8. A start names the compiled packages that are not installed in one line, with the effect.
9. Settings that name a locale whose list is missing are logged once for each list; others are not.
"""
from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from svcd.base import docids, machine
from svcd.cli import daemon, serving, wiring
from svcd.cli.config import load
from svcd.cli.wiring import LocaleWarnings
from svcd.instance.instance import Instance
from svcd.instance.task_records import Task
from svcd.tasks.indexing_client import MemoryBudget
from svcd.text import segmenters
from tests.tasks.conftest import TaskHarness


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_indexing_has_its_default_budget_with_plenty_of_memory() -> None:
    assert wiring.memory_budget(None, 1) == wiring.memory_budget(8 << 30, 4) == MemoryBudget()


def test_less_memory_is_a_smaller_budget_of_the_same_shape() -> None:
    full, small = MemoryBudget(), wiring.memory_budget(50 << 20, 1)
    assert all(0 < less < part for less, part in zip(small, full, strict=True))
    assert small[0] / small[1] == pytest.approx(full[0] / full[1], rel=0.01)


def test_each_indexing_process_has_its_part_of_the_memory() -> None:
    assert wiring.memory_budget(100 << 20, 2) == wiring.memory_budget(50 << 20, 1)


def test_a_budget_never_vanishes() -> None:
    assert all(part > 64 << 10 for part in wiring.memory_budget(0, 4))


def test_threads_hold_running_and_waiting_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 2)
    given = {"experimental_nb_searches_per_core": "3", "experimental_search_queue_size": "10"}
    others = serving.OTHER_THREADS + serving.MAX_STREAMS + serving.MAX_WAITING_WRITES
    assert serving.threads(load(given, {})) == 2 * 3 + 10 + others
    huge = load({"experimental_search_queue_size": "1000000"}, {})
    assert serving.threads(huge) == 2 * 4 + serving.MAX_WAITING_THREADS + others


@pytest.mark.parametrize("number", daemon.STOP_SIGNALS)
def test_a_signal_stops_once(number: int) -> None:
    stops: list[str] = []
    with daemon.StopSignals() as signals:
        signals.call(lambda: stops.append("stopped"))
        os.kill(os.getpid(), number)
    assert stops == ["stopped"]


def test_a_signal_before_the_server_is_there_is_not_lost() -> None:
    stops: list[str] = []
    with daemon.StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        signals.call(lambda: stops.append("stopped"))
    assert stops == ["stopped"]


def test_a_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(daemon.os, "_exit", ends.append)
    with daemon.StopSignals():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    assert ends == [128 + signal.SIGTERM]


def test_signals_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in daemon.STOP_SIGNALS]
    with daemon.StopSignals():
        pass
    assert [signal.getsignal(number) for number in daemon.STOP_SIGNALS] == before


@pytest.mark.parametrize(("limits", "raised"), [
    ((1024, 4096), [(4096, 4096)]), ((1024, 1 << 30), [(serving.MAX_FILES, 1 << 30)]), ((4096, 4096), []),
    ((100_000, 100_000), []),
])
def test_the_limit_of_open_files_is_raised(
    limits: tuple[int, int], raised: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(serving.resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(serving.resource, "setrlimit", lambda _which, both: given.append(both))
    serving.raise_file_limit()
    assert given == raised


@pytest.mark.parametrize("part", ["runner", "application"])
def test_a_part_that_cannot_be_started_ends_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str,
) -> None:
    def fail(*_: object, **_named: object) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(wiring, part, fail)
    monkeypatch.setattr(serving, "raise_file_limit", lambda: None)
    with pytest.raises(OSError, match="no more threads"):
        daemon.run(load({"http_addr": "127.0.0.1:0", "db_path": str(tmp_path / "data")}, {}))


def test_the_flag_of_a_feature_turns_it_on(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "data")
    daemon.force_features(load({}, {}), instance)
    assert instance.features() == {}
    daemon.force_features(load({"experimental_enable_metrics": True}, {"SVC_EXPERIMENTAL_LEGACY_SEARCH": "1"}), instance)
    assert instance.features() == {"metrics": True, "legacySearch": True}
    instance.close()


# Word lists that are not installed


@pytest.mark.parametrize(
    ("missing", "logged_text"),
    [([], ""), (["Thai"], "languages=Thai "), (["Chinese", "Thai"], 'languages="Chinese, Thai" ')],
)
def test_one_line_says_which_word_lists_are_missing(
    missing: list[str], logged_text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(segmenters, "missing", lambda: missing)
    wiring.log_missing_lists()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(missing) and all(logged_text in line and "svcd[languages]" in line for line in lines)


@pytest.mark.parametrize("missing", [(), ("pyroaring",), ("brotli",), ("pyroaring", "brotli")])
def test_one_line_says_which_compiled_packages_are_missing(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docids, "IMPLEMENTATION", docids.PLAIN_PYTHON if "pyroaring" in missing else "pyroaring 1.2.0")
    monkeypatch.setattr(wiring, "find_spec", lambda name: None if name in missing else object())
    wiring.log_missing_packages()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(missing)
    for line in lines:
        assert " WARN " not in line and "svcd[fast]" in line and f'packages={", ".join(missing)}'.split("=")[1] in line
        assert ("searched more slowly" in line) == ("pyroaring" in missing) and ("by gzip alone" in line) == ("brotli" in missing)


@pytest.fixture
def none_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenters, "is_installed", lambda name: False)


def settings(*locales: str, status: str = "succeeded", kind: str = "settingsUpdate") -> Task:
    rules = [{"attributePatterns": ["title_*"], "locales": list(locales)}]
    return Task(1, kind, "films", status, 0, details={"stopWords": [], "localizedAttributes": rules})


def logged(warnings: LocaleWarnings, capsys: pytest.CaptureFixture[str], *tasks: Task) -> list[str]:
    warnings.check(tasks)
    return capsys.readouterr().err.splitlines()


@pytest.mark.usefixtures("none_installed")
def test_a_missing_list_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    warnings = LocaleWarnings()
    [line] = logged(warnings, capsys, settings("zh"))
    assert "WARN" in line and "svcd[languages]" in line
    assert "locale=zh" in line and "language=Chinese" in line and "index_uid=films" in line
    assert logged(warnings, capsys, settings("cmn", "zho"), settings("zh")) == []
    [line] = logged(warnings, capsys, settings("en", "tha", "zh"))
    assert "language=Thai" in line


@pytest.mark.usefixtures("none_installed")
@pytest.mark.parametrize("task", [
    settings("en", "jpn", "fra"), settings("zh", status="failed"), settings("zh", kind="indexCreation"), settings(),
    Task(1, "settingsUpdate", "films", "succeeded", 0), Task(1, "settingsUpdate", "films", "succeeded", 0, details={
        "localizedAttributes": None}),
])
def test_nothing_is_logged_if_no_list_is_needed(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    assert logged(LocaleWarnings(), capsys, task) == []


def test_nothing_is_logged_about_an_installed_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert logged(LocaleWarnings(), capsys, settings("de", "deu")) == []


def test_a_list_in_no_package_is_logged_without_advice(capsys: pytest.CaptureFixture[str]) -> None:
    [line] = logged(LocaleWarnings(), capsys, settings("km"))
    assert "language=khm" in line and "pip" not in line


def test_each_list_has_a_locale() -> None:
    assert set(map(segmenters.list_of, ("zh", "cmn", "zho", "th", "de", "km", "en"))) == {*segmenters.LISTS, None}


@pytest.mark.usefixtures("none_installed")
def test_a_settings_task_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = LocaleWarnings()
    harness = TaskHarness(tmp_path / "data", on_batch=lambda batch, tasks: warnings.check(tasks))
    change: dict[str, Any] = {"localizedAttributes": [{"attributePatterns": ["*"], "locales": ["cmn"]}]}
    harness.change(change)
    harness.run()
    harness.change(change)
    harness.run()
    harness.instance.close()
    assert capsys.readouterr().err.count("word list is not installed") == 1
