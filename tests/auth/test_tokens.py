"""1. A token opens searches and chats alone, in indexes that both it and its key allow.
2. All forms of rules are read; the rule of an index decides, else that of the longest pattern, filter and all.
3. HS256, HS384 and HS512 signatures of the key it names are taken, no other, and none by another algorithm.
4. It is over when its second is past, when its key is, and never begins too early; `exp` has no tolerance.
5. What is wrong with it is said with the messages that clients expect; nothing in it makes the check fail otherwise.
6. What would narrow it and is not understood refuses it.
"""
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.auth.keys import Keys, Permission
from svcd.base.errors import ApiError
from tests.support.bearers import (
    MASTER_KEY,
    NOW,
    SECOND,
    Clock,
    Row,
    Shelf,
    keys_of,
    part,
    signed,
    token,
    uid,
    value_of,
)

NO_RULES = "data did not match any variant of untagged enum SearchRules"
INVALID = "The provided API key is invalid."
SECONDS = NOW // SECOND
KEYS = keys_of(Row(uid(1), ["search"]))


def check(bearer: str, index_uid: str | None = "films", action: str = "search", keys: Keys = KEYS) -> Permission:
    return keys.check(action, index_uid, f"Bearer {bearer}")


def message(bearer: str, index_uid: str | None = "films", action: str = "search", keys: Keys = KEYS) -> str:
    with pytest.raises(ApiError) as refused:
        check(bearer, index_uid, action, keys)
    assert refused.value.code == "invalid_api_key"
    return refused.value.message


@pytest.mark.parametrize("action", ["documents.get", "indexes.get", "stats.get", "version", "multiSearch", "tasks.get"])
def test_a_token_opens_nothing_but_searches(action: str) -> None:
    assert message(token(["*"]), None, action, keys_of(Row(uid(1)))) == INVALID


def test_chats_are_for_tokens_too() -> None:
    assert check(token(["*"]), None, "chatCompletions", keys_of(Row(uid(1), ["chatCompletions"])))
    assert message(token(["*"]), None, "chatCompletions") == INVALID


@pytest.mark.parametrize(("rules", "filter_of_films"), [
    (["*"], None), (["films"], None), (["fi*", "books"], None),
    ({"films": None}, None), ({"films": {}}, None), ({"*": {"filter": None}}, None),
    ({"films": {"filter": "a = 1"}}, "a = 1"),
    ({"fi*": {"filter": ["a = 1", ["b = 1", "b = 2"]]}}, ["a = 1", ["b = 1", "b = 2"]]),
    ({"*": {"filter": "every"}, "fi*": {"filter": "short"}, "film*": {"filter": "long"}}, "long"),
    ({"*": {"filter": "every"}, "films*": {"filter": "long"}, "films": {"filter": "itself"}}, "itself"),
    ({"films*": {"filter": "long"}, "films": None}, None),
    ({"films": {"filter": "itself"}, "*": None}, "itself"),
    ({"films": {"filter": ""}}, ""),
])
def test_every_form_of_rules(rules: Any, filter_of_films: Any) -> None:
    assert check(token(rules)).search_filter("films") == filter_of_films


@pytest.mark.parametrize("rules", [[], {}, ["books"], ["film"], {"books": {"filter": "a = 1"}, "fil_*": None}])
def test_an_index_without_a_rule_is_refused(rules: Any) -> None:
    assert message(token(rules)) == ("The provided tenant token cannot acces the index `films`, "
                                     f"allowed indexes are {json.dumps(sorted(rules))}.")


def test_the_index_of_a_body_needs_both_too() -> None:
    permission = check(token(["films", "cities"]), None, keys=keys_of(Row(uid(1), ["search"], ["films", "books"])))
    seen = [permission.allows(index_uid) for index_uid in ("films", "cities", "books", None)]
    assert seen == [True, False, False, False]
    for index_uid in ("cities", "books"):
        for ask in (permission.require, permission.search_filter):
            with pytest.raises(ApiError, match=INVALID):
                ask(index_uid)


def test_filters_are_known_to_be_there() -> None:
    assert not check(token({"films": None, "books": {}})).has_filters
    assert check(token({"films": None, "books": {"filter": "a = 1"}})).has_filters
    assert not Permission().has_filters


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_the_three_algorithms(algorithm: str) -> None:
    assert check(token(["*"], algorithm=algorithm))
    forged = signed({"searchRules": ["*"], "apiKeyUid": uid(1)}, "another secret " * 5, algorithm)
    assert message(forged) == "Could not decode tenant token, InvalidSignature."


@pytest.mark.parametrize("algorithm", ["none", "None", "HS1", "RS256", "ES256", "", None, 5, ["HS256"]])
def test_no_other_algorithm(algorithm: Any) -> None:
    claims = part({"searchRules": ["*"], "apiKeyUid": uid(1)})
    for signature in ("", part(b"signature")):
        assert message(f"{part({'typ': 'JWT', 'alg': algorithm})}.{claims}.{signature}").startswith(
            ("Could not decode tenant token, Invalid", INVALID))


@pytest.mark.parametrize("secret", [MASTER_KEY, uid(1), "", value_of(uid(2)), value_of(uid(1)).upper()])
def test_only_the_value_of_its_key_signs(secret: str) -> None:
    claims = {"searchRules": ["*"], "apiKeyUid": uid(1)}
    assert message(signed(claims, secret)) == "Could not decode tenant token, InvalidSignature."


def test_changed_claims_are_noticed() -> None:
    head, _, signature = token(["books"]).split(".")
    changed = f"{head}.{part({'searchRules': ['*'], 'apiKeyUid': uid(1)})}.{signature}"
    assert message(changed) == "Could not decode tenant token, InvalidSignature."


def test_a_token_is_over_after_its_second() -> None:
    clock = Clock(NOW + SECOND - 1)
    keys = keys_of(Row(uid(1), ["search"]), clock=clock)
    bearer = token(["*"], exp=SECONDS)
    assert check(bearer, keys=keys)
    clock.now += 1
    assert message(bearer, keys=keys) == (
        f"Tenant token expired. Was valid up to `{SECONDS}` and we're now `{SECONDS + 1}`.")


@pytest.mark.parametrize("exp", [None, SECONDS + 1, 2**63 - 1])
def test_a_token_without_an_end_or_with_a_later_one(exp: int | None) -> None:
    assert check(token(["*"], exp=exp))


def test_times_may_have_a_fraction() -> None:
    """A NumericDate of RFC 7519 2: Python's time.time() has one."""
    clock = Clock(NOW + SECOND - 1)
    keys = keys_of(Row(uid(1), ["search"]), clock=clock)
    bearer = token(["*"], exp=SECONDS + 0.5, nbf=SECONDS - 0.5)
    assert check(bearer, keys=keys)
    clock.now += 1
    assert message(bearer, keys=keys) == (
        f"Tenant token expired. Was valid up to `{SECONDS + 0.5}` and we're now `{SECONDS + 1}`.")
    assert message(token(["*"], nbf=SECONDS + 60.5)) == "Could not decode tenant token, ImmatureSignature."


def test_a_token_begins_when_it_says() -> None:
    assert check(token(["*"], nbf=SECONDS + 60))
    assert message(token(["*"], nbf=SECONDS + 61)) == "Could not decode tenant token, ImmatureSignature."


def test_a_token_for_somebody_else_is_refused() -> None:
    assert message(token(["*"], aud="another service")) == "Could not decode tenant token, InvalidAudience."
    assert check(token(["*"], aud=None, iat=SECONDS, iss="us", jti="1"))


def test_a_token_is_over_with_its_key() -> None:
    shelf, clock = Shelf([Row(uid(1), ["search"], expires_at=NOW + SECOND)], 1), Clock()
    keys, bearer = Keys(MASTER_KEY, shelf, clock), token(["*"])
    assert check(bearer, keys=keys)
    clock.now = NOW + SECOND
    assert message(bearer, keys=keys) == INVALID
    shelf.put()
    clock.now = NOW
    assert message(bearer, keys=keys) == INVALID


def test_its_key_needs_the_action() -> None:
    assert message(token(["*"]), keys=keys_of(Row(uid(1), ["documents.*"]))) == INVALID


def test_the_uid_of_its_key_may_be_written_in_any_form() -> None:
    claims = {"searchRules": ["*"], "apiKeyUid": uid(1).upper()}
    assert check(signed(claims, value_of(uid(1))))


@pytest.mark.parametrize(("claims", "reason"), [
    ({"tamo": "kefir"}, "missing field `searchRules` at line 1 column 16"),
    ({"searchRules": []}, "missing field `apiKeyUid` at line 1 column 18"),
    ({"searchRules": "kefir"}, f"{NO_RULES} at line 1 column 23"),
    ({"searchRules": "kefir", "exp": 1}, f"{NO_RULES} at line 1 column 22"),
    ({"searchRules": ["good films"]}, f"{NO_RULES} at line 1 column 30"),
    ({"searchRules": [1]}, f"{NO_RULES} at line 1 column 19"),
    ({"searchRules": {"*": 1}}, f"{NO_RULES} at line 1 column 23"),
    ({"searchRules": {"*": {"filtre": "a = 1"}}}, f"{NO_RULES} at line 1 column 40"),
    ({"exp": 1e19}, "invalid value: floating point `1e19`, expected i64 at line 1 column 12"),
    ({"exp": "soon"}, 'invalid type: string "soon", expected i64 at line 1 column 13'),
    ({"exp": True}, "invalid type: boolean `true`, expected i64 at line 1 column 11"),
    ({"exp": 2**63}, "invalid value: integer `9223372036854775808`, expected i64 at line 1 column 26"),
    ({"apiKeyUid": "doggo"}, "UUID parsing failed: invalid character: found `o` at 1 at line 1 column 20"),
    ({"apiKeyUid": 1}, "invalid type: integer `1`, expected a UUID string at line 1 column 14"),
    (b"[]", "invalid type: sequence, expected struct Claims at line 1 column 2"),
    (b'{\n"exp":""}', 'invalid type: string "", expected i64 at line 2 column 8'),
    (b"{", "EOF while parsing an object at line 1 column 1"),
])
def test_what_is_wrong_is_said(claims: Any, reason: str) -> None:
    assert message(signed(claims, value_of(uid(1)))) == f"Could not decode tenant token, JSON error: {reason}."


@pytest.mark.parametrize("bearer", [
    "a.b", "a.b.c", "..", ".", "eyJ.eyJ.eyJ", "a.b.c.d", "é.é.é", part({"alg": "HS256"}) + ".x.y",
    f"{part(b'[1]')}.{part({'a': 1})}.{part(b's')}"])
def test_what_is_no_token_is_a_wrong_key(bearer: str) -> None:
    assert message(bearer) == INVALID


def test_a_critical_header_that_is_not_understood_refuses() -> None:
    claims = {"searchRules": ["*"], "apiKeyUid": uid(1)}
    assert message(signed(claims, value_of(uid(1)), crit=["new"])) == INVALID


@settings(max_examples=150)
@given(claims=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["searchRules", "apiKeyUid", "exp", "nbf", "aud", "*", "filter"]), inner, max_size=5),
    max_leaves=8))
def test_no_claims_get_in_that_no_key_signed(claims: Any) -> None:
    assert message(signed(json.dumps(claims).encode(), "no key of ours, of some more length than that"))


@pytest.mark.parametrize("claims", [
    b"\xff", b"", b"{}x", b'{"exp":1,"exp":"x"}', b'{"e\\u0078p":"x"}', b'{"exp":1e999}', b'{"apiKeyUid":"\\ud800"}',
    b'{ "searchRules" : 1 , "a" : {} }', b'{"searchRules":{"\\u002a":1}}'])
def test_odd_claims_are_rejected_with_a_clear_error(claims: bytes) -> None:
    assert message(signed(claims, value_of(uid(1)))).startswith("Could not decode tenant token, JSON error: ")


def test_deep_claims_are_refused() -> None:
    assert message(signed(b"[" * 5000, value_of(uid(1)))).startswith("Could not decode tenant token, JSON error")
    assert message(f"{part(b'[' * 100_000)}.{part(b'{}')}.{part(b's')}") == INVALID


@pytest.mark.parametrize("header", [b"[" * 128, b'{"a":' * 9000 + b"1" + b"}" * 9000, ('["\\"",' + "[" * 128).encode("utf-16"), b'{"alg":"%s"}' % (b"[" * 128)])
def test_no_deep_header_reaches_the_library(monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    monkeypatch.setattr("jwt.PyJWS.decode_complete", lambda *_, **__: pytest.fail("the library decodes it"))
    assert message(f"{part(header)}.{part({'a': 1})}.{part(b's')}") == INVALID
