"""What one request was allowed: which indexes, and under which filters.

Knows the answers that handlers ask for; refuses to know tokens, secrets and the order of checks.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from svcd.base.errors import ApiError

# What a key may be allowed to do: the actions, their wildcards, how far each reaches.
#
# Knows the table alone; refuses to know keys and routes. Source: permissions.json (actions, wildcards, scopes).


EVERYTHING = "*"
EVERY_READ = "*.get"
MASTER_ONLY = "keys."  # what actions begin with that the master key alone opens, whatever a key lists
OF_TENANTS = frozenset(("search", "chatCompletions"))  # what a tenant token can be used for

# What an action needs of the indexes of a key.
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

# What `*.get` opens beside the actions that end so; of these, keys are the master key's.
_ALSO_READS = frozenset(("search", "export", "version", "fields.post"))


def _members(wildcard: str) -> frozenset[str]:
    """What a wildcard stands for. `documents.*` is itself asked for, by one route, which only `*` opens."""
    if wildcard == EVERYTHING:
        return frozenset(ACTIONS) - {EVERY_READ}
    if wildcard == EVERY_READ:
        reads = {action for action in ACTIONS if action.endswith(".get") and not action.startswith(MASTER_ONLY)}
        return frozenset(reads - {EVERY_READ} | _ALSO_READS)
    family = wildcard.removesuffix("*")
    return frozenset(action for action in ACTIONS if action.startswith(family) and action != wildcard)


_WILDCARDS = {action: _members(action) for action in ACTIONS if "*" in action}


def expanded(actions: Iterable[str]) -> frozenset[str]:
    """The actions that a list with wildcards opens; names that are no action open nothing."""
    return frozenset().union(*(_WILDCARDS.get(action, {action} & ACTIONS.keys()) for action in actions))


def names_of(action: str) -> tuple[str, ...]:
    """The names that open an action, each alone, when a key lists it; () where the master key alone does."""
    if action.startswith(MASTER_ONLY):
        return ()
    families = [name for name in _WILDCARDS if name not in (EVERY_READ, EVERYTHING)]
    return tuple(name for name in (action, *families, EVERY_READ, EVERYTHING) if action in expanded([name]))


def needs_every_index(action: str) -> bool:
    """True when a key of some indexes can't have the action; what is no known action concerns everything."""
    return ACTIONS.get(action, ALL) == ALL


# Index uids and beginnings of them (`products_*`, `*`), as keys and tenant tokens list them.
#
# Knows what a list of patterns covers; refuses to know who lists them.


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


INVALID_KEY = "The provided API key is invalid."

# Of a tenant token: index uid or pattern -> the filter to join to every search in it, None for none.
SearchRules = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Permission:
    """What a request was allowed.

    indexes: uids and patterns of the key; None is every index. rules: of the tenant token, when it is one; an
    index has to be allowed by both.
    may_create_index: a write may create the index it names.
    """

    may_create_index: bool = True
    indexes: tuple[str, ...] | None = None
    rules: SearchRules | None = None

    def allows(self, index_uid: str | None) -> bool:
        """True when the bearer may see this index; None stands for what belongs to no index."""
        return ((self.indexes is None or covers(self.indexes, index_uid))
                and (self.rules is None or covers(self.rules, index_uid)))

    @property
    def restriction(self) -> Callable[[str], bool] | None:
        """allows(), for lists of what belongs to indexes; None when the bearer may see all of them."""
        return None if self.allows(None) else self.allows

    def require(self, index_uid: str) -> None:
        """Raise invalid_api_key unless the bearer may use the index that a body names."""
        if not self.allows(index_uid):
            raise ApiError("invalid_api_key", INVALID_KEY)

    @property
    def has_filters(self) -> bool:
        """True when searches in some index have to be narrowed: who can't do that must refuse."""
        return self.rules is not None and any(rule is not None for rule in self.rules.values())

    def search_filter(self, index_uid: str) -> Any:
        """The filter to join to every search in an index, in any of the forms of a request; None for none.

        The rule of the index itself decides, else that of the longest pattern. Raises invalid_api_key for an index
        that the bearer may not use.
        """
        self.require(index_uid)
        rule = best(self.rules or (), index_uid)
        return None if rule is None or self.rules is None else self.rules[rule]


ALL_PERMITTED = Permission()
