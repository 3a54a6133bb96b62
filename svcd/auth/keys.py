"""May the bearer of this header do this action on this index?

Knows the master key, how the value of a key follows from it, and the order in which a request is checked; refuses
to know routes, bodies and stores. Source: permissions.json (bearer, check_order, key_value).

A key has a uid, which is no secret (every tenant token shows it) and opens nothing, and a value, which is one.
Values are stored nowhere: they are computed when they are needed, so another master key makes other values.

Threads: any number may check at once; the keys in memory are one object that is replaced as a whole.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from svcd.auth import permissions as patterns
from svcd.auth.permissions import (
    ALL_PERMITTED,
    INVALID_KEY,
    MASTER_ONLY,
    OF_TENANTS,
    Permission,
    SearchRules,
    expanded,
    needs_every_index,
)
from svcd.auth.tokens import claims_of
from svcd.base import times
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
    """Where the keys are stored. revision() is another one after every change."""

    def revision(self) -> int: ...
    def read(self) -> tuple[int, Sequence[Any]]: ...


class _NoKeys:
    """The source of an instance that has none."""

    def revision(self) -> int:
        return 0

    def read(self) -> tuple[int, Sequence[KeyRow]]:
        return 0, ()


@dataclass(frozen=True, slots=True)
class _Key:
    """A stored key, ready for checks. opens: its actions without wildcards."""

    uid: str
    value: str = field(repr=False)
    opens: frozenset[str]
    indexes: tuple[str, ...]
    expires_at: int | None

    @property
    def is_of_every_index(self) -> bool:
        return patterns.EVERY_INDEX in self.indexes

    def may(self, action: str) -> bool:
        """True when it has the action, on some index at least; one without indexes may nothing."""
        return action in self.opens and (self.is_of_every_index or bool(self.indexes) and not needs_every_index(action))


@dataclass(frozen=True, slots=True)
class _Ring:
    """All keys of one revision: by uid, and by what `Keys._mark` makes of a value."""

    revision: int = _NEVER_READ
    by_uid: dict[str, _Key] = field(default_factory=dict)
    by_mark: dict[bytes, _Key] = field(default_factory=dict, repr=False)


def is_same_secret(given: str, expected: str) -> bool:
    """Compare in a time that tells nothing of the place of the first difference."""
    import hmac  # brings in OpenSSL, 3 MB that a daemon without keys need not have

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
    """The keys of one instance. master_key: None when the instance is open to everybody."""

    def __init__(self, master_key: str | None, source: KeySource | None = None,
                 now: Callable[[], int] = times.now) -> None:
        """source: where the other keys are; now: nanoseconds since 1970."""
        self._master_key = master_key
        self._source: KeySource = source or _NoKeys()
        self._now = now
        self._blind = os.urandom(32)
        self._ring = _Ring()

    @property
    def is_protected(self) -> bool:
        """True when requests need a key."""
        return self._master_key is not None

    def value_of(self, uid: str) -> str:
        """The value of the key with this uid (lower-case, hyphenated): 64 hexadecimal digits.

        An instance without a master key has no values: RuntimeError.
        """
        import hmac

        if self._master_key is None:
            raise RuntimeError("values of keys follow from the master key, and there is none")
        return hmac.digest(self._master_key.encode(), uid.encode(), "sha256").hex()

    def uid_of(self, value: str) -> str | None:
        """The uid of the stored key that has this value, or None."""
        key = self._found(value)
        return key.uid if key else None

    def check(self, action: str, index_uid: str | None, authorization_header: str | None) -> Permission:
        """What the bearer may do, in the order of permissions.json.

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
        """The key that a token is, or is signed with, and the rules of a tenant token."""
        if action in OF_TENANTS:
            claims = claims_of(token, self.value_of, self._now() // times.SECOND)
            if claims is not None:
                return self._current().by_uid.get(claims.key_uid), claims.rules
        return self._found(token), None

    def _found(self, value: str) -> _Key | None:
        """The stored key that has this value. The time it takes tells nothing of the values of others."""
        key = self._current().by_mark.get(self._mark(value))
        return key if key is not None and is_same_secret(value, key.value) else None

    def _mark(self, value: str) -> bytes:
        """What values are looked up by: how much of it two values share can't be chosen from outside."""
        import hmac

        return hmac.digest(self._blind, value.encode("utf-8", "surrogatepass"), "sha256")

    def _current(self) -> _Ring:
        """The keys as they are stored at this moment: a deleted one opens nothing any more, in whatever process."""
        ring = self._ring
        if self._source.revision() != ring.revision:
            revision, rows = self._source.read()
            keys = [_Key(row.uid, self.value_of(row.uid), expanded(row.actions), tuple(row.indexes), row.expires_at)
                    for row in rows]
            ring = _Ring(revision, {key.uid: key for key in keys}, {self._mark(key.value): key for key in keys})
            self._ring = ring
        return ring  # not the attribute: a slower thread may have put older keys there


def _check_index(key: _Key, rules: SearchRules | None, index_uid: str) -> None:
    """Raise invalid_api_key unless token and key allow the index. What a token lists its bearer may know; what its
    key lists only the bearer of the key."""
    if rules is not None and not patterns.covers(rules.keys(), index_uid):
        raise ApiError("invalid_api_key", f"The provided tenant token cannot acces the index `{index_uid}`, "
                                          f"allowed indexes are {patterns.listed(rules)}.")
    if not patterns.covers(key.indexes, index_uid):
        if rules is not None:
            message = f"The API key used to generate this tenant token cannot acces the index `{index_uid}`."
            raise ApiError("invalid_api_key", message)
        raise ApiError("invalid_api_key", f"The API key cannot acces the index `{index_uid}`, "
                                          f"authorized indexes are {patterns.listed(key.indexes)}.")
