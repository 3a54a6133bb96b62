"""Log lines about word lists that are not installed. What must hold:

1. A start names them in one line.
2. Settings that name a locale whose list is missing are logged once for each list; others are not.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from svcd.cli import first_start
from svcd.cli.first_start import LocaleWarnings
from svcd.instance.task_records import Task
from svcd.text import segmenters
from svcd.text import segmenters as word_lists
from tests.tasks.conftest import TaskHarness


@pytest.mark.parametrize(
    ("missing", "said"),
    [([], ""), (["Thai"], "languages=Thai "), (["Chinese", "Thai"], 'languages="Chinese, Thai" ')],
)
def test_one_line_says_which_word_lists_are_missing(
    missing: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(word_lists, "missing", lambda: missing)
    first_start.log_missing_lists()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(missing) and all(said in line and "svcd[languages]" in line for line in lines)


@pytest.fixture
def none_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_lists, "_path", lambda source: None)


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
