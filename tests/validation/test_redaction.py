"""What must hold of secrets that are shown: they show what their length can spare, in URLs too."""
from __future__ import annotations

import pytest

from svcd.validation.urls import redacted_secret, redacted_url


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
