"""Where a text is cut, and which of the cut strings are separators.

Knows the default separators, the custom ones and the dictionary of an index (relevance contract 1.5).
Refuses to know scripts and lemmas.
"""
from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import cache

from svcd.text.character_tables import default_separators

# Pieces of nothing but digits and ASCII punctuation are never segmented.
_NUMERIC = frozenset({"Nd", "Nl", "No"})
_ASTRAL = "\U00010000-\U0010ffff"


class Separators:
    """The separators in force for one index, and the pattern that finds them and dictionary words."""

    def __init__(self, added: Iterable[str], removed: Iterable[str], dictionary: Iterable[str]) -> None:
        self.strings = (default_separators() | frozenset(added)) - frozenset(removed)
        words = frozenset(dictionary) - {""}
        # A list that was emptied cuts nothing, so the default one is used for cutting, not for classifying.
        cutting = self.strings - {""} or default_separators()
        self.is_default = not words and self.strings == default_separators()
        self._cuts = _default_cuts() if self.is_default else _pattern(cutting | words)
        # Behind one of these a text may be cut without changing what it is made of: none goes on beyond them.
        going_on = {character for string in cutting | words for character in string[:-1]}
        self.boundaries = frozenset(string for string in cutting if len(string) == 1) - going_on
        # Is a text never cut between two of these letters, unless by a segmenter?
        self.keeps_ascii_letters = not any(map(_has_ascii_letter, cutting | words))

    def split(self, text: str) -> list[str]:
        """What a text is made of, in order: every second piece is a match, the others may be empty."""
        return self._cuts.split(text)


_has_ascii_letter = re.compile("[A-Za-z]").search


def is_numeric(piece: str) -> bool:
    """Whether a piece is only numeric characters and ASCII punctuation."""
    return all(map(_is_numeric_character, piece))


def _is_numeric_character(character: str) -> bool:
    if character.isascii() and not character.isalnum():
        return "!" <= character <= "~"
    return unicodedata.category(character) in _NUMERIC

_Tree = dict[str, "_Tree"]  # by the next character; "" where a string ends


@cache
def _default_cuts() -> re.Pattern[str]:
    return _pattern(default_separators())


def _pattern(strings: Collection[str]) -> re.Pattern[str]:
    """The leftmost, and of those the longest, of some strings, in a group: `split` keeps them.

    A trie, as an alternation of thousands of words would be tried one by one at each character.
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
    """Patterns of one of some characters. Those beyond the 16-bit plane are tried one after the other by the
    matcher, at each letter of a text: ten times slower unless a look ahead keeps other letters from it.
    """
    near = "".join(re.escape(letter) for letter in letters if letter < _ASTRAL[0])
    far = "".join(re.escape(letter) for letter in letters if letter >= _ASTRAL[0])
    return [f"[{near}]"] * bool(near) + [f"(?=[{_ASTRAL}])[{far}]"] * bool(far)


def _branch(letters: str, rest: _Tree) -> str:
    while len(rest) == 1 and "" not in rest:  # a chain without choice is one literal
        letter, rest = next(iter(rest.items()))
        letters += letter
    if rest.keys() == {""}:
        return re.escape(letters)
    return re.escape(letters) + f"(?:{_branches(rest)})" + ("?" if "" in rest else "")
