"""Texts of hits for formatting: short ones are tokenized whole, long ones only near possible matches (docs/search.md#long-texts).

A long text is searched for the prefixes of the query's words; around each occurrence a piece between two separators is cut
out and tokenized. Pieces with characters other than plain ASCII are tokenized too, because their lemma may differ from
what is written.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from svcd.search.cropping import FARTHEST, window
from svcd.search.formatting_budget import MOST_MATCHES, FormattingBudget
from svcd.search.matches import Match, MatchFinder
from svcd.text import segmenters
from svcd.text.analyzer import WORD, Analyzer, Token
from svcd.text.scripts import LATIN, groups

# Longer texts, in characters, are read in pieces. What is shorter is quicker read at once.
LONG = 65_536
# Characters that are looked through together; the least and the most that are read together.
_CHUNK = 65_536
_LEAST_PIECE, _MOST_PIECE = 64, 16_384
# As far a separator is looked for. What has none is no text of words: it is cut there, and what follows is no word.
_FARTHEST_BOUNDARY = 4_096
# What tells one language from another, in characters of the beginning of a text.
_SAMPLE = 16_384
# Characters of which the lemma is not, as always with the others, their lower case.
_ODD = "[^\\x09-\\x0d\\x20-\\x7e]"
_has_odd = re.compile(_ODD).search


class Readable(Protocol):
    """A text, its matches, and which part of it is shown."""

    @property
    def matches(self) -> Sequence[Match]:
        """Left to right, none overlapping another; `start` and `length` count characters of the text."""

    def window(self, size: int) -> tuple[int, int]:
        """The part to show when about so many words may be: its first character, and the one behind its last."""


class ShortText:
    """A text that is read at once."""

    def __init__(self, tokens: Sequence[Token], matches: Sequence[Match], allowance: FormattingBudget) -> None:
        self.matches = matches
        self._tokens = tokens
        self._allowance = allowance

    @property
    def end(self) -> int:
        return self._tokens[-1].end if self._tokens else 0

    def window(self, size: int) -> tuple[int, int]:
        return window(self, self.matches, size, self._allowance)

    # cropping.Reading

    def forwards(self) -> Iterator[Token]:
        return iter(self._tokens)

    def before(self, match: Match) -> Iterator[Token]:
        return self._backwards(match.first_token)

    def behind(self, match: Match) -> Iterator[Token]:
        return (self._tokens[place] for place in range(match.last_token + 1, len(self._tokens)))

    def back_from(self, match: Match) -> Iterator[Token]:
        return self._backwards(min(match.last_token + 2, len(self._tokens)))

    def _backwards(self, end: int) -> Iterator[Token]:
        return (self._tokens[place] for place in range(end - 1, -1, -1))


@dataclass(frozen=True, slots=True)
class _Needle:
    """A place where a word of the query may begin. end: behind what shows that."""

    start: int
    end: int


class Needles:
    """Finds where in a text words of a query may begin; made once for a query."""

    def __init__(self, words: MatchFinder) -> None:
        beginnings = sorted(words.beginnings - {""}, key=len, reverse=True)
        self.longest = max(map(len, beginnings), default=0)
        plain = "|".join(re.escape(beginning.lower()) for beginning in beginnings if beginning.isascii())
        # (?!) is found nowhere: only what is odd could be such a word
        self._among_plain = re.compile(plain or "(?!)").search
        self._among_odd = re.compile(f"{_ODD}|{plain}" if plain else _ODD, re.IGNORECASE).search

    def in_text(self, text: str, start: int, allowance: FormattingBudget) -> Iterator[_Needle]:
        """The needles from a place on, left to right, as long as there is time."""
        for begin in range(start, len(text), _CHUNK):
            end = min(begin + _CHUNK, len(text))
            if not allowance.allows((end - begin) >> 6):  # to look through is 50 times quicker than to read
                return
            chunk = text[begin:end + self.longest]
            is_plain = chunk.isascii() and not _has_odd(chunk)
            search = self._among_plain if is_plain else self._among_odd
            chunk = chunk.lower() if is_plain else chunk
            found = search(chunk)
            while found and begin + found.start() < end:
                yield _Needle(begin + found.start(), begin + found.end())
                found = search(chunk, found.start() + 1)


class LongText:
    """A text that is read in pieces. The tokens of its matches are told by characters: `first_token` is where the first
    begins, `last_token` where the last one ends; numbers of words count from the first match."""

    def __init__(self, text: str, locales: Sequence[str] | None, analyzer: Analyzer, words: MatchFinder,
                 needles: Needles, allowance: FormattingBudget) -> None:
        self.end = len(text)
        self._text = text
        self._locales = locales
        self._analyzer = analyzer
        self._boundaries = analyzer.separators.boundaries
        self._words = words
        self._needles = needles
        self._allowance = allowance
        self._languages: dict[str, str | None] = {}
        is_cut = segmenters.segmenter_of(LATIN, self._language("", LATIN)) is not None
        self._keeps_letters = analyzer.separators.keeps_ascii_letters and not is_cut
        self.matches: Sequence[Match] = list(self._found()) if words else []

    def window(self, size: int) -> tuple[int, int]:
        return window(self, list(self._numbered(size)), size, self._allowance)

    # cropping.Reading

    def forwards(self) -> Iterator[Token]:
        return self._tokens_from(0)

    def before(self, match: Match) -> Iterator[Token]:
        return self._tokens_back_from(match.first_token)

    def behind(self, match: Match) -> Iterator[Token]:
        return self._tokens_from(match.last_token)

    def back_from(self, match: Match) -> Iterator[Token]:
        following = next(self.behind(match), None)
        return self._tokens_back_from(following.end if following else self.end)

    # matches

    def _found(self) -> Iterator[Match]:
        position, size, most = 0, _LEAST_PIECE, MOST_MATCHES
        for needle in self._needles.in_text(self._text, 0, self._allowance):
            if needle.start < position or self._is_behind_a_letter(needle.start):
                continue
            is_near = needle.start - position < size
            size = min(size * 4, _MOST_PIECE) if is_near else _LEAST_PIECE
            start = self._boundary_before(needle.start, position)
            end = self._boundary_behind(max(needle.end, start + size))
            if not self._allowance.allows(end - start):
                return
            position = end
            for match in self._found_in(start, end):
                position = max(position, match.last_token)
                yield match
                most -= 1
                if not most:
                    return

    def _found_in(self, start: int, end: int) -> Iterator[Match]:
        """The matches that begin in a piece, and may end behind it."""
        tokens = self._tokens_for_phrases(start, end)
        if self._is_inside_word(start) and tokens and not segmenters.may_cut(tokens[0].script):
            tokens[0].lemma = ""
        for match in self._words.find(tokens):
            first, last = tokens[match.first_token], tokens[match.last_token]
            if first.start < end:
                yield match._replace(first_token=first.start, last_token=last.end)

    def _tokens_for_phrases(self, start: int, end: int) -> list[Token]:
        """The tokens of a piece, and as many words behind it as a phrase that begins in it may have there."""
        wanted = self._words.longest_phrase - 1
        tokens = self._tokens(start, end)
        if wanted:
            for token in self._tokens_from(end):
                tokens.append(token)
                wanted -= token.kind is WORD
                if not wanted:
                    break
        return tokens

    def _numbered(self, size: int) -> Iterator[Match]:
        """The matches with the numbers of their words, as far as cropping to so many asks for them: the words between
        two matches are counted only until they are too many."""
        number, behind = 0, None
        for match in self.matches:
            if behind is not None:
                gap = self._words_between(behind, match.first_token, size + FARTHEST)
                if gap is None:
                    return
                number += gap
            yield match._replace(first_word=number, last_word=number + match.words - 1)
            number += match.words
            behind = match.last_token

    def _words_between(self, start: int, end: int, most: int) -> int | None:
        """How many words stand there, at most; None when the time is over."""
        count = 0
        for token in self._tokens_from(start, end):
            if not self._allowance.allows(token.end - token.start):
                return None
            count += token.kind is WORD
            if count >= most:
                break
        return count

    # pieces

    def _tokens(self, start: int, end: int) -> list[Token]:
        return self._analyzer.tokens_of_part(self._text, start, end, self._language)

    def _tokens_from(self, start: int, end: int | None = None) -> Iterator[Token]:
        """The tokens from the border of one on, in pieces that grow."""
        size, last = _LEAST_PIECE, self.end if end is None else end
        while start < last:
            behind = min(self._boundary_behind(start + size), last)
            yield from self._tokens(start, behind)
            start, size = behind, min(size * 4, _MOST_PIECE)

    def _tokens_back_from(self, end: int) -> Iterator[Token]:
        """The tokens in front of the border of one, backwards."""
        size = _LEAST_PIECE
        while end > 0:
            start = self._boundary_before(max(end - size, 0), 0)
            yield from reversed(self._tokens(start, end))
            end, size = start, min(size * 4, _MOST_PIECE)

    def _boundary_before(self, place: int, least: int) -> int:
        """The nearest place up to this one where the text may be cut, not in front of `least`."""
        text, boundaries = self._text, self._boundaries
        nearest = max(least, place - _FARTHEST_BOUNDARY)
        while place > nearest and text[place - 1] not in boundaries:
            place -= 1
        return place

    def _boundary_behind(self, place: int) -> int:
        """The nearest place from this one on where the text may be cut."""
        text, boundaries = self._text, self._boundaries
        farthest = min(place + _FARTHEST_BOUNDARY, self.end)
        while place < farthest and text[place - 1] not in boundaries:
            place += 1
        return min(place, self.end)

    def _is_behind_a_letter(self, place: int) -> bool:
        """Does what is plain there not begin a word, as a plain letter stands before it?"""
        before = self._text[place - 1:place]
        return self._keeps_letters and before.isalpha() and before.isascii() and " " < self._text[place] < "\x7f"

    def _is_inside_word(self, place: int) -> bool:
        """Was no boundary found near this place, where a piece begins?"""
        stretch = self._text[max(place - _FARTHEST_BOUNDARY, 0):place]
        return len(stretch) == _FARTHEST_BOUNDARY and self._boundaries.isdisjoint(stretch)

    def _language(self, _group: str, script: str) -> str | None:
        """One for each script in all of the text: that of what the text begins with."""
        if script not in self._languages:
            self._languages[script] = self._detected(script)
        return self._languages[script]

    def _detected(self, script: str) -> str | None:
        for start in range(0, self.end, _SAMPLE):
            part = self._text[start:start + _SAMPLE]
            sample = "".join(part[each.start:each.end] for each in groups(part) if each.script == script)
            if sample:
                return self._analyzer.language(sample, script, self._locales)
        return None
