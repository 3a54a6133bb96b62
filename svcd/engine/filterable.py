"""Which attributes may be filtered and faceted, and by which operators (relevance.md 5.6).

Knows the rules of `filterableAttributes`, the first of which that matches a name decides; refuses to know
filters, facets and values.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from svcd.engine.attributes import is_beneath, matches

_ALLOWS_FILTERS = attrgetter("is_filterable")


class FilterableRule(NamedTuple):
    """What one rule allows. number: its place in the setting, from 0."""

    number: int
    facet_search: bool = True
    equality: bool = True
    comparison: bool = True

    @property
    def is_filterable(self) -> bool:
        """Does it allow any operator, and so the facet distribution?"""
        return self.equality or self.comparison

    @property
    def needs_values(self) -> bool:
        """Does it allow anything that looks at values?"""
        return self.is_filterable or self.facet_search


class Filterable:
    """The rules of one index. listed: as the resolved setting has them."""

    def __init__(self, listed: Sequence[str | Mapping[str, Any]]) -> None:
        self.listed = listed
        self._known: dict[str, FilterableRule | None] = {}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Filterable:
        """The rules that the settings of an index name."""
        return cls(settings.get("filterableAttributes") or ())

    def rule(self, name: str) -> FilterableRule | None:
        """The rule that decides on an attribute, None when none matches."""
        if name not in self._known:
            self._known[name] = next((rule_of(number, entry) for number, entry in enumerate(self.listed)
                                      if is_matched(name, entry)), None)
        return self._known[name]

    def __contains__(self, name: str) -> bool:
        rule = self.rule(name)
        return rule is not None and rule.is_filterable

    def names(self, name: str) -> bool:
        """Is this literally one of the plain names? Coordinates are filterable by nothing else."""
        return name in self.listed

    def patterns(self, is_wanted: Callable[[FilterableRule], bool] = _ALLOWS_FILTERS) -> list[str]:
        """The distinct names and patterns of the rules wanted, by default those that allow to filter; in byte order."""
        return sorted({pattern for number, entry in enumerate(self.listed) if is_wanted(rule_of(number, entry))
                       for pattern in patterns_of(entry)})


def is_matched(name: str, entry: str | Mapping[str, Any]) -> bool:
    """Does a rule speak of an attribute? A plain name, as which `*` counts too, covers what lies beneath it, a
    pattern does not."""
    if isinstance(entry, str):
        return is_beneath(name, entry)
    return any(matches(name, pattern) for pattern in entry["attributePatterns"])


def patterns_of(entry: str | Mapping[str, Any]) -> Sequence[str]:
    """The names or patterns of an entry of the setting."""
    return [entry] if isinstance(entry, str) else entry["attributePatterns"]


def rule_of(number: int, entry: str | Mapping[str, Any]) -> FilterableRule:
    """What an entry of the setting allows; a plain name allows everything."""
    if isinstance(entry, str):
        return FilterableRule(number)
    features = entry.get("features") or {}
    operators = features.get("filter") or {}
    return FilterableRule(number, bool(features.get("facetSearch", False)), bool(operators.get("equality", True)),
                          bool(operators.get("comparison", False)))
