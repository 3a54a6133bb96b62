"""A copy of an index that follows its changes, as a client keeps it (docs/guide/follow.md), and random writes to follow."""
from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Get = Callable[[str], tuple[int, str]]  # path and query string -> status and body
Request = tuple[str, str, Any]  # method, path, body

WORDS = ("star", "moon", "wars", "sea")
SETTINGS = {"filterableAttributes": ["kind"], "embedders": {"e": {"source": "userProvided", "dimensions": 1}}}


class Follower:
    """documents: by identifier. ids: of the documents, from changes without documents. reread: how often it read everything."""

    def __init__(self, get: Get, index_uid: str) -> None:
        self._get, self._path = get, f"/indexes/{index_uid}"
        self.seq, self.documents, self.ids, self.reread = "0", dict[str, Any](), set[str](), 0

    def catch_up(self) -> None:
        """Follow to the present."""
        while self._read_page():
            pass

    def _read_page(self) -> bool:
        status, text = self._get(f"{self._path}/changes?since={self.seq}&documents=true&retrieveVectors=true")
        if status == 410:
            self._reread()
            return True
        if status == 404:  # the index was deleted
            self.seq, self.documents, self.ids = "0", {}, set()
            return False
        assert status == 200, text
        status, named = self._get(f"{self._path}/changes?since={self.seq}")
        if status in (404, 410):  # the index was deleted or swapped between the two requests
            return True
        assert status == 200, named
        for line in named.splitlines()[:len(text.splitlines())]:
            apply(json.loads(line), self.ids)
        for line in text.splitlines():
            change = json.loads(line)
            apply(change, self.documents)
            self.seq = change["seq"]
        return bool(text)

    def _reread(self) -> None:
        status, text = self._get(f"{self._path}/changes")
        if status == 404:  # the index was deleted meanwhile
            return
        self.reread += 1
        self.seq = json.loads(text)["seq"]  # before the documents: changes may come twice
        self.documents = {str(each["id"]): each for each in everything(self._get, self._path)}
        self.ids = set(self.documents)


def apply(change: dict[str, Any], held: Any) -> None:
    """Apply a change to a dictionary of documents, or to a set of identifiers."""
    if change["operation"] == "clear":
        held.clear()
    elif change["operation"] == "delete":
        held.pop(change["id"], None) if isinstance(held, dict) else held.discard(change["id"])
    elif isinstance(held, dict):
        held[change["id"]] = change["document"]
    else:
        held.add(change["id"])


def everything(get: Get, path: str) -> list[dict[str, Any]]:
    """All documents of an index; none if it does not exist."""
    status, text = get(f"{path}/documents?limit=100000&retrieveVectors=true")
    found: list[dict[str, Any]] = json.loads(text)["results"] if status == 200 else []
    return found


def random_writes(chance: random.Random) -> Iterator[Request]:
    """Random writes of documents, settings and indexes: `films` and `books`, which always have an embedder. Swaps are rare."""
    for index in ("films", "books"):
        yield "PATCH", f"/indexes/{index}/settings", SETTINGS
    while True:
        write = method, path, _ = _random_write(chance)
        yield write
        if method == "DELETE" and path in ("/indexes/films", "/indexes/books"):
            yield "PATCH", f"{path}/settings", SETTINGS


def _random_write(chance: random.Random, ids: int = 40) -> Request:
    index = f"/indexes/{chance.choice(['films', 'films', 'films', 'books'])}"
    documents = [{"id": chance.randrange(ids), "title": chance.choice(WORDS), "kind": chance.randrange(5),
                  "_vectors": {"e": [chance.random()]}} for _ in range(chance.randrange(1, 6))]
    some = [str(chance.randrange(ids)) for _ in range(3)]
    usual: list[Request] = [
        ("POST", f"{index}/documents", documents), ("PUT", f"{index}/documents", documents),
        ("DELETE", f"{index}/documents/{some[0]}", None), ("POST", f"{index}/documents/delete-batch", some),
        ("POST", f"{index}/documents/delete", {"filter": f"kind = {chance.randrange(5)}"}),
        ("POST", f"{index}/documents/edit", {"function": "doc.title = doc.title + '!'", "filter": f"kind = {chance.randrange(5)}"}),
        ("PATCH", f"{index}/settings", {"stopWords": [chance.choice(WORDS)]}),
    ]
    rare: list[Request] = [
        ("DELETE", f"{index}/documents", None), ("POST", "/swap-indexes", [{"indexes": ["films", "books"]}]),
        ("DELETE", index, None), ("POST", f"{index}/compact", None),
    ]
    return chance.choice(rare if chance.random() < 0.05 else usual)
