"""Nothing of the interface is missing. What must hold of every fact in the tables of tests/contract:

1. Operations, their parameters, members of bodies and answers, and values of enumerations are in our OpenAPI document, and no route
   is only declared.
2. A name that a client may send is used beyond its declaration, and so is each option, environment variable, feature and error
   code.
3. What svcd accepts without effect, or does not have on purpose, is in WITHOUT_EFFECT with the reason, which
   docs/compatibility.md repeats; nothing there has an effect.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from svcd.api.all_routes import ROUTES
from svcd.api.openapi import document
from svcd.base.errors import ERRORS
from svcd.cli import options
from svcd.cli.options import BY_NAME
from svcd.validation.names import FEATURES
from tests.support.contract import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"

_OF_A_CHANGE = "part of changes of the network only, not of its description"
_OF_A_LEADER = "belongs to networks with a leader, which the reference engine has in its Enterprise Edition alone"
# Facts that have no effect here -> why. docs/compatibility.md has a row with the same words for each.
WITHOUT_EFFECT: Mapping[str, str] = {
    "option upgrade_db": "svcd always upgrades an older database at the start",
    "option ssl_ocsp_path": "Python's TLS library does not support OCSP stapling: svcd refuses to start with this option",
    "option experimental_reduce_indexing_memory_usage": "indexing always keeps to its memory limit",
    "option experimental_no_edition_2024_for_settings": "svcd has one way to apply settings",
    "variable SVC_EXPERIMENTAL_DISABLE_FID_BASED_DATABASES_CLEANUP": "svcd never stored the databases that the clean-up removes",
    "*disableDocumentsFetchQueue": "documents are read without a queue in any case",
    "*/similar answer hitsPerPage": "the route for similar documents does not number pages",
    "*/similar answer page": "the route for similar documents does not number pages",
    "*/similar answer totalPages": "the route for similar documents does not number pages",
    "*/similar answer totalHits": "the route for similar documents does not number pages",
    "code bad_parameter": "reserved: found in old dumps only",
    "code dump_not_found": "reserved: found in old dumps only",
    "code duplicate_index_found": "reserved: the reference engine never answers it",
    "code invalid_export_index_filter": "reserved: the reference engine never answers it",
    "code invalid_export_indexes_patterns": "reserved: the reference engine never answers it",
    "code immutable_api_key_key": "reserved: the reference engine never answers it",
    "code invalid_facet_search_name": "reserved: the reference engine never answers it",
    "code invalid_multi_search_facets": "reserved: the reference engine never answers it",
    "code invalid_multi_search_federated": "reserved: the reference engine never answers it",
    "code database_size_limit_reached": "the files of svcd may grow as far as the disk: a full one is `no_space_left_on_device`",
    "code dump_process_failed": "a dump that cannot be written fails with the error of the disk, one that cannot be read ends the start",
    "code invalid_state": "keys that cannot be read end the start",
    "* /network answer *addRemotes": _OF_A_CHANGE,
    "* /network answer *removeRemotes": _OF_A_CHANGE,
    "* /network answer previousShards*": _OF_A_CHANGE,
    "* /network answer previousRemotes*": _OF_A_CHANGE,
    "PATCH /network body previousShards": _OF_A_LEADER,
    "POST /network/control body origin.*": _OF_A_LEADER,
    "POST /network/control body message.*": _OF_A_LEADER,
    "GET /tasks* answer *network": _OF_A_LEADER,
    "GET /tasks* answer *network.*": _OF_A_LEADER,
    "variable SVC_EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS": _OF_A_LEADER,
    "variable SVC_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS": _OF_A_LEADER,
    "variable SVC_EXPERIMENTAL_PROXY_REQUEST_TIMEOUT_SECONDS": _OF_A_LEADER,
    "code import_task_already_received": _OF_A_LEADER,
    "code import_task_unknown_remote": _OF_A_LEADER,
    "code import_task_without_network_task": _OF_A_LEADER,
    "code inconsistent_document_change_headers": _OF_A_LEADER,
    "code invalid_header_value": _OF_A_LEADER,
    "code network_version_mismatch": _OF_A_LEADER,
    "code network_version_too_old": _OF_A_LEADER,
    "code not_leader": _OF_A_LEADER,
    "code receive_import_finished_unknown_remote": _OF_A_LEADER,
    "code unknown_remote": _OF_A_LEADER,
    "code unprocessed_network_task": _OF_A_LEADER,
    "POST /chats/{workspace_uid}/chat/completions answer *": "answers are streamed: each event has a chunk of the same members",
}


# Facts


def facts() -> Iterator[str]:
    """All that the tables name: `POST /indexes`, `POST /indexes body uid`, `option env`, `feature metrics`, `code internal`."""
    for operation, parts in table("members")["operations"].items():
        yield operation
        yield from (f"{operation} status {status}" for status in parts["status"])
        for part in ("query", "body", "answer"):
            yield from (f"{operation} {part} {member}" for member in expanded(parts.get(part, ())))
    yield from (f"option {row['name']}" for row in table("options")["options"])
    yield from (f"variable {name}" for name in table("options")["variables_alone"])
    yield from (f"feature {name}" for name in table("members")["shapes"]["RuntimeTogglableFeatures"])
    yield from (f"code {code}" for code in table("codes"))


def expanded(entries: Any, path: str = "") -> Iterator[str]:
    """The members with those of the shapes that they refer to: `filter`, `hybrid.embedder`, `results[].uid`, `status=failed`."""
    for entry in entries:
        place, _, shape = entry.partition("@")
        whole = path + ("." if path and place[:1] not in ("", "=", "[", "{") else "") + place
        if shape:
            yield from expanded(table("members")["shapes"][shape], whole)
        else:
            yield whole


# What svcd has


@cache
def ours() -> frozenset[str]:
    """The facts of our own document, and of the other tables of svcd."""
    described = document(ROUTES)
    found = {f"code {code}" for code in ERRORS} | {f"option {name}" for name in BY_NAME}
    found |= {f"variable {name}" for name in options.OTHER_VARIABLES} | {f"feature {flag}" for flag in FEATURES}
    for route in ROUTES:
        found |= _of_operation(f"{route.method} {route.path}", described["paths"][route.path][route.method.lower()])
    return frozenset(found)


def _of_operation(name: str, operation: Mapping[str, Any]) -> set[str]:
    found = {name, *(f"{name} status {status}" for status in operation["responses"])}
    for entry in operation.get("parameters", ()):
        if entry["in"] == "query":
            found |= {f"{name} query {entry['name']}", *(f"{name} query {each}" for each in _members(entry["schema"], entry["name"]))}
    for content in operation.get("requestBody", {}).get("content", {}).values():
        found |= {f"{name} body {each}" for each in _members(content["schema"])}
    for status, response in operation["responses"].items():
        for content in response.get("content", {}).values():
            found |= {f"{name} answer {each}" for each in _members(content["schema"]) if status < "300"}
    return found


def _members(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    if "$ref" in schema:
        schema = document(())["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for option in schema.get("oneOf", ()):
        yield from _members(option, path)
    yield from (f"{path}={value}" for value in schema.get("enum", ()))
    for name, member in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        yield inner
        yield from _members(member, inner)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), Mapping):
            yield from _members(schema[key], path + mark)


def is_like(fact: str, patterns: Any) -> bool:
    return any(fnmatchcase(fact, pattern.replace("[", "[[]")) for pattern in patterns)


def test_nothing_is_missing() -> None:
    assert [fact for fact in facts() if fact not in ours() and not is_like(fact, WITHOUT_EFFECT)] == []


# Effects


@cache
def used_names() -> tuple[frozenset[str], tuple[str, ...]]:
    """(texts and names in our sources, less keys that only declare something; beginnings of composed texts)."""
    names: set[str] = set()
    beginnings: set[str] = set()
    for path in (ROOT / "svcd").rglob("*.py"):
        tree = ast.parse(path.read_text())
        declared = set(_declarations(tree))
        is_catalogue = path.name in ("errors.py", "features.py") and path.parent.name in ("base", "api")
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in declared and not is_catalogue:
                names |= set(re.findall(r"\w+", node.value))
                beginnings.add(node.value)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                names.add(node.arg)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                beginnings.add(str(node.values[0].value))
    return frozenset(names), tuple(text for text in beginnings if re.fullmatch(r"[a-z]+(_[a-z0-9]+)*_", text) and len(text) > 12)


def _declarations(tree: ast.AST) -> Iterator[ast.AST]:
    """The keys of tables that only say how a value is checked, and the rows of options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values):
                if key is not None and isinstance(value, ast.Call) and isinstance(value.func, (ast.Name, ast.Attribute)):
                    if (value.func.id if isinstance(value.func, ast.Name) else value.func.attr) in ("Field", "Param", "list_of"):
                        yield key
        elif isinstance(node, ast.Assign) and any(
                isinstance(name, ast.Name) and name.id in ("VARIABLES_WITHOUT_EFFECT", "OTHER_VARIABLES") for name in node.targets):
            yield from ast.walk(node)


def is_used(fact: str) -> bool:
    """Is the name that a fact ends with used where it could have an effect?"""
    kind, _, name = fact.partition(" ")
    names, beginnings = used_names()
    if kind == "code":
        return name in names or name.startswith(beginnings)
    if kind == "option":
        return name in BY_NAME and BY_NAME[name].has_effect and name in names
    if kind == "variable":
        return name in names or any(name.startswith(each) for each in names if each.startswith("SVC_") and each.endswith("_"))
    if kind == "feature":
        return name in names
    part = fact.split(" ")[2:]
    if part[:1] not in (["query"], ["body"]):
        return True
    member, _, value = part[1].partition("=")
    return set(re.findall(r"\w+", value or member.rpartition(".")[2])) <= names


def test_what_a_client_may_send_is_used() -> None:
    assert [fact for fact in facts() if not is_used(fact) and not is_like(fact, WITHOUT_EFFECT)] == []


# The list


def test_the_list_names_facts_alone() -> None:
    everything = list(facts())
    assert [pattern for pattern in WITHOUT_EFFECT if not any(is_like(fact, [pattern]) for fact in everything)] == []


def test_the_page_says_why() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    shown = {(name, reason) for names, reason in rows for name in re.findall(r"`([^`]+)`", names)}
    assert {(name_in_docs(fact), reason) for fact, reason in WITHOUT_EFFECT.items()} - shown == set()


def name_in_docs(fact: str) -> str:
    """The flag of an option, an operation as a whole, the name of anything else, and a value as `source: huggingFace`."""
    name = fact.split(" ")[-1].strip("*.")
    if not name:
        return " ".join(fact.split(" ")[:2])
    if fact.startswith("option "):
        return BY_NAME[name].flag
    return name.removeprefix("embedders{}.").replace("=", ": ")
