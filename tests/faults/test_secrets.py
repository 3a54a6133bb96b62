"""What must hold of secrets: the master key, the values of keys, tenant tokens, and the keys of services that svcd calls.

1. Whatever is done with them, none is in the log, in /tasks, /batches, /stats, /metrics and /openapi.json.
2. A refusal repeats no secret but the one its own path held.
3. A bug logs its traceback without them.
4. Of the keys of services no answer, task, log line or notice has more than the first characters, even if the service repeats them.
5. A dump has none of the keys of its own instance, and of services those alone that docs/guide/security.md says it has.
"""
from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.base import logs, quantities
from svcd.instance.instance import Instance
from svcd.instance.rows import KeyRow
from tests.api.conftest import client_of
from tests.support.bearers import token, uid, value_of
from tests.support.daemon import Daemon, Reply, running
from tests.support.scripted_server import Received, Reply as ServiceReply, ScriptedServer

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


def test_a_bug_is_logged_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance(tmp_path / "data")
    client = client_of(instance, MASTER_KEY, quantities.now, instance.keys)
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
        instance.close()
    said = stream.getvalue()
    assert "a bug" in said and "Traceback" in said and "/keys/***" in said
    assert MASTER_KEY not in said and KEY not in said


# -- Keys of services

def _of(name: str) -> str:
    return f"{name}-secret-0123456789abcdef"


EMBEDDER, OPEN_AI, CHAT, REMOTE, WRITE, WEBHOOK, EXPORT, TASKS, PERSONAL, S3 = map(_of, (
    "embedder", "openai", "chat", "remote", "write", "webhook", "export", "tasks", "personal", "s3"))
# What answers show as it is (docs/network.md): it is for who may read the network, as clients of the interface expect.
SHOWN_BY_DESIGN = {"PATCH /network": {REMOTE, WRITE}, "/network": {REMOTE, WRITE}}
SERVICES = (EMBEDDER, OPEN_AI, CHAT, REMOTE, WRITE, WEBHOOK, EXPORT, TASKS, PERSONAL, S3)
PATIENCE_S = 20.0


def repeat_all(received: Received) -> ServiceReply:
    """The worst of services: it fails, and says with which headers it was called."""
    text = json.dumps({"error": {"message": f"Incorrect API key provided: {json.dumps(received.headers)}", "code": "invalid"}})
    return ServiceReply(text.encode(), 400 if "chat" in received.path else 401, {"content-type": "application/json"})


def call_services(daemon: Daemon, url: str) -> list[tuple[str, str]]:
    """Configure each kind of service with its key, and have it called: what was asked, and the answers."""
    shown: list[tuple[str, str]] = []

    def ask(method: str, path: str, value: Any = None) -> Reply:
        reply = daemon.call(method, path, None if value is None else json.dumps(value), bearer(MASTER_KEY))
        if reply.status == 202:
            uid = reply.json["taskUid"]
            deadline = time.monotonic() + PATIENCE_S
            while daemon.call("GET", f"/tasks/{uid}", headers=bearer(MASTER_KEY)).json["finishedAt"] is None and time.monotonic() < deadline:
                time.sleep(0.01)
        shown.append((f"{method} {path}", reply.body.decode()))
        return reply

    ask("PATCH", "/experimental-features", dict.fromkeys((
        "network", "chatCompletions", "compositeEmbedders", "getTaskDocumentsRoute", "multimodal", "renderRoute", "metrics"), True))
    rest = {"source": "rest", "url": f"{url}/rest", "apiKey": EMBEDDER, "dimensions": 1,
            "request": {"input": "{{text}}"}, "response": {"data": "{{embedding}}"}}
    open_ai = {"source": "openAi", "url": f"{url}/openai", "apiKey": OPEN_AI, "dimensions": 1, "model": "text-embedding-3-small"}
    ask("PATCH", "/indexes/films/settings", {"embedders": {"r": rest}})
    ask("POST", "/indexes/films/documents", [{"id": 1, "title": "sun"}])
    ask("PATCH", "/indexes/others/settings", {"embedders": {"o": open_ai}})
    ask("POST", "/indexes/others/documents", [{"id": 1, "title": "sun"}])
    for index_uid, embedder in (("films", "r"), ("others", "o")):
        for ratio in (1.0, 0.5):
            ask("POST", f"/indexes/{index_uid}/search", {"q": "sun", "hybrid": {"embedder": embedder, "semanticRatio": ratio}})
        ask("GET", f"/indexes/{index_uid}/settings")
        ask("GET", f"/indexes/{index_uid}/settings/embedders")
    ask("PATCH", "/indexes/films/settings", {"embedders": {"r": {**rest, "apiKey": 5, "request": EMBEDDER}}})
    ask("PATCH", "/chats/w/settings", {"source": "openAi", "baseUrl": f"{url}/chat", "apiKey": CHAT})
    ask("GET", "/chats/w/settings")
    ask("POST", "/chats/w/chat/completions", {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    ask("PATCH", "/network", {"self": "a", "remotes": {"b": {"url": f"{url}/remote", "searchApiKey": REMOTE, "writeApiKey": WRITE}}})
    ask("POST", "/indexes/films/search", {"q": "sun", "useNetwork": True})
    ask("POST", "/multi-search", {"federation": {}, "queries": [{"indexUid": "films", "federationOptions": {"remote": "b"}}]})
    ask("POST", "/indexes/films/documents/fetch", {"useNetwork": True})
    ask("POST", "/indexes/films/search", {"q": "sun", "personalize": {"userContext": "x"}})
    made = ask("POST", "/webhooks", {"url": f"{url}/hook", "headers": {"Authorization": f"Bearer {WEBHOOK}"}})
    ask("POST", "/export", {"url": f"{url}/export", "apiKey": EXPORT})
    ask("POST", "/snapshots")
    ask("POST", "/dumps")
    for path in ("/webhooks", f"/webhooks/{made.json['uuid']}", f"/webhooks/{made.json['uuid']}/failures"):
        ask("GET", path)
    return shown


def secrets_of(text: str) -> list[str]:
    """Those that a text has whole."""
    return [secret for secret in (*SERVICES, MASTER_KEY, KEY) if secret in text]


def test_keys_of_services_are_shown_nowhere(tmp_path: Path, scripted_server: Callable[..., ScriptedServer], figure: Callable[..., None]) -> None:
    service = scripted_server(repeat_all)
    options = ("--master-key", MASTER_KEY, "--log-level", "TRACE", "--experimental-allowed-ip-networks", "127.0.0.0/8",
               "--task-webhook-url", f"{service.url}/tasks", "--task-webhook-authorization-header", f"Bearer {TASKS}",
               "--experimental-personalization-api-key", PERSONAL, "--s3-bucket-url", service.url, "--s3-bucket-region", "r",
               "--s3-bucket-name", "b", "--s3-snapshot-prefix", "p", "--s3-access-key", "access", "--s3-secret-key", S3)
    with running(tmp_path, *options) as daemon:
        assert ask(daemon, MASTER_KEY, "POST", "/keys", {**BODY, "uid": uid(1)}).status == 201
        shown = call_services(daemon, service.url)
        deadline = time.monotonic() + PATIENCE_S
        while any(task["finishedAt"] is None for task in ask(daemon, MASTER_KEY, "GET", "/tasks?limit=100").json["results"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        paths = ("/tasks?limit=100", "/batches?limit=100", "/stats", "/metrics", "/openapi.json", "/webhooks", "/version", "/indexes", "/network",
                 "/tasks/1/documents", "/tasks/3/documents", "/chats", "/experimental-features")
        shown += [(path, ask(daemon, MASTER_KEY, "GET", path).body.decode()) for path in paths]
        shown.append(("log", daemon.log.read_text()))
        dump = next(iter((daemon.folder / "dumps").glob("*.dump")), None)
        called = {secret for secret in SERVICES for received in service.requests if secret in json.dumps(received.headers)}
    leaks = [(where, secret, text[max(0, text.index(secret) - 300):][:400]) for where, text in shown for secret in secrets_of(text)
             if secret not in SHOWN_BY_DESIGN.get(where, ())]
    figure("secrets in answers, tasks and logs, of services that repeat them", len(leaks), limit="none")
    assert called >= {EMBEDDER, OPEN_AI, CHAT, REMOTE, WEBHOOK, TASKS, EXPORT}, called
    assert leaks == [], "\n".join(map(str, leaks))
    assert dump is not None
    with tarfile.open(dump) as archive:
        members = {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}  # type: ignore[union-attr]
    kept = {secret for text in members.values() for secret in secrets_of(text)}
    own = kept & {MASTER_KEY, KEY, TASKS, PERSONAL, S3}
    figure("secrets of the instance itself in a dump", len(own), limit="none")
    assert own == set() and kept <= {EMBEDDER, OPEN_AI, CHAT, REMOTE, WRITE, WEBHOOK, EXPORT}
    assert not any(secrets_of(text) for name, text in members.items() if name.endswith("keys.jsonl"))
