"""Checks which attributes a request may have facets of, and may search the values of; selects fields by patterns.

Source: docs/filters-and-facets.md#which-fields-have-facets.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from svcd.base.errors import ApiError
from svcd.schema.attributes import (
    FilterableRule,
    attribute_list,
    is_everything,
    is_matched,
    is_related,
    matches,
    pattern_test,
    patterns_of,
    rule_of,
    with_parents,
)
from svcd.schema.index_settings import IndexSettings


def check_facets(settings: IndexSettings, patterns: Iterable[str]) -> None:
    """Check that every pattern can match a filterable attribute.

    Raises invalid_search_facets for the first that cannot; the caller adds index and parameter to the message.
    """
    filterable = settings.filterable
    for pattern in dict.fromkeys(patterns):
        rule = _deciding_rule(filterable.listed, pattern)
        if rule is None:
            raise _invalid_facets(f"Pattern `{pattern}` is not filterable. {_available(filterable.patterns())}")
        if not rule.is_filterable:
            raise _invalid_facets(
                f"Attribute `{pattern}` matched rule #{rule.number} in filterableAttributes, but this rule does not"
                f" enable filtering.\nHint: enable filtering in rule #{rule.number} by modifying the features.filter"
                " object"
                f"\nHint: prepend another rule matching `{pattern}` with appropriate filter features before rule"
                f" #{rule.number}")


def selected_fields(settings: IndexSettings, known: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The fields that patterns select, in byte order: filterable ones that match, and filterable ones beneath them.

    known: all attributes that some document has had.
    """
    filterable, fields, is_wanted = settings.filterable, list(known), pattern_test(patterns)
    chosen = {field for field in fields if is_wanted(field) and field in filterable}
    return sorted(field for field in fields if not chosen.isdisjoint(with_parents(field)) and field in filterable)


def check_enabled(settings: IndexSettings) -> None:
    """Check that the index has facet search. Raises facet_search_disabled."""
    if not settings.has_facet_search:
        raise ApiError("facet_search_disabled", "The facet search is disabled for this index")


def check_searchable(settings: IndexSettings, field: str) -> None:
    """Check that the values of an attribute may be searched. Raises invalid_facet_search_facet_name."""
    rule = settings.filterable.rule(field)
    if rule is not None and rule.facet_search:
        return
    if rule is not None:
        raise _not_searchable(
            field, f"Note: this attribute matches rule #{rule.number} in filterableAttributes, but this rule does not"
                   f" enable facetSearch.\nHint: enable facetSearch in rule #{rule.number} by adding"
                   f' `"facetSearch": true` to the rule.\nHint: prepend another rule matching {field} with facetSearch:'
                   f" true before rule #{rule.number}")
    known = settings.filterable.patterns(lambda rule: rule.facet_search)
    raise _not_searchable(
        field, f"{_available_for_search(known, settings.displayed_attributes)} To make it facet-searchable add it to"
               " the `filterableAttributes` index settings.")


def _deciding_rule(rules: Sequence[str | Mapping[str, Any]], pattern: str) -> FilterableRule | None:
    """The first rule that allows filtering by some attribute of a pattern, or that forbids it for all of them."""
    for number, entry in enumerate(rules):
        rule = rule_of(number, entry)
        if _intersects(pattern, entry) if rule.is_filterable else is_matched(pattern, entry):
            return rule
    return None


def _intersects(pattern: str, entry: str | Mapping[str, Any]) -> bool:
    """May there be an attribute that pattern and rule both match, or that is beneath one of the other?"""
    return is_matched(pattern, entry) or any(matches(other, pattern) or is_related(pattern, other)
                                             for other in patterns_of(entry))


def _available(patterns: Sequence[str]) -> str:
    if not patterns:
        return "This index does not have configured filterable attributes."
    return f"Available filterable attributes patterns are: `{', '.join(patterns)}`."


def _available_for_search(patterns: Sequence[str], displayed: Sequence[str] | None) -> str:
    if not any(is_everything(displayed) or pattern in (displayed or ()) for pattern in patterns):
        return "This index does not have configured facet-searchable attributes."
    return f"Available facet-searchable attributes patterns are: `{attribute_list(patterns, displayed)}`."


def _invalid_facets(reason: str) -> ApiError:
    return ApiError("invalid_search_facets", f"Invalid facet distribution: {reason}")


def _not_searchable(field: str, reason: str) -> ApiError:
    return ApiError("invalid_facet_search_facet_name", f"Attribute `{field}` is not facet-searchable. {reason}")
