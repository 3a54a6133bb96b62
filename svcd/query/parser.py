"""Parse a query text into words, phrases, excluded words and excluded phrases (docs/ranking.md#query-parsing)."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

from svcd.text.analyzer import HARD, STOP_WORD, WORD, Analyzer, Token

# Words of a phrase; None is a position gap, left by a stop word.
Phrase = tuple["str | None", ...]

MOST_PARTS = 10
MOST_TOKENS = 1000

# Maximum number of characters to read from a query text: 65 for each token. In a longer text, only the detected script and
# language, and the word at the cut, can differ.
LONGEST_TEXT = 65_536

# A hard separator puts its neighbours 8 positions apart: 7 here, and 1 for the word itself.
_HARD_STEP = 7


@dataclass(frozen=True, slots=True)
class Part:
    """A word or a phrase of the query; start and end are word positions in the query."""

    words: Phrase
    start: int
    end: int
    is_phrase: bool = False
    is_prefix: bool = False


@dataclass(slots=True)
class ParsedQuery:
    """A parsed query text; without parts it is a placeholder search."""

    parts: list[Part] = field(default_factory=list)
    negative_words: list[str] = field(default_factory=list)
    negative_phrases: list[Phrase] = field(default_factory=list)


def parse_text(text: str, analyzer: Analyzer, locales: Sequence[str] | None = None,
               has_prefix: bool = True) -> ParsedQuery:
    """Parse a query text. A text of megabytes is tokenized only up to the limits of a query."""
    tokens = analyzer.tokens(text[:LONGEST_TEXT], locales, most=MOST_TOKENS)
    is_cut = len(text) > LONGEST_TEXT and len(tokens) < MOST_TOKENS
    return parse(tokens, has_prefix and not is_cut)


def parse(tokens: Sequence[Token], has_prefix: bool = True) -> ParsedQuery:
    """Parse the tokens of a query text.

    tokens: with stop words marked. has_prefix: whether the last word may be the beginning of a longer word.
    """
    return _Parser(tokens[:MOST_TOKENS], has_prefix).parse()


class _Parser:
    """Read tokens from left to right. _phrase: (word, position) of the open phrase; None outside of quotes."""

    def __init__(self, tokens: Sequence[Token], has_prefix: bool) -> None:
        self._tokens = tokens
        self._has_prefix = has_prefix
        self._parsed = ParsedQuery()
        self._position = -1
        self._phrase: list[tuple[str | None, int]] | None = None
        self._is_phrase_negative = False
        self._is_next_negative = False
        self._after_space = True

    def parse(self) -> ParsedQuery:
        for number, token in enumerate(self._tokens, 1):
            if not token.lemma:
                continue
            if len(self._parsed.parts) >= MOST_PARTS:
                return self._parsed
            if token.kind in (WORD, STOP_WORD):
                self._position += 1
                is_word, is_last = token.kind == WORD, number == len(self._tokens)
                if self._phrase is not None:
                    self._phrase.append((token.lemma if is_word else None, self._position))
                elif self._is_next_negative:
                    self._parsed.negative_words.append(token.lemma)
                    self._is_next_negative = False
                elif is_word or is_last:  # a stop word at the end may be the beginning of another word
                    is_prefix, place = is_last and self._has_prefix, self._position
                    self._parsed.parts.append(Part((token.lemma,), place, place, is_prefix=is_prefix))
            else:
                self._read_separator(token)
            self._after_space = token.lemma[-1].isspace()
        self._close_phrase()
        return self._parsed

    def _read_separator(self, token: Token) -> None:
        if token.kind == HARD:
            self._position += _HARD_STEP
            if self._phrase is not None:
                self._close_phrase()
                self._phrase = []
        quotes = token.lemma.count('"')
        if quotes and self._phrase is not None:
            self._close_phrase()
            quotes -= 1
        if quotes % 2:
            self._phrase = []
            self._is_phrase_negative = self._is_next_negative
        self._is_next_negative = token.lemma == "-" and self._after_space and self._phrase is None

    def _close_phrase(self) -> None:
        phrase, self._phrase = self._phrase, None
        places = [position for word, position in phrase or () if word is not None]
        if not phrase or not places:
            return
        words = tuple(word for word, _ in phrase)
        if self._is_phrase_negative:
            self._parsed.negative_phrases.append(words)
        else:
            self._parsed.parts.append(Part(words, places[0], phrase[-1][1], is_phrase=True))
