"""Separators and dictionary words: where a text is cut (docs/text-analysis.md#separators-and-dictionary)."""
from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import cache

from svcd.text.character_tables import default_separators

# Pieces of nothing but digits (these categories) and ASCII punctuation are not segmented.
_NUMERIC = frozenset({"Nd", "Nl", "No"})
_ASTRAL = "\U00010000-\U0010ffff"


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

    It is built as a trie: of an alternation of thousands of words each would be tried at each character.
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
    """Patterns for one of some characters. The matcher tries characters beyond the 16-bit plane one after the other at each
    letter of a text, which makes it ten times slower; the lookahead spares other letters that.
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
