"""Headers and secrets of other services. What must hold:

1. A header that passes can be sent, and none passes that could end a header early.
2. Masked secrets show no more than their length allows, in URLs too.
"""
from __future__ import annotations

import http.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.validation.urls import (
    is_header_name,
    is_header_value,
    redacted_headers,
    redacted_secret,
    redacted_url,
    shown_reply,
)


class Sink(http.client.HTTPConnection):
    """A connection that goes nowhere; what would be sent is in `sent`."""

    def __init__(self) -> None:
        super().__init__("sink.test")
        self.sent = b""

    def send(self, data: bytes) -> None:  # type: ignore[override]
        self.sent += data


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_passes_is_one_header(name: str, value: str) -> None:
    if is_header_name(name) and is_header_value(value):
        sink = Sink()
        sink.request("POST", "/", headers={name: value})
        assert f"{name}: {value}".encode() in sink.sent.split(b"\r\n")


@pytest.mark.parametrize("name", ["", "invalid header name", "a:b", "é", "a\n", "a\r\nb", "(a)", "a\0"])
def test_these_are_no_names(name: str) -> None:
    assert not is_header_name(name)


@pytest.mark.parametrize("value", ["token\nwith\nnewlines", "a\r\nX: y", "é", "\0", "\x7f", "a\n"])
def test_these_are_no_values(value: str) -> None:
    assert not is_header_value(value)


@pytest.mark.parametrize(("name", "value"), [("Authorization", "Bearer a b\tc"), ("x-1_!#$", ""), ("A", " ~")])
def test_these_are_both(name: str, value: str) -> None:
    assert is_header_name(name) and is_header_value(value)


@pytest.mark.parametrize("secret, shown", [
    ("", "XXX..."), ("123456789", "XXX..."), ("1234567890", "12XXXX..."), ("1" * 19, "11XXXX..."),
    ("1" * 20, "111XXXXX..."), ("1" * 29, "111XXXXX..."), ("1" * 30, "11111XXXXXX..."), ("é" * 15, "ééXXXXXX..."),
])
def test_secrets_show_what_their_length_can_spare(secret: str, shown: str) -> None:
    assert redacted_secret(secret) == shown


@pytest.mark.parametrize("url, shown", [
    ("https://user:secret@hook.test/a?b=c#d", "https://XXX...:XXX...@hook.test/a?b=c#d"),
    ("https://a-long-token@hook.test", "https://a-XXXX...@hook.test"),
    ("https://:secret@hook.test", "https://:XXX...@hook.test"),
    ("https://user:@hook.test", "https://XXX...:@hook.test"),
    ("https://u:p@a:q@hook.test:80/@x", "https://XXX...:XXX...@hook.test:80/@x"),
    (" HTTP:\\\\u:p@hook.test\\a", " HTTP:\\\\XXX...:XXX...@hook.test\\a"),
    ("http:u:p@hook.test", "http:XXX...:XXX...@hook.test"),
])
def test_credentials_of_urls_are_hidden(url: str, shown: str) -> None:
    assert redacted_url(url) == shown


@pytest.mark.parametrize("url", ["https://hook.test/a@b", "https://hook.test?to=a@b", "hook@test", "", "https://"])
def test_urls_without_credentials_are_shown_as_they_are(url: str) -> None:
    assert redacted_url(url) == url


def test_the_authorization_header_is_masked() -> None:
    given = {"AUTHORIZATION": "Bearer abc", "authorization2": "TOKEN", "Accept": "text/plain"}
    assert redacted_headers(given) == {"AUTHORIZATION": "Bearer XXX...", "authorization2": "TOKEN", "Accept": "text/plain"}


def test_what_a_service_repeats_is_masked() -> None:
    key, longer = "0123456789abcdef", "0123456789abcdef-and-more"
    assert shown_reply(f"{key} {longer} ok", key, longer, "ok") == "01XXXX... 012XXXXX... ok"
