"""What must hold of the address of a log (svcd.cluster.log.parsed_address):

1. It names a backend and its servers, perhaps a user, a password or a token, a name and the number of replicas.
2. A wrong one is refused with a sentence.
3. It is shown without credentials.
"""
from __future__ import annotations

import sys

import pytest

from svcd.cluster.log import Address
from svcd.cluster.service import open_log, parsed_address

HOSTS = (("a", 4001), ("b", 4001), ("c", 4001))


@pytest.mark.parametrize("text, address", [
    ("rqlite://a:4001,b:4001,c:4001", Address("rqlite", HOSTS)),
    ("rqlite://a,b,c/", Address("rqlite", HOSTS)),
    ("rqlite+tls://u:p@a", Address("rqlite", HOSTS[:1], user="u", password="p", is_tls=True)),
    ("nats://a:1,[::1]:2,[fd00::2]", Address("nats", (("a", 1), ("::1", 2), ("fd00::2", 4222)))),
    ("nats://s%40%3A%2F@a", Address("nats", (("a", 4222),), token="s@:/")),
    ("nats://u%3A:p%40@a?name=films_2&replicas=1", Address("nats", (("a", 4222),), user="u:", password="p@", name="films_2", replicas=1)),
])
def test_1_an_address_is_read(text: str, address: Address) -> None:
    assert parsed_address(text) == address


@pytest.mark.parametrize("text", [
    "", "rqlite://", "rqlite:a", "http://a:4001", "rqlite://a,,b", "rqlite://a:0", "rqlite://a:b", "rqlite://a:65536", "rqlite://a:",
    "rqlite://[::1", "rqlite://[::1]x", "rqlite://a/b", "rqlite://a,a", "rqlite://a:4001,a", "rqlite://token@a", "rqlite://a?replicas=3",
    "nats://a?replicas=0", "nats://a?replicas=6", "nats://a?replicas=x", "nats://a?name=a.b", "nats://a?name=", "nats://a?x=1", "nats://a?x",
])
def test_2_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parsed_address(text)


def test_2_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name == "nats" or name.startswith(("nats.", "svcd.cluster.nats")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ValueError, match=r"svcd\[nats\]"):
        open_log("nats://a", 1.0)


def test_3_credentials_are_not_shown() -> None:
    shown = str(parsed_address("nats+tls://user:secret@a:1,[::1]:2?name=x"))
    assert shown == "nats+tls://a:1,[::1]:2"
    assert "secret" not in shown
