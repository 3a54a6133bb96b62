"""What must hold of query strings:

1. Every declared parameter is in the answer, with its default when absent.
2. A bad value names its parameter, and its place in a list of several elements.
3. An unknown parameter is refused with a suggestion and the list of the declared ones.
4. The first error in the order of the query is told; a missing parameter comes last.
5. Texts are percent-decoded, `+` is a space, and the last of two values counts.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.validation import Param, decode_query, parse_index_uid, query_strings
from svcd.validation.names import LOCALES, parse_locale
from svcd.validation.urls import parse_url, parse_web_url

PARAMS = {
    "limit": Param(query_strings.positive_integer, "invalid_task_limit", default=20),
    "q": Param(query_strings.text, "invalid_search_q"),
    "reverse": Param(query_strings.boolean, "invalid_task_reverse", default=False),
    "uids": Param.list_of(query_strings.positive_integer, "invalid_task_uids"),
    "indexUids": Param.list_of(parse_index_uid, "invalid_index_uid"),
    "strategy": Param(query_strings.choice("last", "all"), "invalid_search_matching_strategy"),
    "score": Param(query_strings.number),
}
NOTHING = {"limit": 20, "q": None, "reverse": False, "uids": None, "indexUids": None, "strategy": None, "score": None}


def refusal(text: str, params: dict[str, Param] = PARAMS) -> tuple[str, str]:
    with pytest.raises(ApiError) as refused:
        decode_query(text, params)
    return refused.value.code, refused.value.message


@pytest.mark.parametrize("text, given", [
    ("", {}),
    ("&&", {}),
    ("limit=5&limit=7", {"limit": 7}),
    ("limit=%2B0018446744073709551615", {"limit": 2**64 - 1}),
    ("q", {"q": ""}),
    ("q=a+b%20c%C3%A9", {"q": "a b cé"}),
    ("q=%FF", {"q": "\ufffd"}),
    ("reverse=true", {"reverse": True}),
    ("uids=1,2", {"uids": [1, 2]}),
    ("uids=1", {"uids": [1]}),
    ("score=1e-1", {"score": 0.1}),
    ("score=.5", {"score": 0.5}),
])
def test_parameters_are_decoded(text: str, given: dict[str, Any]) -> None:
    assert decode_query(text, PARAMS) == NOTHING | given


@pytest.mark.parametrize("text, code, message", [
    ("limit=doggo", "invalid_task_limit",
     "Invalid value in parameter `limit`: could not parse `doggo` as a positive integer"),
    ("limit=", "invalid_task_limit", "Invalid value in parameter `limit`: could not parse `` as a positive integer"),
    ("limit=-1", "invalid_task_limit",
     "Invalid value in parameter `limit`: could not parse `-1` as a positive integer"),
    ("limit=18446744073709551616", "invalid_task_limit",
     "Invalid value in parameter `limit`: could not parse `18446744073709551616` as a positive integer"),
    ("reverse=*", "invalid_task_reverse",
     "Invalid value in parameter `reverse`: could not parse `*` as a boolean, expected either `true` or `false`"),
    ("uids=doggo", "invalid_task_uids",
     "Invalid value in parameter `uids`: could not parse `doggo` as a positive integer"),
    ("uids=1,dogo", "invalid_task_uids",
     "Invalid value in parameter `uids[1]`: could not parse `dogo` as a positive integer"),
    ("strategy=doggo", "invalid_search_matching_strategy",
     "Unknown value `doggo` for parameter `strategy`: expected one of `last`, `all`"),
    ("score=1_0", "bad_request", "Invalid value in parameter `score`: could not parse `1_0` as a number"),
    ("indexUid=a&limit=x", "bad_request",
     "Unknown parameter `indexUid`: did you mean `indexUids`? expected one of `limit`, `q`, `reverse`, `uids`, "
     "`indexUids`, `strategy`, `score`"),
    ("limit=x&indexUid=a", "invalid_task_limit",
     "Invalid value in parameter `limit`: could not parse `x` as a positive integer"),
])
def test_refusal_names_the_parameter(text: str, code: str, message: str) -> None:
    assert refusal(text) == (code, message)


def test_missing_parameter_has_its_own_code() -> None:
    params = {"id": Param(query_strings.text, required=True, missing_code="missing_document_id"), "b": Param(query_strings.boolean)}
    assert refusal("", params) == ("missing_document_id", "Missing parameter `id`")
    assert refusal("b=1", params)[0] == "bad_request"


def test_one_character_counts_characters() -> None:
    assert query_strings.one_character("é") == "é"
    with pytest.raises(ValueError, match="following string of 5 characters: `doggo`"):
        query_strings.one_character("doggo")
    with pytest.raises(ValueError, match="found an empty string"):
        query_strings.one_character("")


def test_parameters_describe_themselves() -> None:
    assert PARAMS["uids"].describe("uids") == {
        "name": "uids", "in": "query", "required": False, "style": "form", "explode": False,
        "schema": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    }
    assert PARAMS["limit"].describe("limit")["schema"] == {"type": "integer", "minimum": 0, "default": 20}


def test_locales_of_query_strings_are_listed_by_length() -> None:
    assert parse_locale("cmn") == "cmn" == LOCALES[-1]
    with pytest.raises(ValueError, match=r"Unsupported locale `x`, expected one of af, ak, .*, zu, afr, .*, zul$"):
        parse_locale("x")


@pytest.mark.parametrize("text, reason", [
    ("kefir", "relative URL without a base"),
    ("", "relative URL without a base"),
    ("http://", "empty host"),
    ("http://:80", "empty host"),
    ("http://a:b", "invalid port number"),
    ("http://a:65536/", "invalid port number"),
    ("http://a b/", "invalid domain character"),
    ("http://1.2.3.256", "invalid IPv4 address"),
    ("http://[::g]/", "invalid IPv6 address"),
])
def test_bad_addresses_are_distinguished(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_url(text)


@pytest.mark.parametrize("text", [
    "http://localhost:7700", "https://u:p@example.com/a?b#c", "http://[::1]:80/x", "http://127.0.0.1", "mailto:a@b",
])
def test_good_addresses_pass(text: str) -> None:
    assert parse_url(text) == text


@pytest.mark.parametrize("text", ["http://localhost:7700", "HTTPS://example.com/a?b", " http://[::1]"])
def test_addresses_of_the_web_pass(text: str) -> None:
    assert parse_web_url(text) == text


@pytest.mark.parametrize(("text", "reason"), [
    ("ftp://example.com", "scheme `ftp` cannot be called, expected `http` or `https`"),
    ("mailto:a@b", "scheme `mailto` cannot be called, expected `http` or `https`"),
    ("example.com", "relative URL without a base"), ("http://", "empty host"),
])
def test_other_addresses_are_none_of_the_web(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_web_url(text)
