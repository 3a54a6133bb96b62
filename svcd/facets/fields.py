"""Which attributes a request may have facets of, and the words for those it may not (relevance.md 6.1, 6.4).

Knows the patterns of requests and the rules of `filterableAttributes`; refuses to know values and counts.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from svcd.base.errors import ApiError
from svcd.schema.attributes import (
    FilterableRule,
    attribute_list,
    is_beneath,
    is_everything,
    is_matched,
    is_related,
    matches,
    patterns_of,
    rule_of,
)
from svcd.schema.index_settings import IndexSettings


def check_facets(settings: IndexSettings, patterns: Iterable[str]) -> None:
    """Refuse the first pattern that no filterable attribute can match.

    Raises invalid_search_facets; the message names neither index nor parameter, as the caller knows them.
    """
    filterable = settings.filterable
    for pattern in patterns:
        met = _rule_met(filterable.listed, pattern)
        if met is None:
            raise _refused(f"Pattern `{pattern}` is not filterable. {_available(filterable.patterns())}")
        if not met.is_filterable:
            raise _refused(
                f"Attribute `{pattern}` matched rule #{met.number} in filterableAttributes, but this rule does not"
                f" enable filtering.\nHint: enable filtering in rule #{met.number} by modifying the features.filter"
                " object"
                f"\nHint: prepend another rule matching `{pattern}` with appropriate filter features before rule"
                f" #{met.number}")


def selected_fields(settings: IndexSettings, known: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The fields that patterns select, in byte order: filterable ones that match, and those beneath them.

    known: all attributes ever met in a document.
    """
    filterable, fields = settings.filterable, list(known)
    chosen = [field for field in fields if any(matches(field, pattern) for pattern in patterns) and field in filterable]
    return sorted(field for field in fields
                  if any(is_beneath(field, parent) for parent in chosen) and field in filterable)


def check_enabled(settings: IndexSettings) -> None:
    """Refuse every facet search where the index has none. Raises facet_search_disabled."""
    if not settings.has_facet_search:
        raise ApiError("facet_search_disabled", "The facet search is disabled for this index")


def check_searchable(settings: IndexSettings, field: str) -> None:
    """Refuse an attribute whose values may not be searched. Raises invalid_facet_search_facet_name."""
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


def _rule_met(rules: Sequence[str | Mapping[str, Any]], pattern: str) -> FilterableRule | None:
    """The first rule that lets attributes of a pattern be filtered, or that forbids all of them."""
    for number, entry in enumerate(rules):
        rule = rule_of(number, entry)
        if _intersects(pattern, entry) if rule.is_filterable else is_matched(pattern, entry):
            return rule
    return None


def _intersects(pattern: str, entry: str | Mapping[str, Any]) -> bool:
    """May there be an attribute of which both speak, or one of which the other is a part?"""
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


def _refused(reason: str) -> ApiError:
    return ApiError("invalid_search_facets", f"Invalid facet distribution: {reason}")


def _not_searchable(field: str, reason: str) -> ApiError:
    return ApiError("invalid_facet_search_facet_name", f"Attribute `{field}` is not facet-searchable. {reason}")
