"""May the bearer of this header do this action on this index?

Knows the master key and the order in which a request is checked; refuses to know routes, bodies and
stores. Source: permissions.json (bearer, check_order).
"""
from __future__ import annotations

from dataclasses import dataclass

from svcd.errors import ApiError

_MISSING_HEADER = "The Authorization header is missing. It must use the bearer authorization method."
_INVALID_KEY = "The provided API key is invalid."
_MISSING_MASTER_KEY = (
    "Svc is running without a master key. "
    "To access this API endpoint, you must have set a master key at launch."
)


@dataclass(frozen=True, slots=True)
class Permission:
    """What a request was allowed.

    may_create_index: a write may create the index it names.
    """

    may_create_index: bool = True

    def allows(self, index_uid: str | None) -> bool:
        """True when the bearer may see this index; None stands for what belongs to no index."""
        return True

    def require(self, index_uid: str) -> None:
        """Raise invalid_api_key unless the bearer may use the index that a body names."""
        if not self.allows(index_uid):
            raise ApiError("invalid_api_key", _INVALID_KEY)


ALL = Permission()


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
        raise ApiError("invalid_api_key", _INVALID_KEY)
    return token


class Keys:
    """The keys of one instance. master_key: None when the instance is open to everybody."""

    def __init__(self, master_key: str | None) -> None:
        self._master_key = master_key

    @property
    def is_protected(self) -> bool:
        """True when requests need a key."""
        return self._master_key is not None

    def check(self, action: str, index_uid: str | None, authorization_header: str | None) -> Permission:
        """What the bearer may do, in the order of permissions.json.

        action: a name such as `indexes.create`; index_uid: the index that the path names, or None.
        Raises missing_authorization_header, missing_master_key, invalid_api_key.
        """
        token = bearer_token(authorization_header)
        if self._master_key is None:
            if action.startswith("keys."):
                raise ApiError("missing_master_key", _MISSING_MASTER_KEY)
            return ALL
        if token and is_same_secret(token, self._master_key):
            return ALL
        if authorization_header is None:
            raise ApiError("missing_authorization_header", _MISSING_HEADER)
        raise ApiError("invalid_api_key", _INVALID_KEY)
