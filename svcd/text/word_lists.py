"""The lists of words by which text without spaces is cut: where they lie, and how they are kept in memory.

Knows which packages bring them (the extra `languages`, and this one) and the form of their files. Refuses to know
how text is cut. The packages are looked for but never imported: of theirs only the list is wanted, and a list is
read when the first such text is met.
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

# Between word and frequency: below all that words are made of, so that a word comes before those that it begins.
_TAB = b"\t"
# Between two lines: a byte that no UTF-8 has, so that no text is taken for the end of one and the next.
_EDGE = b"\xff"
# Lines from one that is found by bisection to the next: fewer take more memory, more take longer to look through.
_STRIDE = 32
# Answers that are remembered: some 2 MB for the characters and pairs that make up most of a text, which is then
# cut twice as fast.
_REMEMBERED = 8192


class WordList:
    """Words with how often each is met, in 16 bytes a word and some 28 for Thai: sorted lines in one string of bytes.

    Threads may share it.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        """lines: UTF-8, each a word, a tab and its frequency, in any order."""
        distinct = [line for line, _ in groupby(sorted(lines))]
        self.total = sum(int(line.rpartition(_TAB)[2]) for line in distinct)
        self._text, places = _joined(distinct)
        del distinct
        # Cut out of the joined text: were they kept from the many lines, the memory of those could not be given back.
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
        """How often this very word is met, 0 where it is none; and whether longer words begin with it."""
        return self._remembered(text)

    def _look(self, text: str) -> tuple[int, bool]:
        sought = text.encode()
        block = bisect_right(self._firsts, sought)
        sought = _EDGE + sought
        # The first line that begins so is in the block before, or begins this one.
        place = self._text.find(sought, self._places[max(block - 1, 0)], self._places[block] + len(sought))
        if place < 0:
            return 0, False
        end = place + len(sought)
        if self._text[end] != _TAB[0]:
            return 0, True
        edge = self._text.index(_EDGE, end)
        return int(self._text[end + 1 : edge]), self._text.startswith(sought, edge)


def _joined(lines: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Sorted lines as one string, and where in it those begin that bisection finds."""
    # By blocks: a join takes 80 bytes for each of its parts while it runs.
    blocks = [_EDGE.join(lines[number : number + _STRIDE]) for number in range(0, len(lines), _STRIDE)]
    places = accumulate((len(block) + len(_EDGE) for block in blocks), initial=0)
    return _EDGE.join([b"", *blocks, b""]), list(places)


def _counted(path: Path) -> Iterator[bytes]:
    """Lines of a word, how often it is met, and what part of speech it is."""
    with path.open("rb") as lines:
        for line in lines:
            word, frequency = line.split()[:2]
            yield word + _TAB + frequency


def _plain(path: Path) -> Iterator[bytes]:
    """Lines of a word, which may have spaces."""
    with path.open("rb") as lines:
        for line in lines:
            if word := line.strip():
                yield word + _TAB + b"1"


def _parts_of_compounds(path: Path) -> Iterator[bytes]:
    """Words with the endings they also have: `land/es` is Land and Landes, at the beginning of a compound or within.

    One that is written with a capital is looked for at the beginning alone: within other words it is mostly chance,
    as `ring` in `bringen`.
    """
    for entry in path.read_text(encoding="utf-8").split():
        word, *endings = entry.split("/")
        for ending in ("", *endings):
            for form in {word + ending, word.capitalize() + ending}:
                yield form.encode() + _TAB + b"1"


class _Source(NamedTuple):
    """Who brings a list: `package` is the name to import, `read` gives its lines as WordList takes them."""

    language: str
    package: str
    file: str
    read: Callable[[Path], Iterator[bytes]]


# The small package is the one that has the Thai list as the reference has it. No package has the lists of
# the reference for Khmer (that of ICU) and German (parts of compounds) as a file; the German one here is our own, made
# of the commonest parts, and of words that only look like compounds of them.
_SOURCES = {
    "cmn": _Source("Chinese", "jieba", "dict.txt", _counted),
    "deu": _Source("German", "svcd.text", "data/german-parts.txt", _parts_of_compounds),
    "tha": _Source("Thai", "newmm_tokenizer", "words_th.txt", _plain),
}


def missing() -> list[str]:
    """Names of the languages whose list could be installed, and is not."""
    return [source.language for source in _SOURCES.values() if _path(source) is None]


def is_installed(name: str) -> bool:
    """Whether there is a list of this name (ISO 639-3)."""
    source = _SOURCES.get(name)
    return source is not None and _path(source) is not None


def language_of(name: str) -> str | None:
    """The language of a list that could be installed; None for one that nobody brings."""
    source = _SOURCES.get(name)
    return source.language if source else None


def load(language: str) -> WordList | None:
    """The list for a language (ISO 639-3), None where none is installed. Reads a file of some MB."""
    source = _SOURCES.get(language)
    path = source and _path(source)
    return WordList(source.read(path)) if source and path else None


def _path(source: _Source) -> Path | None:
    spec = find_spec(source.package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((path for folder in folders if (path := Path(folder, source.file)).is_file()), None)
