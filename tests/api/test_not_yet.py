"""What this version can't do, it says: after the checks that every route has.

1. A feature that is off is named first; with the feature on, the refusal says what svcd lacks.
2. A wrong body or query string is told as if the rest worked.
3. Every operation of the interface has a route, and every feature that has no effect says so in the log.
"""
from __future__ import annotations

import io
import re

import pytest

from svcd.api import not_yet
from svcd.api.app import ROUTES
from svcd.api.features import FEATURES
from svcd.base import logs
from tests.support.contract import table

LACKS = "This version of svcd does not have"
GATED = [
    ("GET", "/chats", None, "chatCompletions", "bad_request"),
    ("GET", "/chats/a b", None, "chatCompletions", "bad_request"),
    ("DELETE", "/chats/a", None, "chatCompletions", "bad_request"),
    ("GET", "/chats/a/settings", None, "chatCompletions", "bad_request"),
    ("PATCH", "/chats/a/settings", {"source": "openAi"}, "chatCompletions", "bad_request"),
    ("DELETE", "/chats/a/settings", None, "chatCompletions", "bad_request"),
    ("POST", "/chats/a/chat/completions", {"model": "m", "messages": []}, "chatCompletions", "bad_request"),
]
# The words for features that are off name these routes otherwise.
_CALLED = {"/chats": "chat"}


@pytest.mark.parametrize("method, path, body, feature, code", GATED)
def test_the_feature_is_asked_first(client, method: str, path: str, body: object, feature: str, code: str) -> None:
    def ask() -> tuple[int, str, str]:
        return (client.send(method, path) if body is None else client.json(method, path, body)).fault

    status, refused, message = ask()
    named = next((words for begin, words in _CALLED.items() if path.startswith(begin)), path)
    assert (status, refused) == (400, "feature_not_enabled") and named in message
    client.json("PATCH", "/experimental-features", {feature: True})
    status, refused, message = ask()
    assert (status, refused) == (400, code) and message.startswith(LACKS)


def test_exports_are_rejected_with_a_clear_error(client) -> None:
    wanted = {"url": "http://other", "indexes": {"*": {"filter": "a = 1"}}}
    status, code, message = client.json("POST", "/export", wanted).fault
    assert (status, code) == (400, "bad_request") and message.startswith(LACKS)


@pytest.mark.parametrize("method, path, body, code, message", [
    ("POST", "/export", {}, "bad_request", "Missing field `url`"),
    ("POST", "/export", {"url": 1}, "invalid_export_url",
     "Invalid value type at `.url`: expected a string, but found a positive integer: `1`"),
    ("POST", "/export", {"url": "http://other", "payloadSize": "much"}, "invalid_export_payload_size",
     "Invalid value at `.payloadSize`: `much` is not a size; write a number of bytes, or a number with a unit, as "
     "100 MB or 512 KiB (units: B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB)"),
])
def test_wrong_bodies_are_rejected(client, method: str, path: str, body: object, code: str, message: str) -> None:
    assert client.json(method, path, body).fault == (400, code, message)


def test_every_operation_of_the_interface_has_a_route() -> None:
    wanted = {(method, path) for path, methods in table("operations").items() for method in methods}
    assert wanted - {(row.method, row.path) for row in ROUTES} == set()


def test_features_without_effect_say_what_is_missing(client) -> None:
    idle = ("chatCompletions",)
    assert set(not_yet.flags_without_effect(FEATURES)) == set(idle)
    log = io.StringIO()
    logs.configure(stream=log)
    try:
        for _ in range(2):  # what is on already was told before
            assert client.json("PATCH", "/experimental-features", dict.fromkeys(FEATURES, True)).status == 200
        client.json("PATCH", "/experimental-features", {"network": False})
    finally:
        logs.configure()
    said = [line for line in log.getvalue().splitlines() if "without effect" in line]
    assert [re.search(r"feature=(\w+)", line)[1] for line in said] == [flag for row in not_yet.MISSING for flag in row.flags]
    assert any("missing=chats" in line for line in said)
