"""What must hold of `/network`:

1. A network that was never changed has no name, no remotes, and a version of zeros; each change gives another one.
2. What a change does not name stays; null takes away. A removed remote leaves its shards, a shard without remotes is no shard.
3. The first fault decides, in this order: body, feature, leader, previous remotes, URLs. Nothing is stored then.
4. It is there after a restart, and in every process before the change is answered.
5. What only a leader does is refused.
"""
from __future__ import annotations

import re
from typing import Any

import pytest

from svcd.instance.data_folder import DataFolderReader
from svcd.instance.instance import Instance
from svcd.instance.network import NO_VERSION, Network, Remote

URL = "http://127.0.0.1:7701"
VERSION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture
def change(client) -> Any:
    """change(body) -> the answer of PATCH /network, with the feature on."""
    client.json("PATCH", "/experimental-features", {"network": True})
    return lambda body: client.json("PATCH", "/network", body)


def remote(url: str = URL, search_key: str | None = None, write_key: str | None = None) -> dict[str, Any]:
    return {"url": url, "searchApiKey": search_key, "writeApiKey": write_key, "status": "available"}


def test_at_first_there_is_none(client, change, check_shape) -> None:
    found = client.get("/network").value
    assert found == {"self": None, "remotes": {}, "shards": {}, "leader": None, "version": NO_VERSION}
    assert list(found) == ["self", "remotes", "shards", "leader", "version"]
    check_shape(found, "Network")


def test_every_change_has_a_version(client, change) -> None:
    first, second = change({}), change({})
    assert (first.status, second.status) == (200, 200)
    assert VERSION.fullmatch(first.value["version"]) and first.value["version"] != second.value["version"]
    assert client.get("/network").value == second.value


def test_members_that_are_not_named_stay(client, change) -> None:
    change({"self": "a", "remotes": {"b": {"url": URL, "searchApiKey": "k", "writeApiKey": "w"}}})
    assert change({"remotes": {"b": {"searchApiKey": None}}}).value["remotes"] == {"b": remote(write_key="w")}
    assert change({"remotes": {"b": {"url": "x:y"}}}).value["remotes"] == {"b": remote("x:y", write_key="w")}
    assert client.get("/network").value["self"] == "a"
    assert change({"self": None}).value["self"] is None
    assert change({"self": "", "leader": None}).value["self"] == ""


def test_names_are_in_byte_order(change) -> None:
    found = change({"remotes": {name: {"url": URL} for name in ("é", "b", "B", "😀", "～")},
                    "shards": {"t": {"remotes": ["z", "b"]}, "s": {"remotes": ["b", "b"]}}}).value
    assert list(found["remotes"]) == ["B", "b", "é", "～", "😀"]
    assert list(found["shards"].items()) == [("s", {"remotes": ["b"]}), ("t", {"remotes": ["b", "z"]})]


def test_shards_are_changed_before_remotes(change) -> None:
    change({"remotes": {"b": {"url": URL}}})
    found = change({"shards": {"s": {"remotes": ["b", "c"], "addRemotes": ["d", "e"], "removeRemotes": ["e", "c"]}},
                    "remotes": {"b": None}}).value
    assert (found["shards"], found["remotes"]) == ({"s": {"remotes": ["d"]}}, {})


@pytest.mark.parametrize("body, shards", [
    ({"shards": {"s": {"remotes": []}, "t": {}}}, {"u": ["a", "b"]}),
    ({"shards": {"u": {"remotes": None, "addRemotes": None}}}, {"u": ["a", "b"]}),
    ({"shards": {"u": {"remotes": None, "addRemotes": ["c"]}}}, {"u": ["a", "b", "c"]}),
    ({"shards": {"u": None}}, {}),
    ({"shards": None}, {}),
    ({"remotes": None}, {"u": ["a", "b"]}),
    ({"remotes": {"a": None, "b": None}}, {}),
    ({"previousShards": {"u": None}}, {"u": ["a", "b"]}),
])
def test_shards_without_remotes_are_none(change, body: Any, shards: dict[str, list[str]]) -> None:
    change({"remotes": {"a": {"url": URL}, "b": {"url": URL}}, "shards": {"u": {"remotes": ["a", "b"]}}})
    assert change(body).value["shards"] == {name: {"remotes": names} for name, names in shards.items()}


@pytest.mark.parametrize("body, code, message", [
    (None, "bad_request", "Invalid value type: expected an object, but found null"),
    ([], "bad_request", "Invalid value type: expected an object, but found an array: `[]`"),
    ({"self": 42}, "invalid_network_self", "Invalid value type at `.self`: expected a string, but found a positive integer: `42`"),
    ({"leader": {}}, "invalid_network_leader", "Invalid value type at `.leader`: expected a string, but found an object: `{}`"),
    ({"remotes": {"b": 1}}, "invalid_network_remotes",
     "Invalid value type at `.remotes.b`: expected an object, but found a positive integer: `1`"),
    ({"remotes": {"b": {"writeApiKey": 1}}}, "invalid_network_write_api_key",
     "Invalid value type at `.remotes.b.writeApiKey`: expected a string, but found a positive integer: `1`"),
    ({"remotes": {"b": {"url": URL, "status": "available"}}}, "invalid_network_remotes",
     "Unknown field `status` inside `.remotes.b`: expected one of `url`, `searchApiKey`, `writeApiKey`"),
    ({"shards": []}, "invalid_network_shards", "Invalid value type at `.shards`: expected an object, but found an array: `[]`"),
    ({"shards": {"s": []}}, "invalid_network_shards",
     "Invalid value type at `.shards.s`: expected an object, but found an array: `[]`"),
    ({"shards": {"s": {"owner": 1}}}, "invalid_network_shards",
     "Unknown field `owner` inside `.shards.s`: expected one of `remotes`, `addRemotes`, `removeRemotes`"),
    ({"shards": {"s": {"addRemotes": "b"}}}, "invalid_network_remotes",
     'Invalid value type at `.shards.s.addRemotes`: expected an array, but found a string: `"b"`'),
    ({"shards": {"s": {"remotes": [1]}}}, "invalid_network_remotes",
     "Invalid value type at `.shards.s.remotes[0]`: expected a string, but found a positive integer: `1`"),
    ({"previousShards": 1}, "invalid_network_shards",
     "Invalid value type at `.previousShards`: expected an object, but found a positive integer: `1`"),
    ({"selfie": 1}, "bad_request",
     "Unknown field `selfie`: expected one of `remotes`, `shards`, `previousShards`, `self`, `leader`, `previousRemotes`"),
    ({"previousRemotes": {}}, "unexpected_network_previous_remotes",
     "Unexpected `previousRemotes` in network call.\n  - Note: `previousRemote` is reserved for internal use."),
    ({"previousRemotes": None, "remotes": {"new": {}}}, "unexpected_network_previous_remotes",
     "Unexpected `previousRemotes` in network call.\n  - Note: `previousRemote` is reserved for internal use."),
    ({"remotes": {"new": {}}}, "missing_network_url", "Missing field `.remotes.new.url`"),
    ({"remotes": {"new": {"url": None}}}, "missing_network_url", "Missing field `.remotes.new.url`"),
    ({"remotes": {"old": {"url": None}}}, "invalid_network_url", "Field `.remotes.old.url` cannot be set to `null`"),
    ({"remotes": {"old": {"url": "here"}}}, "invalid_network_url",
     "Invalid `.remotes.old.url` (`here`): relative URL without a base"),
    ({"remotes": {"new": {"url": "http://"}}}, "invalid_network_url", "Invalid `.remotes.new.url` (`http://`): empty host"),
    ({"remotes": {"new": {"url": "http://a:70000"}}}, "invalid_network_url",
     "Invalid `.remotes.new.url` (`http://a:70000`): invalid port number"),
])
def test_a_fault_changes_nothing(client, change, body: Any, code: str, message: str) -> None:
    before = change({"self": "a", "remotes": {"old": {"url": URL}}}).value
    assert change(body).fault == (400, code, message)
    assert client.get("/network").value == before


def test_what_belongs_to_a_leader_is_refused(client, change) -> None:
    status, code, message = change({"leader": "a", "previousRemotes": {}}).fault
    assert (status, code) == (451, "requires_enterprise_edition")
    assert message.startswith("Svc Enterprise Edition is required to set `network.leader`\n")
    status, code, message = client.json("POST", "/network/control", {"origin": {}, "message": {}}).fault
    assert (status, code) == (451, "requires_enterprise_edition")
    assert message.startswith("Svc Enterprise Edition is required to call this route\n")


@pytest.mark.parametrize("method, path, body", [
    ("GET", "/network", None), ("PATCH", "/network", {"leader": "a"}), ("POST", "/network/control", {"origin": {}, "message": {}}),
])
def test_the_feature_is_asked_after_the_body(client, method: str, path: str, body: Any) -> None:
    answer = client.get(path) if body is None else client.json(method, path, body)
    status, code, message = answer.fault
    assert (status, code) == (400, "feature_not_enabled")
    assert message.startswith(f"Using the {path} route requires enabling the `network` experimental feature.")
    assert client.json("PATCH", "/network", {"self": 1}).fault[1] == "invalid_network_self"


def test_it_outlives_the_process(client, change, instance) -> None:
    change({"self": "a", "remotes": {"b": {"url": URL, "searchApiKey": "k"}}, "shards": {"s": {"remotes": ["b"]}}})
    network = instance.network()
    assert network == Network("a", {"b": Remote(URL, "k")}, {"s": ("b",)}, network.version)
    instance.close()
    opened = Instance(instance.path)
    try:
        assert opened.network() == network
    finally:
        opened.close()


def test_other_processes_get_each_change(client, change, instance) -> None:
    other, told = DataFolderReader(instance.path), []
    assert other.network() == Network()
    instance.on_network = lambda: told.append(other.use_network(instance.stored_network))
    change({"self": "a"})
    assert len(told) == 1 and other.network() == instance.network() and other.network().self_name == "a"
    change({"self": "b"})
    assert other.network().self_name == "b"
    other.close()
