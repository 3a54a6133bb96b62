"""What must hold of the addresses that svcd calls:

1. No connection is opened to an address that is not global, however it is written and whatever resolves to it.
2. What is judged is what is connected to: a name is resolved once, and only judged addresses are tried.
3. A network that the operator allows may be reached, and no other.
4. Global addresses may be reached.
5. A refusal says which address it is, of which kind, and what would allow it.
6. No other module opens a connection.
7. Networks are a comma-separated list in CIDR notation, or `any`; host bits must not be set.
"""
from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import svcd
from svcd.remote import Undelivered
from svcd.remote.client import Client
from svcd.remote.guard import ForbiddenAddress, Guard, blocked_kind, literal_address, parse_networks

# Hosts as a URL has them.
FORBIDDEN = (
    "127.0.0.1", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1",
    "0177.0.0.1", "017700000001", "0300.0250.0.1", "127.0.0.1.", "0", "0.0.0.0", "0x0", "10.0.0.1", "10.255.255.255",
    "172.16.0.1", "172.31.255.254", "192.168.1.1", "3232235777", "169.254.169.254", "0xa9fea9fe", "2852039166",
    "169.254.170.2", "168.63.129.16", "100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1",
    "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:a9fe:a9fe]",
    "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]", "[64:ff9b:1::1]",
    "[fe80::1]", "[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[2002:7f00:1::]", "[2001::1]",
    "[2001:db8::1]", "[3fff::1]", "[5f00::1]", "[100::1]", "[4000::1]",
    "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1",
)
GLOBAL = ("1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.128.0.1", "192.167.255.255", "198.17.0.1",
          "[2606:4700::1111]", "[2a00:1450::1]", "[::ffff:1.1.1.1]", "[64:ff9b::101:101]", "0x01010101")


class World:
    """A network of which nothing is real: names -> their addresses at each question; what was tried to be reached."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []
        self.reached: list[tuple[str, int]] = []

    def resolve(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.names[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
                for each in addresses]

    def open_socket(self, family: int) -> Any:
        world = self

        class Socket:
            def settimeout(self, seconds: float) -> None:
                """There is nothing to wait for."""

            def connect(self, place: tuple[str, int]) -> None:
                assert (":" in place[0]) == (family == socket.AF_INET6)
                world.reached.append(place)
                raise ConnectionRefusedError(111, "Connection refused")

            def close(self) -> None:
                """Nothing is open."""

        return Socket()

    def guard(self, *allowed: str) -> Guard:
        return Guard(tuple(map(ip_network, allowed)), self.resolve, self.open_socket)


def post(world: World, url: str, *allowed: str) -> str:
    """A call all the way from its URL; why it came to nothing."""
    with pytest.raises(Undelivered) as failure:
        Client(world.guard(*allowed)).post(url, {}, [b"{}\n"], 3)
    return str(failure.value)


def test_there_are_forbidden_targets_enough() -> None:
    assert len(set(FORBIDDEN)) >= 40


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", FORBIDDEN)
def test_a_forbidden_target_is_never_reached(host: str, scheme: str) -> None:
    world = World()
    reason = post(world, f"{scheme}://{host}:8080/latest/meta-data/?x=1")
    assert world.reached == [] and world.asked == []
    assert " is a" in reason and "--experimental-allowed-ip-networks" in reason


@pytest.mark.parametrize("host", FORBIDDEN)
def test_a_name_of_a_forbidden_target_is_never_reached(host: str) -> None:
    address = literal_address(host if host.startswith("[") else host.encode("idna").decode())
    assert address is not None
    world = World(evil_test=[[str(address)]])
    assert post(world, "http://evil.test/").startswith("evil.test is ")
    assert world.reached == [] and world.asked == ["evil.test"]


@pytest.mark.parametrize("host", GLOBAL)
def test_a_global_target_is_reached(host: str) -> None:
    world = World()
    assert post(world, f"http://{host}/") == "Connection refused"
    assert [port for _, port in world.reached] == [80]


def test_a_name_that_changes_its_mind_gains_nothing() -> None:
    world = World(rebinding_test=[["1.1.1.1"], ["127.0.0.1"]])
    post(world, "http://rebinding.test/")
    assert world.asked == ["rebinding.test"] and world.reached == [("1.1.1.1", 80)]
    post(world, "http://rebinding.test/")
    assert world.reached == [("1.1.1.1", 80)]


def test_of_many_addresses_only_the_permitted_are_tried() -> None:
    world = World(mixed_test=[["127.0.0.1", "1.1.1.1", "::1", "10.0.0.1", "2606:4700::1111", "1.1.1.1"]])
    post(world, "http://mixed.test:81/")
    assert world.reached == [("1.1.1.1", 81), ("2606:4700::1111", 81)]


@pytest.mark.parametrize("url", [
    "http://1.1.1.1@127.0.0.1/", "http://1.1.1.1:80@[::1]:80/#@1.1.1.1", "http:\\\\127.0.0.1\\@1.1.1.1/",
    "http:127.0.0.1/", "http:////127.0.0.1/", "HTTP://127.0.0.1#@1.1.1.1", " http://127.0.0.1?@1.1.1.1",
])
def test_no_spelling_of_a_url_hides_its_host(url: str) -> None:
    world = World()
    assert "is a loopback address" in post(world, url)
    assert world.reached == []


@pytest.mark.parametrize(("allowed", "host", "is_reached"), [
    ("127.0.0.0/8", "127.0.0.1", True), ("127.0.0.0/8", "[::1]", False), ("127.0.0.0/8", "10.0.0.1", False),
    ("127.0.0.0/8", "[::ffff:127.0.0.1]", True), ("::1/128", "[::1]", True), ("::1/128", "127.0.0.1", False),
    ("10.1.0.0/16", "10.1.2.3", True), ("10.1.0.0/16", "10.2.0.1", False), ("0.0.0.0/0", "169.254.169.254", True),
    ("fd00::/8", "[fd12::1]", True), ("::/0", "[fe80::1]", True), ("::/0", "127.0.0.1", False),
    ("169.254.0.0/16", "169.254.169.254", True),
])
def test_an_allowed_network_is_reached_and_no_other(allowed: str, host: str, is_reached: bool) -> None:
    world = World()
    post(world, f"http://{host}/", allowed)
    assert bool(world.reached) == is_reached


def test_an_unknown_name_is_reported() -> None:
    assert post(World(), "http://nowhere.test/") == "Name or service not known"


def test_a_refusal_names_the_address_and_its_kind() -> None:
    with pytest.raises(ForbiddenAddress) as refused:
        World(intern_test=[["192.168.3.4"]]).guard().connect("intern.test", 80, 1)
    assert str(refused.value) == ("intern.test is 192.168.3.4, which is a private address: such are called only when "
                                  "--experimental-allowed-ip-networks names their network")
    with pytest.raises(ForbiddenAddress, match="^127.0.0.1 is a loopback address"):
        World().guard().connect("127.0.0.1", 80, 1)


@given(st.ip_addresses())
def test_what_may_be_reached_is_global_to_the_standard_library_too(address: Any) -> None:
    if blocked_kind(address) is None:
        embedded = address.version == 6 and any(
            address in ip_network(cidr) for cidr in ("64:ff9b::/96", "::ffff:0:0/96"))
        meant = ip_address(int(address) & 0xFFFFFFFF) if embedded else address
        assert meant.is_global and not meant.is_multicast
    assert blocked_kind(address, [ip_network("0.0.0.0/0"), ip_network("::/0")]) is None


def test_nothing_else_in_svcd_opens_connections() -> None:
    """A call that the guard does not make is a call that nobody guards."""
    opens = re.compile(r"\.connect\(|\bcreate_connection\b|\burlopen\b|\bHTTPS?Connection\b|\burllib\.request\b")
    root = Path(svcd.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") for line in path.read_text().splitlines()
             if opens.search(line) and "sqlite3.connect(" not in line}
    named = {"commands/instance.py", "cluster/joining.py", "cluster/rqlite.py", "cluster/nats.py"}  # call what their user names
    assert found == {"remote/guard.py", "remote/client.py"} | named


@pytest.mark.parametrize(("text", "networks"), [
    ("", []), ("  ", []), ("127.0.0.0/8", ["127.0.0.0/8"]), ("10.0.0.0/8, fd00::/8", ["10.0.0.0/8", "fd00::/8"]),
    ("192.168.1.1", ["192.168.1.1/32"]), ("any", ["0.0.0.0/0", "::/0"]), ("ANY,::1", ["0.0.0.0/0", "::/0", "::1"]),
])
def test_networks_are_a_comma_list_of_cidr_or_any(text: str, networks: list[str]) -> None:
    assert list(parse_networks(text)) == [ip_network(cidr) for cidr in networks]


@pytest.mark.parametrize(("text", "reason"), [
    ("10.0.0.0/33", "is not a network"), ("10.0.0.0/8,", "is not a network"), ("all", "is not a network"),
    ("localhost", "is not a network"),
    ("10.1.2.3/8", "write 10.0.0.0/8"),
])
def test_what_is_no_network_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_networks(text)
