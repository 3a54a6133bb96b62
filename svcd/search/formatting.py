"""Formats hits: selects the attributes to retrieve, and makes `_formatted` and `_matchesPosition` (docs/search.md#formatting).

The words to highlight come from ranking, as a svcd.search.matches.MatchFinder. Long strings of documents are represented by
placeholders (svcd.search.stored_strings).
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
from svcd.search.long_texts import LONG_TEXT, LongText, MatchedText, PrefixSearch, ShortText
from svcd.search.matches import FormattingBudget, Match, MatchFinder
from svcd.search.stored_strings import PIECE_BYTES, LongStrings
from svcd.text.analyzer import Analyzer

Document = Mapping[str, Value]
LocalesOf = Callable[[str], "Sequence[str] | None"]

# A crop length: what the reference engine parses as an unsigned 64-bit integer.
_LENGTH = re.compile(r"\+?[0-9]+", re.ASCII)
_MAX_LENGTH = 2**64 - 1
# After the time limit texts of up to so many characters are shown whole, even if they are to be cropped: cropping each of many
# short texts takes longer.
_MAX_UNCROPPED = 1_000


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The parameters of a search that say how hits are formatted; names as in the request."""

    attributes_to_retrieve: Sequence[str] | None = None  # None for all
    attributes_to_highlight: Sequence[str] | None = None
    attributes_to_crop: Sequence[str] | None = None  # `name` or `name:length`
    crop_length: int = 10
    crop_marker: str = "…"
    highlight_pre_tag: str = "<em>"
    highlight_post_tag: str = "</em>"
    show_matches_position: bool = False
    locales: Sequence[str] | None = None


class Formatted(NamedTuple):
    """One hit: the retrieved part of its document, `_formatted` and `_matchesPosition` (None if not requested)."""

    document: dict[str, Value]
    formatted: dict[str, Value] | None
    matches_position: dict[str, list[dict[str, Any]]] | None


class _Style(NamedTuple):
    """How the texts of an attribute are formatted."""

    is_highlighted: bool = False
    crop_length: int | None = None  # in words; 0 and None do not crop


class Formatter:
    """Formats the hits of one query.

    fields: all known fields of the index, in number order. displayed: the setting displayedAttributes, None for all.
    locales_of: attribute -> the languages its texts may be in. budget: when it is used up, texts are shown as in the document,
    or cropped at their beginning. long_strings: the long strings of the documents; receives those of `_formatted`.
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
        budget: FormattingBudget | None = None,
        long_strings: LongStrings | None = None,
    ) -> None:
        self._options = options
        self._budget = budget or FormattingBudget()
        self._displayed = _named(fields, displayed)
        self._retrieved = _named(self._displayed, options.attributes_to_retrieve)
        self._shows_all = is_everything(displayed)
        self.retrieves_all = self._shows_all and is_everything(options.attributes_to_retrieve)
        self._styles = _styles(self._displayed, options)
        self._displayed_parts, self._retrieved_parts = Selection(self._displayed), Selection(self._retrieved)
        self._formatted_parts = Selection({*self._styles, *self._retrieved})
        self._texts = _TextFormatter(options, analyzer, locales_of, words, self._budget,
                                     LongStrings() if long_strings is None else long_strings)
        self._style_of: dict[str, _Style] = {}

    def hit(self, document: Document) -> Formatted:
        """Format one hit. The document is not changed; the result may share parts of it."""
        self._texts.clear()
        formatted = (self._formatted(document) or None) if self._styles else None
        positions = self._matches_position(document) if self._options.show_matches_position else None
        return Formatted(self.retrieve(document), formatted, positions)

    def retrieve(self, document: Document) -> dict[str, Value]:
        """The part of a document that is displayed and requested."""
        return dict(document) if self.retrieves_all else shown_parts(document, self._retrieved_parts)

    def _formatted(self, document: Document) -> dict[str, Value]:
        parts = document if self.retrieves_all else select(document, self._formatted_parts)
        return {name: self._formatted_value(name, value) for name, value in parts.items()}

    def _formatted_value(self, path: str, value: Value) -> Value:
        if not self._budget.allows(1):
            return self._texts.shortened(path, value, self._style(path)) if isinstance(value, str) else value
        if isinstance(value, dict):
            return {name: self._formatted_value(f"{path}.{name}", member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._formatted_value(path, element) for element in value]
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
            if not self._budget.allows(1):
                break
            matches = self._texts.positions(path, text, indices)
            if matches:  # those of a later element replace those of earlier ones (quirk)
                found[path] = matches
        return dict(sorted(found.items()))


class _TextFormatter:
    """Finds, highlights and crops matches in the texts of the hits of one query."""

    def __init__(self, options: FormatOptions, analyzer: Analyzer, locales_of: LocalesOf, words: MatchFinder,
                 budget: FormattingBudget, long_strings: LongStrings) -> None:
        self._options = options
        self._tags = Tags(options.highlight_pre_tag, options.highlight_post_tag)
        self._tag_bytes, self._marker_bytes = sum(map(_size, self._tags)), _size(options.crop_marker)
        self._analyzer = analyzer
        self._locales_of = locales_of
        self._words = words
        self._budget = budget
        self._long_strings = long_strings
        self._prefix_search: PrefixSearch | None = None
        # Of the current hit, so that a text that is highlighted and reported with its positions is read once.
        self._read: dict[tuple[str, str], MatchedText] = {}
        self._unescaped: dict[str, Unescaped] = {}
        self._characters_read = 0

    def clear(self) -> None:
        """Forget the texts of the last hit."""
        self._read.clear()
        self._unescaped.clear()
        self._characters_read = 0

    def formatted(self, path: str, text: str, style: _Style) -> str:
        """A text of an attribute, highlighted and cropped."""
        if not text or not (style.crop_length or (style.is_highlighted and self._words)):
            return text
        if not self._is_long(text) and not self._budget.allows(len(text)):
            return self.shortened(path, text, style)
        matched = self._matched(path, text)
        start, end = matched.window(style.crop_length) if style.crop_length else (0, matched.end)
        matches = self._within_budget(matched.matches, start, end) if style.is_highlighted else ()
        return self._rendered(text, matched, start, end, matches)

    def shortened(self, path: str, text: str, style: _Style) -> str:
        """A text after the time limit: only its beginning if it is to be cropped, else all of it."""
        if not style.crop_length or (len(text) <= _MAX_UNCROPPED and not self._is_long(text)):
            return text
        matched = self._long_text(path, text, MatchFinder())
        return self._rendered(text, matched, 0, matched.window(style.crop_length)[1], ())

    def positions(self, path: str, text: str, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The matches as `_matchesPosition` shows them: offsets and lengths in UTF-8 bytes."""
        if not self._words or (not self._is_long(text) and not self._budget.allows(len(text))):
            return []
        element = {"indices": list(indices)} if indices else {}
        return [{"start": start, "length": length, **element} for start, length in self._matched(path, text).byte_spans()]

    def _is_long(self, text: str) -> bool:
        return len(text) > LONG_TEXT or self._long_strings.stored(text) is not None

    def _matched(self, path: str, text: str) -> MatchedText:
        key = (path, text)
        if key not in self._read:
            if self._characters_read > LONG_TEXT:  # the tokens of many short texts of one hit would take much memory
                self.clear()
            self._characters_read += min(len(text), LONG_TEXT)
            self._read[key] = self._long_text(path, text, self._words) if self._is_long(text) else self._short_text(path, text)
        return self._read[key]

    def _short_text(self, path: str, text: str) -> ShortText:
        tokens = self._analyzer.tokens(text, self._locales(path), stop_words=False)
        return ShortText(text, tokens, self._words.find(tokens), self._budget)

    def _long_text(self, path: str, text: str, words: MatchFinder) -> LongText:
        if self._prefix_search is None:
            self._prefix_search = PrefixSearch(self._words)
        content = self._unescaped_of(text).text
        return LongText(content, self._locales(path), self._analyzer, words, self._prefix_search, self._budget)

    def _unescaped_of(self, text: str) -> Unescaped:
        if text not in self._unescaped:
            stored = self._long_strings.stored(text)
            self._unescaped[text] = stored.unescaped() if stored else Unescaped(text.encode(), ())
        return self._unescaped[text]

    def _locales(self, path: str) -> Sequence[str] | None:
        return self._options.locales or self._locales_of(path)

    def _rendered(self, text: str, matched: MatchedText, start: int, end: int, matches: Sequence[Match]) -> str:
        """A part of a text with tags around the matches and markers at cuts; for a long string a placeholder of that."""
        before, after = self._markers(start > 0, end < matched.end)
        if self._long_strings.stored(text) is None or end - start <= LONG_TEXT:
            return before + "".join(with_tags(matched.part, matches, start, end, self._tags)) + after
        if not (matches or before or after):
            return text
        return self._long_strings.add(TaggedString(self._unescaped_of(text), matches, start, end, self._tags, before, after))

    def _markers(self, is_cut_before: bool, is_cut_after: bool) -> tuple[str, str]:
        marker = self._options.crop_marker
        if not self._budget.adds(self._marker_bytes * (is_cut_before + is_cut_after)):
            return "", ""
        return marker * is_cut_before, marker * is_cut_after

    def _within_budget(self, matches: Sequence[Match], start: int, end: int) -> Sequence[Match]:
        """The matches in a part of a text, up to the first one whose tags the budget does not allow."""
        first = bisect_right(matches, start, key=lambda match: match.end)
        last = bisect_left(matches, end, lo=first, key=lambda match: match.start)
        for number in range(first, last):
            if not self._budget.adds(self._tag_bytes):
                return matches[first:number]
        return matches[first:last]


def _named(fields: Sequence[str], entries: Sequence[str] | None) -> list[str]:
    """The fields that a list names; all of them if it is None or contains `*`."""
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
    """(name, length) of an entry `name:length`; `default` if it has no valid length."""
    name, colon, length = entry.rpartition(":")
    if not colon:
        return entry, default
    digits = length.lstrip("+0")
    # More than twenty digits exceed 64 bits; converting very many would be slow.
    is_length = _LENGTH.fullmatch(length) and len(digits) <= 20 and int(digits or 0) <= _MAX_LENGTH
    return name, int(digits or 0) if is_length else default


def _merged(path: str, styles: Mapping[str, _Style]) -> _Style:
    """The style of a value: that of all listed fields that equal its path, lie above it or beneath it."""
    related = [style for name, style in styles.items() if is_related(name, path)]
    lengths = (style.crop_length for style in related if style.crop_length is not None)
    return _Style(any(style.is_highlighted for style in related), next(lengths, None))


def _texts_of(document: Document) -> Iterator[tuple[str, list[int], str]]:
    """(path, indices in the arrays around it, text) of each string and number."""
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


# Texts with tags around their matches: short ones as a string, long ones in pieces


class Tags(NamedTuple):
    """The texts before and after each match."""

    opening: str
    closing: str


def with_tags(
    part: Callable[[int, int], str], matches: Sequence[Match], start: int, end: int, tags: Tags
) -> Iterator[str]:
    """The text from start to end, in parts, with tags around the matches; a match across start or end is clipped.

    part: (start, end) -> what stands there.
    """
    for match in matches:
        first, last = max(match.start, start), min(match.end, end)
        yield part(start, first)
        yield tags.opening
        yield part(first, last)
        yield tags.closing
        start = last
    yield part(start, end)


class TaggedString(NamedTuple):
    """A part of a long text with tags around the matches and markers at its ends: a `stored_strings.LongString`."""

    source: Unescaped
    matches: Sequence[Match]
    start: int
    end: int
    tags: Tags
    marker_before: str
    marker_after: str

    @property
    def size(self) -> int:
        return self.end - self.start + len(self.matches) * sum(map(len, self.tags))

    def pieces(self) -> Iterator[bytes]:
        """The string, escaped as in JSON, in pieces of about PIECE_BYTES."""
        opening, closing = (_escaped(tag) for tag in self.tags)
        waiting, size = [_escaped(self.marker_before)], 0
        place = self.start
        for match in self.matches:
            first, last = max(match.start, place), min(match.end, self.end)
            for part in self._parts(place, first):
                waiting.append(part)
                size += len(part)
                if size >= PIECE_BYTES:
                    yield b"".join(waiting)
                    waiting, size = [], 0
            waiting += opening, self.source.escaped(first, last), closing
            size += len(opening) + last - first + len(closing)
            place = last
        yield b"".join(waiting)
        yield from self._parts(place, self.end)
        yield _escaped(self.marker_after)

    def _parts(self, start: int, end: int) -> Iterator[bytes]:
        for place in range(start, end, PIECE_BYTES):
            yield self.source.escaped(place, min(place + PIECE_BYTES, end))


def _escaped(text: str) -> bytes:
    return dumps(text)[1:-1].encode()


def _size(text: str) -> int:
    return len(_escaped(text))
