"""Formatted hits: the attributes to retrieve, `_formatted` and `_matchesPosition` (docs/search.md#formatting).

The words to mark come from ranking, as a svcd.search.matches.MatchFinder.
"""
from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from svcd.base.json_text import Unescaped, dumps
from svcd.schema.attributes import WILDCARD, is_everything, is_related
from svcd.schema.documents import Selection, Value, select, shown_parts, text_of
from svcd.search.long_texts import LONG, LongText, Needles, Readable, ShortText
from svcd.search.matches import FormattingBudget, Match, MatchFinder
from svcd.search.stored_strings import PIECE, LongStrings
from svcd.text.analyzer import Analyzer

# Texts with tags around their matches: short ones at once, long ones in pieces as they are asked for.
#
# Refuses to know how matches are found, and which part of a text is shown.


class Tags(NamedTuple):
    """What stands around each match."""

    before: str
    behind: str


def spread(part: Callable[[int, int], str], matches: Sequence[Match], start: int, end: int, tags: Tags) -> Iterator[str]:
    """The parts of a text from start to end with the matches there in tags, those across a border clipped."""
    for match in matches:
        first, last = max(match.start, start), min(match.end, end)
        yield part(start, first)
        yield tags.before
        yield part(first, last)
        yield tags.behind
        start = last
    yield part(start, end)


class MarkedText(NamedTuple):
    """A part of a long text with the matches there in tags, and markers at its ends: a `long_strings.LongValue`."""

    source: Unescaped
    matches: Sequence[Match]
    start: int
    end: int
    tags: Tags
    before: str
    behind: str

    @property
    def size(self) -> int:
        return self.end - self.start + len(self.matches) * sum(map(len, self.tags))

    def pieces(self) -> Iterator[bytes]:
        """As it stands in a literal; of the order of PIECE bytes each."""
        opening, closing = (_escaped(tag) for tag in self.tags)
        waiting, size = [_escaped(self.before)], 0
        place = self.start
        for match in self.matches:
            first, last = max(match.start, place), min(match.end, self.end)
            for part in self._parts(place, first):
                waiting.append(part)
                size += len(part)
                if size >= PIECE:
                    yield b"".join(waiting)
                    waiting, size = [], 0
            waiting += opening, self.source.escaped(first, last), closing
            size += len(opening) + last - first + len(closing)
            place = last
        yield b"".join(waiting)
        yield from self._parts(place, self.end)
        yield _escaped(self.behind)

    def _parts(self, start: int, end: int) -> Iterator[bytes]:
        for place in range(start, end, PIECE):
            yield self.source.escaped(place, min(place + PIECE, end))


def _escaped(text: str) -> bytes:
    return dumps(text)[1:-1].encode()


Document = Mapping[str, Value]
LocalesOf = Callable[[str], "Sequence[str] | None"]

# What the reference reads as an unsigned 64-bit integer.
_LENGTH = re.compile(r"\+?[0-9]+", re.ASCII)
_LARGEST = 2**64 - 1
# Characters of a text that are shown although it was to be cropped, when the time is over: of many to read little is more.
_SURELY_SHOWN = 1_000


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What a search asks of the hits it gets; names as in the request."""

    attributes_to_retrieve: Sequence[str] | None = None  # None: all
    attributes_to_highlight: Sequence[str] | None = None
    attributes_to_crop: Sequence[str] | None = None  # `name` or `name:length`
    crop_length: int = 10
    crop_marker: str = "…"
    highlight_pre_tag: str = "<em>"
    highlight_post_tag: str = "</em>"
    show_matches_position: bool = False
    locales: Sequence[str] | None = None


class Formatted(NamedTuple):
    """One hit: its document as retrieved, `_formatted` and `_matchesPosition` (None when not asked for)."""

    document: dict[str, Value]
    formatted: dict[str, Value] | None
    matches_position: dict[str, list[dict[str, Any]]] | None


class _Style(NamedTuple):
    """What is done to the values of an attribute."""

    is_highlighted: bool = False
    crop_length: int | None = None  # words; 0 crops nothing


class Formatter:
    """Formats the hits of one query.

    fields: all known fields of the index in number order (`documents.names` of some document).
    displayed: the setting displayedAttributes. locales_of: `attributes.locales_test` of the settings.
    allowance: how much may be done; what is beyond it is shown as it is in the document, or cropped at its beginning.
    long_strings: the strings for which others stand in, in documents and in what is made of them.
    """

    def __init__(
        self,
        options: FormatOptions,
        *,
        fields: Sequence[str],
        displayed: Sequence[str] | None,
        analyzer: Analyzer,
        locales_of: LocalesOf,
        words: MatchFinder,
        allowance: FormattingBudget | None = None,
        long_strings: LongStrings | None = None,
    ) -> None:
        self._options = options
        self._allowance = allowance or FormattingBudget()
        self._displayed = _named(fields, displayed)
        self._retrieved = _named(self._displayed, options.attributes_to_retrieve)
        self._shows_all = is_everything(displayed)
        self.retrieves_all = self._shows_all and is_everything(options.attributes_to_retrieve)
        self._styles = _styles(self._displayed, options)
        self._displayed_parts, self._retrieved_parts = Selection(self._displayed), Selection(self._retrieved)
        self._formatted_parts = Selection({*self._styles, *self._retrieved})
        self._texts = _Texts(options, analyzer, locales_of, words, self._allowance,
                             LongStrings() if long_strings is None else long_strings)
        self._style_of: dict[str, _Style] = {}

    def hit(self, document: Document) -> Formatted:
        """The parts of one hit. The document is not changed; parts of it may be shared."""
        self._texts.forget()
        formatted = (self._formatted(document) or None) if self._styles else None
        positions = self._matches_position(document) if self._options.show_matches_position else None
        return Formatted(self.retrieve(document), formatted, positions)

    def retrieve(self, document: Document) -> dict[str, Value]:
        """The document reduced to what is displayed and to be retrieved."""
        return dict(document) if self.retrieves_all else shown_parts(document, self._retrieved_parts)

    def _formatted(self, document: Document) -> dict[str, Value]:
        parts = document if self.retrieves_all else select(document, self._formatted_parts)
        return {name: self._mapped(name, value) for name, value in parts.items()}

    def _mapped(self, path: str, value: Value) -> Value:
        if not self._allowance.allows(1):
            return self._texts.shortened(path, value, self._style(path)) if isinstance(value, str) else value
        if isinstance(value, dict):
            return {name: self._mapped(f"{path}.{name}", member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._mapped(path, element) for element in value]
        text = None if isinstance(value, bool) else text_of(value)
        return value if text is None else self._texts.formatted(path, text, self._style(path))

    def _style(self, path: str) -> _Style:
        style = self._style_of.get(path)
        if style is None:
            style = self._style_of[path] = _merged(path, self._styles)
        return style

    def _matches_position(self, document: Document) -> dict[str, list[dict[str, Any]]]:
        parts = document if self._shows_all else shown_parts(document, self._displayed_parts)
        found: dict[str, list[dict[str, Any]]] = {}
        for path, indices, text in _texts_of(parts):
            if not self._allowance.allows(1):
                break
            matches = self._texts.positions(path, text, indices)
            if matches:  # those of a later element take the place of the earlier ones
                found[path] = matches
        return dict(sorted(found.items()))


class _Texts:
    """Texts of one query's hits: their matches, highlighted and cropped."""

    def __init__(self, options: FormatOptions, analyzer: Analyzer, locales_of: LocalesOf, words: MatchFinder,
                 allowance: FormattingBudget, long_strings: LongStrings) -> None:
        self._options = options
        self._tags = Tags(options.highlight_pre_tag, options.highlight_post_tag)
        self._long_texts = long_strings
        self._sources: dict[str, Unescaped] = {}
        self._analyzer = analyzer
        self._locales_of = locales_of
        self._words = words
        self._allowance = allowance
        self._needles: Needles | None = None
        self._read: dict[tuple[str, str], Readable] = {}
        self._characters_read = 0

    def forget(self) -> None:
        """Another hit begins: its texts are others."""
        self._read.clear()
        self._sources.clear()
        self._characters_read = 0

    def formatted(self, path: str, text: str, style: _Style) -> str:
        if not text or not (style.crop_length or (style.is_highlighted and self._words)):
            return text
        if not self._is_long(text) and not self._allowance.allows(len(text)):
            return self.shortened(path, text, style)
        readable = self._readable(path, text)
        start, end = readable.window(style.crop_length) if style.crop_length else (0, readable.end)
        matches = self._affordable(readable.matches, start, end) if style.is_highlighted else ()
        return self._shown(text, readable, start, end, matches)

    def shortened(self, path: str, text: str, style: _Style) -> str:
        """What is shown of a text when the time is over: its beginning where it is to be cropped, else all of it."""
        if not style.crop_length or (len(text) <= _SURELY_SHOWN and not self._is_long(text)):
            return text
        readable = self._long(path, text, MatchFinder())
        return self._shown(text, readable, 0, readable.window(style.crop_length)[1], ())

    def positions(self, path: str, text: str, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The matches as `_matchesPosition` shows them: offsets and lengths in UTF-8 bytes."""
        if not self._words or (not self._is_long(text) and not self._allowance.allows(len(text))):
            return []
        place = {"indices": list(indices)} if indices else {}
        return [{"start": start, "length": length, **place} for start, length in self._readable(path, text).spans()]

    def _is_long(self, text: str) -> bool:
        return len(text) > LONG or self._long_texts.stored(text) is not None

    def _readable(self, path: str, text: str) -> Readable:
        key = (path, text)
        if key not in self._read:
            if self._characters_read > LONG:  # of so many short texts that all their tokens would fill the memory
                self.forget()
            self._characters_read += min(len(text), LONG)
            self._read[key] = self._long(path, text, self._words) if self._is_long(text) else self._short(path, text)
        return self._read[key]

    def _short(self, path: str, text: str) -> ShortText:
        tokens = self._analyzer.tokens(text, self._locales(path), stop_words=False)
        return ShortText(text, tokens, self._words.find(tokens), self._allowance)

    def _long(self, path: str, text: str, words: MatchFinder) -> LongText:
        if self._needles is None:
            self._needles = Needles(self._words)
        return LongText(self._source(text).text, self._locales(path), self._analyzer, words, self._needles, self._allowance)

    def _source(self, text: str) -> Unescaped:
        if text not in self._sources:
            stored = self._long_texts.stored(text)
            self._sources[text] = stored.unescaped() if stored else Unescaped(text.encode(), ())
        return self._sources[text]

    def _locales(self, path: str) -> Sequence[str] | None:
        return self._options.locales or self._locales_of(path)

    def _shown(self, text: str, readable: Readable, start: int, end: int, matches: Sequence[Match]) -> str:
        """A part of a text with matches in tags, or what stands in for that, and markers where it is cut."""
        before, behind = self._markers(start > 0, end < readable.end)
        if self._long_texts.stored(text) is None or end - start <= LONG:
            return before + "".join(spread(readable.part, matches, start, end, self._tags)) + behind
        if not (matches or before or behind):
            return text
        return self._long_texts.stand_in(MarkedText(self._source(text), matches, start, end, self._tags, before, behind))

    def _markers(self, is_cut_before: bool, is_cut_behind: bool) -> tuple[str, str]:
        marker = self._options.crop_marker
        if not self._allowance.adds(len(marker) * (is_cut_before + is_cut_behind)):
            return "", ""
        return marker * is_cut_before, marker * is_cut_behind

    def _affordable(self, matches: Sequence[Match], start: int, end: int) -> Sequence[Match]:
        """Those in a part of a text, as far as their tags may be added."""
        first = bisect_right(matches, start, key=lambda match: match.end)
        last = bisect_left(matches, end, lo=first, key=lambda match: match.start)
        added = len(self._tags.before) + len(self._tags.behind)
        for place in range(first, last):
            if not self._allowance.adds(added):
                return matches[first:place]
        return matches[first:last]


def _named(fields: Sequence[str], entries: Sequence[str] | None) -> list[str]:
    """The fields that a list names; all of them when it is absent or holds `*`."""
    if is_everything(entries):
        return list(fields)
    named = set(entries or ())
    return [field for field in fields if field in named]


def _styles(displayed: Sequence[str], options: FormatOptions) -> dict[str, _Style]:
    """displayed field -> its style, in number order; only fields that are highlighted or cropped."""
    entries = options.attributes_to_highlight or ()
    highlighted = set(displayed) if WILDCARD in entries else set(entries)
    lengths = _crop_lengths(displayed, options)
    styles = {name: _Style(name in highlighted, lengths.get(name)) for name in displayed}
    return {name: style for name, style in styles.items() if style != _Style()}


def _crop_lengths(displayed: Sequence[str], options: FormatOptions) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for entry in options.attributes_to_crop or ():
        name, length = _crop_entry(entry, options.crop_length)
        lengths.update(dict.fromkeys(displayed if name == WILDCARD else (name,), length))
    return lengths


def _crop_entry(entry: str, default: int) -> tuple[str, int]:
    """`name:length` parted; a length that is none stands for the default one."""
    name, colon, length = entry.rpartition(":")
    if not colon:
        return entry, default
    digits = length.lstrip("+0")
    # A number of more than twenty digits is out of reach, and need not be converted to know it.
    is_length = _LENGTH.fullmatch(length) and len(digits) <= 20 and int(digits or 0) <= _LARGEST
    return name, int(digits or 0) if is_length else default


def _merged(path: str, styles: Mapping[str, _Style]) -> _Style:
    """The style of a value: of all listed fields that are it, hold it or lie beneath it."""
    related = [style for name, style in styles.items() if is_related(name, path)]
    lengths = (style.crop_length for style in related if style.crop_length is not None)
    return _Style(any(style.is_highlighted for style in related), next(lengths, None))


def _texts_of(document: Document) -> Iterator[tuple[str, list[int], str]]:
    """(path, indices of the arrays around it, text) of each string and number."""
    for name, value in document.items():
        yield from _texts_beneath(name, [], value)


def _texts_beneath(path: str, indices: list[int], value: Value) -> Iterator[tuple[str, list[int], str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _texts_beneath(f"{path}.{name}", indices, member)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _texts_beneath(path, [*indices, index], element)
    elif not isinstance(value, bool) and (text := text_of(value)) is not None:
        yield path, indices, text
