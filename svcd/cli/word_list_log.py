"""Lines of the log about lists of words that are not installed: at the start, and where settings ask for one.

Knows what is said, and that each list is told of once for each; refuses to know how text is cut (svcd.text.segmenters).
"""
from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from svcd.base import logs
from svcd.instance.task_records import SUCCEEDED, Task
from svcd.text import segmenters, word_lists

_GET = "pip install 'svcd[languages]'"


def report_at_start() -> None:
    """Say which lists of words are not installed. Whoever has no such text need not care: one line, and no warning."""
    if languages := word_lists.missing():
        logs.info("word lists missing, such text is cut coarsely", languages=", ".join(languages), get=_GET)


class LocaleWarnings:
    """Warns of settings that name a language whose list is missing, once for each list. Threads may share it."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._lock = threading.Lock()  # guards _told

    def look_at(self, tasks: Iterable[Task]) -> None:
        """The tasks of a batch that ended: those that changed settings are looked at."""
        for task in tasks:
            for locale in _locales(task):
                name = segmenters.list_of(locale)
                if name and not word_lists.is_installed(name) and self._is_new(name):
                    _warn(task.index_uid, locale, name)

    def _is_new(self, name: str) -> bool:
        with self._lock:
            if name in self._told:
                return False
            self._told.add(name)
            return True


def _locales(task: Task) -> Iterator[str]:
    if task.kind != "settingsUpdate" or task.status != SUCCEEDED:
        return
    rules: Sequence[dict[str, list[str]]] = (task.details or {}).get("localizedAttributes") or ()
    for rule in rules:
        yield from rule["locales"]


def _warn(index_uid: str | None, locale: str, name: str) -> None:
    language = word_lists.language_of(name)
    get = {"get": _GET} if language else {}  # no package has the other ones
    logs.warn("settings name a locale whose word list is missing: its text is cut coarsely, and searches find other "
              "documents than with the list", locale=locale, language=language or name, index_uid=index_uid, **get)
