"""1. A workspace begins to exist with the first change of its settings, and is gone after its deletion.
2. Absent members stay, null resets one; every member is shown, of the key a few characters.
3. Faults of members have their codes; some sources need some members.
4. Uids are any texts, in the order of their bytes; only the route that shows one checks its form.
5. A dump has every workspace with its key in clear; what it lacks is filled in as its version meant it.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.chat import workspace
from svcd.chat.workspace import DEFAULTS
from svcd.instance.instance import Instance
from svcd.validation import FieldError
from tests.api.conftest import Client, check_shape  # noqa: F401 (fixture)
from tests.chat.conftest import client_of

NOTHING = {"source": "openAi", "orgId": None, "projectId": None, "apiVersion": None, "deploymentId": None, "baseUrl": None,
           "apiKey": None, "prompts": dict(DEFAULTS)}


@pytest.fixture
def client(instance: Instance) -> Client:
    instance.force_feature("chatCompletions")
    return client_of(instance)


def patched(client: Client, uid: str = "w", **members: Any) -> Any:
    got = client.json("PATCH", f"/chats/{uid}/settings", members)
    assert got.status == 200, got.text
    return got.value


def test_a_workspace_from_its_beginning_to_its_end(client: Client, check_shape: Any) -> None:
    assert client.get("/chats/w").fault == (404, "chat_not_found", "chat w not found")
    for method in ("GET", "DELETE"):
        assert client.send(method, "/chats/w/settings").fault == (404, "chat_not_found", "Chat `w` not found")
    assert patched(client) == NOTHING and list(patched(client)) == list(NOTHING)
    assert client.get("/chats/w").value == {"uid": "w"}
    patched(client, orgId="o")
    assert client.get("/chats/w/settings").value == {**NOTHING, "orgId": "o"}
    assert client.send("DELETE", "/chats/w/settings").value == NOTHING == client.get("/chats/w/settings").value
    check_shape(NOTHING, "ChatWorkspaceSettings")
    gone = client.send("DELETE", "/chats/w")
    assert (gone.status, gone.text) == (204, "")
    assert client.send("DELETE", "/chats/w").fault == (404, "chat_not_found", "chat w not found")


def test_members_are_merged(client: Client) -> None:
    patched(client, source="mistral", orgId="", baseUrl="no url", prompts={"system": "S", "searchQParam": ""})
    assert patched(client, projectId="p") == {
        **NOTHING, "source": "mistral", "orgId": "", "projectId": "p", "baseUrl": "no url",
        "prompts": {**DEFAULTS, "system": "S", "searchQParam": ""}}
    assert patched(client, prompts={"system": None})["prompts"] == {**DEFAULTS, "searchQParam": ""}
    assert patched(client, source=None, orgId=None, prompts=None) == {**NOTHING, "projectId": "p", "baseUrl": "no url"}


@pytest.mark.parametrize(("key", "shown"), [
    ("", "XXX..."), ("short", "XXX..."), ("0123456789", "01XXXX..."), ("sk-" + "x" * 30, "sk-xxXXXXXX..."), ("é" * 10, "éXXXXX..."),
])
def test_keys_are_not_shown(client: Client, key: str, shown: str) -> None:
    assert patched(client, apiKey=key)["apiKey"] == shown
    assert client.instance.chat_workspaces.require("w")["apiKey"] == key


@pytest.mark.parametrize(("body", "code", "message"), [
    ({"source": "gemini"}, "bad_request",
     "Unknown value `gemini` at `.source`: expected one of `openAi`, `mistral`, `azureOpenAi`, `vLlm`"),
    ({"orgId": 1}, "invalid_chat_completion_org_id",
     "Invalid value type at `.orgId`: expected a string, but found a positive integer: `1`"),
    ({"baseUrl": []}, "invalid_chat_completion_base_api",
     "Invalid value type at `.baseUrl`: expected a string, but found an array: `[]`"),
    ({"apiKey": True}, "invalid_chat_completion_api_key",
     "Invalid value type at `.apiKey`: expected a string, but found a boolean: `true`"),
    ({"prompts": {"searchFilterParam": 1}}, "invalid_chat_completion_search_filter_param_prompt",
     "Invalid value type at `.prompts.searchFilterParam`: expected a string, but found a positive integer: `1`"),
    ({"prompts": ""}, "bad_request", 'Invalid value type at `.prompts`: expected an object, but found a string: `""`'),
    ({"key": 1}, "bad_request", "Unknown field `key`: expected one of `source`, `orgId`, `projectId`, `apiVersion`, "
     "`deploymentId`, `baseUrl`, `apiKey`, `prompts`"),
    ({"source": "azureOpenAi", "baseUrl": "u", "apiVersion": "v"}, "bad_request",
     "azureOpenAi requires setting a valid `baseUrl`, `deploymentId`, and `apiVersion`"),
    ({"source": "vLlm"}, "bad_request", "vLlm requires setting a valid `baseUrl`"),
])
def test_faults(client: Client, body: Any, code: str, message: str) -> None:
    assert client.json("PATCH", "/chats/w/settings", body).fault == (400, code, message)
    assert client.get("/chats").value["total"] == 0


def test_what_a_source_needs_may_be_there_already(client: Client) -> None:
    patched(client, baseUrl="")
    patched(client, source="vLlm")
    assert client.json("PATCH", "/chats/w/settings", {"baseUrl": None}).status == 400
    assert client.get("/chats/w/settings").value["baseUrl"] == ""


def test_pages(client: Client) -> None:
    uids = ["B", "a b", "c%2Fd", "%C3%A9"]
    for uid in reversed(uids):
        patched(client, uid)
    listed = [{"uid": uid} for uid in ("B", "a b", "c/d", "é")]
    assert client.get("/chats").value == {"results": listed, "offset": 0, "limit": 20, "total": 4}
    assert client.get("/chats?offset=1&limit=2").value == {"results": listed[1:3], "offset": 1, "limit": 2, "total": 4}
    assert client.get("/chats?limit=0").value["results"] == []
    assert client.get("/chats?limit=-1").fault == (
        400, "invalid_index_limit", "Invalid value in parameter `limit`: could not parse `-1` as a positive integer")
    assert client.get("/chats?page=1").fault == (
        400, "bad_request", "Unknown parameter `page`: expected one of `offset`, `limit`")
    status, code, _ = client.get("/chats/a b").fault
    assert (status, code) == (400, "invalid_index_uid")
    assert client.get("/chats/a b/settings").status == 200


def test_uids_that_are_too_long(client: Client) -> None:
    patched(client, "x" * 511)
    for method, suffix in (("GET", "/settings"), ("DELETE", "/settings"), ("DELETE", "")):
        assert client.send(method, f"/chats/{'x' * 512}{suffix}").fault[:2] == (400, "invalid_index_uid")
    assert client.json("PATCH", f"/chats/{'x' * 512}/settings", {}).fault[:2] == (400, "invalid_index_uid")


@pytest.mark.parametrize(("method", "path", "words"), [
    ("GET", "/chats", "listing the chats"), ("GET", "/chats/a b", "displaying a chat"), ("DELETE", "/chats/w", "deleting a chat"),
    ("GET", "/chats/w/settings", "using the /chats/settings route"), ("PATCH", "/chats/w/settings", "using the /chats/settings route"),
    ("DELETE", "/chats/w/settings", "using the /chats/settings route"),
    ("POST", "/chats/w/chat/completions", "using the /chats chat completions route"),
])
def test_the_feature_is_asked_first(instance: Instance, method: str, path: str, words: str) -> None:
    body = {"POST": {"model": "m", "messages": [], "n": 2}, "PATCH": {"source": "vLlm"}}.get(method)
    client = client_of(instance)
    got = client.send(method, path) if body is None else client.json(method, path, body)
    assert got.fault == (400, "feature_not_enabled", f"{words} requires enabling the `chat completions` experimental feature. "
                         "See https://github.com/orgs/svc/discussions/835")


# Dumps


@pytest.mark.parametrize(("uid", "name"), [("a.b", "a.b.json"), ("a/b%", "a%2Fb%25.json"), ("..", "...json")])
def test_a_dump_names_files_by_uids(uid: str, name: str) -> None:
    stored = {"source": "vLlm", "baseUrl": "u", "apiKey": "secret", "prompts": {"system": "S"}}
    assert workspace.dump_entry(uid, stored) == (name, {
        **NOTHING, **stored, "prompts": {**DEFAULTS, "system": "S"}})
    assert workspace.from_dump(*workspace.dump_entry(uid, stored)) == (uid, {**stored, "prompts": {**DEFAULTS, "system": "S"}})


def test_a_uid_that_is_too_long_for_a_file() -> None:
    uid = "x" * 511
    name, value = workspace.dump_entry(uid, {})
    assert len(name) < 200 and workspace.from_dump(name, value)[0] == uid


@pytest.mark.parametrize(("value", "stored"), [
    ({"source": "openAi"}, {"source": "openAi"}),
    ({"source": "openAi", "prompts": None, "later": 1}, {"source": "openAi"}),
    ({"source": "openAi", "prompts": {"system": "S", "searchQParam": None}}, {"source": "openAi", "prompts": {
        "system": "S", "searchDescription": "", "searchQParam": "", "searchIndexUidParam": ""}}),
])
def test_a_dump_may_lack_members(value: Any, stored: Any) -> None:
    assert workspace.from_dump("w.json", value) == ("w", stored)


@pytest.mark.parametrize("value", [{}, {"source": None}, {"source": "x"}, {"source": "openAi", "apiKey": 1}, []])
def test_a_dump_that_is_wrong(value: Any) -> None:
    with pytest.raises((KeyError, FieldError, AttributeError)):
        workspace.from_dump("w.json", value)
