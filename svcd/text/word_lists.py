"""Word lists for segmentation: where they are installed, and their form in memory.

Follows docs/text-analysis.md#segmentation-with-word-lists. The packages that bring them are located but never imported: only the
file of the list is read, when the first such text is met.
"""
from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple

# Between word and frequency. It sorts before all characters of words, so that a word precedes those of which it is a prefix.
_TAB = b"\t"
# Between two lines: a byte that never occurs in UTF-8, so that no search text matches across lines.
_EDGE = b"\xff"
# Bisection finds every 32nd line: a smaller distance takes more memory, a larger one more time to search between them.
STRIDE = 32
# Results that are kept: about 2 MB, for the characters and pairs of which most text consists; this doubles the speed.
_REMEMBERED = 8192


class WordList:
    """Words with their frequency, as sorted lines in one byte string: 16 bytes per word, about 28 for Thai.

    Threads may share it.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        """lines: in UTF-8, each a word, a tab and its frequency, in any order."""
        distinct = [line for line, _ in groupby(sorted(lines))]
        self.total = sum(int(line.rpartition(_TAB)[2]) for line in distinct)
        self._text, places = _joined(distinct)
        del distinct
        # Copied from the joined text: references to the original lines would keep their memory from being released.
        self._firsts = [self._line_at(place) for place in places[:-1]]
        self._places = array("L", places)
        self._remembered = lru_cache(_REMEMBERED)(self._look)

    @classmethod
    def of(cls, frequencies: Mapping[str, int]) -> WordList:
        """The list of these words."""
        return cls(b"%b%b%d" % (word.encode(), _TAB, frequency) for word, frequency in frequencies.items())

    def _line_at(self, place: int) -> bytes:
        return self._text[place + 1 : self._text.index(_EDGE, place + 1)]

    def look(self, text: str) -> tuple[int, bool]:
        """(frequency of a word, 0 if it is not listed; is it a prefix of longer words?)."""
        return self._remembered(text)

    def _look(self, text: str) -> tuple[int, bool]:
        sought = text.encode()
        block = bisect_right(self._firsts, sought)
        sought = _EDGE + sought
        # The first line with this prefix is in the block before, or it is the first of this block.
        place = self._text.find(sought, self._places[max(block - 1, 0)], self._places[block] + len(sought))
        if place < 0:
            return 0, False
        end = place + len(sought)
        if self._text[end] != _TAB[0]:
            return 0, True
        edge = self._text.index(_EDGE, end)
        return int(self._text[end + 1 : edge]), self._text.startswith(sought, edge)


def _joined(lines: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Sorted lines as one byte string, and the offsets of the lines that bisection finds."""
    # In blocks, because join() takes 80 bytes for each of its parts while it runs.
    blocks = [_EDGE.join(lines[number : number + STRIDE]) for number in range(0, len(lines), STRIDE)]
    places = accumulate((len(block) + len(_EDGE) for block in blocks), initial=0)
    return _EDGE.join([b"", *blocks, b""]), list(places)


def _counted(path: Path) -> Iterator[bytes]:
    """Read lines of a word, its frequency and its part of speech."""
    with path.open("rb") as lines:
        for line in lines:
            word, frequency = line.split()[:2]
            yield word + _TAB + frequency


def _plain(path: Path) -> Iterator[bytes]:
    """Read lines of a word, which may contain spaces."""
    with path.open("rb") as lines:
        for line in lines:
            if word := line.strip():
                yield word + _TAB + b"1"


def read_compound_parts(path: Path) -> Iterator[bytes]:
    """Read parts of compounds with their endings: `land/es` is Land and Landes, at the beginning of a compound or inside.

    Parts with a capital are only found at the beginning: inside other words they are mostly coincidence, as `ring` in
    `bringen`.
    """
    for entry in path.read_text(encoding="utf-8").split():
        word, *endings = entry.split("/")
        for ending in ("", *endings):
            for form in {word + ending, word.capitalize() + ending}:
                yield form.encode() + _TAB + b"1"


class _Source(NamedTuple):
    """Where a list comes from. package: the name of its import package; read: file -> lines for WordList."""

    language: str
    package: str
    file: str
    read: Callable[[Path], Iterator[bytes]]


# Of the packages for Thai this small one has the list that clients of the interface expect. No package has a file of the Khmer
# list of ICU or of German parts of compounds; the German list is our own, of the most frequent parts and of words that only
# look like compounds of them.
_SOURCES = {
    "cmn": _Source("Chinese", "jieba", "dict.txt", _counted),
    "deu": _Source("German", "svcd.text", "data/german-parts.txt", read_compound_parts),
    "tha": _Source("Thai", "newmm_tokenizer", "words_th.txt", _plain),
}


def missing() -> list[str]:
    """Names of the languages whose word list could be installed but is not."""
    return [source.language for source in _SOURCES.values() if _path(source) is None]


def is_installed(name: str) -> bool:
    """True when the word list with this name (ISO 639-3) is installed."""
    source = _SOURCES.get(name)
    return source is not None and _path(source) is not None


def language_of(name: str) -> str | None:
    """The language of a word list; None when no package has it."""
    source = _SOURCES.get(name)
    return source.language if source else None


def load(language: str) -> WordList | None:
    """The word list of a language (ISO 639-3), None when it is not installed. Reads a file of some MB."""
    source = _SOURCES.get(language)
    path = source and _path(source)
    return WordList(source.read(path)) if source and path else None


def _path(source: _Source) -> Path | None:
    spec = find_spec(source.package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((path for folder in folders if (path := Path(folder, source.file)).is_file()), None)
