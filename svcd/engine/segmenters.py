"""Cutting the pieces between separators where a script writes words without space between them.

Knows the walk over a word list for each language (relevance contract 1.6). Has no word list itself:
`offer` plugs one in, and it is loaded when the first such text is met. Without a list Chinese is cut
into single characters, Thai, Khmer and German are not cut at all.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from math import log

from svcd.engine.scripts import ARABIC, CJ, KHMER, LATIN, THAI

Segmenter = Callable[[str], Iterator[str]]
Frequencies = Mapping[str, int]

_ARTICLES = ("ال", "أل", "إل", "آل", "ٱل")
_ARTICLE_BYTES = 4  # a piece no longer than this is the article, or a word that only looks like it
# The runs that the Chinese walk looks at; other characters stand alone.
_CHINESE_RUN = (
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebe0\U0002f800-\U0002fa1fA-Za-z0-9+#&._%-]+)"
)
_ASCII_WORD = re.compile("[A-Za-z0-9]+")


def arabic(piece: str) -> Iterator[str]:
    """Cut the article off."""
    if len(piece.encode()) > _ARTICLE_BYTES and piece.startswith(_ARTICLES):
        yield piece[:2]
        yield piece[2:]
    else:
        yield piece


class LongestWords:
    """The longest listed word at each place; what begins none is emitted by character, or gathered."""

    def __init__(self, words: Collection[str], *, gather: bool) -> None:
        self._words = words
        self._gather = gather
        self._longest = max(map(len, words), default=0)

    def __call__(self, piece: str) -> Iterator[str]:
        start = loose = 0  # piece[loose:start] is gathered
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
        lengths = range(min(self._longest, len(piece) - start), 0, -1)
        return next((length for length in lengths if piece[start : start + length] in self._words), 0)


class Chinese:
    """The cut with the likeliest words, each cut again by the short words it holds."""

    def __init__(self, frequencies: Frequencies) -> None:
        self._runs = re.compile(_CHINESE_RUN)  # here, as few processes ever meet Chinese
        self._frequencies = frequencies
        self._longest = max(map(len, frequencies), default=1)
        self._log_total = log(sum(frequencies.values()) or 1)

    def __call__(self, piece: str) -> Iterator[str]:
        for place, run in enumerate(self._runs.split(piece)):
            if place % 2 == 0:  # between two runs
                yield from run
                continue
            for word in _glued(self._likeliest(run)):
                yield from self._refined(word)

    def _likeliest(self, run: str) -> Iterator[str]:
        """The path with the greatest sum of log(frequency / total); of equal ones the longer step."""
        best = [(0.0, 0)] * (len(run) + 1)
        for start in range(len(run) - 1, -1, -1):
            best[start] = max((self._weight(run[start:end]) + best[end][0], end) for end in self._ends(run, start))
        start = 0
        while start < len(run):
            end = best[start][1]
            yield run[start:end]
            start = end

    def _ends(self, run: str, start: int) -> Iterator[int]:
        yield start + 1
        for end in range(start + 2, min(start + self._longest, len(run)) + 1):
            if self._frequencies.get(run[start:end]):
                yield end

    def _weight(self, word: str) -> float:
        return log(self._frequencies.get(word) or 1) - self._log_total

    def _refined(self, word: str) -> Iterator[str]:
        if len(word) <= 2 or _ASCII_WORD.fullmatch(word):
            yield word
            return
        start = 0
        while start < len(word):
            lengths = (length for length in (2, 3) if word[start : start + length] in self._frequencies)
            end = start + next(lengths, 1)
            yield word[start:end]
            start = end


def _glued(words: Iterator[str]) -> Iterator[str]:
    """Neighbouring single ASCII letters and digits that were left over become one word again."""
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


def _by_words(words: Collection[str]) -> Segmenter | None:
    return LongestWords(words, gather=False) if words else None


def _by_compounds(words: Collection[str]) -> Segmenter | None:
    return LongestWords(words, gather=True) if words else None


# (script, language) -> (the list it walks over, what makes a segmenter of it). Thai and Khmer have
# one segmenter each, so the language of their text is not asked for and stays None.
_LISTED: dict[tuple[str, str | None], tuple[str, Callable[..., Segmenter | None]]] = {
    (LATIN, "deu"): ("deu", _by_compounds),
    (CJ, "cmn"): ("cmn", Chinese),
    (CJ, "zho"): ("cmn", Chinese),
    (THAI, None): ("tha", _by_words),
    (KHMER, None): ("khm", _by_words),
}
_UNLISTED: dict[tuple[str, str | None], Segmenter] = {(ARABIC, "ara"): arabic, (ARABIC, "pes"): arabic}
_CUT = frozenset(script for script, _ in (*_LISTED, *_UNLISTED))
# Scripts with more than one segmenter: which one it is depends on the language.
_ASKING = frozenset({LATIN, CJ, ARABIC})
_NO_LISTS: dict[str, Callable[[], Collection[str]]] = {"cmn": dict, "tha": set, "khm": set, "deu": set}

_offered = dict(_NO_LISTS)
_made: dict[str, Segmenter | None] = {}


def offer(language: str, load: Callable[[], Collection[str]]) -> None:
    """Plug in a word list for `cmn` (a Mapping word -> frequency), `tha`, `khm` or `deu` (sets)."""
    _offered[language] = load
    _made.pop(language, None)


def asks_language(script: str) -> bool:
    """Whether the language of a group of this script has to be known to cut it."""
    return script in _ASKING


def may_cut(script: str) -> bool:
    """Whether there is a segmenter for text of this script, in whatever language."""
    return script in _CUT


def segmenter_of(script: str, language: str | None) -> Segmenter | None:
    """What cuts the pieces of a group of this script and language; None when nothing does."""
    pair = (script, language)
    if pair not in _LISTED:
        return _UNLISTED.get(pair)
    name, make = _LISTED[pair]
    if name not in _made:
        _made[name] = make(_offered[name]())
    return _made[name]
