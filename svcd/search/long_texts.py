"""Texts of hits for formatting: short ones are tokenized whole, long ones only near possible matches (docs/search.md#long-texts).

A long text is searched for the prefixes of the query's words; around each occurrence a piece between two separators is cut
out and tokenized. Pieces with characters other than plain ASCII are tokenized too, because their lemma may differ from
what is written. Long texts are held in UTF-8, and only pieces of them become strings: a string with one emoji takes four
bytes a character.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol

from svcd.search.cropping import FARTHEST, window
from svcd.search.matches import MOST_MATCHES, FormattingBudget, Match, MatchFinder
from svcd.text import segmenters
from svcd.text.analyzer import WORD, Analyzer, Token
from svcd.text.scripts import ARMENIAN, LATIN, OTHER, groups, script_of

# Longer texts, in characters, are read in pieces. What is shorter is quicker read at once.
LONG = 65_536
# Bytes that are looked through together; the least and the most that are read together.
_CHUNK = 65_536
_LEAST_PIECE, _MOST_PIECE = 64, 16_384
# As far, in bytes, a separator is looked for. What has none is no text of words: it is cut there, and what follows is no
# word. Most are found near.
_FARTHEST_BOUNDARY = 4_096
_NEAR = 64
# What tells one language from another, in bytes of the beginning of a text; so far it is looked for.
_SAMPLE = 16_384
_FARTHEST_SAMPLE = 1 << 20
# Characters of which the lemma is not, as always with the others, their lower case.
_ODD = "[^\\x09-\\x0d\\x20-\\x7e]"
_has_odd = re.compile(_ODD).search


class Readable(Protocol):
    """A text, its matches, and which part of it is shown. Its places are counted as it is held: see the classes."""

    @property
    def matches(self) -> Sequence[Match]:
        """Left to right, none overlapping another; `start` and `length` are such places."""

    @property
    def end(self) -> int:
        """The place behind all of it."""

    def window(self, size: int) -> tuple[int, int]:
        """The part to show when about so many words may be: its first place, and the one behind its last."""

    def part(self, start: int, end: int) -> str:
        """What stands between two places."""

    def spans(self) -> Iterator[tuple[int, int]]:
        """Where each match begins in UTF-8, and its length there."""


class ShortText:
    """A text that is read at once. Its places are characters."""

    def __init__(self, text: str, tokens: Sequence[Token], matches: Sequence[Match], allowance: FormattingBudget) -> None:
        self.matches = matches
        self._text = text
        self._tokens = tokens
        self._allowance = allowance

    @property
    def end(self) -> int:
        return len(self._text)

    def window(self, size: int) -> tuple[int, int]:
        return window(self, self.matches, size, self._allowance)

    def part(self, start: int, end: int) -> str:
        return self._text[start:end]

    def spans(self) -> Iterator[tuple[int, int]]:
        place = size = 0  # so many characters are so many bytes
        for match in self.matches:
            size += _size(self._text[place:match.start])
            length = _size(self._text[match.start:match.end])
            yield size, length
            place, size = match.end, size + length

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


class Needles:
    """Finds where in a text words of a query may begin; made once for a query."""

    def __init__(self, words: MatchFinder) -> None:
        beginnings = sorted(words.beginnings - {""}, key=len, reverse=True)
        self.longest = max((_size(beginning) for beginning in beginnings), default=0)
        plain = "|".join(re.escape(beginning.lower()) for beginning in beginnings if beginning.isascii())
        # (?!) is found nowhere: only what is odd could be such a word
        self._among_plain = re.compile(plain or "(?!)").search
        self._among_odd = re.compile(f"{_ODD}|{plain}" if plain else _ODD, re.IGNORECASE).search

    def searched(self, part: str) -> tuple[str, Callable[[str, int], re.Match[str] | None]]:
        """A part of a text to be searched, as long as it was, and what finds the first from a place on."""
        is_plain = part.isascii() and not _has_odd(part)
        return (part.lower(), self._among_plain) if is_plain else (part, self._among_odd)


class LongText:
    """A text that is read in pieces. Its places are bytes of UTF-8. The tokens of its matches are told by places, too:
    `first_token` is where the first begins, `last_token` where the last one ends; numbers of words count from the first
    match."""

    def __init__(self, text: bytes, locales: Sequence[str] | None, analyzer: Analyzer, words: MatchFinder,
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

    def part(self, start: int, end: int) -> str:
        return self._text[start:end].decode()

    def spans(self) -> Iterator[tuple[int, int]]:
        return ((match.start, match.length) for match in self.matches)

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
        for begin in range(0, self.end, _CHUNK):
            if not self._allowance.allows(_CHUNK >> 6):  # to look through is 50 times quicker than to read
                return
            needles = self._in_chunk(self._at_character(begin), self._at_character(begin + _CHUNK))
            next(needles)
            while needle := needles.send(position):
                is_near = needle[0] - position < size
                size = min(size * 4, _MOST_PIECE) if is_near else _LEAST_PIECE
                start = self._boundary_before(needle[0], position)
                end = self._boundary_behind(max(needle[1], start + size))
                if not self._allowance.allows(end - start):
                    return
                position = end
                for match in self._found_in(start, end):
                    position = max(position, match.last_token)
                    yield match
                    most -= 1
                    if not most:
                        return

    def _in_chunk(self, begin: int, end: int) -> Generator[tuple[int, int] | None, int, None]:
        """Given a place, the next one from there on where a word of the query may begin, and the one behind what shows
        that; None when there is no more in this part of the text."""
        part, search = self._needles.searched(self.part(begin, self._at_character(end + self._needles.longest)))
        characters, place = 0, begin  # so many characters are up to that place
        found: tuple[int, int] | None = None
        while True:
            least = yield found
            if least > place:
                characters, place = characters + self._characters(place, min(least, end)), least
            found = None
            while found is None and place < end and (match := search(part, characters)):
                first, last = match.span()
                place += _size(part[characters:first])
                characters = first
                if place >= end:
                    break
                if not self._is_behind_a_letter(place):
                    found = place, place + _size(part[first:last])
                else:
                    characters, place = characters + 1, place + 1  # it is plain

    def _found_in(self, start: int, end: int) -> Iterator[Match]:
        """The matches that begin in a piece, and may end behind it."""
        tokens = self._tokens_for_phrases(start, end)
        if self._is_inside_word(start) and tokens and not segmenters.may_cut(tokens[0].script):
            tokens[0].lemma = ""
        for match in self._words.find(tokens):
            first, last = tokens[match.first_token], tokens[match.last_token]
            if first.start < end:
                # of a beginning its characters are told
                length = match.length if first is not last else _size(first.text[:match.length])
                yield match._replace(first_token=first.start, last_token=last.end, length=length)

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
        part = self.part(start, end)
        characters = self._of_the_run_before(part, start)
        tokens = self._analyzer.tokens_of_part(part[characters:], self._language)
        if characters:
            tokens = self._analyzer.tokens_of_part(part[:characters], self._language) + tokens
        for token in tokens:
            token.start = start
            token.end = start = start + _size(token.text)
        return tokens

    def _of_the_run_before(self, part: str, start: int) -> int:
        """How many characters of a part are of no script, and follow others than those that come behind them."""
        if not start or part[:1].isalpha():
            return 0
        first, before = groups(part)[:1], self._script_before(start)
        if not first or before in (OTHER, first[0].script):
            return 0
        return next((place for place, character in enumerate(part) if script_of(character) not in (OTHER, ARMENIAN)), 0)

    def _script_before(self, place: int) -> str:
        """The script of the run that ends there; OTHER when none is near."""
        for reach in (_NEAR, _FARTHEST_BOUNDARY):
            found = groups(self.part(self._at_character(max(place - reach, 0)), place))
            if found[-1].script != OTHER:
                return found[-1].script
        return OTHER

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
        place = self._at_character(place)
        for reach in (_NEAR, _FARTHEST_BOUNDARY):
            nearest = self._at_character(max(least, place - reach))
            part = self.part(nearest, place)
            for characters in range(len(part), 0, -1):
                if part[characters - 1] in self._boundaries:
                    return place - _size(part[characters:])
        return nearest

    def _boundary_behind(self, place: int) -> int:
        """The nearest place from this one on where the text may be cut."""
        start = self._at_character(min(place, self.end) - 1)
        for reach in (_NEAR, _FARTHEST_BOUNDARY):
            farthest = self._at_character(place + reach)
            part = self.part(start, farthest)
            for characters, character in enumerate(part, 1):
                if character in self._boundaries:
                    return start + _size(part[:characters])
        return farthest

    def _at_character(self, place: int) -> int:
        """Where the character of a byte begins."""
        if place >= self.end:
            return self.end
        while self._text[place] & 0xC0 == 0x80:
            place -= 1
        return place

    def _characters(self, start: int, end: int) -> int:
        return len(self.part(start, end))

    def _is_behind_a_letter(self, place: int) -> bool:
        """Does what is plain there not begin a word, as a plain letter stands before it?"""
        return self._keeps_letters and self._text[place - 1:place].isalpha() and 0x20 < self._text[place] < 0x7F

    def _is_inside_word(self, place: int) -> bool:
        """Was no boundary found near this place, where a piece begins?"""
        start = self._at_character(max(place - _FARTHEST_BOUNDARY, 0))
        return place - start >= _FARTHEST_BOUNDARY and self._boundaries.isdisjoint(self.part(start, place))

    def _language(self, group: str, script: str) -> str | None:
        """One for each script in all of the text: that of what the text begins with."""
        if script not in self._languages:
            self._languages[script] = self._detected(group, script)
        return self._languages[script]

    def _detected(self, group: str, script: str) -> str | None:
        """group: what is written so, should it not be met before long."""
        if script not in segmenters.LANGUAGE_DEPENDENT:
            return None
        for begin in range(0, min(self.end, _FARTHEST_SAMPLE), _SAMPLE):
            part = self.part(self._at_character(begin), self._at_character(begin + _SAMPLE))
            sample = "".join(part[each.start:each.end] for each in groups(part) if each.script == script)
            if sample:
                return self._analyzer.language(sample, script, self._locales)
        return self._analyzer.language(group, script, self._locales) if group else None


def _size(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
