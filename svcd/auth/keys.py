"""Checks the Authorization header of a request: may its bearer do this action on this index?

Follows docs/http.md#authentication. A key has a uid, which is not secret (every tenant token contains it) and opens
nothing, and a value, which is. Values are stored nowhere: each is computed from the uid and the master key, so changing
the master key invalidates every API key.

Threads: any number may check at once; the keys in memory are one immutable object that is replaced as a whole.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from svcd.auth.permissions import (
    ALL_PERMITTED,
    EVERY_INDEX,
    INVALID_KEY,
    MASTER_ONLY,
    OF_TENANTS,
    Permission,
    SearchRules,
    expand_wildcards,
    needs_every_index,
    patterns_cover,
    patterns_text,
)
from svcd.auth.tokens import claims_of
from svcd.base import quantities
from svcd.base.errors import ApiError

__all__ = ["ALL_PERMITTED", "Keys", "Permission", "bearer_token", "is_same_secret"]

_MISSING_HEADER = "The Authorization header is missing. It must use the bearer authorization method."
_MISSING_MASTER_KEY = (
    "Svc is running without a master key. "
    "To access this API endpoint, you must have set a master key at launch."
)
_CREATES_INDEXES = "indexes.create"
_NEVER_READ = -1  # no revision


class KeyRow(Protocol):
    """A key as it is stored: uid (lower-case, hyphenated), actions and indexes as listed, nanoseconds or None."""

    @property
    def uid(self) -> str: ...
    @property
    def actions(self) -> Sequence[str]: ...
    @property
    def indexes(self) -> Sequence[str]: ...
    @property
    def expires_at(self) -> int | None: ...


class KeySource(Protocol):
    """Where the keys are stored. revision() changes with every change of a key."""

    def revision(self) -> int: ...
    def read(self) -> tuple[int, Sequence[Any]]: ...


class _NoKeys:
    """The source of an instance without keys."""

    def revision(self) -> int:
        return 0

    def read(self) -> tuple[int, Sequence[KeyRow]]:
        return 0, ()


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


@dataclass(frozen=True, slots=True)
class _KeySet:
    """All keys of one revision: by uid, and by the keyed hash of their value (Keys._digest)."""

    revision: int = _NEVER_READ
    by_uid: dict[str, _Key] = field(default_factory=dict)
    by_digest: dict[bytes, _Key] = field(default_factory=dict, repr=False)


def is_same_secret(given: str, expected: str) -> bool:
    """Compare in constant time: the duration reveals nothing about where the first difference is."""
    import hmac  # loads OpenSSL, 3 MB that a daemon without keys does not need

    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def bearer_token(authorization_header: str | None) -> str:
    """The token of `Bearer <token>`; "" when the header is absent.

    Raises missing_authorization_header for another scheme and invalid_api_key for no token.
    """
    if authorization_header is None:
        return ""
    scheme, _, token = authorization_header.partition(" ")
    if scheme != "Bearer":
        raise ApiError("missing_authorization_header", _MISSING_HEADER)
    if not token:
        raise ApiError("invalid_api_key", INVALID_KEY)
    return token


class Keys:
    """The keys of one instance. master_key: None if the instance is open to everybody."""

    def __init__(self, master_key: str | None, source: KeySource | None = None,
                 now: Callable[[], int] = quantities.now) -> None:
        """source: where API keys are stored; now: nanoseconds since 1970."""
        self._master_key = master_key
        self._source: KeySource = source or _NoKeys()
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
        """What the bearer may do.

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
        return self._checked(token, action, index_uid)

    def _checked(self, token: str, action: str, index_uid: str | None) -> Permission:
        key, rules = self._bearer(token, action)
        if key is None:
            raise ApiError("invalid_api_key", INVALID_KEY)
        if index_uid is not None:
            _check_index(key, rules, index_uid)
        if not key.may(action) or key.expires_at is not None and self._now() >= key.expires_at:
            raise ApiError("invalid_api_key", INVALID_KEY)
        return Permission(
            may_create_index=key.may(_CREATES_INDEXES), indexes=None if key.is_of_every_index else key.indexes,
            rules=rules)

    def _bearer(self, token: str, action: str) -> tuple[_Key | None, SearchRules | None]:
        """(the key that a token is or is signed with, the rules if it is a tenant token)."""
        if action in OF_TENANTS:
            claims = claims_of(token, self.value_of, self._now() // quantities.SECOND)
            if claims is not None:
                return self._current().by_uid.get(claims.key_uid), claims.rules
        return self._found(token), None

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
        if self._source.revision() != key_set.revision:
            revision, rows = self._source.read()
            keys = [_Key(row.uid, self.value_of(row.uid), expand_wildcards(row.actions), tuple(row.indexes), row.expires_at)
                    for row in rows]
            key_set = _KeySet(revision, {key.uid: key for key in keys}, {self._digest(key.value): key for key in keys})
            self._key_set = key_set
        return key_set  # not self._key_set: a slower thread may have stored older keys there


def _check_index(key: _Key, rules: SearchRules | None, index_uid: str) -> None:
    """Raise invalid_api_key unless token and key allow the index.

    The message lists the indexes of a token to its bearer, but never those of the key that the token was signed with.
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
