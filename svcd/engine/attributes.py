"""Names of attributes: patterns, what lies beneath what, and which ones a setting means.

Knows dotted paths (`a.b` lies beneath `a`) and the pattern forms `x*`, `*x`, `*x*` and `*`. Refuses to
know values.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

WILDCARD = "*"
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


def listed(names: Sequence[str], displayed: Sequence[str] | None) -> str:
    """Names as messages list them: in order, those that are not displayed as one placeholder behind."""
    shown = [name for name in names if is_everything(displayed) or name in (displayed or ())]
    return ", ".join(sorted(shown)) + (", <..hidden-attributes>" if len(shown) < len(names) else "")


def locales_test(rules: Sequence[Mapping[str, Any]] | None) -> Callable[[str], Sequence[str] | None]:
    """attribute -> the locales of the first rule of `localizedAttributes` that matches it, or None."""
    known: dict[str, Sequence[str] | None] = {}

    def locales(name: str) -> Sequence[str] | None:
        if name not in known:
            known[name] = _locales(name, rules or ())
        return known[name]

    return locales


def _locales(name: str, rules: Sequence[Mapping[str, Any]]) -> Sequence[str] | None:
    for rule in rules:
        if any(matches(name, pattern) for pattern in rule["attributePatterns"]):
            locales: Sequence[str] = rule["locales"]
            return locales
    return None
