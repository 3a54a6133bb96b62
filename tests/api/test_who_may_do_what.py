"""Every route with every kind of bearer: who gets in, and that nobody else does.

1. A public route is for everybody; each other one is opened by the master key, and by nothing at all, the header of
   old versions, another scheme, a wrong, expired or deleted key, a uid, or a key without indexes by none.
2. A key of one action opens the routes that ask for it, a wildcard those of its members; the others it does not.
3. A key of some indexes opens what its indexes are, of routes that name one; of the others those that show or take
   no other index. What concerns the whole instance it never opens.
4. A tenant token opens searches, in indexes of its own and its key's, and with a filter only where it is joined.
5. `/keys` is for the master key alone.
6. Refused is refused before anything else is looked at: no body, query string, feature or index changes the answer.

What may open a route is written down here a second time, and compared with tests/contract/permissions.json.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from svcd.api.all_routes import ROUTES
from svcd.api.openapi import operation_id
from svcd.api.routes import Route
from svcd.auth.keys import ACTIONS
from svcd.instance.instance import Instance
from tests.api.conftest import client_of
from tests.support.bearers import MASTER_KEY, NOW, SECOND, Clock, Row, Shelf, signed, token, uid, value_of
from tests.support.contract import table

EVERY_READ = {
    "search", "documents.get", "export", "indexes.get", "tasks.get", "settings.get", "stats.get", "metrics.get",
    "version", "experimental.get", "network.get", "chats.get", "chatsSettings.get", "webhooks.get", "fields.post",
    "dynamicSearchRules.get",
}
FAMILIES = {"documents", "indexes", "tasks", "settings", "stats", "metrics", "dumps", "snapshots", "chats",
            "chatsSettings", "webhooks", "dynamicSearchRules"}
# What a key of some indexes may have; all else concerns the whole instance.
OF_ONE_INDEX = {
    "search", "chatCompletions", "documents.add", "documents.get", "documents.delete", "documents.*", "indexes.create",
    "indexes.get", "indexes.update", "indexes.delete", "indexes.swap", "indexes.compact", "tasks.cancel",
    "tasks.delete", "tasks.get", "settings.get", "settings.update", "stats.get", "fields.post",
}
OF_TENANTS = {"search", "chatCompletions"}
PROTECTED = [row for row in ROUTES if row.actions]
PARAMETERS = {"index_uid": "films", "task_id": "0", "batch_id": "0", "key": uid(1)}
every_protected = pytest.mark.parametrize("row", PROTECTED, ids=operation_id)


def accepted(action: str) -> set[str]:
    """The names by which a key may list an action."""
    if action.startswith("keys."):
        return set()
    family = action.partition(".")[0]
    names = {action, "*"} | ({"*.get"} if action in EVERY_READ else set())
    if action == "documents.*":
        return {"*"}
    return names | ({f"{family}.*"} if "." in action and family in FAMILIES else set())


def opened_by(row: Route) -> set[str]:
    """The names of which one alone, in a key, is enough for a route."""
    return set.intersection(*map(accepted, row.actions))


def path_of(row: Route) -> str:
    path = row.path
    for name in row.parameters:
        path = path.replace(f"{{{name}}}", PARAMETERS.get(name, "1"))
    return path


def names_an_index(row: Route) -> bool:
    return "index_uid" in row.parameters


KINDS = {  # indexes of a key
    "every": ["*"], "this": ["films"], "beginning": ["fi*"], "both": ["films", "books"],
    "other": ["books"], "other beginning": ["b*"], "like": ["film", "films_*", "Films"], "none": [],
}
ROWS = {  # kind of indexes, action -> a key of this action alone
    (kind, action): Row(uid(1000 * (place + 1) + number), [action], indexes)
    for place, (kind, indexes) in enumerate(KINDS.items()) for number, action in enumerate(ACTIONS)
}
# Keys of all actions, unless they say otherwise.
POWERFUL, LISTING_ALL, OF_OTHERS, NO_SEARCH, EXPIRED, OF_SEARCHES, DELETED = (uid(number) for number in range(1, 8))
SPECIAL = (
    Row(POWERFUL), Row(LISTING_ALL, [*ACTIONS]), Row(OF_OTHERS, indexes=["books"]), Row(EXPIRED, expires_at=NOW),
    Row(NO_SEARCH, [action for action in ACTIONS if action not in {*OF_TENANTS, "*", "*.get"}]),
    Row(OF_SEARCHES, ["search", "chatCompletions"], ["films"]),
)

Ask = Callable[..., tuple[int, str | None]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """ask(row, headers or bearer) -> status and code of the answer. The clock stands at NOW."""
    instance = Instance(tmp_path_factory.mktemp("who") / "data")
    client = client_of(instance, MASTER_KEY, Clock(NOW), Shelf([*ROWS.values(), *SPECIAL], 1))

    def asked(row: Route, bearer: str | Mapping[str, str] | None, query: str = "", content: bytes = b"") -> Any:
        headers = {"authorization": f"Bearer {bearer}"} if isinstance(bearer, str) else dict(bearer or {})
        got = client.send(row.method, path_of(row) + query, content, headers)
        assert got.status < 500, got.text
        return got.status, json.loads(got.text).get("code") if got.status >= 400 else None

    yield asked
    instance.close()


def opening(ask: Ask, row: Route, kind: str) -> set[str]:
    """The actions of which one opens a route to a key of this kind of indexes."""
    return {action for action in ACTIONS if is_in(ask(row, value_of(ROWS[kind, action].uid)))}


def is_in(answer: tuple[int, str | None]) -> bool:
    if answer[0] in (401, 403):
        assert answer == (403, "invalid_api_key")
        return False
    return True


def test_public_routes_are_few_and_open_to_all(ask: Ask) -> None:
    public = [row for row in ROUTES if not row.actions]
    assert {row.path for row in public} == {"/", "/health"}
    for row in public:
        for bearer in (None, "wrong", MASTER_KEY, {"authorization": "Basic eA=="}):
            assert ask(row, bearer)[0] == 200


@every_protected
def test_the_master_key_gets_in(ask: Ask, row: Route) -> None:
    assert is_in(ask(row, MASTER_KEY))


@every_protected
def test_missing_and_wrong_keys_are_rejected(ask: Ask, row: Route) -> None:
    missing, invalid = (401, "missing_authorization_header"), (403, "invalid_api_key")
    for headers in ({}, {"x-svc-api-key": MASTER_KEY}, {"x-svc-api-key": value_of(POWERFUL)},
                    {"authorization": MASTER_KEY}, {"authorization": f"Token {MASTER_KEY}"},
                    {"authorization": f"Basic {MASTER_KEY}"}, {"cookie": MASTER_KEY}):
        assert ask(row, headers) == missing
    for bearer in ("", " ", "wrong", POWERFUL, value_of(DELETED), f"{MASTER_KEY} ", MASTER_KEY.upper(),
                   f" {MASTER_KEY}", "a.b.c", value_of(POWERFUL).upper(), value_of(EXPIRED), token(["*"], DELETED),
                   token(["*"], EXPIRED), signed({"searchRules": ["*"], "apiKeyUid": POWERFUL}, MASTER_KEY)):
        assert ask(row, bearer) == invalid, bearer
    assert ask(row, {}, f"?key={MASTER_KEY}&apiKey={MASTER_KEY}&authorization=Bearer%20{MASTER_KEY}") == missing


@every_protected
def test_one_action_opens_the_routes_that_ask_for_it(ask: Ask, row: Route) -> None:
    assert opening(ask, row, "every") == opened_by(row)


@every_protected
def test_a_key_of_the_index_opens_what_concerns_an_index(ask: Ask, row: Route) -> None:
    for kind in ("this", "beginning", "both"):
        assert opening(ask, row, kind) == (opened_by(row) if OF_ONE_INDEX.issuperset(row.actions) else set())


@every_protected
def test_a_key_of_other_indexes_opens_no_route_of_this_one(ask: Ask, row: Route) -> None:
    is_about_others = OF_ONE_INDEX.issuperset(row.actions) and not names_an_index(row)
    for kind in ("other", "other beginning", "like"):
        assert opening(ask, row, kind) == (opened_by(row) if is_about_others else set())


@every_protected
def test_a_key_without_indexes_opens_nothing(ask: Ask, row: Route) -> None:
    assert opening(ask, row, "none") == set()


@every_protected
def test_a_token_opens_searches_alone(ask: Ask, row: Route) -> None:
    for key_uid in (POWERFUL, LISTING_ALL, OF_SEARCHES):
        for bearer in (token(["films"], key_uid), token(["*"], key_uid), token({"films": None}, key_uid),
                       token({"fi*": {}}, key_uid, "HS512"), token(["*"], key_uid, "HS384", exp=NOW // SECOND)):
            assert is_in(ask(row, bearer)) == (OF_TENANTS.issuperset(row.actions))


@every_protected
def test_a_token_of_another_index_its_key_or_time_opens_nothing_of_this_one(ask: Ask, row: Route) -> None:
    if names_an_index(row) or not OF_TENANTS.issuperset(row.actions):
        for bearer in (token(["books"]), token({"film": {}}), token([]), token(["*"], OF_OTHERS)):
            assert not is_in(ask(row, bearer))
    for bearer in (token(["*"], NO_SEARCH), token(["*"], exp=NOW // SECOND - 1), token(["*"], nbf=NOW // SECOND + 61),
                   token({"films": {"filtre": "a = 1"}}), token(["*"], aud="x")):
        assert not is_in(ask(row, bearer))


@every_protected
def test_a_filter_is_joined_or_refused(ask: Ask, row: Route) -> None:
    for rules in ({"films": {"filter": "a = 1"}}, {"*": {"filter": ["a = 1"]}},
                  {"films": None, "books": {"filter": "a = 1"}}):
        assert is_in(ask(row, token(rules))) == (OF_TENANTS.issuperset(row.actions) and row.joins_rules)


@every_protected
def test_a_wrong_key_is_rejected_before_anything_is_checked(ask: Ask, row: Route) -> None:
    headers = {"authorization": "Bearer wrong", "content-type": "text/plain"}
    for query in ("", "?doggo=1&limit=-1"):
        for content in (b"", b"{", b'{"doggo": 1}'):
            assert ask(row, headers, query, content) == (403, "invalid_api_key")


def test_what_opens_a_route_is_that_of_the_contract() -> None:
    rows = table("permissions")["routes"]
    expected = {(row["method"], row["path"]): set(row["accepted"]) & set(row.get("accepted_second", row["accepted"]))
                - {"the master key alone"} for row in rows}
    for row in PROTECTED:
        if (row.method, row.path) in expected:  # GET /openapi.json is svcd's own
            assert opened_by(row) == expected[row.method, row.path], row.path
