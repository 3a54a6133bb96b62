"""1. `/health` and `/` need no key, everything else does.
2. Features are switched by name; null and absent change nothing.
3. Sizes are numbers or texts, as asked.
4. What nobody expected is `internal` and says nothing of the inside.
"""
from __future__ import annotations

import errno
import io
import os
import subprocess

import pytest

from svcd.api import instance
from svcd.api.all_routes import ROUTES
from svcd.api.routes import Route
from svcd.api.shapes import size
from svcd.base import logs
from svcd.http.connection import StartupGate
from svcd.http.message import Body, Headers, NoBody, Request
from svcd.validation.names import FEATURES

MASTER_KEY = "0123456789abcdef"
OF_THE_CONTRACT = [flag for flag, feature in FEATURES.items() if not feature.is_own]  # others do not show until they are switched


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_but_two_needs_the_key(connect, row: Route) -> None:
    path = row.path.replace("{", "").replace("}", "")
    got = connect(MASTER_KEY).send(row.method, path)
    if row.path in ("/", "/health"):
        assert got.status == 200
    else:
        assert got.fault[:2] == (401, "missing_authorization_header")


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
def test_health_is_answered_the_same_before_the_application_is_loaded(client, verb: str) -> None:
    request = Request(verb, "/health", "", Headers({}), Body(NoBody()), "127.0.0.1")
    early, late = StartupGate().answer(request), client.answer(verb, "/health")
    assert (early.status, early.body, early.content_type) == (late.status, late.body, late.content_type)


def test_the_key_is_checked_before_the_request(connect) -> None:
    got = connect(MASTER_KEY).get("/tasks?limit=doggo", authorization="Bearer wrong")
    assert got.fault == (403, "invalid_api_key", "The provided API key is invalid.")


def test_the_master_key_opens(connect) -> None:
    assert connect(MASTER_KEY).get("/version", authorization=f"Bearer {MASTER_KEY}").status == 200


@pytest.mark.parametrize(("path", "shape"), [
    ("/health", "Health"), ("/version", "Version"), ("/stats", "Stats"), ("/experimental-features", "Features"),
])
def test_answers_fit_their_shapes(client, check_shape, path, shape) -> None:
    check_shape(client.get(path).value, shape)


def test_the_version_of_a_clone_has_its_commit(tmp_path, monkeypatch) -> None:
    root = tmp_path / "clone"
    (root / "svcd").mkdir(parents=True)
    monkeypatch.setattr("svcd.__file__", str(root / "svcd" / "__init__.py"))
    instance._commit.cache_clear()
    assert instance.version(None).value["commitSha"] == "unknown"
    moment = "2026-11-24T22:00:00+01:00"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root)]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True, env={**os.environ, "GIT_COMMITTER_DATE": moment})
    sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    instance._commit.cache_clear()
    assert instance.version(None).value == {"commitSha": sha, "commitDate": moment, "pkgVersion": "1.52.0"}
    instance._commit.cache_clear()


def test_the_version_is_that_of_the_interface(client) -> None:
    assert client.get("/version").value["pkgVersion"] == "1.52.0"


def test_all_features_are_off_at_first(client) -> None:
    assert client.get("/experimental-features").value == dict.fromkeys(OF_THE_CONTRACT, False)


@pytest.mark.parametrize("flag", OF_THE_CONTRACT)
def test_a_feature_is_switched_alone(client, flag) -> None:
    expected = dict.fromkeys(OF_THE_CONTRACT, False) | {flag: True}
    assert client.json("PATCH", "/experimental-features", {flag: True}).value == expected
    for change in ({}, {flag: None}):
        assert client.json("PATCH", "/experimental-features", change).value == expected
    assert client.json("PATCH", "/experimental-features", {flag: False}).value == dict.fromkeys(OF_THE_CONTRACT, False)


@pytest.mark.parametrize(("body", "message"), [
    ({"metrics": 42}, "Invalid value type at `.metrics`: expected a boolean, but found a positive integer: `42`"),
    ({"NotAFeature": True}, "Unknown field `NotAFeature`: expected one of " + ", ".join(f"`{flag}`" for flag in OF_THE_CONTRACT)),
    ({"logsRoutes": True}, "Unknown field `logsRoutes`: did you mean `logsRoute`? expected one of "
     + ", ".join(f"`{flag}`" for flag in OF_THE_CONTRACT)),
])
def test_the_body_of_features_is_checked(client, body, message) -> None:
    assert client.json("PATCH", "/experimental-features", body).fault == (400, "bad_request", message)


@pytest.mark.parametrize("path", ["/stats", "/indexes/a/stats"])
@pytest.mark.parametrize(("query", "code", "message"), [
    ("showInternalDatabaseSizes=doggo", "invalid_stats_show_internal_database_sizes",
     "Invalid value in parameter `showInternalDatabaseSizes`: could not parse `doggo` as a boolean, "
     "expected either `true` or `false`"),
    ("sizeFormat=doggo", "invalid_stats_size_format",
     "Unknown value `doggo` for parameter `sizeFormat`: expected one of `human`, `raw`"),
    ("sizeFormat=humans", "invalid_stats_size_format",
     "Unknown value `humans` for parameter `sizeFormat`: did you mean `human`? expected one of `human`, `raw`"),
    ("doggo=1", "bad_request",
     "Unknown parameter `doggo`: expected one of `showInternalDatabaseSizes`, `sizeFormat`"),
])
def test_the_parameters_of_statistics_are_checked(client, path, query, code, message) -> None:
    assert client.get(f"{path}?{query}").fault == (400, code, message)


def test_sizes_have_a_unit_when_asked(client) -> None:
    assert isinstance(client.get("/stats?sizeFormat=raw").value["databaseSize"], int)
    assert client.get("/stats?sizeFormat=human").value["databaseSize"].endswith(" KiB")


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (4096, "4 KiB"), (1536, "1.5 KiB"), (5 << 30, "5 GiB"), (1 << 60, "1024 PiB"),
])
def test_a_size_is_written_with_the_largest_unit_below_it(count, text) -> None:
    assert size(count, "human") == text
    assert size(count, "raw") == count


def test_a_route_without_parameters_takes_any_query_string(client) -> None:
    assert client.get("/health?doggo=1").status == 200


@pytest.mark.parametrize(("failure", "status", "code"), [
    (RuntimeError("secret"), 500, "internal"),
    (OSError(errno.ENOSPC, "full"), 422, "no_space_left_on_device"),
    (OSError(errno.EMFILE, "many"), 422, "too_many_open_files"),
])
def test_an_unexpected_failure_is_an_error_object(client, monkeypatch, failure, status, code) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    log = io.StringIO()
    logs.configure(stream=log)
    try:
        monkeypatch.setattr(client.instance, "features", fail)
        got = client.get("/experimental-features")
    finally:
        logs.configure()
    assert got.fault[:2] == (status, code)
    assert "secret" not in got.text
    assert ("Traceback" in log.getvalue()) == (code == "internal")
