"""1. `*` opens every action, `*.get` every reading one but those of keys, a family's wildcard its members.
2. A wildcard opens nothing that is not one of its members; a name that is no action opens nothing.
3. Actions that concern the whole instance are known as such, unknown ones too.
4. Names, order, reach and members are those of tests/contract/permissions.json.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.auth.permissions import ACTIONS, ALL, ANY, MIXED, expand_wildcards, needs_every_index
from tests.support.contract import table

REACH = {"global": ALL, "filtered": ANY, "path": ANY, "mixed": MIXED}


@pytest.fixture(scope="module")
def contract() -> Any:
    return table("permissions")


def test_the_star_opens_every_action() -> None:
    assert expand_wildcards(["*"]) == set(ACTIONS) - {"*.get"}


def test_every_read_opens_no_key_and_no_write() -> None:
    reads = expand_wildcards(["*.get"])
    assert {"search", "version", "export", "fields.post", "documents.get", "tasks.get"} <= reads
    assert not [action for action in reads if action.startswith("keys.")]
    assert {action for action in reads if not action.endswith(".get")} == {"search", "version", "export", "fields.post"}


@pytest.mark.parametrize("wildcard", [action for action in ACTIONS if action.endswith(".*")])
def test_a_family_opens_its_members_and_not_its_name(wildcard: str) -> None:
    members = expand_wildcards([wildcard])
    assert members and all(member.startswith(wildcard[:-1]) and "*" not in member for member in members)


def test_families_of_like_names_are_apart() -> None:
    assert expand_wildcards(["chats.*"]) == {"chats.get", "chats.delete"}


@pytest.mark.parametrize("name", ["keys.*", "network.*", "experimental.*", "fields.*", "*.delete", "", "Search"])
def test_what_is_no_action_opens_nothing(name: str) -> None:
    assert expand_wildcards([name]) == frozenset()
    assert needs_every_index(name)


def test_lists_are_joined() -> None:
    assert expand_wildcards(["search", "stats.*", "search"]) == {"search", "stats.get"}


def test_names_order_and_reach_are_those_of_the_contract(contract: Any) -> None:
    rows = sorted(contract["actions"].items(), key=lambda row: row[1]["order"])
    assert [(name, REACH[row["scope"]]) for name, row in rows] == list(ACTIONS.items())


def test_members_are_those_of_the_contract(contract: Any) -> None:
    for wildcard, members in contract["wildcards"].items():
        if wildcard != "*":
            assert expand_wildcards([wildcard]) == set(members), wildcard
