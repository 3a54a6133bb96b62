"""Tenant tokens: JWTs that restrict an API key to some indexes and filters, signed with the value of the key.

See docs/http.md#tenant-tokens. Malformed tokens get the messages of the reference implementation of the interface, which decodes
with serde. An unsupported claim that restricts a token further (an audience, a member of a rule other than its filter) makes
the token invalid, because ignoring it would permit too much.
"""
from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from svcd.base import json_text
from svcd.base.errors import ApiError
from svcd.validation import parse_index_uid_pattern, parse_uuid

ALGORITHMS = ("HS256", "HS384", "HS512")
# Index uid or pattern -> the filter to join to every search in it, None for no filter.
SearchRules = Mapping[str, Any]

_PARTS = 3  # header, claims, signature
# Many libraries write the time of signing as `nbf`, and their clock may be ahead. `exp` gets no tolerance.
_CLOCKS_DIFFER_S = 60
_I64_MIN, _I64_MAX = -(2**63), 2**63 - 1


class Claims(NamedTuple):
    """The claims of a token. key_uid: of the key that signed it; times in seconds since 1970, None for no bound.

    Times may have a fraction, as a NumericDate of RFC 7519.
    """

    key_uid: str
    rules: SearchRules
    expires_at: float | None = None
    begins_at: float | None = None
    has_audience: bool = False


def claims_of(token: str, secret_of: Callable[[str], str], now_s: int) -> Claims | None:
    """The claims of a token with a valid signature and validity period; None for text that is not a JWT.

    secret_of: uid of a key -> its value. Raises invalid_api_key.
    """
    if token.count(".") != _PARTS - 1 or not token.isascii():
        return None
    import jwt  # see _signatures

    try:
        header = jwt.utils.base64url_decode(token.partition(".")[0])
        # The library decodes the bytes in any encoding, so all brackets count, even inside strings.
        if header.count(b"[") + header.count(b"{") > json_text.MAX_DEPTH:
            return None
        payload: bytes = _signatures().decode_complete(token, options={"verify_signature": False})["payload"]
    except (jwt.InvalidTokenError, binascii.Error):
        return None
    claims = _claims(payload)
    try:
        _signatures().decode(token, secret_of(claims.key_uid), algorithms=list(ALGORITHMS))
    except jwt.InvalidAlgorithmError:
        raise _undecodable("InvalidAlgorithm") from None
    except jwt.InvalidTokenError:
        raise _undecodable("InvalidSignature") from None
    if claims.expires_at is not None and now_s > claims.expires_at:
        raise ApiError("invalid_api_key", f"Tenant token expired. Was valid up to `{claims.expires_at}` and "
                                          f"we're now `{now_s}`.")
    if claims.begins_at is not None and now_s + _CLOCKS_DIFFER_S < claims.begins_at:
        raise _undecodable("ImmatureSignature")
    if claims.has_audience:
        raise _undecodable("InvalidAudience")
    return claims


@cache
def _signatures() -> Any:
    """The verifier of signatures. Loading it takes 8 MB and 45 ms, so only a daemon that receives a token does, once."""
    import jwt

    return jwt.PyJWS()


def _undecodable(reason: str) -> ApiError:
    return ApiError("invalid_api_key", f"Could not decode tenant token, {reason}.")


class _Unfit(ValueError):
    """A claim of the wrong form. is_inner False: serde reports it at the end of the claims if it is the last one."""

    def __init__(self, reason: str, is_inner: bool = True) -> None:
        super().__init__(reason)
        self.is_inner = is_inner


def _claims(payload: bytes) -> Claims:
    """The claims of a payload whose signature is not verified yet. Raises invalid_api_key."""
    try:
        value = json_text.loads(payload)
    except ValueError as fault:
        raise _undecodable(f"JSON error: {fault}") from None
    if not isinstance(value, dict):
        raise _misfit(f"invalid type: {_kind(value)}, expected struct Claims", payload, len(payload))
    read: dict[str, Any] = {}
    for claim, member in value.items():
        if claim in _CLAIMS:
            name, parse = _CLAIMS[claim]
            try:
                read[name] = parse(member)
            except _Unfit as fault:
                raise _misfit(str(fault), payload, _end_of(claim, payload, fault.is_inner)) from None
    for claim in ("searchRules", "apiKeyUid"):
        if claim not in value:
            raise _misfit(f"missing field `{claim}`", payload, len(payload))
    return Claims(**read)


def _rules(value: Any) -> SearchRules:
    """A list of patterns, or a map of patterns to null or an object that may have a filter."""
    rules = dict.fromkeys(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else None
    if isinstance(value, dict) and all(rule is None or isinstance(rule, dict) and rule.keys() <= {"filter"}
                                       for rule in value.values()):
        rules = {pattern: (rule or {}).get("filter") for pattern, rule in value.items()}
    try:
        if rules is not None:
            for pattern in rules:
                parse_index_uid_pattern(pattern)
            return rules
    except ValueError:
        pass
    raise _Unfit("data did not match any variant of untagged enum SearchRules", is_inner=False)


def _uuid(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit(f"invalid type: {_kind(value)}, expected a UUID string")
    try:
        return parse_uuid(value)
    except ValueError as reason:
        raise _Unfit(f"UUID parsing failed: {reason}") from None


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Unfit(f"invalid type: {_kind(value)}, expected i64")
    if not _I64_MIN <= value <= _I64_MAX:
        raise _Unfit(f"invalid value: {_kind(value)}, expected i64")
    return value


_CLAIMS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {  # claim: (field of Claims, parser); other claims are ignored
    "searchRules": ("rules", _rules),
    "apiKeyUid": ("key_uid", _uuid),
    "exp": ("expires_at", _seconds),
    "nbf": ("begins_at", _seconds),
    "aud": ("has_audience", lambda value: value is not None),
}


def _kind(value: Any) -> str:
    """A JSON value as serde names it in messages."""
    if isinstance(value, (list, dict)):
        return "sequence" if isinstance(value, list) else "map"
    if isinstance(value, str):
        return f"string {json_text.dumps(value)}"
    if value is None:
        return "null"
    name = "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "floating point"
    return f"{name} `{json_text.dumps(value)}`"


def _end_of(claim: str, payload: bytes, is_inner: bool) -> int:
    """How far serde has read the payload when it rejects the value of a claim."""
    at = payload.index(b"{") + 1
    while True:
        end_of_name = json_text.value_end(payload, at)
        end = json_text.value_end(payload, payload.index(b":", end_of_name) + 1)
        if json_text.loads(payload[at:end_of_name]) == claim:
            break
        at = payload.index(b",", end) + 1
    is_last = payload[end:].lstrip()[:1] == b"}"
    return payload.index(b"}", end) + 1 if is_last and not is_inner else end


def _misfit(reason: str, payload: bytes, end: int) -> ApiError:
    line, column = payload.count(b"\n", 0, end) + 1, end - payload.rfind(b"\n", 0, end) - 1
    return _undecodable(f"JSON error: {reason} at line {line} column {column}")
