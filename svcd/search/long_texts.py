"""Find matches in texts of hits: short texts are tokenized whole, long ones near possible matches (docs/search.md#long-texts).

A long text is searched for the prefixes of query words; a piece around each occurrence, from separator to separator, is
tokenized. Pieces with characters other than plain ASCII are tokenized too, because their lemmas may differ from the text. Long
texts stay in UTF-8, and only pieces of them become `str`: one emoji makes a `str` take four bytes per character.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence

from svcd.search.matches import MAX_DISTANCE, Match, MatchFinder, best_interval
from svcd.search.request import FormattingBudget
from svcd.text.analyzer import HARD, SOFT, WORD, Analyzer, Token
from svcd.text.scripts import ARMENIAN, LATIN, OTHER, groups, script_of
from svcd.text.segmenters import LANGUAGE_DEPENDENT, may_cut, segmenter_of

# A text with more characters is long. Shorter texts are faster to tokenize whole.
LONG_TEXT = 65_536
# Matches that are reported for one long text; each takes some 300 bytes of memory.
_MAX_MATCHES = 100_000
# The following limits are in bytes. The part of a text that is searched at a time, and the smallest and largest piece that is
# tokenized at a time.
CHUNK = 65_536
MIN_PIECE, MAX_PIECE = 64, 16_384
# A separator is first looked for within the small distance, where most are found, then within the large one. A text without
# separators does not consist of words: it is cut there, and the part after the cut does not match.
_NEAR = 64
_MAX_BOUNDARY_DISTANCE = 4_096
# The language of a script is detected from the first sample of a text with this script, up to an offset.
_SAMPLE = 16_384
MAX_SAMPLE_OFFSET = 1 << 20
# Searching a text costs a budget 2 ** _SEARCH_COST_SHIFT times less than tokenizing it: it is 50 times faster.
_SEARCH_COST_SHIFT = 6
# Characters whose lemma may differ from their lower case.
_NOT_PLAIN = "[^\\x09-\\x0d\\x20-\\x7e]"
_find_not_plain = re.compile(_NOT_PLAIN).search


class ShortText:
    """A text that is tokenized whole, and its matches. Its places and the places of its matches are in characters."""

    def __init__(self, text: str, tokens: Sequence[Token], matches: Sequence[Match], budget: FormattingBudget) -> None:
        self.matches = matches
        self._text = text
        self._tokens = tokens
        self._budget = budget

    @property
    def end(self) -> int:
        return len(self._text)

    def window(self, size: int) -> tuple[int, int]:
        """Return (start, end) of the part that a crop of `size` words shows."""
        return window(self, self.matches, size, self._budget)

    def part(self, start: int, end: int) -> str:
        """Return the text between two places."""
        return self._text[start:end]

    def byte_spans(self) -> Iterator[tuple[int, int]]:
        """Yield (start, length) of each match in UTF-8 bytes."""
        characters = size = 0  # the first `characters` characters take `size` bytes
        for match in self.matches:
            size += _size(self._text[characters:match.start])
            length = _size(self._text[match.start:match.end])
            yield size, length
            characters, size = match.end, size + length

    # Tokens for a window

    def forwards(self) -> Iterator[Token]:
        """Return all tokens."""
        return iter(self._tokens)

    def before(self, match: Match) -> Iterator[Token]:
        """Return the tokens before a match, the nearest first."""
        return self._backwards_from(match.first_token)

    def after(self, match: Match) -> Iterator[Token]:
        """Return the tokens after a match."""
        return (self._tokens[number] for number in range(match.last_token + 1, len(self._tokens)))

    def backwards(self, match: Match) -> Iterator[Token]:
        """Return the token after a match, if any, and all tokens before that one, in reverse order."""
        return self._backwards_from(min(match.last_token + 2, len(self._tokens)))

    def _backwards_from(self, end: int) -> Iterator[Token]:
        return (self._tokens[number] for number in range(end - 1, -1, -1))


class PrefixSearch:
    """Finds places in a text where a word of the query may begin. One object serves all texts of a query."""

    def __init__(self, words: MatchFinder) -> None:
        prefixes = sorted(words.prefixes - {""}, key=len, reverse=True)
        self.longest = max((_size(prefix) for prefix in prefixes), default=0)
        plain = "|".join(re.escape(prefix.lower()) for prefix in prefixes if prefix.isascii())
        # (?!) never matches: without an ASCII prefix, only characters that are not plain can begin a word of the query.
        self._in_plain = re.compile(plain or "(?!)").search
        self._in_other = re.compile(f"{_NOT_PLAIN}|{plain}" if plain else _NOT_PLAIN, re.IGNORECASE).search

    def prepared(self, part: str) -> tuple[str, Callable[[str, int], re.Match[str] | None]]:
        """Return (the text to search, as long as the part; a function: (text, offset) -> the first occurrence from there on)."""
        is_plain = part.isascii() and not _find_not_plain(part)
        return (part.lower(), self._in_plain) if is_plain else (part, self._in_other)


class LongText:
    """A text that is tokenized in pieces, and its matches. Its places are in bytes of UTF-8. Methods: see ShortText.

    In its matches, `first_token` is the place where the first token begins, `last_token` the place where the last one ends;
    words are numbered from the first match on.
    """

    def __init__(self, text: bytes, locales: Sequence[str] | None, analyzer: Analyzer, words: MatchFinder,
                 prefix_search: PrefixSearch, budget: FormattingBudget) -> None:
        self.end = len(text)
        self._text = text
        self._locales = locales
        self._analyzer = analyzer
        self._boundaries = analyzer.separators.boundaries
        self._words = words
        self._prefix_search = prefix_search
        self._budget = budget
        self._languages: dict[str, str | None] = {}
        is_segmented = segmenter_of(LATIN, self._language("", LATIN)) is not None
        self._keeps_ascii_letters = analyzer.separators.keeps_ascii_letters and not is_segmented
        self.matches: Sequence[Match] = list(self._matches()) if words else []

    def part(self, start: int, end: int) -> str:
        return self._text[start:end].decode()

    def byte_spans(self) -> Iterator[tuple[int, int]]:
        return ((match.start, match.length) for match in self.matches)

    def window(self, size: int) -> tuple[int, int]:
        return window(self, list(self._numbered_matches(size)), size, self._budget)

    # Tokens for a window

    def forwards(self) -> Iterator[Token]:
        return self._tokens_from(0)

    def before(self, match: Match) -> Iterator[Token]:
        return self._tokens_before(match.first_token)

    def after(self, match: Match) -> Iterator[Token]:
        return self._tokens_from(match.last_token)

    def backwards(self, match: Match) -> Iterator[Token]:
        following = next(self.after(match), None)
        return self._tokens_before(following.end if following else self.end)

    # Matches

    def _matches(self) -> Iterator[Match]:
        position, size, left = 0, MIN_PIECE, _MAX_MATCHES
        for chunk in range(0, self.end, CHUNK):
            if not self._budget.allows(CHUNK >> _SEARCH_COST_SHIFT):
                return
            occurrences = self._occurrences(self._character_start(chunk), self._character_start(chunk + CHUNK))
            next(occurrences)
            while occurrence := occurrences.send(position):
                # Pieces grow while occurrences follow each other closely.
                is_near = occurrence[0] - position < size
                size = min(size * 4, MAX_PIECE) if is_near else MIN_PIECE
                start = self._boundary_before(occurrence[0], position)
                end = self._boundary_after(max(occurrence[1], start + size))
                if not self._budget.allows(end - start):
                    return
                position = end
                for match in self._matches_in(start, end):
                    position = max(position, match.last_token)
                    yield match
                    left -= 1
                    if not left:
                        return

    def _occurrences(self, chunk_start: int, chunk_end: int) -> Generator[tuple[int, int] | None, int, None]:
        """Receive a place; yield (start, end) of the next possible beginning of a match from there on in a chunk, or None."""
        following = self._character_start(chunk_end + self._prefix_search.longest)
        part, search = self._prefix_search.prepared(self.part(chunk_start, following))
        characters, place = 0, chunk_start  # the same place, in characters of the part and in bytes of the text
        found: tuple[int, int] | None = None
        while True:
            earliest = yield found
            if earliest > place:
                characters += len(self.part(place, min(earliest, chunk_end)))
                place = earliest
            found = None
            while found is None and place < chunk_end and (match := search(part, characters)):
                first, last = match.span()
                place += _size(part[characters:first])
                characters = first
                if place >= chunk_end:
                    break
                # Inside a word of plain letters, where nothing cuts between letters, no word begins.
                if (self._keeps_ascii_letters and self._text[place - 1:place].isalpha() and 0x20 < self._text[place] < 0x7F):
                    characters, place = characters + 1, place + 1  # a plain character is one byte
                else:
                    found = place, place + _size(part[first:last])

    def _matches_in(self, start: int, end: int) -> Iterator[Match]:
        """Yield the matches that begin in a piece; they may end after it."""
        tokens = self._tokens(start, end)
        missing = self._words.longest_phrase - 1  # words after the piece that a phrase may need
        if missing:
            for token in self._tokens_from(end):
                tokens.append(token)
                missing -= token.kind is WORD
                if not missing:
                    break
        before = self._character_start(max(start - _MAX_BOUNDARY_DISTANCE, 0))
        if (start - before >= _MAX_BOUNDARY_DISTANCE and tokens and not may_cut(tokens[0].script)
                and self._boundaries.isdisjoint(self.part(before, start))):
            tokens[0].lemma = ""  # no boundary is near: the piece begins inside a word
        for match in self._words.find(tokens):
            first, last = tokens[match.first_token], tokens[match.last_token]
            if first.start < end:
                # The length of a match is in characters for one token, already in bytes for several.
                length = match.length if first is not last else _size(first.text[:match.length])
                yield match._replace(first_token=first.start, last_token=last.end, length=length)

    def _numbered_matches(self, size: int) -> Iterator[Match]:
        """Yield the matches with the numbers of their words.

        Words between two matches are counted up to the number that matters for a crop of `size` words.
        """
        number, last_end = 0, None
        for match in self.matches:
            if last_end is not None:
                words = 0
                for token in self._tokens_from(last_end, match.first_token):
                    if not self._budget.allows(token.end - token.start):
                        return
                    words += token.kind is WORD
                    if words >= size + MAX_DISTANCE:
                        break
                number += words
            yield match._replace(first_word=number, last_word=number + match.words - 1)
            number += match.words
            last_end = match.last_token

    # Tokens

    def _tokens(self, start: int, end: int) -> list[Token]:
        part = self.part(start, end)
        characters = self._characters_of_group_before(part, start)
        tokens = self._analyzer.tokens_of_part(part[characters:], self._language)
        if characters:
            tokens = self._analyzer.tokens_of_part(part[:characters], self._language) + tokens
        for token in tokens:
            token.start = start
            token.end = start = start + _size(token.text)
        return tokens

    def _characters_of_group_before(self, part: str, start: int) -> int:
        """Count the characters without a script at the start of a part that belong to the group before, in another script."""
        if not start or part[:1].isalpha():
            return 0
        first, before = groups(part)[:1], OTHER  # before: the script of the group that ends at the start, if it is near
        for distance in (_NEAR, _MAX_BOUNDARY_DISTANCE):
            before = groups(self.part(self._character_start(max(start - distance, 0)), start))[-1].script
            if before != OTHER:
                break
        if not first or before in (OTHER, first[0].script):
            return 0
        return next((number for number, character in enumerate(part) if script_of(character) not in (OTHER, ARMENIAN)), 0)

    def _tokens_from(self, start: int, end: int | None = None) -> Iterator[Token]:
        """Yield the tokens from a token boundary on, read in pieces that grow."""
        size, last = MIN_PIECE, self.end if end is None else end
        while start < last:
            piece_end = min(self._boundary_after(start + size), last)
            yield from self._tokens(start, piece_end)
            start, size = piece_end, min(size * 4, MAX_PIECE)

    def _tokens_before(self, end: int) -> Iterator[Token]:
        """Yield the tokens before a token boundary in reverse order."""
        size = MIN_PIECE
        while end > 0:
            start = self._boundary_before(max(end - size, 0), 0)
            yield from reversed(self._tokens(start, end))
            end, size = start, min(size * 4, MAX_PIECE)

    # Places

    def _boundary_before(self, place: int, earliest: int) -> int:
        """Return the last place from `earliest` to `place` where the text may be cut."""
        place = self._character_start(place)
        for distance in (_NEAR, _MAX_BOUNDARY_DISTANCE):
            start = self._character_start(max(earliest, place - distance))
            part = self.part(start, place)
            for characters in range(len(part), 0, -1):
                if part[characters - 1] in self._boundaries:
                    return place - _size(part[characters:])
        return start

    def _boundary_after(self, place: int) -> int:
        """Return the first place from this one on where the text may be cut."""
        start = self._character_start(min(place, self.end) - 1)
        for distance in (_NEAR, _MAX_BOUNDARY_DISTANCE):
            end = self._character_start(place + distance)
            part = self.part(start, end)
            for characters, character in enumerate(part, 1):
                if character in self._boundaries:
                    return start + _size(part[:characters])
        return end

    def _character_start(self, place: int) -> int:
        """Return the start of the character that contains a byte."""
        if place >= self.end:
            return self.end
        while self._text[place] & 0xC0 == 0x80:  # a continuation byte of UTF-8
            place -= 1
        return place

    # Languages

    def _language(self, group: str, script: str) -> str | None:
        """Return the language of a script in this text, detected once for all groups. group: a text of this script, for texts
        whose samples do not contain the script."""
        if script in self._languages:
            return self._languages[script]
        language = None
        if script in LANGUAGE_DEPENDENT:
            sample = group
            for start in range(0, min(self.end, MAX_SAMPLE_OFFSET), _SAMPLE):
                part = self.part(self._character_start(start), self._character_start(start + _SAMPLE))
                if found := "".join(part[each.start:each.end] for each in groups(part) if each.script == script):
                    sample = found
                    break
            language = self._analyzer.language(sample, script, self._locales) if sample else None
        self._languages[script] = language
        return language


# The part that a crop shows: a window around the best interval of matches (docs/search.md#cropping)

# Tokens that a window takes even after the time limit, enough to complete a crop of usual length.
_GUARANTEED_TOKENS = 100

_BEFORE, _AFTER, _BOTH = "before", "after", "both"
# The side on which the window grows, by the kinds of the next tokens (before, after) it.
_GROWTH = {
    (WORD, WORD): _BOTH,
    (SOFT, SOFT): _BOTH,
    (HARD, HARD): _BOTH,
    (HARD, SOFT): _AFTER,
    (SOFT, HARD): _BEFORE,
    (WORD, SOFT): _BEFORE,
    (WORD, HARD): _BEFORE,
    (SOFT, WORD): _AFTER,
    (HARD, WORD): _AFTER,
}


def window(source: ShortText | LongText, matches: Sequence[Match], size: int, budget: FormattingBudget) -> tuple[int, int]:
    """Return (start, end) of the part to show: about `size` words around the best matches, in the unit of the tokens.

    The end is before the start between two phrases longer than the window: nothing is shown then. When the budget is used up,
    the window is the best part found so far. The odd cases are phrases longer than the window, whose results follow the
    reference engine.
    """
    if not matches:
        return _grow(source, size, iter(()), source.forwards(), budget)
    first_number, last_number = best_interval(matches, size, budget)
    first, last = matches[first_number], matches[last_number]
    words = last.last_word - first.first_word + 1
    if words < 0:
        return 0, source.end
    if words == 0:
        return _grow(source, size, source.before(first), source.forwards(), budget)
    if words <= size:
        return _grow(source, size - words, source.before(first), source.after(last), budget)
    # The text from its start to the end of the phrase, without as many words as the phrase is too long.
    return _grow(source, words - size, iter(()), source.backwards(last), budget)


def _grow(source: ShortText | LongText, left: int, tokens_before: Iterator[Token], tokens_after: Iterator[Token],
          budget: FormattingBudget) -> tuple[int, int]:
    """Return (start, end) of a window after it took `left` words, given the next tokens on each side."""
    before, after = next(tokens_before, None), next(tokens_after, None)
    taken = 0
    while left > 0 and (before or after) and (taken < _GUARANTEED_TOKENS or budget.allows(1)):
        taken += 1
        side = _GROWTH[before.kind, after.kind] if before and after else _BEFORE if before else _AFTER
        # If both sides offer a word, the one after is only taken if it is still allowed.
        take_after = side == _AFTER or (side == _BOTH and left > 1)
        if side != _AFTER and before:
            left -= before.kind == WORD
            before = next(tokens_before, None)
        if take_after and after:
            left -= after.kind == WORD
            after = next(tokens_after, None)
    return before.end if before else 0, after.start if after else source.end


def _size(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
