"""What may be permitted (actions, wildcards, index patterns), and what one request was permitted (Permission).

See docs/http.md#authentication.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from svcd.base.errors import ApiError

# Actions and their wildcards

EVERYTHING = "*"
EVERY_READ = "*.get"
MASTER_ONLY = "keys."  # prefix of the actions that only the master key opens, whatever a key lists
OF_TENANTS = frozenset(("search", "chatCompletions"))  # what a tenant token can be used for

# How far an action reaches: what it needs of the indexes of a key.
ANY = "any"  # one index is enough: its route names the index in its path, or shows and accepts no other
ALL = "all"  # it concerns the whole instance
MIXED = "mixed"  # a wildcard of both; its members differ

ACTIONS: dict[str, str] = {  # action: what it needs of the indexes of a key, in the order of messages
    "*": MIXED,
    "search": ANY,
    "documents.*": MIXED,
    "documents.add": ANY,
    "documents.get": ANY,
    "documents.delete": ANY,
    "indexes.*": MIXED,
    "indexes.create": ANY,
    "indexes.get": ANY,
    "indexes.update": ANY,
    "indexes.delete": ANY,
    "indexes.swap": ANY,
    "tasks.*": MIXED,
    "tasks.cancel": ANY,
    "tasks.delete": ANY,
    "tasks.get": ANY,
    "settings.*": MIXED,
    "settings.get": ANY,
    "settings.update": ANY,
    "stats.*": ANY,
    "stats.get": ANY,
    "metrics.*": ALL,
    "metrics.get": ALL,
    "dumps.*": ALL,
    "dumps.create": ALL,
    "snapshots.*": ALL,
    "snapshots.create": ALL,
    "version": ALL,
    "keys.create": ALL,
    "keys.get": ALL,
    "keys.update": ALL,
    "keys.delete": ALL,
    "experimental.get": ALL,
    "experimental.update": ALL,
    "export": ALL,
    "network.get": ALL,
    "network.update": ALL,
    "chatCompletions": ANY,
    "chats.*": ALL,
    "chats.get": ALL,
    "chats.delete": ALL,
    "chatsSettings.*": ALL,
    "chatsSettings.get": ALL,
    "chatsSettings.update": ALL,
    "*.get": MIXED,
    "webhooks.get": ALL,
    "webhooks.update": ALL,
    "webhooks.delete": ALL,
    "webhooks.create": ALL,
    "webhooks.*": ALL,
    "indexes.compact": ANY,
    "fields.post": ANY,
    "tasks.compact": ALL,
    "dynamicSearchRules.get": ALL,
    "dynamicSearchRules.create": ALL,
    "dynamicSearchRules.update": ALL,
    "dynamicSearchRules.delete": ALL,
    "dynamicSearchRules.*": ALL,
}

# What `*.get` opens besides the actions that end in `.get`, except those of keys.
_ALSO_READS = frozenset(("search", "export", "version", "fields.post"))


def _members(wildcard: str) -> frozenset[str]:
    """The actions that a wildcard opens. `documents.*` is itself the action of one route, which only `*` opens."""
    if wildcard == EVERYTHING:
        return frozenset(ACTIONS) - {EVERY_READ}
    if wildcard == EVERY_READ:
        reads = {action for action in ACTIONS if action.endswith(".get") and not action.startswith(MASTER_ONLY)}
        return frozenset(reads - {EVERY_READ} | _ALSO_READS)
    family = wildcard.removesuffix("*")
    return frozenset(action for action in ACTIONS if action.startswith(family) and action != wildcard)


_WILDCARDS = {action: _members(action) for action in ACTIONS if "*" in action}


def expand_wildcards(actions: Iterable[str]) -> frozenset[str]:
    """The actions that a list with wildcards opens; unknown names open nothing."""
    return frozenset().union(*(_WILDCARDS.get(action, {action} & ACTIONS.keys()) for action in actions))


def names_that_open(action: str) -> tuple[str, ...]:
    """The names of which a key must list one to open an action; () if only the master key opens it."""
    if action.startswith(MASTER_ONLY):
        return ()
    families = [name for name in _WILDCARDS if name not in (EVERY_READ, EVERYTHING)]
    return tuple(name for name in (action, *families, EVERY_READ, EVERYTHING) if action in expand_wildcards([name]))


def needs_every_index(action: str) -> bool:
    """True if only keys of all indexes can have the action; also for unknown actions."""
    return ACTIONS.get(action, ALL) == ALL


# Index patterns of keys and tenant tokens: uids and prefixes (`products_*`, `*`)

EVERY_INDEX = "*"


def pattern_matches(pattern: str, index_uid: str) -> bool:
    """True when the pattern is the uid, or ends with a star and the uid begins with the rest."""
    return pattern == index_uid or pattern.endswith("*") and index_uid.startswith(pattern[:-1])


def deciding_pattern(patterns: Iterable[str], index_uid: str) -> str | None:
    """The pattern that decides about an index: the uid itself, else the longest match; None without one."""
    found = [pattern for pattern in patterns if pattern_matches(pattern, index_uid)]
    return max(found, key=lambda pattern: (pattern == index_uid, len(pattern)), default=None)


def patterns_cover(patterns: Collection[str], index_uid: str | None) -> bool:
    """True if one of the patterns matches; index_uid None: if they match every possible index."""
    if index_uid is None:
        return EVERY_INDEX in patterns
    return any(pattern_matches(pattern, index_uid) for pattern in patterns)


def patterns_text(patterns: Iterable[str]) -> str:
    """The patterns as messages list them, sorted: `["films", "products_*"]`."""
    return "[" + ", ".join(f'"{pattern}"' for pattern in sorted(set(patterns))) + "]"


INVALID_KEY = "The provided API key is invalid."

# Of a tenant token: index uid or pattern -> the filter to join to every search in it, None for no filter.
SearchRules = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Permission:
    """What the bearer of a request may do.

    indexes: uids and patterns of the key; None for every index. rules: of the tenant token, if it is one; an index must
    be allowed by both. may_create_index: may a write create the index that it names?
    """

    may_create_index: bool = True
    indexes: tuple[str, ...] | None = None
    rules: SearchRules | None = None

    def allows(self, index_uid: str | None) -> bool:
        """True if the bearer may see this index; None stands for what belongs to no index."""
        return ((self.indexes is None or patterns_cover(self.indexes, index_uid))
                and (self.rules is None or patterns_cover(self.rules, index_uid)))

    @property
    def restriction(self) -> Callable[[str], bool] | None:
        """allows() as a filter for lists; None if the bearer may see everything."""
        return None if self.allows(None) else self.allows

    def require(self, index_uid: str) -> None:
        """Raise invalid_api_key unless the bearer may use the index that a body names."""
        if not self.allows(index_uid):
            raise ApiError("invalid_api_key", INVALID_KEY)

    @property
    def has_filters(self) -> bool:
        """True if searches in some index need a filter joined; routes that do not join filters must reject the token."""
        return self.rules is not None and any(rule is not None for rule in self.rules.values())

    def search_filter(self, index_uid: str) -> Any:
        """The filter to join to every search in an index, in any form that a request may have; None for no filter.

        The rule of the index itself decides, else that of the longest pattern. Raises invalid_api_key if the bearer may
        not use the index.
        """
        self.require(index_uid)
        rule = deciding_pattern(self.rules or (), index_uid)
        return None if rule is None or self.rules is None else self.rules[rule]


ALL_PERMITTED = Permission()
