"""Format hits: select the attributes to retrieve, and make `_formatted` and `_matchesPosition` (docs/search.md#formatting).

The words to highlight come from ranking, as a svcd.search.matches.MatchFinder. Placeholders represent long strings of documents
(svcd.search.hits).
"""
from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.json_text import Unescaped, dumps
from svcd.schema.attributes import WILDCARD, is_everything, is_related
from svcd.schema.documents import Selection, Value, select, shown_parts, text_of
from svcd.search.hits import PIECE_BYTES, LongStrings
from svcd.search.long_texts import LONG_TEXT, LongText, PrefixSearch, ShortText
from svcd.search.matches import Match, MatchFinder
from svcd.search.request import FormattingBudget, SearchQuery
from svcd.text.analyzer import Analyzer

Document = Mapping[str, Value]
LocalesOf = Callable[[str], "Sequence[str] | None"]

# The form of a crop length that the reference engine parses as an unsigned 64-bit integer.
_LENGTH = re.compile(r"\+?[0-9]+", re.ASCII)
_MAX_LENGTH = 2**64 - 1
# After the time limit, texts of up to _MAX_UNCROPPED characters are shown whole even if a crop is requested: cropping many short
# texts takes longer.
_MAX_UNCROPPED = 1_000


class Formatted(NamedTuple):
    """One hit: the retrieved part of its document, `_formatted` and `_matchesPosition` (None if not requested)."""

    document: dict[str, Value]
    formatted: dict[str, Value] | None
    matches_position: dict[str, list[dict[str, Any]]] | None


class _Style(NamedTuple):
    """The formatting of the texts of an attribute."""

    is_highlighted: bool = False
    crop_length: int | None = None  # in words; 0 and None do not crop


class Formatter:
    """Formats the hits of one query, as its parameters say.

    fields: all known fields of the index, in number order. displayed: the setting displayedAttributes, None for all.
    locales_of: attribute -> the possible languages of its texts. budget: when it is used up, texts are shown as in the document,
    or cropped at their beginning. long_strings: the long strings of the documents; the Formatter adds long strings of
    `_formatted`.
    """

    def __init__(self, options: SearchQuery, *, fields: Sequence[str], displayed: Sequence[str] | None, analyzer: Analyzer,
                 locales_of: LocalesOf, words: MatchFinder, budget: FormattingBudget | None = None,
                 long_strings: LongStrings | None = None) -> None:
        self._options = options
        self._budget = budget or FormattingBudget()
        self._displayed = named_fields(fields, displayed)
        self._retrieved = named_fields(self._displayed, options.attributes_to_retrieve)
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
        formatted: dict[str, Value] | None = None
        if self._styles:
            parts = document if self.retrieves_all else select(document, self._formatted_parts)
            formatted = {name: self._formatted_value(name, value) for name, value in parts.items()} or None
        positions = self._matches_position(document) if self._options.show_matches_position else None
        return Formatted(self.retrieve(document), formatted, positions)

    def retrieve(self, document: Document) -> dict[str, Value]:
        """Return the part of a document that is displayed and requested."""
        return dict(document) if self.retrieves_all else shown_parts(document, self._retrieved_parts)


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
        """Return the style of a value, merged from all listed fields that equal its path, contain it or are inside it."""
        style = self._style_of.get(path)
        if style is None:
            related = [style for name, style in self._styles.items() if is_related(name, path)]
            lengths = (style.crop_length for style in related if style.crop_length is not None)
            style = _Style(any(style.is_highlighted for style in related), next(lengths, None))
            self._style_of[path] = style
        return style

    def _matches_position(self, document: Document) -> dict[str, list[dict[str, Any]]]:
        parts = document if self._shows_all else shown_parts(document, self._displayed_parts)
        found: dict[str, list[dict[str, Any]]] = {}
        for name, value in parts.items():
            for path, indices, text in _texts_beneath(name, [], value):
                if not self._budget.allows(1):
                    return dict(sorted(found.items()))
                matches = self._texts.positions(path, text, indices)
                if matches:  # matches in a later element replace those in earlier ones (quirk)
                    found[path] = matches
        return dict(sorted(found.items()))


class _TextFormatter:
    """Finds, highlights and crops matches in the texts of the hits of one query."""

    def __init__(self, options: SearchQuery, analyzer: Analyzer, locales_of: LocalesOf, words: MatchFinder,
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
        # The texts of the current hit, so that a text that is both highlighted and reported with its positions is read once.
        self._read: dict[tuple[str, str], ShortText | LongText] = {}
        self._unescaped: dict[str, Unescaped] = {}
        self._characters_read = 0

    def clear(self) -> None:
        """Forget the texts of the previous hit."""
        self._read.clear()
        self._unescaped.clear()
        self._characters_read = 0

    def formatted(self, path: str, text: str, style: _Style) -> str:
        """Highlight and crop a text of an attribute."""
        if not text or not (style.crop_length or (style.is_highlighted and self._words)):
            return text
        if not self._is_long(text) and not self._budget.allows(len(text)):
            return self.shortened(path, text, style)
        matched = self._matched(path, text)
        start, end = matched.window(style.crop_length) if style.crop_length else (0, matched.end)
        matches: Sequence[Match] = ()
        if style.is_highlighted:
            first = bisect_right(matched.matches, start, key=lambda match: match.end)
            last = bisect_left(matched.matches, end, lo=first, key=lambda match: match.start)
            for number in range(first, last):
                if not self._budget.adds(self._tag_bytes):  # no more tags are allowed
                    last = number
                    break
            matches = matched.matches[first:last]
        return self._rendered(text, matched, start, end, matches)

    def shortened(self, path: str, text: str, style: _Style) -> str:
        """Return a text after the time limit: its beginning if a crop is requested, else all of it."""
        if not style.crop_length or (len(text) <= _MAX_UNCROPPED and not self._is_long(text)):
            return text
        matched = self._long_text(path, text, MatchFinder())
        return self._rendered(text, matched, 0, matched.window(style.crop_length)[1], ())

    def positions(self, path: str, text: str, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the matches as `_matchesPosition` shows them: offsets and lengths in UTF-8 bytes."""
        if not self._words or (not self._is_long(text) and not self._budget.allows(len(text))):
            return []
        element = {"indices": list(indices)} if indices else {}
        return [{"start": start, "length": length, **element} for start, length in self._matched(path, text).byte_spans()]

    def _is_long(self, text: str) -> bool:
        return len(text) > LONG_TEXT or self._long_strings.stored(text) is not None

    def _matched(self, path: str, text: str) -> ShortText | LongText:
        key = (path, text)
        if key not in self._read:
            if self._characters_read > LONG_TEXT:  # the tokens of many short texts of one hit would take too much memory
                self.clear()
            self._characters_read += min(len(text), LONG_TEXT)
            if self._is_long(text):
                self._read[key] = self._long_text(path, text, self._words)
            else:
                tokens = self._analyzer.tokens(text, self._locales(path), stop_words=False)
                self._read[key] = ShortText(text, tokens, self._words.find(tokens), self._budget)
        return self._read[key]

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

    def _rendered(self, text: str, matched: ShortText | LongText, start: int, end: int, matches: Sequence[Match]) -> str:
        """Return a part of a text with tags around matches and markers at cuts, or a placeholder for a long result."""
        is_cut_before, is_cut_after = start > 0, end < matched.end
        before, after = self._options.crop_marker * is_cut_before, self._options.crop_marker * is_cut_after
        if not self._budget.adds(self._marker_bytes * (is_cut_before + is_cut_after)):
            before = after = ""
        if self._long_strings.stored(text) is None or end - start <= LONG_TEXT:
            return before + "".join(with_tags(matched.part, matches, start, end, self._tags)) + after
        if not (matches or before or after):
            return text
        return self._long_strings.add(TaggedString(self._unescaped_of(text), matches, start, end, self._tags, before, after))


def named_fields(fields: Sequence[str], entries: Sequence[str] | None) -> list[str]:
    """Return the fields that a list names; all of them if it is None or contains `*`."""
    if is_everything(entries):
        return list(fields)
    named = set(entries or ())
    return [field for field in fields if field in named]


def _styles(displayed: Sequence[str], options: SearchQuery) -> dict[str, _Style]:
    """Return displayed field -> its style, in number order; only fields that are highlighted or cropped."""
    entries = options.attributes_to_highlight or ()
    highlighted = set(displayed) if WILDCARD in entries else set(entries)
    lengths: dict[str, int] = {}
    for entry in options.attributes_to_crop or ():
        name, colon, length = entry.rpartition(":")
        words = options.crop_length  # an entry without a valid length has the default
        digits = length.lstrip("+0")
        # More than 20 digits exceed 64 bits; converting a very long number would be slow.
        if colon and _LENGTH.fullmatch(length) and len(digits) <= 20 and int(digits or 0) <= _MAX_LENGTH:
            words = int(digits or 0)
        name = name if colon else entry
        lengths.update(dict.fromkeys(displayed if name == WILDCARD else (name,), words))
    styles = {name: _Style(name in highlighted, lengths.get(name)) for name in displayed}
    return {name: style for name, style in styles.items() if style != _Style()}


def _texts_beneath(path: str, indices: list[int], value: Value) -> Iterator[tuple[str, list[int], str]]:
    """Yield (path, indices in the arrays around it, text) of each string and number."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _texts_beneath(f"{path}.{name}", indices, member)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _texts_beneath(path, [*indices, index], element)
    elif not isinstance(value, bool) and (text := text_of(value)) is not None:
        yield path, indices, text


# Texts with tags around their matches: short texts as a string, long ones in pieces


class Tags(NamedTuple):
    """The texts before and after each match."""

    opening: str
    closing: str


def with_tags(part: Callable[[int, int], str], matches: Sequence[Match], start: int, end: int, tags: Tags) -> Iterator[str]:
    """Yield the text from start to end, in parts, with tags around the matches; a match across start or end is clipped.

    part: (start, end) -> the text between these places.
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
    """A part of a long text with tags around the matches and markers at its ends: a `hits.LongString`."""

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
        """Yield the string, escaped as in JSON, in pieces of about PIECE_BYTES."""
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
