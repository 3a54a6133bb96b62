"""Keys without a store, and tenant tokens, for tests of who may do what.

Tokens are signed here with the standard library alone, so that what checks them is not what made them.
"""
from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from svcd.auth.keys import Keys

MASTER_KEY = "0123456789abcdef"
SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
_DIGESTS = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}


@dataclass(frozen=True)
class Row:
    """One stored key."""

    uid: str
    actions: Sequence[str] = ("*",)
    indexes: Sequence[str] = ("*",)
    expires_at: int | None = None


@dataclass
class Shelf:
    """Where rows are kept. reads: how often all of them were asked for."""

    rows: list[Row] = field(default_factory=list)
    number: int = 0
    reads: int = 0

    def revision(self) -> int:
        return self.number

    def read(self) -> tuple[int, list[Row]]:
        self.reads += 1
        return self.number, list(self.rows)

    def put(self, *rows: Row) -> None:
        """These are the rows from now on."""
        self.rows, self.number = list(rows), self.number + 1


@dataclass
class Clock:
    """A clock that stands until it is set."""

    now: int = NOW

    def __call__(self) -> int:
        return self.now


def uid(number: int) -> str:
    """A UUID that is easy to tell from others."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def value_of(key_uid: str, master_key: str = MASTER_KEY) -> str:
    """The value of a key, as docs/http.md#authentication describes it."""
    return hmac.new(master_key.encode(), key_uid.encode(), hashlib.sha256).hexdigest()


def keys_of(*rows: Row, clock: Clock | None = None) -> Keys:
    """The keys of an instance that has these."""
    return Keys(MASTER_KEY, Shelf(list(rows), 1), clock or Clock())


def part(content: bytes | dict[str, Any]) -> str:
    """One part of a token."""
    raw = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(claims: bytes | dict[str, Any], secret: str, algorithm: str = "HS256", **header: Any) -> str:
    """A token. claims: as JSON, or the bytes of it."""
    text = f"{part({'typ': 'JWT', 'alg': algorithm, **header})}.{part(claims)}"
    return f"{text}.{part(hmac.new(secret.encode(), text.encode(), _DIGESTS[algorithm]).digest())}"


def token(rules: Any, key_uid: str = uid(1), algorithm: str = "HS256", **claims: Any) -> str:
    """A tenant token, rightly signed by the key of a uid."""
    return signed({"searchRules": rules, "apiKeyUid": key_uid, **claims}, value_of(key_uid), algorithm)
