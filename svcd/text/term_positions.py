"""The words of one text in a row, by position: what indexing reads instead of tokens.

Knows how positions are counted inside one value (relevance contract 1.9) and short ways to the same
row for the text most documents are made of. Refuses to know documents and attributes.

A *row* is a list of words whose index is the position, counted from the first word; "" is a hole: a
stop word, a word that is not kept, the distance a hard separator makes.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from svcd.text import scripts, segmenters
from svcd.text.analyzer import HARD, LONGEST_REMEMBERED, REMEMBERED, STOP_WORD, WORD, Analyzer, Token
from svcd.text.character_tables import default_separators, hard_separators
from svcd.text.normalization import decompose
from svcd.text.scripts import LATIN, groups

TermsByPosition = list[str]

LONGEST_WORD = 250  # bytes
# A word behind a hard separator stands 8 further than the one before it, 7 positions are left out.
_HARD_HOLES = [""] * 7

# Removed from lemmas, or white space that does not separate and may be trimmed.
_ODD_ASCII = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


def indexed_term(lemma: str) -> str:
    """What is indexed of the lemma of a word: "" when it is blank or too long."""
    word = lemma.strip()
    # UTF-8 takes 1 to 4 bytes for a character: most words need no encoding to be short enough.
    if 4 * len(word) > LONGEST_WORD and len(word.encode()) > LONGEST_WORD:
        return ""
    return word


def terms_by_position(tokens: Iterable[Token]) -> TermsByPosition:
    """The row of a text from its tokens: the definition that the short ways must agree with."""
    row: TermsByPosition = []
    is_far = False
    for token in tokens:
        if not token.lemma:
            continue
        if token.is_separator:
            is_far = is_far or token.kind is HARD
            continue
        if is_far and row:
            row += _HARD_HOLES
        is_far = False
        row.append(indexed_term(token.lemma) if token.kind is WORD else "")
    return _trimmed(row)


class TermPositionBuilder:
    """Texts -> rows for one analyzer."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        # A separator that is a stop word takes a position: only the tokens tell.
        is_usual = analyzer.stop_words.isdisjoint(default_separators())
        self._has_default_cuts = analyzer.separators.is_default and is_usual
        self._has_plain_ascii = self._has_default_cuts and not analyzer.stop_words
        self._words: dict[str, _Words] = {}

    def of(self, text: str, locales: Sequence[str] | None = None) -> TermsByPosition:
        """The row of one text, without holes at its end."""
        if self._has_plain_ascii and text.isascii() and _is_plain(LATIN, locales):
            row = _ascii_row(text)
        else:
            row = self._by_pieces(text, locales) if self._has_default_cuts else None
        if row is None:
            row = terms_by_position(self._analyzer.tokens(text, locales))
        return row

    def _by_pieces(self, text: str, locales: Sequence[str] | None) -> TermsByPosition | None:
        """Default separators, no segmenter: what stands for each piece is remembered. None for odd text."""
        pieces: list[list[str | None]] = []
        for start, end, script in groups(text):
            if not _is_plain(script, locales):
                return None
            words = self._words_of(script)
            first, *others = _cuts().hard.split(text[start:end])
            # A change of script is no separator: the first piece goes on with the last one before it.
            pieces = pieces or [[]]
            pieces[-1] = [*pieces[-1], *map(words.__getitem__, _cuts().word.findall(first))]
            pieces += [list(map(words.__getitem__, _cuts().word.findall(piece))) for piece in others]
        return _joined(pieces)

    def _words_of(self, script: str) -> _Words:
        words = self._words.get(script)
        if words is None:
            words = self._words[script] = _Words(self._analyzer, script)
        return words


class _Words(dict[str, "str | None"]):
    """Piece between separators -> what stands in the row for it; None when the tokens must tell."""

    def __init__(self, analyzer: Analyzer, script: str) -> None:
        super().__init__()
        self._lemmas = analyzer.lemmas(script)

    def __missing__(self, piece: str) -> str | None:
        is_whole = _far_separators().isdisjoint(piece)
        found = self._word(*self._lemmas[piece]) if is_whole else None
        if len(self) >= REMEMBERED:
            self.clear()
        if len(piece) <= LONGEST_REMEMBERED:
            self[piece] = found
        return found

    def _word(self, kind: str, lemma: str) -> str | None:
        if not lemma or kind not in (WORD, STOP_WORD):  # takes no position
            return None
        return indexed_term(lemma) if kind is WORD else ""


class _Cuts(NamedTuple):
    """Patterns for text with the default separators."""

    hard: re.Pattern[str]
    word: re.Pattern[str]


def _ascii_row(text: str) -> TermsByPosition | None:
    """The row of ASCII text with the default separators and no stop words; None for odd text."""
    if not text.isprintable() and _ODD_ASCII.search(text):
        return None
    cuts = _ascii_cuts()
    row: TermsByPosition = []
    for piece in cuts.hard.split(text.lower()):
        words = cuts.word.findall(piece)
        if words and row:
            row += _HARD_HOLES
        row += words
    if len(text) > LONGEST_WORD and row and len(max(row, key=len)) > LONGEST_WORD:
        return None
    return row


def _joined(pieces: Iterable[list[str | None]]) -> TermsByPosition | None:
    row: list[Any] = []
    for words in pieces:
        if None in words:
            return None
        if words and row:
            row += _HARD_HOLES
        row += words
    return _trimmed(row)


def _trimmed(row: TermsByPosition) -> TermsByPosition:
    while row and not row[-1]:
        row.pop()
    return row


def _is_plain(script: str, locales: Sequence[str] | None) -> bool:
    """Whether no segmenter cuts text of this script, whatever it says."""
    if script == LATIN:
        return not locales or segmenters.segmenter_of(LATIN, scripts.detect_language("", LATIN, locales)) is None
    return not segmenters.may_cut(script)


@cache
def _ascii_cuts() -> _Cuts:
    return _patterns(separator for separator in default_separators() if separator.isascii())


@cache
def _cuts() -> _Cuts:
    # With characters beyond the 16-bit plane a pattern is ten times slower; the pieces tell if one was there.
    return _patterns(default_separators() - _far_separators())


@cache
def _far_separators() -> frozenset[str]:
    return frozenset(separator for separator in default_separators() if separator > "\uffff")


def _patterns(separators: Iterable[str]) -> _Cuts:
    """Hard separators and words. A separator that is a word once decomposed (`…`) is a word of one character."""
    lemmas = {separator: decompose(separator) for separator in separators}
    known = default_separators()
    hard = [separator for separator, lemma in lemmas.items() if lemma in known and lemma in hard_separators()]
    words = [separator for separator, lemma in lemmas.items() if lemma and lemma not in known]
    single = [separator for separator in lemmas if len(separator) == 1]
    longer = [re.escape(separator) for separator in hard if len(separator) > 1]
    is_hard = "|".join([*longer, _any_of(separator for separator in hard if len(separator) == 1)])
    alone = _any_of(words) + "|" if words else ""
    return _Cuts(re.compile(is_hard), re.compile(f"{alone}[^{_escaped(single)}]+"))


def _any_of(characters: Iterable[str]) -> str:
    return f"[{_escaped(characters)}]"


def _escaped(characters: Iterable[str]) -> str:
    return "".join(map(re.escape, characters))


@lru_cache(maxsize=64)
def term_position_builder(analyzer: Analyzer) -> TermPositionBuilder:
    """The rows of an analyzer, remembered with it."""
    return TermPositionBuilder(analyzer)
