"""Check which attributes a request may have facets for, and may search the values of; select fields by patterns.

Source: docs/filters-and-facets.md#which-fields-have-facets.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from svcd.base.errors import ApiError
from svcd.schema.attributes import (attribute_list, is_everything, is_matched, is_related, matches, pattern_test, patterns_of,
                                    rule_of, with_parents)
from svcd.schema.index_settings import IndexSettings


def check_facets(settings: IndexSettings, patterns: Iterable[str]) -> None:
    """Check that every pattern can match a filterable attribute.

    Raises invalid_search_facets for the first pattern that cannot; the caller adds index and parameter to the message.
    """
    filterable = settings.filterable
    for pattern in dict.fromkeys(patterns):
        for number, entry in enumerate(filterable.listed):
            rule = rule_of(number, entry)
            # A rule with filtering decides if some attribute may match both, or be inside the other; else if it matches all.
            if is_matched(pattern, entry) or rule.is_filterable and any(
                    matches(other, pattern) or is_related(pattern, other) for other in patterns_of(entry)):
                break
        else:
            known = filterable.patterns()
            available = (f"Available filterable attributes patterns are: `{', '.join(known)}`." if known
                         else "This index does not have configured filterable attributes.")
            raise _invalid_facets(f"Pattern `{pattern}` is not filterable. {available}")
        if not rule.is_filterable:
            raise _invalid_facets(
                f"Attribute `{pattern}` matched rule #{rule.number} in filterableAttributes, but this rule does not"
                f" enable filtering.\nHint: enable filtering in rule #{rule.number} by modifying the features.filter"
                " object"
                f"\nHint: prepend another rule matching `{pattern}` with appropriate filter features before rule"
                f" #{rule.number}")


def selected_fields(settings: IndexSettings, known: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the fields that patterns select, in byte order: filterable fields that match, and filterable fields inside them.

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
    known, displayed = settings.filterable.patterns(lambda rule: rule.facet_search), settings.displayed_attributes
    available = "This index does not have configured facet-searchable attributes."
    if any(is_everything(displayed) or pattern in (displayed or ()) for pattern in known):
        available = f"Available facet-searchable attributes patterns are: `{attribute_list(known, displayed)}`."
    raise _not_searchable(
        field, f"{available} To make it facet-searchable add it to the `filterableAttributes` index settings.")


def _invalid_facets(reason: str) -> ApiError:
    return ApiError("invalid_search_facets", f"Invalid facet distribution: {reason}")


def _not_searchable(field: str, reason: str) -> ApiError:
    return ApiError("invalid_facet_search_facet_name", f"Attribute `{field}` is not facet-searchable. {reason}")
