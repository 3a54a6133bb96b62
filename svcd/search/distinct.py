"""The distinct attribute of a search, and distinct among merged hits (docs/search.md#distinct-by-document-values).

Distinct among the documents of one index is a part of ranking: svcd.ranking.distinct.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from svcd.base.errors import ApiError
from svcd.query.reader import Reader
from svcd.schema.attributes import attribute_list, is_beneath
from svcd.schema.field_values import normal_form
from svcd.schema.index_settings import IndexSettings

_NONE_FILTERABLE = "This index does not have configured filterable attributes."


def distinct_field(reader: Reader, requested: str | None) -> str | None:
    """The distinct field of a search: that of the request, else of the setting; None if no document has it.

    Raises invalid_search_distinct if the requested field is not filterable.
    """
    if requested is None:
        field = reader.settings.distinct_attribute
    else:
        _check_filterable(reader.settings, requested)
        field = requested
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
    return f"Available filterable attributes patterns are: `{attribute_list(patterns, settings.displayed_attributes)}`."


class DistinctFilter:
    """Accepts documents that share no value of a field with an earlier accepted one."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._seen: set[Hashable] = set()

    def accepts(self, document: Mapping[str, Any]) -> bool:
        """Is a document accepted? One without values always is. Its values count as seen then."""
        values = document_values(document, self._field)
        if not self._seen.isdisjoint(values):
            return False
        self._seen |= values
        return True


def document_values(document: Mapping[str, Any], field: str) -> set[Hashable]:
    """The values of a field in a document, as merged lists compare them.

    Strings and booleans in normal form, numbers as written: 1 and 1.0 differ. Elements of an array are values, elements
    of nested arrays are not.
    """
    return {_key(value) for leaf in _leaves(document, field) for value in (leaf if isinstance(leaf, list) else [leaf])
            if isinstance(value, (str, int, float))}


def _leaves(value: Any, field: str, name: str = "") -> Iterator[Any]:
    """The values at a dotted path, through objects and arrays of objects."""
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
