"""Names of attributes: patterns, what lies beneath what, and which ones a setting means.

Knows dotted paths (`a.b` lies beneath `a`) and the pattern forms `x*`, `*x`, `*x*` and `*`. Refuses to
know values.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

WILDCARD = "*"
# Names of attributes for which an object remembers what its rules say; requests name what they like, so there is a limit.
_KNOWN_NAMES = 4096
# Never searchable, and nothing beneath them either.
RESERVED = ("_vectors", "_geo", "_geojson")


def is_beneath(name: str, parent: str) -> bool:
    """Whether an attribute is another one or a member of it, however deep."""
    return name == parent or (name.startswith(parent) and name[len(parent)] == ".")


def is_related(left: str, right: str) -> bool:
    """Whether one of two attributes is the other one or lies beneath it."""
    return is_beneath(left, right) or is_beneath(right, left)


def matches(name: str, pattern: str) -> bool:
    """Whether an attribute matches a pattern; a pattern without wildcard is an exact name."""
    if pattern == WILDCARD:
        return True
    starts, ends = pattern.startswith(WILDCARD), pattern.endswith(WILDCARD)
    core = pattern[starts : len(pattern) - ends]
    if starts and ends:
        return core in name
    if starts:
        return name.endswith(core)
    return name.startswith(core) if ends else name == core


def is_reserved(name: str) -> bool:
    return name.startswith("_") and any(is_beneath(name, parent) for parent in RESERVED)


def is_everything(entries: Iterable[str] | None) -> bool:
    """Whether a list of attributes stands for all of them: absent, or with a lone `*` in it."""
    return entries is None or WILDCARD in entries


def attribute_list(names: Sequence[str], displayed: Sequence[str] | None) -> str:
    """Names as messages list them: in order, those that are not displayed as one placeholder behind."""
    shown = [name for name in names if is_everything(displayed) or name in (displayed or ())]
    return ", ".join(sorted(shown)) + (", <..hidden-attributes>" if len(shown) < len(names) else "")


def locales_test(rules: Sequence[Mapping[str, Any]] | None) -> Callable[[str], Sequence[str] | None]:
    """attribute -> the locales of the first rule of `localizedAttributes` that matches it, or None."""
    return lru_cache(_KNOWN_NAMES)(partial(_locales, tuple(rules))) if rules else lambda name: None


def _locales(rules: Sequence[Mapping[str, Any]], name: str) -> Sequence[str] | None:
    for rule in rules:
        if any(matches(name, pattern) for pattern in rule["attributePatterns"]):
            locales: Sequence[str] = rule["locales"]
            return locales
    return None


# Which fields hold words to search, and how much each weighs (relevance.md 4.1).
#
# Knows the list `searchableAttributes`; refuses to know which fields an index has.


class Searchable:
    """The searchable fields of one index: `field in searchable`, and the weight of each.

    weight: field -> its place in the list, 0 for all by default; None when it is not searchable.
    """

    def __init__(self, listed: Sequence[str] | None) -> None:
        self.is_everything = is_everything(listed)
        self._entries = [] if self.is_everything else list(dict.fromkeys(listed or ()))
        self.weight: Callable[[str], int | None] = lru_cache(_KNOWN_NAMES)(
            partial(_weight, None if self.is_everything else self._entries))

    @property
    def heaviest(self) -> int:
        """The largest weight of the list, even if no field has it; 0 when everything is searchable."""
        return max(len(self._entries) - 1, 0)

    def __contains__(self, field: str) -> bool:
        return self.weight(field) is not None

    def names(self, entry: str) -> bool:
        """Is this literally an entry of the list?"""
        return entry in self._entries


def _weight(entries: Sequence[str] | None, field: str) -> int | None:
    if is_reserved(field):
        return None
    if entries is None:
        return 0
    places = (place for place, entry in enumerate(entries) if is_beneath(field, entry))
    return next(places, None)


# Which attributes may be filtered and faceted, and by which operators (relevance.md 5.6).
#
# Knows the rules of `filterableAttributes`, the first of which that matches a name decides; refuses to know
# filters, facets and values.


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
    """The rules of one index. listed: as the resolved setting has them.

    rule: name of an attribute -> the rule that decides on it, None when none matches.
    """

    def __init__(self, listed: Sequence[str | Mapping[str, Any]]) -> None:
        self.listed = listed
        self.rule: Callable[[str], FilterableRule | None] = lru_cache(_KNOWN_NAMES)(partial(_first_rule, listed))

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


def _first_rule(listed: Sequence[str | Mapping[str, Any]], name: str) -> FilterableRule | None:
    return next((rule_of(number, entry) for number, entry in enumerate(listed) if is_matched(name, entry)), None)


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
