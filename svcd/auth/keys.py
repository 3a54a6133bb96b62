"""API keys: the actions and indexes that a key opens (ACTIONS, index patterns), and the rights of the bearer of a request.

Follows docs/http.md#authentication. A key has a uid, which is not secret (every tenant token contains it) and opens
nothing, and a value, which is. Values are stored nowhere: each is computed from the uid and the master key, so changing
the master key invalidates every API key.

Threads: any number may check at once; the keys in memory are one immutable object that is replaced as a whole.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from svcd.auth.tokens import SearchRules, claims_of
from svcd.base import quantities
from svcd.base.errors import ApiError

INVALID_KEY = "The provided API key is invalid."
_MISSING_HEADER = "The Authorization header is missing. It must use the bearer authorization method."
_MISSING_MASTER_KEY = ("Svc is running without a master key. To access this API endpoint, you must have set a master key at "
                       "launch.")

# Actions and their wildcards

EVERYTHING = "*"
EVERY_READ = "*.get"
MASTER_ONLY = "keys."  # prefix of the actions that only the master key opens, even if a key lists them
OF_TENANTS = frozenset(("search", "chatCompletions"))  # the actions of tenant tokens

# How many indexes a key must have for an action.
ANY = "any"  # one index is enough: its route names the index in its path, or shows and accepts no other
ALL = "all"  # it concerns the whole instance
MIXED = "mixed"  # a wildcard of both; its members differ

ACTIONS: dict[str, str] = {  # action: how many indexes its key must have; in the order of messages
    "*": MIXED,
    "search": ANY,
    "documents.*": MIXED, "documents.add": ANY, "documents.get": ANY, "documents.delete": ANY,
    "indexes.*": MIXED, "indexes.create": ANY, "indexes.get": ANY, "indexes.update": ANY, "indexes.delete": ANY,
    "indexes.swap": ANY,
    "tasks.*": MIXED, "tasks.cancel": ANY, "tasks.delete": ANY, "tasks.get": ANY,
    "settings.*": MIXED, "settings.get": ANY, "settings.update": ANY,
    "stats.*": ANY, "stats.get": ANY,
    "metrics.*": ALL, "metrics.get": ALL,
    "dumps.*": ALL, "dumps.create": ALL,
    "snapshots.*": ALL, "snapshots.create": ALL,
    "version": ALL,
    "keys.create": ALL, "keys.get": ALL, "keys.update": ALL, "keys.delete": ALL,
    "experimental.get": ALL, "experimental.update": ALL,
    "export": ALL,
    "network.get": ALL, "network.update": ALL,
    "chatCompletions": ANY,
    "chats.*": ALL, "chats.get": ALL, "chats.delete": ALL,
    "chatsSettings.*": ALL, "chatsSettings.get": ALL, "chatsSettings.update": ALL,
    "*.get": MIXED,
    "webhooks.get": ALL, "webhooks.update": ALL, "webhooks.delete": ALL, "webhooks.create": ALL, "webhooks.*": ALL,
    "indexes.compact": ANY,
    "fields.post": ANY,
    "tasks.compact": ALL,
    "dynamicSearchRules.get": ALL, "dynamicSearchRules.create": ALL, "dynamicSearchRules.update": ALL,
    "dynamicSearchRules.delete": ALL, "dynamicSearchRules.*": ALL,
}

# Actions that `*.get` opens besides the actions that end in `.get` (except `keys.get`).
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
    """The names that open an action; a key must list one of them. () if only the master key opens it."""
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


def patterns_cover(patterns: Collection[str], index_uid: str | None) -> bool:
    """True if one of the patterns matches; index_uid None: if they match every possible index."""
    if index_uid is None:
        return EVERY_INDEX in patterns
    return any(pattern_matches(pattern, index_uid) for pattern in patterns)


def patterns_text(patterns: Iterable[str]) -> str:
    """The patterns as messages list them, sorted: `["films", "products_*"]`."""
    return "[" + ", ".join(f'"{pattern}"' for pattern in sorted(set(patterns))) + "]"


# What one request may do


class Permission(NamedTuple):
    """The rights of the bearer of a request.

    indexes: uids and patterns of the key; None for every index. rules: of the tenant token, if it is one; an index must
    be allowed by both. may_create_index: may a write create the index that it names? key_uid: of the API key, also of the one
    that signed a tenant token; None for the master key, and without keys.
    """

    may_create_index: bool = True
    indexes: tuple[str, ...] | None = None
    rules: SearchRules | None = None
    key_uid: str | None = None

    def allows(self, index_uid: str | None) -> bool:
        """Return whether the bearer may see this index. index_uid: None for a task or batch without an index."""
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

        The rule of the index itself decides, otherwise the rule of the longest pattern. Raises invalid_api_key if the bearer may
        not use the index.
        """
        self.require(index_uid)
        rules = self.rules
        if rules is None:
            return None
        # The uid itself, else the longest pattern that matches. One does: the bearer may use the index.
        return rules[max((each for each in rules if pattern_matches(each, index_uid)),
                         key=lambda each: (each == index_uid, len(each)))]


ALL_PERMITTED = Permission()


# Checks of keys


class KeySource(Protocol):
    """Where the keys are stored. revision() changes with every change of a key; read() returns it with the keys
    (svcd.instance.keys.KeyRow)."""

    def revision(self) -> int: ...
    def read(self) -> tuple[int, Sequence[Any]]: ...


@dataclass(frozen=True, slots=True)
class _Key:
    """A stored key, ready for checks. opens: its actions, wildcards expanded."""

    uid: str
    value: str = field(repr=False)
    opens: frozenset[str]
    indexes: tuple[str, ...]
    expires_at: int | None

    @property
    def is_of_every_index(self) -> bool:
        return EVERY_INDEX in self.indexes

    def may(self, action: str) -> bool:
        """True if it has the action on at least one index; a key without indexes may do nothing."""
        return action in self.opens and (self.is_of_every_index or bool(self.indexes) and not needs_every_index(action))


class _KeySet(NamedTuple):
    """All keys of one revision: by uid, and by the keyed hash of their value (Keys._digest)."""

    revision: int = -1  # never read
    by_uid: Mapping[str, _Key] = {}
    by_digest: Mapping[bytes, _Key] = {}


def is_same_secret(given: str, expected: str) -> bool:
    """Compare in constant time: the duration reveals nothing about where the first difference is."""
    import hmac  # loads OpenSSL, 3 MB that a daemon without keys does not need

    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def bearer_token(authorization_header: str | None) -> str:
    """The token of `Bearer <token>`, the scheme in any letter case (RFC 9110 11.1); "" when the header is absent.

    Raises missing_authorization_header for another scheme and invalid_api_key for no token.
    """
    if authorization_header is None:
        return ""
    scheme, _, token = authorization_header.partition(" ")
    if scheme.lower() != "bearer":
        raise ApiError("missing_authorization_header", _MISSING_HEADER)
    if not token:
        raise ApiError("invalid_api_key", INVALID_KEY)
    return token


class Keys:
    """The keys of one instance. master_key: None if the instance is open to everybody."""

    def __init__(self, master_key: str | None, source: KeySource | None = None, now: Callable[[], int] = quantities.now) -> None:
        """source: where API keys are stored, None for no keys; now: nanoseconds since 1970."""
        self._master_key = master_key
        self._source = source
        self._now = now
        self._digest_secret = os.urandom(32)
        self._key_set = _KeySet()

    @property
    def is_protected(self) -> bool:
        """True when requests need a key."""
        return self._master_key is not None

    def value_of(self, uid: str) -> str:
        """The value of the key with this uid (lower-case, hyphenated): 64 hexadecimal digits.

        Raises RuntimeError on an instance without a master key.
        """
        import hmac

        if self._master_key is None:
            raise RuntimeError("without a master key, API keys have no values")
        return hmac.digest(self._master_key.encode(), uid.encode(), "sha256").hex()

    def uid_of(self, value: str) -> str | None:
        """The uid of the stored key that has this value, or None."""
        key = self._found(value)
        return key.uid if key else None

    def check(self, action: str, index_uid: str | None, authorization_header: str | None) -> Permission:
        """The rights of the bearer.

        action: a name such as `indexes.create`; index_uid: the index that the path names, or None.
        Raises missing_authorization_header, missing_master_key, invalid_api_key.
        """
        token = bearer_token(authorization_header)
        if self._master_key is None:
            if action.startswith(MASTER_ONLY):
                raise ApiError("missing_master_key", _MISSING_MASTER_KEY)
            return ALL_PERMITTED
        if authorization_header is None:
            raise ApiError("missing_authorization_header", _MISSING_HEADER)
        if is_same_secret(token, self._master_key):
            return ALL_PERMITTED
        if action.startswith(MASTER_ONLY):
            raise ApiError("invalid_api_key", INVALID_KEY)
        claims, rules = None, None
        if action in OF_TENANTS:
            claims = claims_of(token, self.value_of, self._now() // quantities.SECOND)
        if claims is None:
            key = self._found(token)
        else:
            key, rules = self._current().by_uid.get(claims.key_uid), claims.rules
        if key is None:
            raise ApiError("invalid_api_key", INVALID_KEY)
        if index_uid is not None:
            _check_index(key, rules, index_uid)
        if not key.may(action) or key.expires_at is not None and self._now() >= key.expires_at:
            raise ApiError("invalid_api_key", INVALID_KEY)
        return Permission(key.may("indexes.create"), None if key.is_of_every_index else key.indexes, rules, key.uid)

    def _found(self, value: str) -> _Key | None:
        """The stored key that has this value. The duration of the lookup reveals nothing about other values."""
        key = self._current().by_digest.get(self._digest(value))
        return key if key is not None and is_same_secret(value, key.value) else None

    def _digest(self, value: str) -> bytes:
        """A keyed hash to look values up by: an attacker cannot choose values whose hashes share a prefix."""
        import hmac

        return hmac.digest(self._digest_secret, value.encode("utf-8", "surrogatepass"), "sha256")

    def _current(self) -> _KeySet:
        """The keys as stored now: a change in any process takes effect with the next check."""
        key_set = self._key_set
        if self._source is not None and self._source.revision() != key_set.revision:
            revision, rows = self._source.read()
            keys = [_Key(row.uid, self.value_of(row.uid), expand_wildcards(row.actions), tuple(row.indexes), row.expires_at)
                    for row in rows]
            key_set = _KeySet(revision, {key.uid: key for key in keys}, {self._digest(key.value): key for key in keys})
            self._key_set = key_set
        return key_set  # not self._key_set: a slower thread may have stored older keys there


def _check_index(key: _Key, rules: SearchRules | None, index_uid: str) -> None:
    """Raise invalid_api_key unless token and key allow the index.

    The message lists the indexes of a token, but never the indexes of the key that signed it.
    """
    if rules is not None and not patterns_cover(rules.keys(), index_uid):
        raise ApiError("invalid_api_key", f"The provided tenant token cannot acces the index `{index_uid}`, "
                                          f"allowed indexes are {patterns_text(rules)}.")
    if not patterns_cover(key.indexes, index_uid):
        if rules is not None:
            message = f"The API key used to generate this tenant token cannot acces the index `{index_uid}`."
            raise ApiError("invalid_api_key", message)
        raise ApiError("invalid_api_key", f"The API key cannot acces the index `{index_uid}`, "
                                          f"authorized indexes are {patterns_text(key.indexes)}.")
