"""What must hold of secrets: the master key, the values of keys, tenant tokens.

1. Whatever is done with them, none is in the log, in /tasks, /batches, /stats, /metrics and /openapi.json.
2. A refusal repeats no secret but the one its own path held.
3. A bug logs its traceback without them.
"""
from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.base import logs
from svcd.instance.keys import KeyRow
from tests.support.bearers import token, uid, value_of
from tests.support.daemon import Daemon, Reply, running

MASTER_KEY = "a-master-key-of-some-length"
KEY = value_of(uid(1), MASTER_KEY)
OTHER = value_of(uid(2), MASTER_KEY)
BODY = {"actions": ["*"], "indexes": ["*"], "expiresAt": None}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def ask(daemon: Daemon, secret: str, method: str, path: str, value: Any = None) -> Reply:
    return daemon.call(method, path, None if value is None else json.dumps(value), bearer(secret))


def use_all(daemon: Daemon) -> Iterator[Reply]:
    """The refusals of many requests with secrets in their headers, paths and bodies."""
    tenant = token({"films": {"filter": "secret = 1"}}, uid(1))  # signed under another master key
    for number in (1, 2):
        assert ask(daemon, MASTER_KEY, "POST", "/keys", {**BODY, "uid": uid(number)}).status == 201
    yield ask(daemon, MASTER_KEY, "POST", "/keys", {**BODY, "uid": uid(1)})
    for path in (f"/keys/{KEY}", f"//keys//{KEY}", f"/k%65ys/{KEY}", f"/keys/{KEY}?x={KEY}"):
        for secret in (KEY, OTHER, MASTER_KEY, tenant, "wrong"):
            for method, value in (("GET", None), ("PATCH", {"name": "a"}), ("PATCH", {"actions": []}), ("POST", {})):
                yield ask(daemon, secret, method, path, value)
    for secret in (KEY, tenant, "wrong", f"{KEY} ", OTHER):
        for method, path, value in (
                ("POST", "/indexes/films/search", {}), ("GET", "/tasks?uids=x", None), ("GET", "/version", None),
                ("POST", "/indexes/films/documents", [{"id": 1}]), ("GET", "/keys", None), ("POST", "/keys", BODY),
                ("GET", "/nowhere", None), ("TRACE", "/keys", None), ("DELETE", "/tasks?uids=0", None)):
            yield ask(daemon, secret, method, path, value)
    yield daemon.call("GET", "/version", headers={"authorization": MASTER_KEY})
    yield daemon.call("GET", "/version", headers={"x-svc-api-key": MASTER_KEY})
    assert ask(daemon, MASTER_KEY, "DELETE", f"/keys/{OTHER}").status == 204


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    options = ("--master-key", MASTER_KEY, "--log-level", "TRACE", "--experimental-enable-metrics")
    with running(tmp_path, *options) as daemon:
        for reply in use_all(daemon):
            text = reply.body.decode()
            if reply.status >= 400:
                assert MASTER_KEY not in text and OTHER not in text and "eyJ" not in text
                assert KEY not in text, text
        shown = [ask(daemon, MASTER_KEY, "GET", path).body.decode()
                 for path in ("/tasks", "/batches", "/stats", "/metrics", "/openapi.json", "/indexes")]
    told = "".join(shown) + daemon.log.read_text()
    assert "/keys/***" in told
    for secret in (MASTER_KEY, KEY, OTHER, "eyJ", "secret = 1"):
        assert secret not in told


def test_a_bug_is_logged_without_them(connect: Any, instance: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(MASTER_KEY)
    instance.keys.add(KeyRow(uid(1), ["*"], ["*"], 1, 1))
    assert client.ask(KEY, "GET", "/version").status == 200

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(instance.keys, "get", fail)
    monkeypatch.setattr(instance, "database_size", fail)
    stream = io.StringIO()
    logs.configure("TRACE", "HUMAN", stream)
    try:
        assert client.ask(MASTER_KEY, "GET", f"/keys/{KEY}").status == 500
        assert client.ask(KEY, "GET", "/stats").status == 500
    finally:
        logs.configure()
    said = stream.getvalue()
    assert "a bug" in said and "Traceback" in said and "/keys/***" in said
    assert MASTER_KEY not in said and KEY not in said
