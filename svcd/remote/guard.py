"""Restricts calls to other hosts to global addresses and to networks that the operator allows (against SSRF).

A client that may register a webhook, remote or embedder names a host that svcd calls from inside the network. Without a guard
such calls reach routers, neighbours, and the secrets that clouds serve at metadata addresses. The guard resolves a name once, and
connects to the address that it has checked, so a name that resolves differently the next time (DNS rebinding) gains nothing.
Guard.connect() makes every outgoing connection. Source: the IANA registries of special-purpose addresses.
"""
from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[..., Sequence[tuple[Any, ...]]]  # as socket.getaddrinfo
Open = Callable[[int], socket.socket]  # address family -> a socket, not connected

OPTION = "--experimental-allowed-ip-networks"
ANY_NETWORK = ("0.0.0.0/0", "::/0")

_SPECIAL: tuple[tuple[Network, str], ...] = tuple((ip_network(cidr), what) for cidr, what in (
    ("169.254.169.254/32", "a metadata address"),
    ("169.254.170.2/32", "a metadata address"),
    ("168.63.129.16/32", "a metadata address"),  # in a global range, but the metadata host of Azure
    ("100.100.100.200/32", "a metadata address"),
    ("192.0.0.192/32", "a metadata address"),
    ("fd00:ec2::/32", "a metadata address"),
    ("0.0.0.0/8", "an address of this host"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "a shared address"),
    ("127.0.0.0/8", "a loopback address"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "a reserved address"),
    ("192.0.2.0/24", "an address for examples"),
    ("192.88.99.0/24", "an address of a tunnel"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "an address for benchmarks"),
    ("198.51.100.0/24", "an address for examples"),
    ("203.0.113.0/24", "an address for examples"),
    ("224.0.0.0/4", "a multicast address"),
    ("255.255.255.255/32", "a broadcast address"),
    ("240.0.0.0/4", "a reserved address"),
    ("::/128", "an address of this host"),
    ("::1/128", "a loopback address"),
    ("64:ff9b:1::/48", "a private address"),
    ("fc00::/7", "a private address"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a private address"),
    ("ff00::/8", "a multicast address"),
    ("2001::/23", "an address of a tunnel"),
    ("2001:db8::/32", "an address for examples"),
    ("2002::/16", "an address of a tunnel"),
    ("3fff::/20", "an address for examples"),
))
_GLOBAL_IPV6 = ip_network("2000::/3")
# IPv6 prefixes whose last 32 bits are an IPv4 address, mapped by the system (::ffff) or a gateway (64:ff9b, NAT64).
_EMBEDDING = (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))
# Every form that inet_aton accepts as an address: one to four decimal, octal or hexadecimal numbers.
_NUMERIC = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+)){0,3}\.?", re.ASCII)


class ForbiddenAddress(OSError):
    """svcd may not call the host. str(): the address, its kind, and the option that would allow it.

    is_literal: whether the caller named the address itself, not a host with it.
    """

    def __init__(self, reason: str, is_literal: bool) -> None:
        super().__init__(reason)
        self.is_literal = is_literal


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse a comma-separated list of CIDR networks, or `any`; an empty text gives an empty tuple.

    Raises ValueError, which says the right form.
    """
    if not text.strip():
        return ()
    named = [part.strip() for part in text.split(",")]
    networks: list[Network] = []
    for cidr in (cidr for part in named for cidr in (ANY_NETWORK if part.lower() == "any" else (part,))):
        try:
            networks.append(ip_network(cidr))
        except ValueError:
            try:
                right = f"host bits are set in `{cidr}`: write {ip_network(cidr, strict=False)}"
            except ValueError:
                right = f"`{cidr}` is not a network: write a comma list of networks as 10.0.0.0/8 or fd00::/8, or any"
            raise ValueError(f"is not a list of networks; {right}") from None
    return tuple(networks)


def blocked_kind(address: Address, allowed: Sequence[Network] = ()) -> str | None:
    """Return why an address is blocked: its kind; None if svcd may call it. allowed: networks that svcd may call, of any kind."""
    if address.version == 6:
        address = IPv6Address(int(address))  # without scope
        if any(address in network for network in _EMBEDDING):
            address = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in allowed):
        return None
    for network, what in _SPECIAL:
        if address in network:
            return what
    if address.version == 6 and address not in _GLOBAL_IPV6:
        return "a reserved address"
    return None


def literal_address(host: str) -> Address | None:
    """Return the address that a host denotes literally, in any notation that resolvers accept; None for a name."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        pass
    if not _NUMERIC.fullmatch(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host.removesuffix(".")))
    except OSError:  # out of range: resolvers reject it, too
        return None


@dataclass(frozen=True)
class Guard:
    """Opens connections to permitted addresses.

    allowed: networks that svcd may call though they are not global. resolve: getaddrinfo; open_socket: creates sockets. Tests
    replace both.
    """

    allowed: Sequence[Network] = ()
    resolve: Resolve = socket.getaddrinfo
    open_socket: Open = lambda family: socket.socket(family, socket.SOCK_STREAM)

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Connect to a host within `timeout_s` seconds. Raises ForbiddenAddress, OSError.

        host: a name or an address, without brackets.
        """
        deadline = time.monotonic() + timeout_s
        failure: OSError | None = None
        for address in self._permitted(host, port):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                opened = self.open_socket(socket.AF_INET if address.version == 4 else socket.AF_INET6)
                try:
                    opened.settimeout(left)
                    opened.connect((str(address), port))
                    return opened
                except BaseException:
                    opened.close()
                    raise
            except OSError as error:
                failure = error
        raise failure or TimeoutError("timed out")

    def _permitted(self, host: str, port: int) -> Sequence[Address]:
        literal = literal_address(host)
        if literal is None:
            rows = self.resolve(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(ip_address(row[4][0]) for row in rows if row[0] in (socket.AF_INET, socket.AF_INET6)))
        else:
            addresses = [literal]
        permitted = [address for address in addresses if blocked_kind(address, self.allowed) is None]
        if addresses and not permitted:
            first = addresses[0]
            shown = str(first) if str(first) == host else f"{host} is {first}, which"
            raise ForbiddenAddress(f"{shown} is {blocked_kind(first, self.allowed)}: such are called only when "
                                   f"{OPTION} names their network", is_literal=literal is not None)
        return permitted
