"""`svcd import-from`, against an instance of svcd as the source. What must hold:

1. The target has the same features, indexes, settings, documents with vectors, and keys with the same values.
2. A copy that was interrupted sends what was acknowledged only once; an index that changed in between is copied again.
3. What cannot be copied is named, with the reason: masked secrets, keys without the master key.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.commands import import_from
from svcd.commands.import_from import Copy, remove_secrets
from svcd.commands.instance import CommandFailed, Instance
from tests.commands.conftest import Run
from tests.support.daemon import Daemon, running

MASTER_KEY = "a-master-key-of-some-length"
FILMS = [{"id": number, "title": f"Film {number}", "_vectors": {"mine": [0.5, number + 1] if number % 2 else None}}
         for number in range(250)]
SETTINGS = {"filterableAttributes": ["title"], "embedders": {"mine": {"source": "userProvided", "dimensions": 2}},
            "displayedAttributes": ["id"]}
KEY = {"uid": "6062abda-a5aa-4414-ac91-ecd7944c0f8d", "name": "of the shop", "actions": ["search"], "indexes": ["films"], "expiresAt": None}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("source"), "--master-key", MASTER_KEY) as daemon:
        instance = Instance(f"127.0.0.1:{daemon.port}", MASTER_KEY)
        instance.call("PATCH", "/experimental-features", {"containsFilter": True})
        instance.call("PATCH", "/indexes/films/settings", SETTINGS)
        assert instance.call("POST", "/indexes/films/documents?wait=20s", FILMS)["status"] == "succeeded"
        instance.call("POST", "/indexes?wait=20s", {"uid": "empty", "primaryKey": "code"})
        instance.call("POST", "/keys", KEY)
        yield daemon


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with running(tmp_path, "--master-key", MASTER_KEY) as daemon:
        monkeypatch.setenv("SVC_HTTP_ADDR", f"127.0.0.1:{daemon.port}")
        monkeypatch.setenv("SVC_MASTER_KEY", MASTER_KEY)
        yield daemon


def everything(daemon: Daemon) -> dict[str, Any]:
    instance = Instance(f"127.0.0.1:{daemon.port}", MASTER_KEY)
    fetched = instance.call("POST", "/indexes/films/documents/fetch", {"limit": 1000, "retrieveVectors": True})
    return {"features": instance.call("GET", "/experimental-features"), "settings": instance.call("GET", "/indexes/films/settings"),
            "documents": fetched["results"], "empty": instance.call("GET", "/indexes/empty")["primaryKey"],
            "key": instance.call("GET", f"/keys/{KEY['uid']}")["key"]}


def test_everything_is_copied(source: Daemon, target: Daemon, call: Run) -> None:
    url = f"http://127.0.0.1:{source.port}"
    status, out, err = call("import-from", url, "--key", MASTER_KEY, "--json")
    assert status == 0, err
    assert json.loads(out)["indexes"] == {"empty": 0, "films": 250} and json.loads(out)["keys"] >= 1
    assert everything(target) == everything(source)
    status, out, err = call("import-from", url, "--key", MASTER_KEY)  # all of it is there already
    assert status == 0 and out.startswith("2 indexes, 250 documents and ") and everything(target) == everything(source)


def test_a_folder_can_be_the_target(source: Daemon, tmp_path: Path, call: Run, target: Daemon) -> None:
    target.stop()
    status, out, _ = call("import-from", f"127.0.0.1:{source.port}", "--key", MASTER_KEY, "--folder", str(target.data))
    assert status == 0 and out.startswith("2 indexes, 250 documents")


class Stopping(Instance):
    """A target that goes away after a number of document requests."""

    left = 2
    sent: list[int] = []

    def send(self, method: str, path: str, body: bytes | None, content_type: str) -> Any:
        if path.endswith("/documents"):
            if not self.left:
                raise CommandFailed("it went away")
            self.left -= 1
            self.sent += [json.loads(line)["id"] for line in (body or b"").splitlines()]
        return super().send(method, path, body, content_type)


def test_an_interrupted_copy_continues_where_it_was(source: Daemon, target: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_from, "DEFAULT_PORTION", 4000)
    from_, to = Instance(f"127.0.0.1:{source.port}", MASTER_KEY), Stopping(f"127.0.0.1:{target.port}", MASTER_KEY)
    index = from_.call("GET", "/indexes/films")
    first = Copy(from_, to, to.url, index)
    with pytest.raises(CommandFailed, match="went away"):
        list(first.run())
    assert 0 < first.place.documents < 250
    to.left = 1000
    second = Copy(from_, to, to.url, index)
    assert second.place.documents == first.place.documents
    list(second.run())
    assert to.sent == list(range(250)) and set(first.place.tasks) < set(second.tasks)
    assert Copy(from_, to, to.url, {**index, "updatedAt": "2030-01-01T00:00:00Z"}).place.documents == 0


def test_what_cannot_be_copied_is_named(source: Daemon, target: Daemon, call: Run) -> None:
    keys = Instance(f"127.0.0.1:{source.port}", MASTER_KEY).call("GET", "/keys")["results"]
    (admin,) = (each["key"] for each in keys if each["actions"] == ["*"] and each["name"] == "Default Admin API Key")
    status, out, err = call("import-from", f"127.0.0.1:{source.port}", "--key", admin)
    assert status == 0 and " and 0 keys" in out and "keys are not copied: " in err
    status, _, err = call("import-from", f"127.0.0.1:{source.port}", "--to", f"127.0.0.1:{source.port}", "--key", MASTER_KEY)
    assert status == 2 and "is the target, too" in err
    status, _, err = call("import-from", f"127.0.0.1:{source.port}", "--key", "wrong")
    assert status == 1 and "name a key with --key" in err


def test_masked_secrets_are_not_sent() -> None:
    settings = {"embedders": {"a": {"source": "openAi", "apiKey": "sk-abXXX"}, "b": {"source": "userProvided"},
                              "c": {"source": "composite", "searchEmbedder": {"source": "openAi", "apiKey": "XXX"}}}}
    assert remove_secrets(settings) == ["a", "c"] and "XXX" not in json.dumps(settings)
    assert remove_secrets({}) == remove_secrets({"embedders": None}) == []
