"""Parsing of listen addresses (`host:port`) and of lists of networks; nothing is resolved here."""
from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import NamedTuple

Network = IPv4Network | IPv6Network

ANY_NETWORK = ("0.0.0.0/0", "::/0")
_EXAMPLES = "write host:port, as localhost:7700, 0.0.0.0:7700 or [::1]:7700"
_HOST = re.compile(r"[A-Za-z0-9_.\-]+", re.ASCII)
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.\-]+)?)\]", re.ASCII)


class Address(NamedTuple):
    """host: a name or an IP address, without brackets; port: 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host:port` -> Address. Raises ValueError with what would be right."""
    if "://" in text:
        raise ValueError(f"is a URL, not an address; {_EXAMPLES}")
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"lacks a {'host' if colon else 'port'}; {_EXAMPLES}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"has a port that is no number from 0 to 65535; {_EXAMPLES}")
    return Address(_host(host), int(port))


def _host(text: str) -> str:
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed and _is_ipv6(bracketed[1]):
        return bracketed[1]
    if ":" in text and _is_ipv6(text):
        raise ValueError(f"holds an IPv6 address without brackets; {_EXAMPLES}")
    if not _HOST.fullmatch(text):
        raise ValueError(f"has a host that is neither a name nor an IP address; {_EXAMPLES}")
    return text


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def parse_networks(text: str) -> tuple[Network, ...]:
    """A comma-separated list of CIDR networks, or `any`; an empty text gives none.

    Raises ValueError with what would be right.
    """
    if not text.strip():
        return ()
    named = [part.strip() for part in text.split(",")]
    spelled = [cidr for part in named for cidr in (ANY_NETWORK if part.lower() == "any" else (part,))]
    return tuple(_network(cidr) for cidr in spelled)


def _network(cidr: str) -> Network:
    try:
        return ip_network(cidr)
    except ValueError:
        pass
    try:
        right = f"host bits are set in `{cidr}`: write {ip_network(cidr, strict=False)}"
    except ValueError:
        right = f"`{cidr}` is none: write a comma list of networks as 10.0.0.0/8 or fd00::/8, or any"
    raise ValueError(f"is not a list of networks; {right}")
