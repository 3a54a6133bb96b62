"""Addresses to listen on, and lists of networks. What must hold:

1. An address is a host and a port; hosts are names, IPv4 addresses, or IPv6 addresses in brackets.
2. Anything else is rejected with examples of what would be right.
3. Networks are a comma-separated list in CIDR notation, or `any`; host bits must not be set.
"""
from __future__ import annotations

from ipaddress import ip_network

import pytest

from svcd.validation.urls import parse_address, parse_networks


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
