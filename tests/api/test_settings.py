"""What must hold of the settings routes:

1. Every setting can be read, written and reset on its own route, and all together on the base route.
2. Reading an unknown index is refused; writing creates it, resetting doesn't.
3. A write enqueues the decoded change and shows it in the details, secrets hidden.
4. Errors of an own route start their place at the setting; codes are those of the setting.
5. Values of experimental features are refused without the feature; resets aren't.
6. Every recorded request on settings gets its recorded answer.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.context import Services
from svcd.api.indexes import SETTINGS_ROUTES as ROUTES
from svcd.auth.keys import Keys
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.http.message import Body, Headers, Request
from svcd.schema import settings
from svcd.schema.index_settings import IndexSettings
from svcd.schema.settings import SETTINGS, Setting

SETTINGS_URL = re.compile(r"/indexes/([^/]+)/settings(/[a-z-]+)?")


class Indexes:
    """An instance and its queue, of which only settings exist; tasks run when they are enqueued."""

    start = "a start"

    def __init__(self, *uids: str) -> None:
        self.stored: dict[str, dict[str, Any]] = {uid: {} for uid in uids}
        self.flags: dict[str, bool] = {}
        self.tasks: list[SimpleNamespace] = []

    @property
    def queue(self) -> Indexes:
        return self

    def features(self) -> dict[str, bool]:
        return self.flags

    def is_enabled(self, feature: str) -> bool:
        return self.flags.get(feature, False)

    @contextmanager
    def read(self, uid: str) -> Iterator[SimpleNamespace]:
        if uid not in self.stored:
            raise ApiError("index_not_found", f"Index `{uid}` not found.")
        yield SimpleNamespace(settings=IndexSettings.of(self.stored[uid]))

    def enqueue(self, kind: str, uid: str, *, details: Any, content: Any) -> SimpleNamespace:
        task = SimpleNamespace(
            uid=len(self.tasks), kind=kind, index_uid=uid, status="enqueued", enqueued_at=0, custom_metadata=None,
            details=json.loads(dumps(details)), content=json.loads(dumps(content)), error=None)
        self.tasks.append(task)
        self._run(task)
        return task

    def _run(self, task: SimpleNamespace) -> None:
        if task.index_uid not in self.stored and not task.content["mayCreateIndex"]:
            task.error = "index_not_found"
            return
        try:
            stored = self.stored.setdefault(task.index_uid, {})
            self.stored[task.index_uid] = settings.merged(stored, task.content["settings"])
        except ApiError as error:
            task.error = error.code


@pytest.fixture
def indexes() -> Indexes:
    return Indexes("films")


class Client:
    """Sends requests to an App over these indexes, without a socket."""

    def __init__(self, indexes: Indexes) -> None:
        self.app = App(Services(indexes, Keys(None), SearchQueue(1), indexes))  # type: ignore[arg-type]

    def send(self, method: str, url: str, body: str | None = None) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        content = (body or "").encode()
        headers = Headers({"content-type": "application/json"} if body is not None else {})
        path, _, query = url.partition("?")
        answer = self.app.answer(Request(method, path, query, headers, Body(Wire(content)), "127.0.0.1"))
        assert isinstance(answer.body, bytes)
        return answer.status, json.loads(answer.body)

    def write(self, setting: Setting, value: Any, uid: str = "films") -> tuple[int, Any]:
        return self.send(setting.method, f"/indexes/{uid}/settings/{setting.route}", json.dumps(value))


class Wire:
    """The bytes of a body, as if read from a socket."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)

    def __iter__(self) -> Iterator[bytes]:
        return iter((self.content,) if self.content else ())


@pytest.fixture
def indexes() -> Indexes:
    return Indexes("films")


@pytest.fixture
def client(indexes: Indexes) -> Client:
    return Client(indexes)


each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])


@each_setting
def test_default_is_answered_and_fits_its_declared_shape(
    client: Client, setting: Setting, check_shape: Callable[[Any, Any], None]
) -> None:
    status, value = client.send("GET", f"/indexes/films/settings/{setting.route}")
    assert (status, value) == (200, setting.default)
    check_shape(value, next(route for route in ROUTES if route.path.endswith(setting.route)).answers[200])


@each_setting
def test_unknown_index_is_not_found(client: Client, setting: Setting) -> None:
    status, refused = client.send("GET", f"/indexes/unknown/settings/{setting.route}")
    assert (status, refused["code"], refused["message"]) == (404, "index_not_found", "Index `unknown` not found.")


@each_setting
def test_writing_null_creates_the_index(client: Client, indexes: Indexes, setting: Setting) -> None:
    status, summary = client.write(setting, None, "new")
    assert (status, summary["type"], summary["indexUid"]) == (202, "settingsUpdate", "new")
    assert indexes.tasks[0].content == {"settings": {setting.name: None}, "mayCreateIndex": True, "reset": False}
    assert indexes.tasks[0].details == {setting.name: setting.reset_as}
    assert "new" in indexes.stored


@each_setting
def test_resetting_creates_nothing(client: Client, indexes: Indexes, setting: Setting) -> None:
    assert client.send("DELETE", f"/indexes/new/settings/{setting.route}")[0] == 202
    assert indexes.tasks[0].content == {"settings": {setting.name: None}, "mayCreateIndex": False, "reset": True}
    assert indexes.tasks[0].error == "index_not_found"
    assert "new" not in indexes.stored


@each_setting
def test_bad_kind_is_refused_with_the_code_of_the_setting(client: Client, setting: Setting) -> None:
    bad = 1.5
    status, own = client.write(setting, bad)
    assert (status, own["code"]) == (400, setting.code)
    assert own["message"].startswith("Invalid value type: expected ")
    assert own["message"].endswith(", but found a number: `1.5`")
    status, whole = client.send("PATCH", "/indexes/films/settings", json.dumps({setting.name: bad}))
    assert (status, whole["code"]) == (400, setting.code)
    assert whole["message"] == own["message"].replace("type:", f"type at `.{setting.name}`:")


@each_setting
def test_bad_index_uid_is_refused(client: Client, setting: Setting) -> None:
    status, refused = client.write(setting, None, "a%20b")
    assert (status, refused["code"]) == (400, "invalid_index_uid")


def test_all_settings_fit_their_declared_shape(
    client: Client, indexes: Indexes, check_shape: Callable[[Any, Any], None]
) -> None:
    indexes.flags = {"chatCompletions": True, "foreignKeys": True}
    status, value = client.send("GET", "/indexes/films/settings")
    assert (status, list(value)) == (200, [setting.name for setting in SETTINGS if not setting.is_extension])
    check_shape(value, next(route for route in ROUTES if route.path.endswith("/settings")).answers[200])


def test_reset_of_all_settings_shows_every_one(client: Client, indexes: Indexes) -> None:
    assert client.send("DELETE", "/indexes/films/settings")[0] == 202
    assert indexes.tasks[0].details == {
        setting.name: ["*"] if setting.name in ("displayedAttributes", "searchableAttributes") else None
        for setting in SETTINGS if not setting.is_extension
    }


def test_secrets_are_kept_in_the_task_and_hidden_elsewhere(client: Client, indexes: Indexes) -> None:
    embedder = {"source": "ollama", "model": "m", "apiKey": "My super secret value you will never guess"}
    assert client.send("PATCH", "/indexes/films/settings/embedders", json.dumps({"e": embedder}))[0] == 202
    assert indexes.tasks[0].content["settings"]["embedders"]["e"] == embedder
    assert indexes.tasks[0].details["embedders"]["e"]["apiKey"] == "My suXXXXXX..."
    for url in ("/indexes/films/settings", "/indexes/films/settings/embedders"):
        assert "never guess" not in json.dumps(client.send("GET", url)[1])


@pytest.mark.parametrize("members, action, feature", [
    ({"chat": {}}, "setting `chat` in the index settings", "chat completions"),
    ({"foreignKeys": []}, "setting `foreignKeys` in the index settings", "foreign_keys"),
    ({"embedders": {"e": {"indexingFragments": {}}}}, "setting `indexingFragments`", "multimodal"),
    ({"embedders": {"e": {"source": "composite"}}}, 'using `"composite"` as source', "composite embedders"),
])
def test_values_of_a_feature_need_it(
    client: Client, indexes: Indexes, members: dict[str, Any], action: str, feature: str
) -> None:
    status, refused = client.send("PATCH", "/indexes/films/settings", json.dumps(members))
    assert (status, refused["code"]) == (400, "feature_not_enabled")
    assert refused["message"].startswith(
        f"{action} requires enabling the `{feature}` experimental feature. See https://")
    assert indexes.tasks == []
