"""The settings of a chat workspace: members, checks, defaults, merging, and their form in responses and dumps.

*Stored* settings contain only the members that were set; *complete* ones have every member, None for unset ones. See
docs/chats.md#workspaces.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.base.errors import ApiError
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
# Texts that tell the model its task and how to search (docs/chats.md#prompts), in the order of answers.
DEFAULTS: Mapping[str, str] = {
    "system": """\
You are a research assistant of Svc. You answer questions with what you find in the indexes that your search tool opens.

- Search several times for each question, two or three times at least, and word each search differently.
- Before each search, say in one sentence what you are going to look for.
- Split a hard question into simpler ones, and search for each of them.
- Join what all searches have found into one answer. Do not make up what none of them has found.
- Words that must occur in a document belong in `q`, conditions on its fields in `filter`; either may be empty.
- In filters, compare with `=`, never with `:`.
- When the tool answers with an error, read it, correct the call, and try again.""",
    "searchDescription": """\
Searches an index for documents by words, by conditions on their fields, or by both. Three examples:

Question: comedies of the nineties
Known values: genres: Comedy, Drama, Horror. year: 1994, 1998, 2003.
Call: {"q": "", "filter": "genres = Comedy AND year >= 1990 AND year < 2000"}

Question: a thriller or crime story about a bank robbery
Known values: genres: Crime, Thriller, Romance.
Call: {"q": "bank robbery", "filter": "genres IN [Crime, Thriller]"}

Question: what did Agnes Varda make before 1970?
Known values: year: 1962, 1965, 1985.
Call: {"q": "Agnes Varda", "filter": "year < 1970"}

The indexes are:""",
    "searchQParam": "The words or phrases to find in documents. The more precise they are, the better the documents that are "
                    "found; it may be empty.",
    "searchFilterParam": """\
A condition that documents must meet; it may be empty. Operators: parentheses, AND, OR, NOT, =, !=, >=, >, <=, <, IN, NOT IN, TO,
EXISTS, NOT EXISTS, IS NULL, IS NOT NULL, IS EMPTY, IS NOT EMPTY, _geoRadius, _geoBoundingBox. Example:
year >= 1990 AND genres = "Science Fiction"
Each index has other fields. These can be filtered, with some of their values:""",
    "searchIndexUidParam": """\
The index to search. An index holds documents of one kind; choose the one whose description fits the question best.""",
}


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
