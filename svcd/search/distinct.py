"""The field of which no two hits may share a value: which one it is, and what a document has under it.

Knows relevance.md 10.5 and which fields may be asked for; refuses to know how hits are chosen by it.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from svcd.base.errors import ApiError
from svcd.query.reader import Reader
from svcd.schema.attributes import is_beneath, listed
from svcd.schema.field_values import normal_form
from svcd.schema.index_settings import IndexSettings

_NONE_FILTERABLE = "This index does not have configured filterable attributes."


def distinct_field(reader: Reader, asked: str | None) -> str | None:
    """The field of a search: that of the request, else of the setting; None for none that a document has.

    Raises invalid_search_distinct when the one asked for is not filterable.
    """
    if asked is None:
        field = reader.settings.distinct_attribute
    else:
        _check_filterable(reader.settings, asked)
        field = asked
    return field if field is not None and field in reader.fields() else None


def _check_filterable(settings: IndexSettings, field: str) -> None:
    if field not in settings.filterable:
        reason = _why_not(settings, field)
        raise ApiError("invalid_search_distinct",
                       f"Attribute `{field}` is not filterable and thus, cannot be used as distinct attribute. {reason}")


def _why_not(settings: IndexSettings, field: str) -> str:
    rule = settings.filterable.rule(field)
    if rule is not None:
        return (
            f"Note: this attribute matches rule #{rule.number} in filterableAttributes, "
            "but this rule does not enable filtering.\n"
            f"Hint: enable filtering in rule #{rule.number} by adding appropriate filter features.\n"
            f"Hint: prepend another rule matching {field} with filter features before rule #{rule.number}"
        )
    patterns = settings.filterable.patterns()
    if not patterns:
        return _NONE_FILTERABLE
    return f"Available filterable attributes patterns are: `{listed(patterns, settings.displayed_attributes)}`."


class DistinctFilter:
    """Documents that share no value of a field with one taken before."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._taken: set[Hashable] = set()

    def takes(self, document: Mapping[str, Any]) -> bool:
        """Is this one of them? One without values always is."""
        values = document_values(document, self._field)
        if not self._taken.isdisjoint(values):
            return False
        self._taken |= values
        return True


def document_values(document: Mapping[str, Any], field: str) -> set[Hashable]:
    """What a document has under a field, as merged lists compare it.

    Texts and booleans by their normal form, numbers as they are written: 1 and 1.0 are two. Elements of an array
    are values, those of an array in it are none.
    """
    return {_key(value) for leaf in _leaves(document, field) for value in (leaf if isinstance(leaf, list) else [leaf])
            if isinstance(value, (str, int, float))}


def _leaves(value: Any, field: str, name: str = "") -> Iterator[Any]:
    """The values of the members that have this dotted name, in objects and in arrays of them."""
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element, field, name)
    elif isinstance(value, dict):
        for member, inner in value.items():
            path = f"{name}.{member}" if name else member
            if path == field:
                yield inner
            elif is_beneath(field, path):
                yield from _leaves(inner, field, path)


def _key(value: str | int | float) -> Hashable:
    if isinstance(value, str):
        return normal_form(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value), type(value)
