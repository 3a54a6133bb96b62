"""The settings of a chat workspace: members, checks, defaults, merging, and their form in responses and dumps.

*Stored* settings contain only the members that were set; *complete* ones have every member, None for unset ones. See
docs/chats.md#workspaces.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.base.errors import ApiError
from svcd.chat.prompts import DEFAULTS
from svcd.validation import Field, nullable, object_of, one_of, string
from svcd.validation.urls import redacted_secret

Stored = Mapping[str, Any]
Complete = dict[str, Any]

OPEN_AI, MISTRAL, AZURE, VLLM = SOURCES = ("openAi", "mistral", "azureOpenAi", "vLlm")  # in the order of messages
_PROMPT_CODES = {
    "system": "system", "searchDescription": "search_description", "searchQParam": "search_query_param",
    "searchFilterParam": "search_filter_param", "searchIndexUidParam": "search_index_uid_param",
}
# The required members of some sources.
_NEEDED = {AZURE: ("baseUrl", "deploymentId", "apiVersion"), VLLM: ("baseUrl",)}


def _text(code: str, about: str) -> Field:
    return Field(nullable(string), f"invalid_chat_completion_{code}", about=about)


CHANGE = object_of({  # in the order of answers and messages
    "source": Field(nullable(one_of(*SOURCES)), about="The service that the model runs at."),
    "orgId": _text("org_id", "Organization, sent to all but azureOpenAi."),
    "projectId": _text("project_id", "Project, sent to all but azureOpenAi."),
    "apiVersion": _text("api_version", "Version of the interface of azureOpenAi."),
    "deploymentId": _text("deployment_id", "Deployment at azureOpenAi."),
    "baseUrl": _text("base_api", "Base address of the service."),
    "apiKey": _text("api_key", "The key of the service; answers show its first characters."),
    "prompts": Field(nullable(object_of({
        name: _text(f"{code}_prompt", "Null for the default text.") for name, code in _PROMPT_CODES.items()})),
        about="The prompts for the model."),
})
_MEMBERS = ("source", "orgId", "projectId", "apiVersion", "deploymentId", "baseUrl", "apiKey")


def merged(stored: Stored, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings after a change: absent members stay, None resets a member. Raises bad_request."""
    after = {**stored, **change}
    if change.get("prompts") is not None:
        after["prompts"] = _given({**stored.get("prompts", {}), **change["prompts"]})
    after = _given(after)
    source = after.get("source", OPEN_AI)
    needed = _NEEDED.get(source, ())
    if any(name not in after for name in needed):
        quoted = [f"`{name}`" for name in needed]
        listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
        raise ApiError("bad_request", f"{source} requires setting a valid {listed}")
    return after


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def complete(stored: Stored) -> Complete:
    """Return every member with defaults filled in and the key in clear text, as in a dump."""
    members = {name: stored.get(name) for name in _MEMBERS}
    return {**members, "source": stored.get("source", OPEN_AI), "prompts": {**DEFAULTS, **stored.get("prompts", {})}}


def shown(stored: Stored) -> Complete:
    """Return every member as responses show it, with a few characters of the key."""
    members = complete(stored)
    key = members["apiKey"]
    return members if key is None else {**members, "apiKey": redacted_secret(key)}


# Dumps have a file for each workspace, named by its uid.

_ESCAPES = {"%": "%25", "/": "%2F", "\0": "%00"}
_MOST_NAME_BYTES = 200  # file systems allow 255
_SUFFIX = ".json"


def dump_entry(uid: str, stored: Stored) -> tuple[str, Complete]:
    """Return (name of the file, its JSON value). The value has the uid if that is too long for a name."""
    name = "".join(_ESCAPES.get(character, character) for character in uid)
    if len(name.encode()) <= _MOST_NAME_BYTES:
        return name + _SUFFIX, complete(stored)
    import hashlib  # loads OpenSSL

    return hashlib.sha256(uid.encode()).hexdigest() + _SUFFIX, {"uid": uid, **complete(stored)}


def from_dump(file_name: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return (uid, stored settings) from a file of a dump. Raises FieldError, and KeyError without source."""
    uid = file_name.removesuffix(_SUFFIX)
    for character, escape in reversed(_ESCAPES.items()):
        uid = uid.replace(escape, character)
    uid = string.decode(value.get("uid", uid), ".uid")
    change = CHANGE.decode({name: value[name] for name in (*_MEMBERS, "prompts") if name in value}, "")
    if change["source"] is None:
        raise KeyError("source")
    if change.get("prompts") is not None:
        # A prompt that a dump lacks is empty, except searchFilterParam, which older dumps cannot have.
        absent = dict.fromkeys(DEFAULTS.keys() - {"searchFilterParam"}, "")
        change["prompts"] = _given({**absent, **_given(change["prompts"])})
    return uid, _given(change)
