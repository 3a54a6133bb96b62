"""Segmenters: cut text of scripts without spaces into words (docs/text-analysis.md#segmentation-with-word-lists).

A segmenter is made, and its word list loaded, when the first text that needs it is met. Without a list Chinese is cut into single
characters, Thai, Khmer and German are not cut.

Threads: any may ask for a segmenter; `_lock` keeps two from loading the same list.
"""
from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from math import log

from svcd.text import word_lists
from svcd.text.scripts import ARABIC, CJ, KHMER, LATIN, THAI
from svcd.text.word_lists import WordList
from svcd.validation.names import long_form

Segmenter = Callable[[str], Iterator[str]]
Load = Callable[[], WordList | None]

_ARTICLES = ("ال", "أل", "إل", "آل", "ٱل")
_ARTICLE_BYTES = 4  # a piece of at most so many bytes is the article itself or a word that begins like it
# Runs of characters that are segmented as Chinese; others stand alone.
_CHINESE_RUN = (
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebe0\U0002f800-\U0002fa1fA-Za-z0-9+#&._%-]+)"
)
_ASCII_WORD = re.compile("[A-Za-z0-9]+")


def arabic(piece: str) -> Iterator[str]:
    """Cut off the article of a word in Arabic script."""
    if len(piece.encode()) > _ARTICLE_BYTES and piece.startswith(_ARTICLES):
        yield piece[:2]
        yield piece[2:]
    else:
        yield piece


class LongestWords:
    """Cuts the longest listed word at each place.

    gather: keep characters that begin no word together; otherwise each is a piece.
    """

    def __init__(self, words: WordList, *, gather: bool) -> None:
        self._words = words
        self._gather = gather

    def __call__(self, piece: str) -> Iterator[str]:
        start = loose = 0  # piece[loose:start] begins no word
        while start < len(piece):
            length = self._length_at(piece, start)
            if length or not self._gather:
                if loose < start:
                    yield piece[loose:start]
                loose = start + (length or 1)
                yield piece[start:loose]
            start += length or 1
        if loose < start:
            yield piece[loose:start]

    def _length_at(self, piece: str, start: int) -> int:
        length = 0
        for end in range(start + 1, len(piece) + 1):
            frequency, goes_on = self._words.look(piece[start:end])
            if frequency:
                length = end - start
            if not goes_on:
                break
        return length


class Chinese:
    """Cuts into the most likely words, and the longer ones of them again into words of two or three characters."""

    def __init__(self, words: WordList) -> None:
        self._runs = re.compile(_CHINESE_RUN)  # compiled here because few processes ever meet Chinese
        self._words = words
        self._log_total = log(words.total or 1)

    def __call__(self, piece: str) -> Iterator[str]:
        for place, run in enumerate(self._runs.split(piece)):
            if place % 2 == 0:  # between two runs
                yield from run
                continue
            for word in _glued(self._likeliest(run)):
                yield from self._refined(word)

    def _likeliest(self, run: str) -> Iterator[str]:
        """The words with the greatest sum of log(frequency / total); of equal sums the longer word first."""
        best = [(0.0, 0)] * (len(run) + 1)
        for start in range(len(run) - 1, -1, -1):
            best[start] = max((weight + best[end][0], end) for weight, end in self._steps(run, start))
        start = 0
        while start < len(run):
            end = best[start][1]
            yield run[start:end]
            start = end

    def _steps(self, run: str, start: int) -> Iterator[tuple[float, int]]:
        """(log(frequency / total), end) of each word that begins at `start`; a single character counts as one."""
        end = start + 1
        frequency, goes_on = self._words.look(run[start:end])
        yield log(frequency or 1) - self._log_total, end
        while goes_on and end < len(run):
            end += 1
            frequency, goes_on = self._words.look(run[start:end])
            if frequency:
                yield log(frequency) - self._log_total, end

    def _refined(self, word: str) -> Iterator[str]:
        if len(word) <= 2 or _ASCII_WORD.fullmatch(word):
            yield word
            return
        start = 0
        while start < len(word):
            end = start + next((length for length in (2, 3) if self._is_listed(word[start : start + length])), 1)
            yield word[start:end]
            start = end

    def _is_listed(self, word: str) -> bool:
        return self._words.look(word)[0] > 0


def _glued(words: Iterator[str]) -> Iterator[str]:
    """Join neighbouring words of a single ASCII letter or digit."""
    held = ""
    for word in words:
        if len(word) == 1 and _ASCII_WORD.fullmatch(word):
            held += word
            continue
        if held:
            yield held
            held = ""
        yield word
    if held:
        yield held


def _by_words(words: WordList | None) -> Segmenter | None:
    return LongestWords(words, gather=False) if words else None


def _by_compounds(words: WordList | None) -> Segmenter | None:
    return LongestWords(words, gather=True) if words else None


def _by_likelihood(words: WordList | None) -> Segmenter:
    return Chinese(words or WordList(()))


# (script, language) -> (name of its word list, function that makes the segmenter). Thai and Khmer have one segmenter each, so
# the language of their text is not detected and stays None.
_LISTED: dict[tuple[str, str | None], tuple[str, Callable[[WordList | None], Segmenter | None]]] = {
    (LATIN, "deu"): ("deu", _by_compounds),
    (CJ, "cmn"): ("cmn", _by_likelihood),
    (CJ, "zho"): ("cmn", _by_likelihood),
    (THAI, None): ("tha", _by_words),
    (KHMER, None): ("khm", _by_words),
}
LISTS = tuple(sorted({name for name, _ in _LISTED.values()}))
_LIST_OF = {language or name: name for (_, language), (name, _) in _LISTED.items()}
_UNLISTED: dict[tuple[str, str | None], Segmenter] = {(ARABIC, "ara"): arabic, (ARABIC, "pes"): arabic}
_CUT = frozenset(script for script, _ in (*_LISTED, *_UNLISTED))
# Scripts with more than one segmenter: the language decides.
_ASKING = frozenset({LATIN, CJ, ARABIC})

_offered: dict[str, Load] = {}
_made: dict[str, Segmenter | None] = {}
_lock = threading.Lock()


def offer_word_lists(language: str, load: Load | None) -> None:
    """Use another word list for one of LISTS. load: None for the installed one again."""
    with _lock:
        _offered.pop(language, None)
        if load:
            _offered[language] = load
        _made.pop(language, None)


def list_of(locale: str) -> str | None:
    """The word list (one of LISTS) for text of a locale; None where none is needed."""
    return _LIST_OF.get(long_form(locale))


def asks_language(script: str) -> bool:
    """True when the segmentation of this script depends on the language."""
    return script in _ASKING


def may_cut(script: str) -> bool:
    """True when there is a segmenter for this script in any language."""
    return script in _CUT


def segmenter_of(script: str, language: str | None) -> Segmenter | None:
    """The segmenter for a script and language; None when its text is not cut."""
    pair = (script, language)
    if pair not in _LISTED:
        return _UNLISTED.get(pair)
    name, make = _LISTED[pair]
    try:
        return _made[name]
    except KeyError:
        return _loaded(name, make)


def _loaded(name: str, make: Callable[[WordList | None], Segmenter | None]) -> Segmenter | None:
    with _lock:
        if name not in _made:
            load = _offered.get(name)
            _made[name] = make(load() if load else word_lists.load(name))
        return _made[name]
