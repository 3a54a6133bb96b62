"""What must hold of what svcd sends to other services, and shows of it:

1. A header that passes can be sent, and none passes that could end a header early.
2. Masked secrets show no more than their length allows, in URLs too.
3. An address to listen on is a host and a port; hosts are names, IPv4 addresses, or IPv6 addresses in brackets.
4. Anything else is rejected with examples of what would be right.
5. Networks are a comma-separated list in CIDR notation, or `any`; host bits must not be set.
"""
from __future__ import annotations

import http.client
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.validation.urls import (
    is_header_name,
    is_header_value,
    parse_address,
    parse_networks,
    redacted_secret,
    redacted_url,
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


# Addresses to listen on, and lists of networks


@pytest.mark.parametrize(("text", "host", "port"), [
    ("localhost:7700", "localhost", 7700), ("0.0.0.0:0", "0.0.0.0", 0), ("[::1]:7700", "::1", 7700),
    ("[fe80::1%eth0]:80", "fe80::1%eth0", 80), ("films.example.org:65535", "films.example.org", 65535),
])
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(("text", "reason"), [
    ("", "lacks a port"), ("localhost", "lacks a port"), (":7700", "lacks a host"), ("7700", "lacks a port"),
    ("localhost:", "no number"), ("localhost:65536", "no number"), ("localhost:-1", "no number"),
    ("localhost:+80", "no number"), ("localhost:٧٧", "no number"), ("localhost:8_0", "no number"),
    ("localhost: 80", "no number"), ("localhost:" + "1" * 100_000, "no number"), ("::1:7700", "without brackets"),
    ("[::g]:80", "neither a name"), ("[]:80", "neither a name"), ("a b:80", "neither a name"),
    ("http://localhost:7700", "is a URL"), ("localhost:7700/", "no number"), ("a/b:80", "neither a name"),
])
def test_what_is_no_address_is_refused_with_examples(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        parse_address(text)
    assert "localhost:7700" in str(refused.value)


@pytest.mark.parametrize(("text", "networks"), [
    ("", []), ("  ", []), ("127.0.0.0/8", ["127.0.0.0/8"]), ("10.0.0.0/8, fd00::/8", ["10.0.0.0/8", "fd00::/8"]),
    ("192.168.1.1", ["192.168.1.1/32"]), ("any", ["0.0.0.0/0", "::/0"]), ("ANY,::1", ["0.0.0.0/0", "::/0", "::1"]),
])
def test_networks_are_a_comma_list_of_cidr_or_any(text: str, networks: list[str]) -> None:
    assert list(parse_networks(text)) == [ip_network(cidr) for cidr in networks]


@pytest.mark.parametrize(("text", "reason"), [
    ("10.0.0.0/33", "is none"), ("10.0.0.0/8,", "is none"), ("all", "is none"), ("localhost", "is none"),
    ("10.1.2.3/8", "write 10.0.0.0/8"),
])
def test_what_is_no_network_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_networks(text)
