"""The terms of one text by position, for indexing (docs/text-analysis.md#positions-and-gaps).

`terms_by_position` is the definition; TermPositionBuilder computes the same result faster for most text.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from svcd.text import scripts, segmenters
from svcd.text.analyzer import HARD, MAX_CACHED, MAX_CACHED_LENGTH, SOFT, STOP_WORD, WORD, Analyzer, Token, decompose
from svcd.text.scripts import LATIN, default_separators, groups, hard_separators

# The index is the position, counted from the first word; "" is a position gap.
TermsByPosition = list[str]

LONGEST_WORD = 250  # bytes
# A word after a hard separator is 8 positions after the word before it.
_HARD_GAP = [""] * 7

# The table for ASCII text is not used for a text with this character.
_HARD_MARK = "\x07"

# ASCII characters that lemmas omit, and white space that does not separate words.
_ODD_ASCII = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


def indexed_term(lemma: str) -> str:
    """Return the term to index for the lemma of a word; "" if it is blank or too long."""
    word = lemma.strip()
    # A character has at most 4 bytes in UTF-8, so most words are short enough without encoding them.
    if 4 * len(word) > LONGEST_WORD and len(word.encode()) > LONGEST_WORD:
        return ""
    return word


def terms_by_position(tokens: Iterable[Token]) -> TermsByPosition:
    """Return the terms of a text from its tokens. This is the definition; the faster ways must give the same result."""
    terms: TermsByPosition = []
    is_far = False
    for token in tokens:
        if not token.lemma:
            continue
        if token.kind is SOFT or token.kind is HARD:
            is_far = is_far or token.kind is HARD
            continue
        if is_far and terms:
            terms += _HARD_GAP
        is_far = False
        terms.append(indexed_term(token.lemma) if token.kind is WORD else "")
    return _trimmed(terms)


class TermPositionBuilder:
    """Compute the terms of texts by position, for one analyzer."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        # A separator that is a stop word takes a position; only tokens tell.
        is_usual = analyzer.stop_words.isdisjoint(default_separators())
        self._has_default_cuts = analyzer.separators.is_default and is_usual
        self._has_plain_ascii = self._has_default_cuts and not analyzer.stop_words
        self._has_default_pieces = self._has_default_cuts and not analyzer.has_pairs and not analyzer.folds_width
        self._words: dict[str, _Words] = {}

    def of(self, text: str, locales: Sequence[str] | None = None) -> TermsByPosition:
        """Return the terms of one text by position, without gaps at the end. locales: the allowed languages."""
        if self._has_plain_ascii and text.isascii() and _is_plain(LATIN, locales):
            terms = _ascii_terms(text)
        else:
            terms = self._by_pieces(text, locales) if self._has_default_pieces else None
        if terms is None:
            terms = terms_by_position(self._analyzer.tokens(text, locales))
        return terms

    def of_all(self, texts: Sequence[Any], locales: Sequence[str] | None = None) -> TermsByPosition | None:
        """Return the terms of several values of an attribute, 8 positions apart; None unless all are plain texts.

        Many attributes are lists of names. Joining the values with a hard separator has the same effect, in one pass.
        """
        if not self._has_plain_ascii or not _is_plain(LATIN, locales):
            return None
        for text in texts:
            # A text without words would add a gap.
            if not isinstance(text, str) or not text.isascii() or not text[:1].isalnum():
                return None
        return _ascii_terms(";".join(texts))

    def _by_pieces(self, text: str, locales: Sequence[str] | None) -> TermsByPosition | None:
        """Return the terms of text that needs only the default separators; None for other text. Caches the term of each piece."""
        hard, word = _cuts()
        pieces: list[list[str | None]] = []
        for start, end, script in groups(text):
            if not _is_plain(script, locales):
                return None
            words = self._words.get(script)
            if words is None:
                words = self._words[script] = _Words(self._analyzer, script)
            first, *others = hard.split(text[start:end])
            # A change of script does not separate words, so the first piece of a group continues the last one.
            pieces = pieces or [[]]
            pieces[-1] = [*pieces[-1], *map(words.__getitem__, word.findall(first))]
            pieces += [list(map(words.__getitem__, word.findall(piece))) for piece in others]
        terms: list[Any] = []
        for found in pieces:
            if None in found:
                return None
            if found and terms:
                terms += _HARD_GAP
            terms += found
        return _trimmed(terms)


class _Words(dict[str, "str | None"]):
    """Map a piece between separators to its term, "" for a gap; None if only tokens give the result."""

    def __init__(self, analyzer: Analyzer, script: str) -> None:
        super().__init__()
        self._lemmas = analyzer.lemmas(script)

    def __missing__(self, piece: str) -> str | None:
        found: str | None = None
        if _far_separators().isdisjoint(piece):
            kind, lemma = self._lemmas[piece]
            if lemma and kind in (WORD, STOP_WORD):  # other pieces take no position
                found = indexed_term(lemma) if kind is WORD else ""
        if len(self) >= MAX_CACHED:
            self.clear()
        if len(piece) <= MAX_CACHED_LENGTH:
            self[piece] = found
        return found


def _ascii_terms(text: str) -> TermsByPosition | None:
    """Return the terms of ASCII text with the default separators and without stop words; None for text that needs tokens.

    A table for all bytes takes a quarter of the time of patterns.
    """
    if not text.isprintable() and _ODD_ASCII.search(text):
        return None
    longer, hard, table = _ascii_cuts()
    cut = text
    for separator in longer:
        cut = cut.replace(separator, hard)
    cut = cut.encode().translate(table).decode()
    if _HARD_MARK not in cut:
        terms = cut.split()
    else:
        terms = []
        for words in map(str.split, cut.split(_HARD_MARK)):
            if words and terms:
                terms += _HARD_GAP
            terms += words
    if len(text) > LONGEST_WORD and terms and len(max(terms, key=len)) > LONGEST_WORD:
        return None
    return terms


def _trimmed(terms: TermsByPosition) -> TermsByPosition:
    while terms and not terms[-1]:
        terms.pop()
    return terms


def _is_plain(script: str, locales: Sequence[str] | None) -> bool:
    """Return whether no segmenter cuts text of this script with these allowed languages."""
    if script == LATIN:
        return not locales or segmenters.segmenter_of(LATIN, scripts.detect_language("", LATIN, locales)) is None
    return not segmenters.may_cut(script)


@cache
def _ascii_cuts() -> tuple[Sequence[str], str, bytes]:
    """Return (longer, hard, table): replacements that turn ASCII text into lower-case words with spaces between, and a _HARD_MARK
    for each hard separator.

    longer: hard separators of several characters, each replaced by `hard`. table: for bytes.translate().
    """
    separators = [separator for separator in default_separators() if separator.isascii()]
    hard = sorted((separator for separator in separators if decompose(separator) in hard_separators()), key=len)
    table = bytearray(bytes(range(256)).lower())
    for separator in separators:
        if len(separator) == 1:
            table[ord(separator)] = ord(_HARD_MARK if separator in hard else " ")
    return [separator for separator in hard if len(separator) > 1], hard[0], bytes(table)


@cache
def _cuts() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of hard separators and of words, for text with the default separators. Separators that decomposition
    turns into words (`…`) are words."""
    known = default_separators()
    # Characters beyond the 16-bit plane make a pattern ten times slower; _Words detects pieces that contain one.
    lemmas = {separator: decompose(separator) for separator in known - _far_separators()}
    hard = [separator for separator, lemma in lemmas.items() if lemma in known and lemma in hard_separators()]
    words = [re.escape(separator) for separator, lemma in lemmas.items() if lemma and lemma not in known]
    single = "".join(re.escape(separator) for separator in lemmas if len(separator) == 1)
    longer = [re.escape(separator) for separator in hard if len(separator) > 1]
    one_of_hard = "".join(re.escape(separator) for separator in hard if len(separator) == 1)
    alone = f"[{''.join(words)}]|" if words else ""
    return re.compile("|".join([*longer, f"[{one_of_hard}]"])), re.compile(f"{alone}[^{single}]+")


@cache
def _far_separators() -> frozenset[str]:
    return frozenset(separator for separator in default_separators() if separator > "\uffff")


@lru_cache(maxsize=64)
def term_position_builder(analyzer: Analyzer) -> TermPositionBuilder:
    """Return the builder for an analyzer; all callers with the same analyzer share it."""
    return TermPositionBuilder(analyzer)
