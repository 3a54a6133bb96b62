"""Log lines about word lists that are not installed: at the start, and when settings name a language that needs one.

What a word list is for: docs/text-analysis.md#segmentation-with-word-lists.
"""
from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from svcd.base import logs
from svcd.instance.task_records import SUCCEEDED, Task
from svcd.text import segmenters, word_lists

_ADVICE = "pip install 'svcd[languages]'"


def log_missing_lists() -> None:
    """Log which word lists are not installed: one line, no warning, because most instances have no such text."""
    if languages := word_lists.missing():
        logs.info("word lists not installed; text in these languages is segmented coarsely", languages=", ".join(languages),
                  get=_ADVICE)


class LocaleWarnings:
    """Warns, once for each list, when settings name a language whose word list is missing. Thread-safe."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._lock = threading.Lock()  # guards _warned

    def check(self, tasks: Iterable[Task]) -> None:
        """Check the settings tasks of a finished batch."""
        for task in tasks:
            for locale in _locales(task):
                name = segmenters.list_of(locale)
                if name and not word_lists.is_installed(name) and self._is_new(name):
                    _warn(task.index_uid, locale, name)

    def _is_new(self, name: str) -> bool:
        with self._lock:
            if name in self._warned:
                return False
            self._warned.add(name)
            return True


def _locales(task: Task) -> Iterator[str]:
    if task.kind != "settingsUpdate" or task.status != SUCCEEDED:
        return
    rules: Sequence[dict[str, list[str]]] = (task.details or {}).get("localizedAttributes") or ()
    for rule in rules:
        yield from rule["locales"]


def _warn(index_uid: str | None, locale: str, name: str) -> None:
    language = word_lists.language_of(name)
    get = {"get": _ADVICE} if language else {}  # the other lists are in no package
    logs.warn("settings name a locale whose word list is not installed: its text is segmented coarsely, so searches "
              "find other documents than with the list", locale=locale, language=language or name, index_uid=index_uid, **get)
