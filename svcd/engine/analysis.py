"""Text -> tokens: the one tokenizer of documents, queries, synonyms and highlighting.

Knows the order of the steps (relevance contract 1.1) and what kind of token comes out (1.8). Scripts,
languages, separators, segmenters and lemmas are known to the modules of these names. Refuses to know
positions: documents and queries count them differently.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from svcd.engine import languages, segmenters
from svcd.engine.normalisation import decompose, lemma_of, parts_of
from svcd.engine.scripts import groups
from svcd.engine.separators import Separators, is_numeric
from svcd.engine.tables import hard_separators

WORD, STOP_WORD, SOFT, HARD = "word", "stop word", "soft separator", "hard separator"

# Lemmas that one table remembers before it starts anew: about 6 MB, more than the words of most texts.
REMEMBERED = 32_768
# Longer pieces, in characters, are hardly words, and seldom come again.
LONGEST_REMEMBERED = 64


class Token:
    """A piece of a text. `start` and `end` in characters of the text; `lemma` may be empty."""

    __slots__ = ("kind", "lemma", "start", "end", "text", "script", "language")

    def __init__(
        self, kind: str, lemma: str, start: int, end: int, text: str, script: str, language: str | None
    ) -> None:
        self.kind = kind
        self.lemma = lemma
        self.start = start
        self.end = end
        self.text = text
        self.script = script
        self.language = language

    @property
    def is_separator(self) -> bool:
        return self.kind is SOFT or self.kind is HARD

    def characters_of(self, lemma_bytes: int) -> int:
        """How many characters of the text gave the first so many UTF-8 bytes of the lemma."""
        if self.text.isascii() and len(self.lemma) == len(self.text):  # a character, a byte
            return max(0, min(lemma_bytes, len(self.text)))
        characters = 0
        for part in parts_of(self.text, self.script, self.language):
            if lemma_bytes <= 0:
                break
            lemma_bytes -= len(part.encode())
            characters += 1
        return characters

    def __repr__(self) -> str:
        return f"<{self.kind} {self.text!r} -> {self.lemma!r} at {self.start}>"


class _Lemmas(dict[str, "tuple[str, str]"]):
    """Text of a token -> its kind and lemma, for one script and language; remembers what it was asked."""

    def __init__(self, analyzer: Analyzer, script: str, language: str | None, stop_words: frozenset[str]) -> None:
        super().__init__()
        self._separators = analyzer.separators.strings
        self._script = script
        self._language = language
        self._stop_words = stop_words

    def __missing__(self, text: str) -> tuple[str, str]:
        found = (self._kind(decompose(text)), lemma_of(text, self._script, self._language))
        if len(self) >= REMEMBERED:
            self.clear()
        if len(text) <= LONGEST_REMEMBERED:
            self[text] = found
        return found

    def _kind(self, decomposed: str) -> str:
        if decomposed in self._stop_words:
            return STOP_WORD
        if decomposed not in self._separators:
            return WORD
        return HARD if decomposed in hard_separators() else SOFT


class Analyzer:
    """The tokenizer of one index, by its settings. Threads may share it."""

    def __init__(
        self,
        stop_words: Iterable[str] = (),
        separator_tokens: Iterable[str] = (),
        non_separator_tokens: Iterable[str] = (),
        dictionary: Iterable[str] = (),
    ) -> None:
        self.separators = Separators(separator_tokens, non_separator_tokens, dictionary)
        self.stop_words = frozenset(map(decompose, stop_words))
        self._lemmas: dict[tuple[str, str | None, bool], _Lemmas] = {}

    def tokens(self, text: str, locales: Sequence[str] | None = None, *, stop_words: bool = True,
               most: int | None = None) -> list[Token]:
        """The tokens of a text: all of it, in order, none overlapping.

        locales: the languages that detection may find; None or empty: any.
        stop_words: False makes words of them, as highlighting wants it.
        most: so many of the first tokens alone, without a look at the words behind them.
        """
        detect = partial(self.language, locales=locales)
        return list(islice(self._tokens(text, detect, stop_words), most))

    def tokens_of_part(self, part: str, language_of: Callable[[str, str], str | None]) -> list[Token]:
        """The tokens of a part of a text, at their places in the part, stop words being words.

        language_of: (group, script) -> its language. Both ends lie between two tokens, or those there are cut.
        """
        return list(self._tokens(part, language_of, False))

    def _tokens(self, text: str, language_of: Callable[[str, str], str | None], stop_words: bool) -> Iterator[Token]:
        for start, end, script in groups(text):
            group = text[start:end]
            language = language_of(group, script)
            lemmas = self.lemmas(script, language, stop_words=stop_words)
            for piece in self._pieces(group, segmenters.segmenter_of(script, language)):
                kind, lemma = lemmas[piece]
                end = start + len(piece)
                yield Token(kind, lemma, start, end, piece, script, language)
                start = end

    def lemmas(
        self, script: str, language: str | None = None, *, stop_words: bool = True
    ) -> Mapping[str, tuple[str, str]]:
        """(kind, lemma) by the text of a token, for one script and language."""
        key = (script, language, stop_words)
        table = self._lemmas.get(key)
        if table is None:
            words = self.stop_words if stop_words else frozenset()
            table = self._lemmas[key] = _Lemmas(self, script, language, words)
        return table

    def language(self, text: str, script: str, locales: Sequence[str] | None) -> str | None:
        """The language of a group of one script, as far as cutting it asks for that."""
        if not segmenters.asks_language(script):
            return None
        return languages.detect(text, script, locales)

    def _pieces(self, group: str, segment: segmenters.Segmenter | None) -> Iterable[str]:
        pieces = self.separators.split(group)
        return filter(None, pieces) if segment is None else _segmented(pieces, segment)


def _segmented(pieces: Sequence[str], segment: segmenters.Segmenter) -> Iterator[str]:
    for place, piece in enumerate(pieces):
        is_match = place % 2 == 1
        if is_match or is_numeric(piece):
            if piece:
                yield piece
        else:
            yield from segment(piece)


def analyzer_of(settings: Mapping[str, Any]) -> Analyzer:
    """The tokenizer that the settings of an index (camelCase) ask for."""
    names = ("stopWords", "separatorTokens", "nonSeparatorTokens", "dictionary")
    return _shared(*(tuple(settings.get(name) or ()) for name in names))


def whole_lemma(text: str) -> str:
    """A text as one word: the lemmas of all its tokens joined, by the usual separators alone.

    Neither custom separators nor the dictionary of an index count for words without typos: relevance.md 1.
    """
    return "".join([token.lemma for token in Analyzer().tokens(text)])


# Some tens of indexes are searched at a time; one more costs a few milliseconds to build again.
@lru_cache(maxsize=64)
def _shared(*lists: tuple[str, ...]) -> Analyzer:
    return Analyzer(*lists)
