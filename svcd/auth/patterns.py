"""Index uids and beginnings of them (`products_*`, `*`), as keys and tenant tokens list them.

Knows what a list of patterns covers; refuses to know who lists them.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable

EVERY_INDEX = "*"


def matches(pattern: str, index_uid: str) -> bool:
    """True when the pattern is the uid, or ends with a star and the uid begins with the rest."""
    return pattern == index_uid or pattern.endswith("*") and index_uid.startswith(pattern[:-1])


def best(patterns: Iterable[str], index_uid: str) -> str | None:
    """The pattern that decides about an index: the uid itself, else the longest; None when none matches."""
    found = [pattern for pattern in patterns if matches(pattern, index_uid)]
    return max(found, key=lambda pattern: (pattern == index_uid, len(pattern)), default=None)


def covers(patterns: Collection[str], index_uid: str | None) -> bool:
    """True when one of the patterns matches; None stands for every index there may ever be."""
    if index_uid is None:
        return EVERY_INDEX in patterns
    return any(matches(pattern, index_uid) for pattern in patterns)


def listed(patterns: Iterable[str]) -> str:
    """The patterns as messages list them, in the order of the alphabet: `["films", "products_*"]`."""
    return "[" + ", ".join(f'"{pattern}"' for pattern in sorted(set(patterns))) + "]"
