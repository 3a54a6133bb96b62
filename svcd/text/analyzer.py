"""The tokenizer of documents, queries, synonyms and highlighting: text to tokens (docs/text-analysis.md#tokens).

A text is cut into groups of one script, groups at separators and dictionary words into pieces, and pieces of scripts without
spaces into words by a segmenter. Each token has its lemma.
"""
from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice

from svcd.text.normalization import decompose, lemma_of, parts_of
from svcd.text.scripts import default_separators, detect_language, groups, hard_separators
from svcd.text.segmenters import LANGUAGE_DEPENDENT, SEGMENTED, Segmenter, segmenter_of

# The kinds of tokens.
WORD, STOP_WORD, SOFT, HARD = "word", "stop word", "soft separator", "hard separator"

# A table of lemmas is cleared when it has so many: about 1.5 MB, for each script, language and index. With four times as many an
# import of films takes as much CPU time, and a daemon grows for longer.
MAX_CACHED = 8_192
# Longer pieces, in characters, are not cached: they are rarely words and rarely occur again.
MAX_CACHED_LENGTH = 64

# Pieces of only such characters (Unicode categories of numbers) and ASCII punctuation are not segmented.
_NUMERIC = frozenset({"Nd", "Nl", "No"})
_ASTRAL = "\U00010000-\U0010ffff"  # the characters beyond the 16-bit plane, as a range of a pattern


class Token:
    """A piece of a text. kind: WORD, STOP_WORD, SOFT or HARD; start, end: in characters; lemma: may be empty."""

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
        """True for soft and hard separators."""
        return self.kind is SOFT or self.kind is HARD

    def characters_of(self, lemma_bytes: int) -> int:
        """The number of characters of the text that became the first so many UTF-8 bytes of the lemma."""
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
    """Text of a token -> (kind, lemma), for one script and language; filled on demand."""

    def __init__(self, analyzer: Analyzer, script: str, language: str | None, stop_words: frozenset[str]) -> None:
        super().__init__()
        self._separators = analyzer.separators.strings
        self._script = script
        self._language = language
        self._stop_words = stop_words

    def __missing__(self, text: str) -> tuple[str, str]:
        found = (self._kind(decompose(text)), lemma_of(text, self._script, self._language))
        if len(self) >= MAX_CACHED:
            self.clear()
        if len(text) <= MAX_CACHED_LENGTH:
            self[text] = found
        return found

    def _kind(self, decomposed: str) -> str:
        if decomposed in self._stop_words:
            return STOP_WORD
        if decomposed not in self._separators:
            return WORD
        return HARD if decomposed in hard_separators() else SOFT


class Analyzer:
    """The tokenizer for the settings of an index. Threads may share it."""

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
        """The tokens of a text, in order; they cover all of it.

        locales: the allowed languages; None or empty for any.
        stop_words: False turns stop words into words, as highlighting needs it.
        most: return only the first so many tokens; the rest of the text is not normalized.
        """
        detect = partial(self.language, locales=locales)
        return list(islice(self._tokens(text, detect, stop_words), most))

    def tokens_of_part(self, part: str, language_of: Callable[[str, str], str | None]) -> list[Token]:
        """The tokens of a part of a text, with their offsets in the part; stop words are words.

        language_of: (text of a group, script) -> language. Tokens that cross an end of the part are cut there.
        """
        return list(self._tokens(part, language_of, False))

    def _tokens(self, text: str, language_of: Callable[[str, str], str | None], stop_words: bool) -> Iterator[Token]:
        for start, end, script in groups(text):
            group = text[start:end]
            language = language_of(group, script)
            lemmas = self.lemmas(script, language, stop_words=stop_words)
            segment = segmenter_of(script, language) if (script, language) in SEGMENTED else None
            for piece in self._pieces(group, segment):
                kind, lemma = lemmas[piece]
                end = start + len(piece)
                yield Token(kind, lemma, start, end, piece, script, language)
                start = end

    def lemmas(
        self, script: str, language: str | None = None, *, stop_words: bool = True
    ) -> Mapping[str, tuple[str, str]]:
        """A mapping from the text of a token to (kind, lemma), for one script and language."""
        key = (script, language, stop_words)
        table = self._lemmas.get(key)
        if table is None:
            words = self.stop_words if stop_words else frozenset()
            table = self._lemmas[key] = _Lemmas(self, script, language, words)
        return table

    def language(self, text: str, script: str, locales: Sequence[str] | None) -> str | None:
        """The language of a group of one script; None where its segmentation does not depend on it."""
        if script not in LANGUAGE_DEPENDENT:
            return None
        return detect_language(text, script, locales)

    def _pieces(self, group: str, segment: Segmenter | None) -> Iterable[str]:
        pieces = self.separators.split(group)
        return filter(None, pieces) if segment is None else _segmented(pieces, segment)


def _segmented(pieces: Sequence[str], segment: Segmenter) -> Iterator[str]:
    for place, piece in enumerate(pieces):
        is_match = place % 2 == 1
        if is_match or is_numeric(piece):
            if piece:
                yield piece
        else:
            yield from segment(piece)


def whole_lemma(text: str) -> str:
    """A text as one word: the lemmas of all its tokens, separators included, joined.

    For entries of `disableOnWords`, to which the separators and the dictionary of an index do not apply (quirk).
    """
    return "".join([token.lemma for token in Analyzer().tokens(text)])


# More than the distinct settings that are in use at a time; building an analyzer again takes a few milliseconds.
@lru_cache(maxsize=64)
def shared_analyzer(stop_words: tuple[str, ...] = (), separators: tuple[str, ...] = (),
                    non_separators: tuple[str, ...] = (), dictionary: tuple[str, ...] = ()) -> Analyzer:
    """The tokenizer for these settings; equal settings share one object."""
    return Analyzer(stop_words, separators, non_separators, dictionary)


# Separators and dictionary words: where a text is cut (docs/text-analysis.md#separators-and-dictionary)


class Separators:
    """The separators in force for one index, and the pattern that finds them and the words of the dictionary.

    added, removed: the settings separatorTokens and nonSeparatorTokens.
    """

    def __init__(self, added: Iterable[str], removed: Iterable[str], dictionary: Iterable[str]) -> None:
        self.strings = (default_separators() | frozenset(added)) - frozenset(removed)
        words = frozenset(dictionary) - {""}
        # Quirk: when all separators are removed, text is still cut at the defaults, although they are words then.
        cutting = self.strings - {""} or default_separators()
        self.is_default = not words and self.strings == default_separators()
        self._cuts = _default_cuts() if self.is_default else _pattern(cutting | words)
        # A text can be divided after one of these without changing its tokens: no longer separator or word contains them
        # before its end.
        inner = {character for string in cutting | words for character in string[:-1]}
        self.boundaries = frozenset(string for string in cutting if len(string) == 1) - inner
        # True when only a segmenter can cut a text between two ASCII letters.
        self.keeps_ascii_letters = not any(map(_has_ascii_letter, cutting | words))

    def split(self, text: str) -> list[str]:
        """The pieces of a text, in order: every second one is a match, the others may be empty."""
        return self._cuts.split(text)


_has_ascii_letter = re.compile("[A-Za-z]").search


def is_numeric(piece: str) -> bool:
    """True when a piece has only numeric characters and ASCII punctuation."""
    return all(map(_is_numeric_character, piece))


def _is_numeric_character(character: str) -> bool:
    if character.isascii() and not character.isalnum():
        return "!" <= character <= "~"
    return unicodedata.category(character) in _NUMERIC


_Tree = dict[str, "_Tree"]  # next character -> subtree; "" where a string ends


@cache
def _default_cuts() -> re.Pattern[str]:
    return _pattern(default_separators())


def _pattern(strings: Collection[str]) -> re.Pattern[str]:
    """A pattern that finds the longest of some strings at each place, in a group, so that `split` keeps the matches.

    It is built from a trie: in a plain alternation of thousands of words each word would be tried at each character.
    """
    tree: _Tree = {}
    for string in strings:
        branch = tree
        for character in string:
            branch = branch.setdefault(character, {})
        branch[""] = {}
    return re.compile(f"({_branches(tree)})")


def _branches(tree: _Tree) -> str:
    letters = [(letter, rest) for letter, rest in tree.items() if letter]
    ends = [letter for letter, rest in letters if rest.keys() == {""}]
    return "|".join([*(_branch(letter, rest) for letter, rest in letters if rest.keys() != {""}), *_classes(ends)])


def _classes(letters: Iterable[str]) -> list[str]:
    """Patterns that match one of some characters.

    `re` compares each character of a text with those beyond the 16-bit plane one by one, which is ten times slower; the
    lookahead avoids that for all other characters.
    """
    near = "".join(re.escape(letter) for letter in letters if letter < _ASTRAL[0])
    far = "".join(re.escape(letter) for letter in letters if letter >= _ASTRAL[0])
    return [f"[{near}]"] * bool(near) + [f"(?=[{_ASTRAL}])[{far}]"] * bool(far)


def _branch(letters: str, rest: _Tree) -> str:
    while len(rest) == 1 and "" not in rest:  # a chain without branches is one literal
        letter, rest = next(iter(rest.items()))
        letters += letter
    if rest.keys() == {""}:
        return re.escape(letters)
    return re.escape(letters) + f"(?:{_branches(rest)})" + ("?" if "" in rest else "")
