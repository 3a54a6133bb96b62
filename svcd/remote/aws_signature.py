"""AWS signature version 4 in the query of a URL, as S3 accepts it: signs only the header `Host`, and not the body.

Pure functions. Source: "Authenticating Requests: Using Query Parameters" in the API reference of S3, whose example is a test.
"""
from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime, timezone
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, urlsplit

_ALGORITHM, _SERVICE, _END = "AWS4-HMAC-SHA256", "s3", "aws4_request"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_UNRESERVED = "-_.~"


class Credentials(NamedTuple):
    """The keys to sign with. session_token: token of an assumed role; None for a permanent key."""

    access_key: str
    secret_key: str
    session_token: str | None = None


def signed_url(method: str, url: str, query: Mapping[str, str], credentials: Credentials, region: str, expires_s: int,
               moment: float) -> str:
    """Return a URL that is valid for `expires_s` seconds from `moment` (seconds since 1970).

    url: without query, its path percent-encoded. query: parameters, not encoded.
    """
    date = datetime.fromtimestamp(moment, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{date[:8]}/{region}/{_SERVICE}/{_END}"
    parameters = {
        **query, "X-Amz-Algorithm": _ALGORITHM, "X-Amz-Credential": f"{credentials.access_key}/{scope}", "X-Amz-Date": date,
        "X-Amz-Expires": str(expires_s), "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        parameters["X-Amz-Security-Token"] = credentials.session_token
    parts = urlsplit(url)
    encoded = "&".join(sorted(f"{quote(name, _UNRESERVED)}={quote(value, _UNRESERVED)}" for name, value in parameters.items()))
    request = "\n".join((method, parts.path or "/", encoded, f"host:{parts.netloc}", "", "host", _UNSIGNED))
    text = "\n".join((_ALGORITHM, date, scope, sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{url}?{encoded}&X-Amz-Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
