"""The tokenizer for documents, queries, synonyms and highlighting (docs/text-analysis.md#tokens), and normalization.

The tokenizer cuts a text into groups of one script, and groups into pieces at separators and dictionary words. For scripts
without spaces a segmenter cuts pieces into words. Each token has its lemma, the normalized form of its text.
"""
from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby

from svcd.text.character_pairs import UNSPACED, folded_width, pairs
from svcd.text.scripts import (ARABIC, ARMENIAN, CJ, CYRILLIC, GEORGIAN, GREEK, HEBREW, LATIN, THAI, default_separators,
                               detect_language, groups, hard_separators, ideograph_variants, nonspacing_marks, script_of_whole)
from svcd.text.segmenters import LANGUAGE_DEPENDENT, SEGMENTED, segmenter_of

# Tokens of text without spaces: a pair of characters, or the last character of a run.
PAIR, LAST = "pair", "last"
# The kinds of tokens.
WORD, STOP_WORD, SOFT, HARD = "word", "stop word", "soft separator", "hard separator"

# Maximum number of lemmas in a table, about 1.5 MB for each script, language and index; a full table is cleared. A table four
# times as large does not reduce the CPU time of importing films, and the daemon takes longer to reach its final size.
MAX_CACHED = 8_192
# Longer pieces, in characters, are not cached: few of them are words, and few occur again.
MAX_CACHED_LENGTH = 64

# Unicode categories of numbers. Pieces of only such characters and ASCII punctuation are not segmented.
_NUMERIC = frozenset({"Nd", "Nl", "No"})
_ASTRAL = "\U00010000-\U0010ffff"  # range of characters beyond the 16-bit plane, for patterns


@dataclass(slots=True, eq=False, repr=False)
class Token:
    """A piece of a text. kind: WORD, STOP_WORD, SOFT or HARD. start, end: in characters. lemma: may be empty.

    pair: for a character of text without spaces (svcd.text.character_pairs), PAIR if the lemma includes the next one, else LAST.
    """

    kind: str
    lemma: str
    start: int
    end: int
    text: str
    script: str
    language: str | None
    pair: str | None = None

    def characters_of(self, lemma_bytes: int) -> int:
        """Return the number of characters of the text that became the first `lemma_bytes` UTF-8 bytes of the lemma."""
        if self.text.isascii() and len(self.lemma) == len(self.text):  # each character is one byte of the lemma
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
    """Map the text of a token to (kind, lemma), for one script and language; filled on demand."""

    def __init__(self, analyzer: Analyzer, script: str, language: str | None, stop_words: frozenset[str]) -> None:
        super().__init__()
        self._separators = analyzer.separators.strings
        self._script = script
        self._language = language
        self._stop_words = stop_words

    def __missing__(self, text: str) -> tuple[str, str]:
        decomposed = decompose(text)
        if decomposed in self._stop_words:
            kind = STOP_WORD
        elif decomposed not in self._separators:
            kind = WORD
        else:
            kind = HARD if decomposed in hard_separators() else SOFT
        found = kind, lemma_of(text, self._script, self._language)
        if len(self) >= MAX_CACHED:
            self.clear()
        if len(text) <= MAX_CACHED_LENGTH:
            self[text] = found
        return found


class Analyzer:
    """The tokenizer for the settings of an index. Threads may share it."""

    def __init__(self, stop_words: Iterable[str] = (), separator_tokens: Iterable[str] = (),
                 non_separator_tokens: Iterable[str] = (), dictionary: Iterable[str] = (), has_pairs: bool = False,
                 folds_width: bool = False) -> None:
        """has_pairs: text without spaces becomes pairs of characters; folds_width: full-width and half-width forms are one."""
        self.has_pairs = has_pairs
        self.folds_width = folds_width
        self.separators = Separators(separator_tokens, non_separator_tokens, dictionary)
        self.stop_words = frozenset(map(decompose, stop_words))
        self._lemmas: dict[tuple[str, str | None, bool], _Lemmas] = {}

    def tokens(self, text: str, locales: Sequence[str] | None = None, *, stop_words: bool = True,
               most: int | None = None) -> list[Token]:
        """Return the tokens of a text, in order; they cover the whole text.

        locales: the allowed languages; None or empty for any. stop_words: False turns stop words into words, for highlighting.
        most: maximum number of tokens; the rest of the text is not normalized.
        """
        detect = partial(self.language, locales=locales)
        return self._tokens(text, detect, stop_words, most)

    def tokens_of_part(self, part: str, language_of: Callable[[str, str], str | None]) -> list[Token]:
        """Return the tokens of a part of a text, with offsets in the part; stop words are words.

        language_of: (text of a group, script) -> language. Tokens that cross an end of the part are cut at this end.
        """
        return self._tokens(part, language_of, False)

    def _tokens(self, text: str, language_of: Callable[[str, str], str | None], stop_words: bool,
                most: int | None = None) -> list[Token]:
        if self.has_pairs or self.folds_width:
            return self._paired_tokens(text, language_of, stop_words, most)
        return self._grouped_tokens(text, language_of, stop_words, most)

    def _grouped_tokens(self, text: str, language_of: Callable[[str, str], str | None], stop_words: bool,
                        most: int | None) -> list[Token]:
        tokens: list[Token] = []
        for start, end, script in groups(text):
            group = text[start:end]
            language = language_of(group, script)
            lemmas = self.lemmas(script, language, stop_words=stop_words)
            segment = segmenter_of(script, language) if (script, language) in SEGMENTED else None
            pieces: Iterable[str] = self.separators.split(group)
            if segment is not None:  # matches of the separators, and numbers, stay whole; some results may be empty
                pieces = chain.from_iterable([piece] if place % 2 or is_numeric(piece) else segment(piece)
                                             for place, piece in enumerate(pieces))
            for piece in filter(None, pieces):
                kind, lemma = lemmas[piece]
                end = start + len(piece)
                tokens.append(Token(kind, lemma, start, end, piece, script, language))
                if len(tokens) == most:
                    return tokens
                start = end
        return tokens

    def _paired_tokens(self, text: str, language_of: Callable[[str, str], str | None], stop_words: bool,
                       most: int | None) -> list[Token]:
        """Return the tokens of a text whose width is folded, or whose runs without spaces become pairs of characters."""
        cut, tokens, start = folded_width(text) if self.folds_width else text, list[Token](), 0
        for place, part in enumerate(re.split(UNSPACED, cut) if self.has_pairs else (cut,)):
            found: Iterable[Token] = self._pairs(part) if place % 2 else self._grouped_tokens(
                part, language_of, stop_words, most)
            for token in found:
                length = token.end - token.start
                token.start, token.end, token.text = start, start + length, text[start:start + length]
                tokens.append(token)
                if len(tokens) == most:
                    return tokens
                start += length
        return tokens

    def _pairs(self, run: str) -> Iterator[Token]:
        """Yield the tokens of a run without spaces: pairs of characters between its separators and dictionary words."""
        script = script_of_whole(run)
        lemmas = self.lemmas(script)
        for place, piece in enumerate(self.separators.split(run)):
            if place % 2:
                yield Token(*lemmas[piece], 0, len(piece), piece, script, None)
                continue
            for pair in pairs(piece, _character_lemma):
                yield Token(WORD, pair.lemma, 0, len(pair.text), pair.text, script, None, PAIR if pair.has_next else LAST)

    def lemmas(self, script: str, language: str | None = None, *, stop_words: bool = True) -> Mapping[str, tuple[str, str]]:
        """Return a mapping from the text of a token to (kind, lemma), for one script and language."""
        key = (script, language, stop_words)
        table = self._lemmas.get(key)
        if table is None:
            words = self.stop_words if stop_words else frozenset()
            table = self._lemmas[key] = _Lemmas(self, script, language, words)
        return table

    def language(self, text: str, script: str, locales: Sequence[str] | None) -> str | None:
        """Return the language of a group of one script; None if segmentation does not depend on the language."""
        if script not in LANGUAGE_DEPENDENT:
            return None
        return detect_language(text, script, locales)


def whole_lemma(text: str) -> str:
    """Return the joined lemmas of all tokens of a text, including separators.

    For entries of `disableOnWords`, which ignore the separators and the dictionary of an index (quirk).
    """
    return "".join([token.lemma for token in Analyzer().tokens(text)])


# The cache holds more analyzers than there are distinct settings in use; building an analyzer takes a few milliseconds.
@lru_cache(maxsize=64)
def shared_analyzer(stop_words: tuple[str, ...] = (), separators: tuple[str, ...] = (),
                    non_separators: tuple[str, ...] = (), dictionary: tuple[str, ...] = (), has_pairs: bool = False,
                    folds_width: bool = False) -> Analyzer:
    """Return the tokenizer for these settings; equal settings share one object."""
    return Analyzer(stop_words, separators, non_separators, dictionary, has_pairs, folds_width)


# Separators and dictionary words (docs/text-analysis.md#separators-and-dictionary)

class Separators:
    """The separators of one index, and the pattern that matches separators and dictionary words.

    added, removed: the settings separatorTokens and nonSeparatorTokens.
    """

    def __init__(self, added: Iterable[str], removed: Iterable[str], dictionary: Iterable[str]) -> None:
        self.strings = (default_separators() | frozenset(added)) - frozenset(removed)
        words = frozenset(dictionary) - {""}
        # Quirk: if all separators are removed, text is still cut at the default separators, which are then words.
        cutting = self.strings - {""} or default_separators()
        self.is_default = not words and self.strings == default_separators()
        # Returns the pieces of a text, in order; every second piece is a match, the pieces between may be empty.
        self.split: Callable[[str], list[str]] = _pattern(cutting | words).split
        # Separators after which a text can be divided without changing its tokens: no longer separator or dictionary word
        # contains them before its end.
        inner = {character for string in cutting | words for character in string[:-1]}
        self.boundaries = frozenset(string for string in cutting if len(string) == 1) - inner
        # True if only a segmenter can cut a text between two ASCII letters.
        self.keeps_ascii_letters = not any(map(_has_ascii_letter, cutting | words))


_has_ascii_letter = re.compile("[A-Za-z]").search


def is_numeric(piece: str) -> bool:
    """Return whether a piece has only numeric characters and ASCII punctuation."""
    return all("!" <= character <= "~" if character.isascii() and not character.isalnum()
               else unicodedata.category(character) in _NUMERIC for character in piece)


_Tree = dict[str, "_Tree"]  # next character -> subtree; "" where a string ends


@lru_cache(maxsize=64)  # as many as there are shared analyzers
def _pattern(strings: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern that matches the longest string at each place, as a group, so that `split` keeps the matches.

    The pattern is built from a trie: a plain alternation of thousands of words would try each word at each character.
    """
    tree: _Tree = {}
    for string in strings:
        branch = tree
        for character in string:
            branch = branch.setdefault(character, {})
        branch[""] = {}
    return re.compile(f"({_branches(tree)})")


def _branches(tree: _Tree) -> str:
    patterns: list[str] = []
    near, far = list[str](), list[str]()  # single characters, in the 16-bit plane and beyond
    for letters, rest in tree.items():
        if not letters:
            continue
        if rest.keys() == {""}:
            (near if letters < _ASTRAL[0] else far).append(letters)
            continue
        while len(rest) == 1 and "" not in rest:  # a chain without branches is one literal
            letter, rest = next(iter(rest.items()))
            letters += letter
        is_end = rest.keys() == {""}
        patterns.append(re.escape(letters) + ("" if is_end else f"(?:{_branches(rest)})" + ("?" if "" in rest else "")))
    if near:
        patterns.append(f"[{_ranges(near)}]")
    if far:
        # `re` compares each character of a text with characters beyond the 16-bit plane one by one, which is ten times slower;
        # the lookahead avoids that for all other characters.
        patterns.append(f"(?=[{_ASTRAL}])[{_ranges(far)}]")
    return "|".join(patterns)


def _ranges(characters: Iterable[str]) -> str:
    """Return characters for the inside of `[...]`: ranges are compiled in half the time of single characters."""
    ranges = ""
    for _, run in groupby(enumerate(sorted(characters)), lambda place: ord(place[1]) - place[0]):
        places = [character for _, character in run]
        ranges += re.escape(places[0]) + (f"-{re.escape(places[-1])}" if len(places) > 1 else "")
    return ranges


# Normalization (docs/text-analysis.md#normalization): from the text of a token to its lemma. All steps work on *parts*: the
# normalized form of each character of the token, in order. Joined, the parts are the lemma; separately, they tell which
# characters became the beginning of a lemma.

Parts = list[str]

# Control characters (Cc) except white space.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_BICAMERAL = frozenset({LATIN, CYRILLIC, GREEK, GEORGIAN, ARMENIAN})
_CHINESE = frozenset({None, "cmn", "zho"})

_PERSIAN = str.maketrans({
    **dict.fromkeys("يیىۀ", "ی"), **dict.fromkeys("كک", "ک"), **{chr(0x06F0 + digit): str(digit) for digit in range(10)},
    "،": ",", "؟": "?", "\ufdfc": "RIAL", "\u200c": "",
})
_ARABIC_LETTERS = str.maketrans({"ـ": "", "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ة": "ه"})
_LATIN_QUOTES_AND_LIGATURES = str.maketrans({
    **dict.fromkeys("\u2018\u2019\u201b", "'"), **dict.fromkeys("œŒ", "oe"), **dict.fromkeys("æÆ", "ae")})
# Vietnamese and Turkish letters, mapped after the removal of marks.
_LATIN_LETTERS = str.maketrans({"Ð": "d", "Đ": "d", "đ": "d", "ð": "d", "ı": "i"})


def decompose(text: str) -> str:
    """Return a text decomposed and without control characters: the form for comparing stop words and separators."""
    if text.isascii():
        return _CONTROL.sub("", text)
    return "".join(_decomposed(text))


def lemma_of(text: str, script: str, language: str | None) -> str:
    """Return the lemma of the text of a token."""
    if text.isascii() and script != ARABIC:
        plain = _CONTROL.sub("", text)
        return plain.lower() if script in _BICAMERAL else plain
    return "".join(parts_of(text, script, language))


@lru_cache(maxsize=8192)
def _character_lemma(character: str) -> str:
    """Return the lemma of a character of text without spaces.

    Without a language, variants of Chinese characters are one, also in Japanese text: a short query does not tell its language.
    """
    return lemma_of(character, script_of_whole(character), None)


def parts_of(text: str, script: str, language: str | None) -> Parts:
    """Return the normalized form of each character of a token; may be \"\"."""
    parts = _decomposed(text)
    if script == ARABIC and language == "pes":
        parts = _translated(parts, _PERSIAN)
    if script in _BICAMERAL and any(map(str.isupper, "".join(parts))):
        parts = ["".join(map(str.lower, part)) for part in parts]  # letter by letter, to avoid the final sigma
    steps = _STEPS.get(script)
    if steps is not None:
        parts = steps(parts, language)
    return parts


def _decomposed(text: str) -> Parts:
    return [_CONTROL.sub("", unicodedata.normalize("NFKD", character)) for character in text]


def _translated(parts: Parts, table: Mapping[int, str | int]) -> Parts:
    return [part.translate(table) for part in parts]


def _without_marks(parts: Parts) -> Parts:
    marks = nonspacing_marks()
    return ["".join([character for character in part if character not in marks]) for part in parts]


def _greek(parts: Parts, _language: str | None) -> Parts:
    filled = [place for place, part in enumerate(parts) if part]
    if filled and parts[filled[-1]].endswith("ς"):
        parts[filled[-1]] = parts[filled[-1]][:-1] + "σ"
    return _without_marks(parts)


_STEPS: dict[str, Callable[[Parts, str | None], Parts]] = {  # script: (parts, language) -> parts
    LATIN: lambda parts, _: _translated(_without_marks(_translated(parts, _LATIN_QUOTES_AND_LIGATURES)), _LATIN_LETTERS),
    CJ: lambda parts, language: _translated(parts, ideograph_variants()) if language in _CHINESE else parts,
    GREEK: _greek,
    ARABIC: lambda parts, _: _without_marks(_translated(parts, _ARABIC_LETTERS)),
    HEBREW: lambda parts, _: _without_marks(parts),
    THAI: lambda parts, _: _without_marks(parts),
}
