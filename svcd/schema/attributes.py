"""Names of attributes: dotted paths, patterns, and the rules that settings define with them.

`a.b` is beneath `a`. Patterns are `x*`, `*x`, `*x*` and `*`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

WILDCARD = "*"
# Decisions are cached for up to _KNOWN_NAMES attributes; the cache is limited because requests may contain any name.
_KNOWN_NAMES = 4096
# Never searchable, including the attributes beneath them.
RESERVED = ("_vectors", "_geo", "_geojson")


def is_beneath(name: str, parent: str) -> bool:
    """Return whether an attribute is `parent` or a member of it at any depth."""
    return name == parent or (name.startswith(parent) and name[len(parent)] == ".")


def with_parents(name: str) -> Iterator[str]:
    """Yield the attribute and all its parents: `a.b.c`, `a.b`, `a`."""
    yield name
    while (end := name.rfind(".")) >= 0:
        name = name[:end]
        yield name


def _places(names: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Return name -> its first place: a fast look-up, because a list may be as long as there are attributes."""
    places: dict[str, int] = {}
    for place, name in names:
        places.setdefault(name, place)
    return places


def _first_place(places: Mapping[str, int], name: str) -> int | None:
    """Return the first place of the attribute or one of its parents."""
    return min((places[each] for each in with_parents(name) if each in places), default=None)


def is_related(left: str, right: str) -> bool:
    """Return whether two attributes are equal, or one is beneath the other."""
    return is_beneath(left, right) or is_beneath(right, left)


def matches(name: str, pattern: str) -> bool:
    """Return whether an attribute matches a pattern; without wildcard, whether it has this name."""
    if pattern == WILDCARD:
        return True
    starts, ends = pattern.startswith(WILDCARD), pattern.endswith(WILDCARD)
    core = pattern[starts : len(pattern) - ends]
    if starts and ends:
        return core in name
    if starts:
        return name.endswith(core)
    return name.startswith(core) if ends else name == core


def pattern_test(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function: attribute -> whether it matches any of the patterns. For many patterns and attributes."""
    names = frozenset(patterns)
    wild = [pattern for pattern in names if WILDCARD in pattern]
    return lambda name: name in names or any(matches(name, pattern) for pattern in wild)


def is_reserved(name: str) -> bool:
    """Return whether an attribute is never searchable."""
    return name.startswith("_") and any(is_beneath(name, parent) for parent in RESERVED)


def is_everything(entries: Iterable[str] | None) -> bool:
    """Return whether a list of attributes means all of them: it is None or contains `*`."""
    return entries is None or WILDCARD in entries


def attribute_list(names: Sequence[str], displayed: Sequence[str] | None) -> str:
    """Return names as messages list them: sorted, with one placeholder at the end for names that are not displayed."""
    shown = [name for name in names if is_everything(displayed) or name in (displayed or ())]
    return ", ".join(sorted(shown)) + (", <..hidden-attributes>" if len(shown) < len(names) else "")


def locales_test(rules: Sequence[Mapping[str, Any]] | None) -> Callable[[str], Sequence[str] | None]:
    """Return a function: attribute -> the locales of the first rule of `localizedAttributes` that matches it, or None."""
    @lru_cache(_KNOWN_NAMES)
    def locales(name: str) -> Sequence[str] | None:
        return next((rule["locales"] for rule in rules or ()
                     if any(matches(name, pattern) for pattern in rule["attributePatterns"])), None)

    return locales if rules else lambda name: None


# Searchable attributes (docs/ranking.md)

class Searchable:
    """The setting `searchableAttributes`: `field in searchable`, and the weight of each field.

    weight: field -> its place in the list (0 for every field if the list means all), None when it is not searchable.
    """

    def __init__(self, listed: Sequence[str] | None) -> None:
        self.is_everything = is_everything(listed)
        self._entries = [] if self.is_everything else list(dict.fromkeys(listed or ()))
        self.weight: Callable[[str], int | None] = lru_cache(_KNOWN_NAMES)(
            partial(_weight, None if self.is_everything else _places(enumerate(self._entries))))

    @property
    def heaviest(self) -> int:
        """The largest weight of the list, even if no field of the index has it; 0 when all fields are searchable."""
        return max(len(self._entries) - 1, 0)

    def __contains__(self, field: str) -> bool:
        return self.weight(field) is not None

    def names(self, entry: str) -> bool:
        """Return whether this name is literally an entry of the list."""
        return entry in self._entries


def _weight(places: Mapping[str, int] | None, field: str) -> int | None:
    if is_reserved(field):
        return None
    return 0 if places is None else _first_place(places, field)


# Filterable attributes (docs/filters-and-facets.md): of the rules in `filterableAttributes` the first that matches decides.

_ALLOWS_FILTERS = attrgetter("is_filterable")


class FilterableRule(NamedTuple):
    """The permissions of one rule of `filterableAttributes`. number: its place in the setting, from 0."""

    number: int
    facet_search: bool = True
    equality: bool = True
    comparison: bool = True

    @property
    def is_filterable(self) -> bool:
        """Whether it allows any operator, and so the facet distribution."""
        return self.equality or self.comparison

    @property
    def needs_values(self) -> bool:
        """Whether it allows anything for which the index must store values."""
        return self.is_filterable or self.facet_search


class Filterable:
    """The setting `filterableAttributes`: `field in filterable` when filters may use it. listed: the resolved setting.

    rule: attribute -> the rule that decides on it, None when no rule matches.
    """

    def __init__(self, listed: Sequence[str | Mapping[str, Any]]) -> None:
        self.listed = listed
        plain = _places((number, entry) for number, entry in enumerate(listed) if isinstance(entry, str))
        others = [(number, entry) for number, entry in enumerate(listed) if not isinstance(entry, str)]
        self.rule: Callable[[str], FilterableRule | None] = lru_cache(_KNOWN_NAMES)(partial(_first_rule, plain, others))

    def __contains__(self, name: str) -> bool:
        rule = self.rule(name)
        return rule is not None and rule.is_filterable

    def names(self, name: str) -> bool:
        """Return whether this is literally one of the plain names, the only way to make `_geo` filterable."""
        return name in self.listed

    def patterns(self, is_wanted: Callable[[FilterableRule], bool] = _ALLOWS_FILTERS) -> list[str]:
        """Return the distinct names and patterns of the wanted rules, by default those with filters, in byte order."""
        return sorted({pattern for number, entry in enumerate(self.listed) if is_wanted(rule_of(number, entry))
                       for pattern in patterns_of(entry)})


def _first_rule(plain: Mapping[str, int], others: Sequence[tuple[int, Mapping[str, Any]]], name: str) -> FilterableRule | None:
    place = _first_place(plain, name)
    for number, entry in others:
        if place is not None and number > place:
            break
        if is_matched(name, entry):
            return rule_of(number, entry)
    return None if place is None else FilterableRule(place)


def is_matched(name: str, entry: str | Mapping[str, Any]) -> bool:
    """Return whether an entry of the setting applies to an attribute.

    A plain name, also a plain `*`, applies to the attributes beneath it too; a pattern does not.
    """
    if isinstance(entry, str):
        return is_beneath(name, entry)
    return any(matches(name, pattern) for pattern in entry["attributePatterns"])


def patterns_of(entry: str | Mapping[str, Any]) -> Sequence[str]:
    """Return the names or patterns of an entry of `filterableAttributes`."""
    return [entry] if isinstance(entry, str) else entry["attributePatterns"]


def rule_of(number: int, entry: str | Mapping[str, Any]) -> FilterableRule:
    """Return the permissions of an entry of `filterableAttributes`; a plain name allows everything."""
    if isinstance(entry, str):
        return FilterableRule(number)
    features = entry.get("features") or {}
    operators = features.get("filter") or {}
    return FilterableRule(number, bool(features.get("facetSearch", False)), bool(operators.get("equality", True)),
                          bool(operators.get("comparison", False)))
