"""Segmenters: cut text without spaces into words, by word lists (docs/text-analysis.md#segmentation-with-word-lists).

The first text that needs a segmenter creates it and loads its word list. Without a list, Chinese is cut into single characters;
Thai, Khmer and German are not cut. svcd locates the packages that contain lists, but never imports them: it reads only the file
of the list, which may be in a zip file.

Threads: any thread may request a segmenter; `_lock` keeps two threads from loading the same list.
"""
from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate, groupby
from math import log
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from svcd.text.scripts import ARABIC, CJ, KHMER, LATIN, THAI
from svcd.validation.names import long_form

if TYPE_CHECKING:
    import zipfile

    ListFile = Path | zipfile.Path

Segmenter = Callable[[str], Iterator[str]]

# Between word and frequency. It sorts before all characters of words, so that a word precedes longer words with this prefix.
_TAB = b"\t"
# Between two lines: a byte that never occurs in UTF-8, so that a search text never matches across lines.
_EDGE = b"\xff"
# Bisection finds every 32nd line: a smaller stride takes more memory, a larger one more time to search between these lines.
STRIDE = 32
# Cached look-ups of a list: about 2 MB, for the characters and pairs of most text; the cache doubles the speed.
_CACHED_LOOKUPS = 8192

_ARTICLES = ("ال", "أل", "إل", "آل", "ٱل")
_ARTICLE_BYTES = 4  # a piece up to this size is the article itself or a word that begins like it
# Runs of characters that are segmented as Chinese; each other character is a piece of its own.
_CHINESE_RUN = "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebe0\U0002f800-\U0002fa1fA-Za-z0-9+#&._%-]+)"
_ASCII_WORD = re.compile("[A-Za-z0-9]+")


# Word lists

class WordList:
    """Words with their frequency, as sorted lines in one byte string: 16 bytes per word, about 28 for Thai.

    Threads may share it.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        """lines: in UTF-8, each a word, a tab and its frequency, in any order."""
        self.total = 0
        blocks: list[bytes] = []
        for part in _sorted_parts(lines):
            self.total += sum([int(line.rpartition(_TAB)[2]) for line in part])
            blocks += [_EDGE.join(part[number : number + STRIDE]) for number in range(0, len(part), STRIDE)]
        places = list(accumulate((len(block) + len(_EDGE) for block in blocks), initial=0))
        self._text = _EDGE.join([b"", *blocks, b""])
        del blocks
        self._firsts = [self._text[place + 1 : self._text.index(_EDGE, place + 1)] for place in places[:-1]]
        self._places = array("L", places)
        # Returns the frequency of a word, 0 if it is not listed, and whether it is a prefix of longer words.
        self.look: Callable[[str], tuple[int, bool]] = lru_cache(_CACHED_LOOKUPS)(self._find)

    @classmethod
    def of(cls, frequencies: Mapping[str, int]) -> WordList:
        """Return the list of these words."""
        return cls(b"%b%b%d" % (word.encode(), _TAB, frequency) for word, frequency in frequencies.items())

    def _find(self, text: str) -> tuple[int, bool]:
        sought = text.encode()
        block = bisect_right(self._firsts, sought)
        sought = _EDGE + sought
        # The first line with this prefix is in the block before, or is the first line of this block.
        place = self._text.find(sought, self._places[max(block - 1, 0)], self._places[block] + len(sought))
        if place < 0:
            return 0, False
        end = place + len(sought)
        if self._text[end] != _TAB[0]:
            return 0, True
        edge = self._text.index(_EDGE, end)
        return int(self._text[end + 1 : edge]), self._text.startswith(sought, edge)


def _sorted_parts(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the distinct lines in order, in lists of lines with the same first two bytes.

    As separate objects, the lines of the list for Chinese would take 25 MB, five times as much as joined.
    """
    joined: defaultdict[bytes, bytearray] = defaultdict(bytearray)
    for start, run in groupby(lines, itemgetter(slice(2))):
        joined[start] += _EDGE.join([*run, b""])
    for start in sorted(joined):
        yield sorted(set(bytes(joined.pop(start)).split(_EDGE)[:-1]))


def _counted(path: ListFile) -> Iterator[bytes]:
    """Read lines of a word, its frequency and its part of speech."""
    with path.open("rb") as lines:
        for line in lines:
            word, frequency = line.split()[:2]
            yield word + _TAB + frequency


def _plain(path: ListFile) -> Iterator[bytes]:
    """Read lines of a word, which may contain spaces."""
    with path.open("rb") as lines:
        for line in lines:
            if word := line.strip():
                yield word + _TAB + b"1"


def read_compound_parts(path: ListFile) -> Iterator[bytes]:
    """Read parts of compounds with their endings: `land/es` is Land and Landes, at the beginning of a compound or inside.

    Parts with a capital match only at the beginning: inside other words, matches are mostly coincidence, as `ring` in
    `bringen`.
    """
    for entry in path.read_text(encoding="utf-8").split():
        word, *endings = entry.split("/")
        for ending in ("", *endings):
            for form in {word + ending, word.capitalize() + ending}:
                yield form.encode() + _TAB + b"1"


class _Source(NamedTuple):
    """The file of an installed list. package: name of its import package. read: file -> lines for WordList."""

    language: str
    package: str
    file: str
    read: Callable[[ListFile], Iterator[bytes]]


# For Thai, this small package has the list that clients of the interface expect. No package has the Khmer list of ICU or a list
# of German parts of compounds. The German list is our own: the most frequent parts, and words that only look like compounds.
_SOURCES = {
    "cmn": _Source("Chinese", "jieba", "dict.txt", _counted),
    "deu": _Source("German", "svcd.text", "data/german-parts.txt", read_compound_parts),
    "tha": _Source("Thai", "newmm_tokenizer", "words_th.txt", _plain),
}


def missing() -> list[str]:
    """Return the names of the languages whose word list can be installed but is not."""
    return [source.language for source in _SOURCES.values() if _path(source) is None]


def is_installed(name: str) -> bool:
    """Return whether the word list with this name (ISO 639-3) is installed."""
    source = _SOURCES.get(name)
    return source is not None and _path(source) is not None


def language_of(name: str) -> str | None:
    """Return the language of a word list; None if no package has the list."""
    source = _SOURCES.get(name)
    return source.language if source else None


def load_word_list(language: str) -> WordList | None:
    """Return the word list of a language (ISO 639-3), None if it is not installed. Reads a file of several MB."""
    source = _SOURCES.get(language)
    path = source and _path(source)
    return WordList(source.read(path)) if source and path else None


def _path(source: _Source) -> ListFile | None:
    spec = find_spec(source.package)
    folders = (spec and spec.submodule_search_locations) or ()
    archive = getattr(spec and spec.loader, "archive", None)
    if archive:
        from zipfile import Path as ZipPath  # svcd runs from a zip file

        inside = (ZipPath(archive, Path(folder, source.file).relative_to(archive).as_posix()) for folder in folders)
        return next((file for file in inside if file.is_file()), None)
    return next((path for folder in folders if (path := Path(folder, source.file)).is_file()), None)


# Segmenters

def arabic(piece: str) -> Iterator[str]:
    """Cut off the article of a word in Arabic script."""
    if len(piece.encode()) > _ARTICLE_BYTES and piece.startswith(_ARTICLES):
        yield piece[:2]
        yield piece[2:]
    else:
        yield piece


class LongestWords:
    """Cut the longest listed word at each place.

    joins_others: whether neighbouring characters that begin no word are one piece, or a piece each.
    """

    def __init__(self, words: WordList, *, joins_others: bool) -> None:
        self._words = words
        self._joins_others = joins_others

    def __call__(self, piece: str) -> Iterator[str]:
        start = loose = 0  # piece[loose:start] begins no word
        while start < len(piece):
            length = 0
            for end in range(start + 1, len(piece) + 1):
                frequency, is_prefix = self._words.look(piece[start:end])
                if frequency:
                    length = end - start
                if not is_prefix:
                    break
            if length or not self._joins_others:
                if loose < start:
                    yield piece[loose:start]
                loose = start + (length or 1)
                yield piece[start:loose]
            start += length or 1
        if loose < start:
            yield piece[loose:start]


class Chinese:
    """Cut text into the most likely words, and long words again into words of two or three characters."""

    def __init__(self, words: WordList) -> None:
        self._runs = re.compile(_CHINESE_RUN)  # compiled here because few processes segment Chinese
        self._words = words
        self._log_total = log(words.total or 1)

    def __call__(self, piece: str) -> Iterator[str]:
        for place, run in enumerate(self._runs.split(piece)):
            if place % 2 == 0:  # between two runs
                yield from run
                continue
            for word in _with_ascii_joined(self.likeliest_words(run)):
                if len(word) <= 2 or _ASCII_WORD.fullmatch(word):
                    yield word
                    continue
                start = 0
                while start < len(word):
                    end = start + next((length for length in (2, 3) if self._words.look(word[start : start + length])[0]), 1)
                    yield word[start:end]
                    start = end

    def likeliest_words(self, run: str) -> Iterator[str]:
        """Yield the words with the greatest sum of log(frequency / total); for equal sums, the longer word comes first."""
        best = [(0.0, 0)] * (len(run) + 1)  # place -> (sum from there on, end of the word)
        for start in range(len(run) - 1, -1, -1):
            end = start + 1
            frequency, is_prefix = self._words.look(run[start:end])
            steps = [(log(frequency or 1) - self._log_total + best[end][0], end)]  # a single character counts as a word
            while is_prefix and end < len(run):
                end += 1
                frequency, is_prefix = self._words.look(run[start:end])
                if frequency:
                    steps.append((log(frequency) - self._log_total + best[end][0], end))
            best[start] = max(steps)
        start = 0
        while start < len(run):
            end = best[start][1]
            yield run[start:end]
            start = end


def _with_ascii_joined(words: Iterator[str]) -> Iterator[str]:
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


# (script, language) -> (name of its word list, function that creates the segmenter). Thai and Khmer have one segmenter each, so
# their language is not detected and stays None.
_LISTED: dict[tuple[str, str | None], tuple[str, Callable[[WordList | None], Segmenter | None]]] = {
    (LATIN, "deu"): ("deu", lambda words: LongestWords(words, joins_others=True) if words else None),
    **dict.fromkeys(((CJ, "cmn"), (CJ, "zho")), ("cmn", lambda words: Chinese(words or WordList(())))),
    (THAI, None): ("tha", lambda words: LongestWords(words, joins_others=False) if words else None),
    (KHMER, None): ("khm", lambda words: LongestWords(words, joins_others=False) if words else None),
}
LISTS = tuple(sorted({name for name, _ in _LISTED.values()}))
_LIST_OF = {language or name: name for (_, language), (name, _) in _LISTED.items()}
_UNLISTED: dict[tuple[str, str | None], Segmenter] = {(ARABIC, "ara"): arabic, (ARABIC, "pes"): arabic}
# Every (script, language) that has a segmenter.
SEGMENTED = frozenset((*_LISTED, *_UNLISTED))
_SEGMENTED_SCRIPTS = frozenset(script for script, _ in SEGMENTED)
# Scripts whose segmentation depends on the language.
LANGUAGE_DEPENDENT = frozenset({LATIN, CJ, ARABIC})

_made: dict[str, Segmenter | None] = {}
_lock = threading.Lock()


def list_of(locale: str) -> str | None:
    """Return the word list (one of LISTS) for text of a locale; None if the locale needs no list."""
    return _LIST_OF.get(long_form(locale))


def may_cut(script: str) -> bool:
    """Return whether any language of this script has a segmenter."""
    return script in _SEGMENTED_SCRIPTS


def segmenter_of(script: str, language: str | None) -> Segmenter | None:
    """Return the segmenter for a script and language; None if its text is not cut."""
    pair = (script, language)
    if pair not in _LISTED:
        return _UNLISTED.get(pair)
    name, make = _LISTED[pair]
    try:
        return _made[name]
    except KeyError:
        pass
    with _lock:
        if name not in _made:
            _made[name] = make(load_word_list(name))
        return _made[name]
