"""Reformulations: searches that continue the one before, and words that replace a query without hits.

Pure: no SQL, no clock. Searches of one client on one index belong together while no pause between them is longer than PAUSE_MS.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

# Somebody who types on does it within TYPING_MS; a search after a longer pause than PAUSE_MS has another subject.
TYPING_MS, PAUSE_MS = 10_000, 60_000
MOST_CLIENTS = 10_000
LEAST_LETTERS = 3
# From this similarity on, two words are spellings of one: `cuch` and `couch` have 0.89, `sofa` and `couch` 0.22.
_SPELLING = 0.75
MISSPELLING, SYNONYM = "misspelling", "synonym"


class Typed(NamedTuple):
    """A search as this module sees it. key: identifies it; at: milliseconds; text: normalized; query: the id of the text."""

    key: int
    at: int
    text: str
    query: int
    has_hits: bool


class Step(NamedTuple):
    """The effect of a search on earlier ones.

    typed_on: key of the search that it continues; pair: (query without hits, query that replaces it); undone: key of a search
    whose pair does not count.
    """

    typed_on: int | None = None
    pair: tuple[int, int] | None = None
    undone: int | None = None


NOTHING = Step()


@dataclass(slots=True)
class _Session:
    """last: the last search; failed: the longest text without hits, not replaced yet; replacing: the search that replaces it."""

    last: Typed | None = None
    failed: Typed | None = None
    replacing: Typed | None = None


class Sessions:
    """The last searches of the MOST_CLIENTS clients that searched last."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()

    def step(self, client: tuple[str, str], typed: Typed) -> Step:
        """Take the next search of a client. client: with the index."""
        session = self._sessions.get(client)
        if session is None:
            session = self._sessions[client] = _Session()
        else:
            self._sessions.move_to_end(client)
        if len(self._sessions) > MOST_CLIENTS:
            self._sessions.popitem(last=False)
        last = session.last
        if last is not None and typed.at - last.at > PAUSE_MS:
            session.failed = session.replacing = last = None
        session.last = typed
        is_on = last is not None and len(last.text) < len(typed.text) and typed.text.startswith(last.text)
        typed_on = last.key if last and is_on and typed.at - last.at <= TYPING_MS else None
        if typed.has_hits and session.failed is None:  # most searches
            return NOTHING if typed_on is None else Step(typed_on)
        return Step(typed_on, *self._replaced(session, typed))

    @staticmethod
    def _replaced(session: _Session, typed: Typed) -> tuple[tuple[int, int] | None, int | None]:
        failed, before = session.failed, session.replacing
        is_continued = before is not None and typed.text.startswith(before.text)
        if not typed.has_hits:
            if failed is None or not failed.text.startswith(typed.text):  # else somebody deletes letters
                session.failed = typed
            session.replacing = None
            return None, before.key if is_continued and before else None
        if failed is None or failed.text.startswith(typed.text) or typed.text.startswith(failed.text):
            return None, None
        if before is not None and not is_continued:  # the next subject
            session.failed = session.replacing = None
            return None, None
        session.replacing = typed
        is_word = min(len(failed.text), len(typed.text)) >= LEAST_LETTERS
        return (failed.query, typed.query) if is_word else None, before.key if before else None


class Suggestion(NamedTuple):
    """words: without hits; instead: the words that people type then."""

    kind: str
    words: str
    instead: str


def suggestion(failed: str, replacing: str) -> Suggestion | None:
    """Return the suggestion for the words in which two queries differ; None if words were only added or left out."""
    before, after = failed.split(), replacing.split()
    words, instead = _without(before, after), _without(after, before)
    if not words or not instead:
        return None
    is_spelling = SequenceMatcher(None, words, instead, autojunk=False).ratio() >= _SPELLING
    return Suggestion(MISSPELLING if is_spelling else SYNONYM, words, instead)


def _without(words: Iterable[str], others: Iterable[str]) -> str:
    return " ".join(word for word in words if word not in others)
