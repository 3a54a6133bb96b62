"""Documents as trees of values: their attributes, the words of each by position, and parts of them.

Knows how a document is walked (relevance contract 1.9). Refuses to know how a text becomes words, and
where words are stored.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from svcd.base.json_text import dumps
from svcd.schema.attributes import RESERVED
from svcd.text.analyzer import Analyzer
from svcd.text.term_positions import TermsByPosition, term_position_builder

Value = Any

# Values of one attribute, and words behind a hard separator, stand so far apart.
FAR = 8
# Nothing is indexed behind this position.
LAST_POSITION = 65_535
_EXACT_POSITIONS = 16


def positions(
    document: Mapping[str, Value],
    analyzer: Analyzer,
    is_searchable: Callable[[str], bool],
    locales_of: Callable[[str], Sequence[str] | None],
) -> dict[str, TermsByPosition]:
    """attribute -> its words by position; "" is a hole. Only attributes with a word, none longer than 65,536."""
    rows = term_position_builder(analyzer)
    values: dict[str, list[Value]] = {}
    for name, value in walk(document):
        if name in values:
            values[name].append(value)
        elif is_searchable(name):
            values[name] = [value]
    found = {}
    for name, several in values.items():
        locales = locales_of(name)
        row = _value_row(several[0], rows.of, locales)
        if len(several) > 1:
            row = _row_of_many(row, several[1:], rows.of, locales)
        if len(row) > LAST_POSITION:
            del row[LAST_POSITION + 1 :]
            _trim(row)
        if row:
            found[name] = row
    return found


def walk(document: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """(attribute, value) for each value that counts as one of its attribute, in the order of the document.

    Members of objects are reported whatever they are, then walked; elements of arrays only when they are
    scalars; an empty array or object once more under its own name. Nothing at or beneath `_vectors`,
    `_geo`, `_geojson` at the top is reported.
    """
    for name, value in document.items():
        if name in RESERVED:
            continue
        if isinstance(value, (dict, list)):
            yield from _beneath(name, value)
        else:
            yield name, value


def attribute_names(document: Mapping[str, Value]) -> Iterator[str]:
    """The attributes of a document as fields are numbered: its members, then what lies beneath; may repeat."""
    yield from document
    for name, _ in walk(document):
        if name not in document:
            yield name


def bucketed_position(position: int) -> int:
    """The position under which a word is found again: exact up to 15, then ever coarser."""
    if position < _EXACT_POSITIONS:
        return position
    if position < 24:
        return 24
    return min(1 << (position - 1).bit_length(), LAST_POSITION)


class Selection:
    """The attributes (dotted names) of which documents show no others; made once for many documents."""

    def __init__(self, attributes: Iterable[str]) -> None:
        self._names = frozenset(attributes)
        self._ordered = sorted(self._names)
        self._beneath: dict[str, Selection | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def beneath(self, name: str) -> Selection | None:
        """Those beneath a member, as its value knows them; None when there are none."""
        if name not in self._beneath:
            start = bisect_left(self._ordered, f"{name}.")
            end = bisect_left(self._ordered, f"{name}/", start)  # "/" is the character behind "."
            part = [entry[len(name) + 1:] for entry in self._ordered[start:end]]
            self._beneath[name] = Selection(part) if part else None
        return self._beneath[name]


def select(document: Mapping[str, Value], attributes: Iterable[str] | Selection) -> dict[str, Value]:
    """The parts of a document under some attributes, in its order."""
    chosen: dict[str, Value] = {}
    selection = attributes if isinstance(attributes, Selection) else Selection(attributes)
    for name, value in document.items():
        if name in selection:
            chosen[name] = value
            continue
        beneath = selection.beneath(name)
        if beneath and isinstance(value, dict):
            chosen[name] = select(value, beneath)
        elif beneath and isinstance(value, list):
            chosen[name] = _select_elements(value, beneath)
    return chosen


def shown_parts(document: Mapping[str, Value], selection: Selection) -> dict[str, Value]:
    """The parts of a document that a hit shows under some attributes, in its order.

    Unlike `select`, which document routes and `_formatted` follow, it goes by names alone: a value that could not have
    the members asked for stays as it is, and so does an element of an array that has none of them.
    """
    chosen: dict[str, Value] = {}
    for name, value in document.items():
        if name in selection:
            chosen[name] = value
        elif beneath := selection.beneath(name):
            chosen[name] = _shown_value(value, beneath)
    return chosen


def text_of(value: Value) -> str | None:
    """The text a scalar is indexed and searched as; None for null, arrays and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):  # true and false among them
        return dumps(value)
    return None


def _beneath(name: str, value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Value]]:
    if not value:
        yield name, value
    elif isinstance(value, list):
        for element in value:
            if isinstance(element, (dict, list)):
                yield from _beneath(name, element)
            else:
                yield name, element
    else:
        for member, content in value.items():
            yield f"{name}.{member}", content
            if isinstance(content, (dict, list)):
                yield from _beneath(f"{name}.{member}", content)


def _value_row(value: Value, row_of: Callable[..., TermsByPosition], locales: Sequence[str] | None) -> TermsByPosition:
    if isinstance(value, str):
        return row_of(value, locales)
    text = text_of(value)
    return row_of(text) if text is not None else []


def _row_of_many(row: TermsByPosition, values: Sequence[Value], row_of: Callable[..., TermsByPosition], locales: Sequence[str] | None) -> TermsByPosition:
    """The row of an attribute with several values: each starts 8 behind the last word, or the start, before it."""
    start = max(len(row) - 1, 0) + FAR
    for value in values:
        if start > LAST_POSITION:
            break
        added = _value_row(value, row_of, locales)
        if added:
            row += [""] * (start - len(row))
            row += added
            start = len(row) - 1
        start += FAR
    return row


def _select_elements(elements: Sequence[Value], attributes: Selection) -> list[Value]:
    """What is left of the objects of an array; its scalars have no attributes and are left out."""
    chosen: list[Value] = []
    for element in elements:
        if isinstance(element, list):
            chosen.append(_select_elements(element, attributes))
        elif isinstance(element, dict) and (part := select(element, attributes)):
            chosen.append(part)
    return chosen


def _shown_value(value: Value, selection: Selection) -> Value:
    if isinstance(value, dict):
        return shown_parts(value, selection)
    if isinstance(value, list):
        return [_shown_value(element, selection) for element in value]
    return value


def _trim(row: TermsByPosition) -> None:
    while row and not row[-1]:
        row.pop()
