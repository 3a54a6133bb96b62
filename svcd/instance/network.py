"""The network of an instance: names and addresses of the instances that it may call, and the merging of changes.

Each process holds the network in memory (DataFolderReader.network), and gets a change before the request that made it is
answered. See docs/network.md.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from svcd.base.errors import ApiError
from svcd.validation import Field, array_of, decode_value, map_of, nullable, object_of, string
from svcd.validation.urls import parse_url

NO_VERSION = "00000000-0000-0000-0000-000000000000"  # of a network that was never changed

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remote:
    """Address and keys of an instance. search_key: sent with searches; write_key: stored for tools that write to the instance."""

    url: str
    search_key: str | None = None
    write_key: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the members of the interface, with the keys in clear."""
        return {"url": self.url, "searchApiKey": self.search_key, "writeApiKey": self.write_key}


@dataclass(frozen=True, slots=True)
class Network:
    """The instances that searches may be sent to, in the byte order of their names.

    self_name: the name of this instance; it need not be one of `remotes`. shards: name -> names of remotes, which need not
    exist. version: a UUID that is new after each change.
    """

    self_name: str | None = None
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    shards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: str = NO_VERSION

    def as_json(self) -> dict[str, Any]:
        """Return the object of `GET /network`, which is also stored and dumped; keys in clear."""
        return {
            "self": self.self_name,
            "remotes": {name: {**remote.as_json(), "status": "available"} for name, remote in self.remotes.items()},
            "shards": {name: {"remotes": list(names)} for name, names in self.shards.items()},
            "leader": None,
            "version": self.version,
        }


_REMOTE = object_of({
    "url": Field(string, required=True), "searchApiKey": Field(nullable(string)), "writeApiKey": Field(nullable(string)),
}, is_open=True)
_SHARD = object_of({"remotes": Field(array_of(string), default=())}, is_open=True)
_NETWORK = object_of({
    "self": Field(nullable(string), default=None), "remotes": Field(map_of(_REMOTE), default={}),
    "shards": Field(map_of(_SHARD), default={}), "version": Field(string, default=NO_VERSION),
}, is_open=True)


def from_json(stored: Json) -> Network:
    """Return the network of an object from Network.as_json(); members may be missing. Raises ApiError for a malformed object."""
    known = decode_value(stored, _NETWORK)
    remotes = {name: Remote(remote["url"], remote.get("searchApiKey"), remote.get("writeApiKey"))
               for name, remote in known["remotes"].items()}
    shards = {name: tuple(sorted(set(shard["remotes"]))) for name, shard in known["shards"].items()}
    return Network(known["self"], _in_byte_order(remotes), _in_byte_order(shards), known["version"])


def _in_byte_order(named: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(named.items()))  # code points sort like the bytes of UTF-8


def merged(network: Network, change: Json, version: str) -> Network:
    """Return the network after a change. change: the decoded body of `PATCH /network`; absent members change nothing.

    Raises missing_network_url, invalid_network_url.
    """
    has_shards = "shards" not in change or change["shards"] is not None
    shards = {name: set(names) for name, names in network.shards.items()} if has_shards else {}
    for name, shard in (change.get("shards") or {}).items():
        if shard is None:
            shards.pop(name, None)
            continue
        replaced = shard.get("remotes")
        names = shards.get(name, set()) if replaced is None else set(replaced)
        shards[name] = (names | set(shard.get("addRemotes") or ())) - set(shard.get("removeRemotes") or ())
    remotes = dict(network.remotes) if "remotes" not in change or change["remotes"] is not None else {}
    for name, remote in (change.get("remotes") or {}).items():
        if remote is None:
            remotes.pop(name, None)
        else:
            remotes[name] = _merged_remote(remotes.get(name), name, remote)
    removed = {name for name, remote in (change.get("remotes") or {}).items() if remote is None}
    owned = {name: tuple(sorted(names - removed)) for name, names in shards.items()}
    return replace(network, self_name=change.get("self", network.self_name), remotes=_in_byte_order(remotes),
                   shards=_in_byte_order({name: names for name, names in owned.items() if names}), version=version)


def _merged_remote(known: Remote | None, name: str, change: Json) -> Remote:
    url = change.get("url")
    if url is not None:
        try:
            parse_url(url)
        except ValueError as reason:
            raise ApiError("invalid_network_url", f"Invalid `.remotes.{name}.url` (`{url}`): {reason}") from None
    elif known is None:
        raise ApiError("missing_network_url", f"Missing field `.remotes.{name}.url`")
    elif "url" in change:
        raise ApiError("invalid_network_url", f"Field `.remotes.{name}.url` cannot be set to `null`")
    else:
        url = known.url
    known = known or Remote(url)
    return Remote(url, change.get("searchApiKey", known.search_key), change.get("writeApiKey", known.write_key))
