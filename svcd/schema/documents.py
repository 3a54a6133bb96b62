"""Documents as trees of values: their attributes, the terms of each by position, selected parts, and their identifiers.

Positions follow docs/text-analysis.md#positions-and-gaps.
"""
from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.positions import LAST_POSITION
from svcd.schema.attributes import RESERVED
from svcd.text.analyzer import Analyzer
from svcd.text.term_positions import TermPositionBuilder, TermsByPosition, term_position_builder

Value = Any

# The distance between values of one attribute, and between words with a hard separator between them.
FAR = 8

_MAX_IDENTIFIER_BYTES = 511
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,%d}" % _MAX_IDENTIFIER_BYTES)
_PRIMARY_KEY_SUFFIX = "id"
_ADVICE = "Please specify the primary key manually using the `primaryKey` query parameter."


def searchable_values(document: Mapping[str, Value], is_searchable: Callable[[str], bool]) -> dict[str, list[Value]]:
    """Return attribute -> its values, in the order of their terms."""
    values: dict[str, list[Value]] = {}
    for name, value in walk(document):
        if name in values:
            values[name].append(value)
        elif is_searchable(name):
            values[name] = [value]
    return values


def terms_by_attribute(document: Mapping[str, Value], analyzer: Analyzer, is_searchable: Callable[[str], bool],
                       locales_of: Callable[[str], Sequence[str] | None]) -> dict[str, TermsByPosition]:
    """Return attribute -> its terms by position, "" for a gap. Attributes without terms are left out.

    is_searchable: attribute -> bool; locales_of: attribute -> the allowed languages of its texts.
    """
    builder = term_position_builder(analyzer)
    return {name: terms for name, several in searchable_values(document, is_searchable).items()
            if (terms := terms_of_values(several, builder, locales_of(name)))}


def terms_of_values(several: Sequence[Value], builder: TermPositionBuilder, locales: Sequence[str] | None) -> TermsByPosition:
    """Return the terms of one attribute by position, "" for a gap. several: its values; locales: the languages of its texts."""
    terms = builder.of_all(several, locales) if len(several) > 1 else None
    if terms is None:
        terms = _terms_of_value(several[0], builder.of, locales)
        start = max(len(terms) - 1, 0)  # each further value starts FAR after the last term, or after the start, of the one before
        for value in several[1:]:
            start += FAR
            if start > LAST_POSITION:
                break
            if added := _terms_of_value(value, builder.of, locales):
                terms += [""] * (start - len(terms)) + added
                start = len(terms) - 1
    if len(terms) > LAST_POSITION:
        del terms[LAST_POSITION + 1 :]
        while terms and not terms[-1]:
            terms.pop()
    return terms


def walk(document: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Yield (attribute, value) of each value that takes positions in its attribute, in the order of the document.

    A member of a nested object is reported with any type, before its own members or elements; an element of an array only if
    it is a scalar; an empty array or object again under its own name. `_vectors`, `_geo` and `_geojson` are skipped.
    """
    for name, value in document.items():
        if name in RESERVED:
            continue
        if isinstance(value, (dict, list)):
            yield from _beneath(name, value)
        else:
            yield name, value


def attribute_names(document: Mapping[str, Value]) -> Iterator[str]:
    """Yield the attributes of a document in the order in which fields get numbers: its members, then nested ones; may repeat."""
    yield from document
    for name, _ in walk(document):
        if name not in document:
            yield name


class Selection:
    """Attributes (dotted names) to select from documents; one object serves many documents."""

    def __init__(self, attributes: Iterable[str]) -> None:
        self._names = frozenset(attributes)
        self._ordered = sorted(self._names)
        self._beneath: dict[str, Selection | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def beneath(self, name: str) -> Selection | None:
        """Return the selected attributes beneath a member, relative to it; None if it has no selected attributes."""
        if name not in self._beneath:
            start = bisect_left(self._ordered, f"{name}.")
            end = bisect_left(self._ordered, f"{name}/", start)  # "/" is the character after "."
            part = [entry[len(name) + 1:] for entry in self._ordered[start:end]]
            self._beneath[name] = Selection(part) if part else None
        return self._beneath[name]


def select(document: Mapping[str, Value], attributes: Iterable[str] | Selection) -> dict[str, Value]:
    """Return the selected parts of a document, in its order; objects and arrays without selected parts are left out."""
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
    """Return the selected parts of a document as a hit shows them, in its order.

    Unlike select(), which serves the documents routes and `_formatted`, it only checks names (quirk): a scalar stays
    although it cannot have the selected members, and so does an element of an array without selected members.
    """
    chosen: dict[str, Value] = {}
    for name, value in document.items():
        if name in selection:
            chosen[name] = value
        elif beneath := selection.beneath(name):
            chosen[name] = _shown_value(value, beneath)
    return chosen


def text_of(value: Value) -> str | None:
    """Return the text as which a scalar is indexed and searched; None for null, arrays and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):  # including true and false
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


def _terms_of_value(value: Value, terms_of: Callable[..., TermsByPosition], locales: Sequence[str] | None) -> TermsByPosition:
    if isinstance(value, str):
        return terms_of(value, locales)
    text = text_of(value)
    return terms_of(text) if text is not None else []


def _select_elements(elements: Sequence[Value], attributes: Selection) -> list[Value]:
    """Return the selected parts of the objects in an array; scalars are left out."""
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


# Primary keys and identifiers

def infer_primary_key(document: Mapping[str, Any]) -> str:
    """Return the only top-level field of a document whose name ends with `id` in any letter case.

    Raises index_primary_key_no_candidate_found, index_primary_key_multiple_candidates_found.
    """
    candidates = sorted(name for name in document if name.lower().endswith(_PRIMARY_KEY_SUFFIX))
    if len(candidates) == 1:
        return candidates[0]
    failed = "The primary key inference failed as the engine"
    if not candidates:
        reason = f"{failed} did not find any field ending with `id` in its name."
        raise ApiError("index_primary_key_no_candidate_found", f"{reason} {_ADVICE}")
    found = f"{len(candidates)} fields ending with `id` in their names: '{candidates[0]}' and '{candidates[1]}'."
    raise ApiError("index_primary_key_multiple_candidates_found", f"{failed} found {found} {_ADVICE}")


def document_identifier(document: Mapping[str, Any], primary_key: str) -> str:
    """Return the identifier of a document, as text. Raises missing_document_id, invalid_document_id."""
    value = document.get(primary_key) if "." not in primary_key else None
    if type(value) is int or type(value) is str and _IDENTIFIER.fullmatch(value):
        return str(value)
    found = list(_values(document, primary_key))
    if not found:
        raise ApiError("missing_document_id", f"Document doesn't have a `{primary_key}` attribute: `{dumps(document)}`.")
    if len(found) > 1:
        raise ApiError("invalid_document_id",
                       f"Document have too many matching `{primary_key}` attribute: `{dumps(document)}`.")
    return checked_identifier(found[0])


def _values(document: Mapping[str, Any], path: str) -> Iterator[Any]:
    """Yield the values at a dotted path; each dot may separate two levels or belong to a name."""
    if path in document:
        yield document[path]
    for dot in (place for place, character in enumerate(path) if character == "."):
        member = document.get(path[:dot])
        if isinstance(member, dict):
            yield from _values(member, path[dot + 1:])


def identifier(value: Any) -> str | None:
    """Return a JSON value as an identifier; None when it is not a valid one."""
    return str(value) if type(value) is int or isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None


def checked_identifier(value: Any) -> str:
    """Return a JSON value as an identifier. Raises invalid_document_id."""
    found = identifier(value)
    if found is not None:
        return found
    rule = ("A document identifier can be of type integer or string, only composed of alphanumeric characters (a-z A-Z 0-9), "
            f"hyphens (-) and underscores (_), and can not be more than {_MAX_IDENTIFIER_BYTES} bytes.")
    raise ApiError("invalid_document_id", f"Document identifier `{dumps(value)}` is invalid. {rule}")
