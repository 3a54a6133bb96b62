"""Signatures are those that AWS publishes, and those of an independent implementation where one is installed."""
from __future__ import annotations

import importlib
from datetime import datetime, timezone
from urllib.parse import parse_qs, urlsplit

import pytest

from svcd.remote.object_store import Credentials, signed_url

# The example of "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)".
MOMENT = datetime(2013, 5, 24, tzinfo=timezone.utc).timestamp()
EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
SIGNED = ("https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
          "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
          "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
          "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


def test_the_published_example() -> None:
    assert signed_url("GET", "https://examplebucket.s3.amazonaws.com/test.txt", {}, EXAMPLE, "us-east-1", 86400, MOMENT) == SIGNED


def test_a_session_token_is_signed() -> None:
    signed = signed_url("GET", "http://store/a", {}, EXAMPLE._replace(session_token="a/b+c="), "r", 1, MOMENT)
    query = parse_qs(urlsplit(signed).query)
    assert query["X-Amz-Security-Token"] == ["a/b+c="] and "a%2Fb%2Bc%3D" in signed
    assert query["X-Amz-Signature"] != parse_qs(urlsplit(signed_url("GET", "http://store/a", {}, EXAMPLE, "r", 1, MOMENT)).query)[
        "X-Amz-Signature"]


@pytest.mark.parametrize("url, query", [
    ("http://localhost:9000/backups/films/data.ms.snapshot", {"uploads": "1"}),
    ("https://s3.eu-west-1.amazonaws.com/b/a%20b/%C3%A9~_-.x", {"partNumber": "7", "uploadId": "a/b+c=~ä"}),
])
@pytest.mark.parametrize("token", [None, "a/b+c="])
def test_the_library_of_aws_signs_the_same(url: str, query: dict[str, str], token: str | None,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    auth = pytest.importorskip("botocore.auth", reason="botocore is not installed")
    request_class = importlib.import_module("botocore.awsrequest").AWSRequest
    keys = importlib.import_module("botocore.credentials").Credentials(EXAMPLE.access_key, EXAMPLE.secret_key, token)
    moment = datetime(2013, 5, 24)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_: moment, raising=False)
    request = request_class("PUT", url, params=query)
    auth.S3SigV4QueryAuth(keys, "s3", "eu-west-1", 60).add_auth(request)
    signed = signed_url("PUT", url, query, EXAMPLE._replace(session_token=token), "eu-west-1", 60, MOMENT)
    assert parse_qs(urlsplit(signed).query) == parse_qs(urlsplit(request.prepare().url).query)
