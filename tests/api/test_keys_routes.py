"""1. A key is shown whole, with its value, to the master key; lists are paged, the newest first.
2. The path names a key by its uid or its value.
3. Names change, rights do not; a deleted key is gone.
4. Bodies are refused with the code of the member at fault; a key of some indexes has no action on all.
5. A new instance has the four default keys; an instance that has keys gets none.
6. Without a master key there are no keys to show.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.api.keys import default_keys
from svcd.auth.keys import ACTIONS, needs_every_index
from tests.support.bearers import MASTER_KEY, uid, value_of

BODY = {"actions": ["search"], "indexes": ["films"], "expiresAt": None}


@pytest.fixture
def master(connect: Any) -> Any:
    """master(method, url, value) -> the answer to the master key."""
    client = connect(MASTER_KEY)
    return lambda method, url, value=None: client.ask(MASTER_KEY, method, url, value)


def test_a_key_is_shown_whole(master: Any, check_shape: Any) -> None:
    got = master("POST", "/keys", {**BODY, "uid": uid(1), "name": "a", "expiresAt": "2999-01-01"})
    assert got.status == 201
    check_shape(got.value, "Key")
    shown = {name: member for name, member in got.value.items() if not name.endswith("edAt")}
    assert list(got.value) == ["name", "description", "key", "uid", "actions", "indexes", "expiresAt", "createdAt",
                               "updatedAt"]
    assert shown == {"name": "a", "description": None, "key": value_of(uid(1)), "uid": uid(1), "actions": ["search"],
                     "indexes": ["films"], "expiresAt": "2999-01-01T00:00:00Z"}
    assert got.value["createdAt"] == got.value["updatedAt"]


@pytest.mark.parametrize("name", [uid(1), uid(1).upper(), uid(1).replace("-", ""), value_of(uid(1))])
def test_a_key_is_named_by_uid_or_value(master: Any, name: str) -> None:
    made = master("POST", "/keys", {**BODY, "uid": uid(1)}).value
    assert master("GET", f"/keys/{name}").value == made
    assert master("PATCH", f"/keys/{name}", {"name": "b"}).value["name"] == "b"
    assert master("DELETE", f"/keys/{name}").status == 204
    assert master("GET", f"/keys/{name}").fault == (404, "api_key_not_found", f"API key `{name}` not found.")


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("name", ["doggo", uid(9), value_of(uid(9)), MASTER_KEY])
def test_an_unknown_key_is_not_found(master: Any, method: str, name: str) -> None:
    assert master(method, f"/keys/{name}", {} if method == "PATCH" else None).fault[:2] == (404, "api_key_not_found")


def test_a_uid_is_random_unless_it_is_given(master: Any) -> None:
    made = [master("POST", "/keys", {**BODY, **given}).value["uid"] for given in ({}, {"uid": None}, {"uid": uid(1)})]
    assert len(set(made)) == 3 and made[2] == uid(1)
    assert master("POST", "/keys", {**BODY, "uid": uid(1).upper()}).fault == (
        409, "api_key_already_exists", f"`uid` field value `{uid(1)}` is already an existing API key.")


def test_names_change_and_null_clears(master: Any) -> None:
    made = master("POST", "/keys", {**BODY, "name": "a", "description": "b"}).value
    path = f"/keys/{made['uid']}"
    for change, words in (({}, ("a", "b")), ({"name": "c"}, ("c", "b")), ({"name": None}, (None, "b"))):
        got = master("PATCH", path, change)
        assert got.status == 200 and (got.value["name"], got.value["description"]) == words
        assert got.value["updatedAt"] > made["updatedAt"] and got.value["createdAt"] == made["createdAt"]
    assert master("GET", path).value == got.value


def test_lists_are_paged(master: Any, check_shape: Any) -> None:
    uids = [master("POST", "/keys", BODY).value["uid"] for _ in range(3)][::-1]
    got = master("GET", "/keys?offset=1&limit=1").value
    check_shape(got, "KeyPage")
    assert ([key["uid"] for key in got["results"]], got["offset"], got["limit"], got["total"]) == (uids[1:2], 1, 1, 3)
    assert [key["uid"] for key in master("GET", "/keys").value["results"]] == uids


def test_default_keys_are_for_a_new_instance(master: Any, instance: Any) -> None:
    instance.keys.add_to_empty(default_keys())
    shown = master("GET", "/keys").value["results"]
    assert [(key["name"], key["actions"]) for key in shown] == [
        ("Default Search API Key", ["search"]), ("Default Admin API Key", ["*"]),
        ("Default Read-Only Admin API Key", ["*.get", "keys.get"]),
        ("Default Chat API Key", ["chatCompletions", "search"])]
    assert {(*key["indexes"], key["expiresAt"]) for key in shown} == {("*", None)}
    assert len({key["uid"] for key in shown}) == 4 and all(key["key"] == value_of(key["uid"]) for key in shown)
    assert all(list(key["actions"]) and set(key["actions"]) <= set(ACTIONS) for key in shown)
    instance.keys.add_to_empty(default_keys())
    assert master("GET", "/keys").value["total"] == 4


@pytest.mark.parametrize(("change", "code", "message"), [
    ({"uid": "doggo"}, "invalid_api_key_uid", "Invalid value at `.uid`: invalid character: found `o` at 1"),
    ({"uid": 1}, "invalid_api_key_uid", "Invalid value type at `.uid`: expected a string, but found a positive"),
    ({"actions": "search"}, "invalid_api_key_actions", "Invalid value type at `.actions`: expected an array"),
    ({"actions": ["serch"]}, "invalid_api_key_actions",
     "Unknown value `serch` at `.actions[0]`: did you mean `search`? expected one of `*`, `search`, `documents.*`"),
    ({"actions": ["keys.*"]}, "invalid_api_key_actions", "Unknown value `keys.*` at `.actions[0]`"),
    ({"indexes": ["a", "b c"]}, "invalid_api_key_indexes",
     "Invalid value at `.indexes[1]`: `b c` is not a valid index uid pattern."),
    ({"name": 1}, "invalid_api_key_name", "Invalid value type at `.name`"),
    ({"description": []}, "invalid_api_key_description", "Invalid value type at `.description`"),
    ({"key": "x"}, "bad_request", "Unknown field `key`: expected one of `description`, `name`, `uid`, `actions`"),
])
def test_bodies_are_checked(master: Any, change: Any, code: str, message: str) -> None:
    status, found, text = master("POST", "/keys", {**BODY, **change}).fault
    assert (status, found) == (400, code) and text.startswith(message)
    assert master("GET", "/keys").value["total"] == 0


@pytest.mark.parametrize("member", ["actions", "indexes", "expiresAt"])
def test_what_has_to_be_there(master: Any, member: str) -> None:
    body = {name: value for name, value in BODY.items() if name != member}
    code = {"actions": "missing_api_key_actions", "indexes": "missing_api_key_indexes",
            "expiresAt": "missing_api_key_expires_at"}[member]
    assert master("POST", "/keys", body).fault == (400, code, f"Missing field `{member}`")


@pytest.mark.parametrize(("text", "shown"), [
    ("2999-01-01", "2999-01-01T00:00:00Z"), ("2999-01-01 12:00:00", "2999-01-01T12:00:00Z"),
    ("2999-01-01T12:00:00", "2999-01-01T12:00:00Z"), ("2999-01-01T12:00:00.25+01:00", "2999-01-01T11:00:00.25Z"),
    ("9999-12-31", "9999-12-31T00:00:00Z")])
def test_forms_of_the_end(master: Any, text: str, shown: str) -> None:
    assert master("POST", "/keys", {**BODY, "expiresAt": text}).value["expiresAt"] == shown
    assert master("GET", "/keys").value["results"][0]["expiresAt"] == shown


@pytest.mark.parametrize("text", ["", "doggo", "2010-01-01", "1970-01-01T00:00:00Z", "2999-13-01", "2999-01-01T12:00"])
def test_an_end_is_a_date_to_come(master: Any, text: str) -> None:
    assert master("POST", "/keys", {**BODY, "expiresAt": text}).fault == (
        400, "invalid_api_key_expires_at",
        f"Invalid value at `.expiresAt`: `{text}` is not a valid date. It should follow the RFC 3339 format to "
        "represents a date or datetime in the future or specified as a null value. "
        "e.g. 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'.\n")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_key_of_some_indexes_lists_no_action_on_all(master: Any, action: str) -> None:
    for indexes in (["*"], ["films", "*"], []):
        assert master("POST", "/keys", {**BODY, "actions": ["search", action], "indexes": indexes}).status == 201
    got = master("POST", "/keys", {**BODY, "actions": ["search", action, "version"]})
    named = action if needs_every_index(action) else "version"
    assert got.fault == (400, "index_scoped_api_key_with_global_action",
                         f'cannot create index-scoped API key with global action `"{named}"`\n  - Hint: remove action '
                         f'`"{named}"` from the action list, or remove `indexes` to make the key global')


@pytest.mark.parametrize(("member", "code"), [
    ("uid", "immutable_api_key_uid"), ("actions", "immutable_api_key_actions"),
    ("indexes", "immutable_api_key_indexes"),
    ("expiresAt", "immutable_api_key_expires_at"), ("createdAt", "immutable_api_key_created_at"),
    ("updatedAt", "immutable_api_key_updated_at")])
def test_rights_do_not_change(master: Any, member: str, code: str) -> None:
    path = f"/keys/{master('POST', '/keys', BODY).value['uid']}"
    assert master("PATCH", path, {member: None}).fault == (
        400, code, f"Immutable field `{member}`: expected one of `description`, `name`")
    assert master("PATCH", path, {"key": None}).fault[1] == "bad_request"


@pytest.mark.parametrize(("method", "path"), [("GET", "/keys"), ("POST", "/keys"), ("GET", f"/keys/{uid(1)}"),
                                              ("PATCH", f"/keys/{uid(1)}"), ("DELETE", f"/keys/{uid(1)}")])
def test_an_open_instance_shows_no_keys(client: Any, method: str, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer x"}):
        assert client.send(method, path, headers=headers).fault[:2] == (401, "missing_master_key")
