"""1. Without a master key everything but `keys.*` is allowed.
2. The master key opens everything; `keys.*` is opened by nothing else, whatever a key lists.
3. A missing header, another scheme and a wrong token are told apart.
4. The value of a key is HMAC-SHA256 of its uid under the master key; the uid opens nothing.
5. A key opens the actions it lists, on the indexes it lists; what concerns the whole instance needs all indexes.
6. An expired, changed or deleted key opens nothing from that moment on.
7. A refusal names the indexes of a key to its bearer, the index of a token to the bearer of that, and no more.
8. Secrets are compared in one place, and shown by no repr.
9. `*` opens every action, `*.get` every reading one but those of keys, a family's wildcard its members.
10. A wildcard opens nothing that is not one of its members; a name that is no action opens nothing.
11. Actions that concern the whole instance are known as such, unknown ones too.
12. Names, order, reach and members of actions are those of tests/contract/permissions.json.
"""
from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import svcd
from svcd.auth.keys import ACTIONS, ALL, ALL_PERMITTED, ANY, MIXED, Keys, expand_wildcards, needs_every_index
from svcd.base.errors import ApiError
from tests.support.bearers import MASTER_KEY, NOW, SECOND, Clock, Row, Shelf, keys_of, token, uid, value_of
from tests.support.contract import table

INVALID = "The provided API key is invalid."


def refusal(keys: Keys, header: str | None, action: str = "indexes.get", index_uid: str | None = None) -> ApiError:
    with pytest.raises(ApiError) as refused:
        keys.check(action, index_uid, header)
    return refused.value


def code_of(keys: Keys, header: str | None, action: str = "indexes.get") -> str:
    return refusal(keys, header, action).code


def opens(keys: Keys, number: int, action: str, index_uid: str | None = None) -> bool:
    """Whether the key uid(number) may do this."""
    try:
        keys.check(action, index_uid, f"Bearer {value_of(uid(number))}")
    except ApiError as refused:
        assert refused.code == "invalid_api_key"
        return False
    return True


@pytest.mark.parametrize("header", [None, "Bearer whatever", f"Bearer {token(['x'])}"])
def test_an_open_instance_allows_everything(header: str | None) -> None:
    assert Keys(None).check("search", "films", header) is ALL_PERMITTED


@pytest.mark.parametrize("header", [None, "Bearer whatever"])
def test_the_keys_routes_need_a_master_key_at_launch(header: str | None) -> None:
    assert code_of(Keys(None), header, "keys.get") == "missing_master_key"


def test_the_master_key_opens_every_action() -> None:
    assert Keys(MASTER_KEY).check("keys.delete", None, f"Bearer {MASTER_KEY}").allows("films")


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "bEARer"])
def test_the_scheme_may_have_any_letter_case(scheme: str) -> None:
    assert Keys(MASTER_KEY).check("indexes.get", None, f"{scheme} {MASTER_KEY}").allows("films")
    assert keys_of(Row(uid(1), ["search"])).check("search", "films", f"{scheme} {token(['films'])}").allows("films")


@pytest.mark.parametrize("action", ["keys.get", "keys.create", "keys.update", "keys.delete"])
def test_nothing_else_opens_the_keys(action: str) -> None:
    assert not opens(keys_of(Row(uid(1), ["*", "*.get", action])), 1, action)


@pytest.mark.parametrize(("header", "code"), [
    (None, "missing_authorization_header"),
    ("Basic dXNlcg==", "missing_authorization_header"),
    ("bearer", "invalid_api_key"),
    ("Bearer", "invalid_api_key"),
    ("Bearer ", "invalid_api_key"),
    (f"Bearer  {MASTER_KEY}", "invalid_api_key"),
    (f"Bearer {MASTER_KEY} ", "invalid_api_key"),
    (f"Bearer {MASTER_KEY[:-1]}", "invalid_api_key"),
    ("Bearer é", "invalid_api_key"),
    ("Bearer \udcff", "invalid_api_key"),
    ("Bearer a.b.c", "invalid_api_key"),
    ("Bearer é.b.c", "invalid_api_key"),
])
@pytest.mark.parametrize("action", ["indexes.get", "search", "keys.get"])
def test_anything_else_is_refused_by_its_kind(header: str | None, code: str, action: str) -> None:
    assert code_of(keys_of(Row(uid(1))), header, action) == code


def test_another_scheme_is_refused_even_on_an_open_instance() -> None:
    assert code_of(Keys(None), "Basic dXNlcg==") == "missing_authorization_header"


def test_a_value_follows_from_uid_and_master_key() -> None:
    value = Keys("masterKey0123456").value_of("6062abda-a5aa-4414-ac91-ecd7944c0f8d")
    assert value == "b34ffd079750240d44e64828bcd6bb8044f889935340c563b308a69e4f8fa938"
    assert Keys(MASTER_KEY).value_of(uid(1)) == value_of(uid(1)) != value_of(uid(2))


def test_another_master_key_makes_other_values() -> None:
    shelf = Shelf([Row(uid(1))], 1)
    assert opens(Keys(MASTER_KEY, shelf), 1, "version")
    assert not opens(Keys(MASTER_KEY + "x", shelf), 1, "version")


def test_an_open_instance_has_no_values() -> None:
    with pytest.raises(RuntimeError, match="no"):
        Keys(None).value_of(uid(1))


@pytest.mark.parametrize("bearer", [
    uid(1), value_of(uid(2)), value_of(uid(1)).upper(), value_of(uid(1))[:-1], value_of(uid(1)) + "0"])
def test_only_the_value_itself_is_a_key(bearer: str) -> None:
    keys = keys_of(Row(uid(1)))
    assert refusal(keys, f"Bearer {bearer}").message == INVALID
    assert keys.uid_of(bearer) is None and keys.uid_of(value_of(uid(1))) == uid(1)


def test_a_key_opens_what_it_lists_and_nothing_else() -> None:
    keys = keys_of(Row(uid(1), ["documents.add", "stats.*"]))
    assert opens(keys, 1, "documents.add", "films") and opens(keys, 1, "stats.get")
    assert not opens(keys, 1, "documents.get", "films") and not opens(keys, 1, "version")


@pytest.mark.parametrize(("indexes", "index_uid", "is_open"), [
    (["films"], "films", True), (["films"], "film", False), (["films"], "films_2", False), (["films"], "Films", False),
    (["films*"], "films", True), (["films*"], "films_2", True), (["films_*"], "films", False),
    (["*"], "films", True), (["books", "fi*"], "films", True), ([], "films", False), (["books"], "films", False),
])
def test_patterns_of_indexes(indexes: list[str], index_uid: str, is_open: bool) -> None:
    assert opens(keys_of(Row(uid(1), ["*"], indexes)), 1, "documents.get", index_uid) == is_open


@pytest.mark.parametrize(("indexes", "filtered", "whole"), [
    (["*"], True, True), (["films", "*"], True, True), (["films"], True, False), (["films*"], True, False),
    ([], False, False)])
def test_what_concerns_the_whole_instance_needs_every_index(indexes: list[str], filtered: bool, whole: bool) -> None:
    keys = keys_of(Row(uid(1), ["*", "version", "tasks.*"], indexes))
    assert [opens(keys, 1, action) for action in ("tasks.get", "indexes.create", "search")] == [filtered] * 3
    assert [opens(keys, 1, action) for action in ("version", "tasks.compact", "metrics.get")] == [whole] * 3


def test_a_permission_shows_what_the_key_may_see() -> None:
    header = f"Bearer {value_of(uid(1))}"
    permission = keys_of(Row(uid(1), ["*"], ["films", "b*"])).check("tasks.get", None, header)
    seen = [permission.allows(index_uid) for index_uid in ("films", "books", "cities", None)]
    assert seen == [True, True, False, False]
    assert permission.restriction is not None and permission.restriction("books")
    assert keys_of(Row(uid(1))).check("tasks.get", None, header).restriction is None
    with pytest.raises(ApiError, match=INVALID):
        permission.require("cities")


@pytest.mark.parametrize(("actions", "indexes", "may"), [
    (["documents.add"], ["*"], False), (["documents.*", "settings.*"], ["films"], False),
    (["documents.add", "indexes.create"], ["films"], True), (["documents.add", "indexes.*"], ["*"], True),
    (["*"], ["fi*"], True)])
def test_a_write_creates_an_index_only_with_the_action(actions: list[str], indexes: list[str], may: bool) -> None:
    keys = keys_of(Row(uid(1), actions, indexes))
    assert keys.check("documents.add", "films", f"Bearer {value_of(uid(1))}").may_create_index == may


def test_a_key_is_over_at_its_moment() -> None:
    clock = Clock(NOW - 1)
    keys = keys_of(Row(uid(1), expires_at=NOW), Row(uid(2), expires_at=None), clock=clock)
    assert opens(keys, 1, "search", "films")
    clock.now = NOW
    assert not opens(keys, 1, "search", "films") and opens(keys, 2, "search", "films")


def test_changes_count_at_once_and_are_read_once() -> None:
    shelf = Shelf()
    keys = Keys(MASTER_KEY, shelf)
    assert not opens(keys, 1, "search")
    shelf.put(Row(uid(1)), Row(uid(2)))
    assert opens(keys, 1, "search") and opens(keys, 2, "search") and opens(keys, 1, "version")
    assert shelf.reads == 2
    shelf.put(Row(uid(2), ["version"]))
    assert not opens(keys, 1, "search") and not opens(keys, 2, "search") and opens(keys, 2, "version")


def test_the_bearer_of_a_key_learns_its_indexes_and_that_of_a_token_does_not() -> None:
    keys = keys_of(Row(uid(1), ["search"], ["films", "books_*", "films"]))
    refused = refusal(keys, f"Bearer {value_of(uid(1))}", "search", "cities")
    assert refused.message == ('The API key cannot acces the index `cities`, '
                               'authorized indexes are ["books_*", "films"].')
    refused = refusal(keys, f"Bearer {token(['cities'])}", "search", "cities")
    assert refused.message == "The API key used to generate this tenant token cannot acces the index `cities`."


def test_the_index_is_checked_before_the_action() -> None:
    keys = keys_of(Row(uid(1), ["version"], ["films"], expires_at=1))
    assert "authorized indexes" in refusal(keys, f"Bearer {value_of(uid(1))}", "search", "cities").message
    assert refusal(keys, f"Bearer {value_of(uid(1))}", "search", "films").message == INVALID


def test_no_repr_shows_a_secret() -> None:
    keys = keys_of(Row(uid(1)))
    assert opens(keys, 1, "version")
    shown = repr(keys) + "".join(repr(value) for value in vars(keys).values() if not isinstance(value, str))
    assert MASTER_KEY not in shown and value_of(uid(1)) not in shown


def test_secrets_are_compared_in_one_place() -> None:
    calls = [(path.name, node.attr) for path in Path(svcd.__file__).parent.rglob("*.py")
             for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Attribute) and node.attr == "compare_digest"]
    assert calls == [("keys.py", "compare_digest")]


def test_expiry_is_in_nanoseconds() -> None:
    assert opens(keys_of(Row(uid(1), expires_at=NOW + 1), clock=Clock(NOW)), 1, "version")
    assert not opens(keys_of(Row(uid(1), expires_at=NOW), clock=Clock(NOW + SECOND)), 1, "version")


# Actions and their wildcards

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
