"""What a reader of an index keeps between searches, and how that is carried over writes.

Knows the generations of an index, and what was written between two of them; refuses to know what words and values
mean. Sets of documents are integers, bit d standing for docid d.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from svcd.bitsets import Packed, from_docids, packed, to_docids, unpacked
from svcd.store import words
from svcd.store.cache import Cache
from svcd.store.delta import Delta

T = TypeVar("T")
DocIds = int
# Classes can be keys like any other value; mypy looks at how what they make is hashed.
Key = tuple[Hashable | type, ...]

# SQLite takes 32,766 parameters; longer lists are asked for in parts.
_PARAMETERS = 500
# Beyond so many written documents reading the index again is quicker than looking at each of them.
MOST_WRITTEN = 1000
# Searches that began before the newest write go on beside those that began after it.
_STATES = 2


class _Span(NamedTuple):
    """What was written up to a generation. lost: from there on, and from before, it can't be told."""

    until: int
    since: int
    delta: Delta | None = None
    lost: int = -1


class Keeping:
    """One index in the read transaction of `connection`, at its generation."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache, generation: int) -> None:
        self._connection = connection
        self._uuid = uuid
        self._cache = cache
        self.generation = generation

    @property
    def state(self) -> Hashable:
        """Equal for readers of the same state of the same index, whatever was written to others."""
        return self._uuid, self.generation

    # What is kept between searches: (generation, value) under (uuid, ...)

    def _kept(self, key: Key, make: Callable[[], T], carry: Callable[[T, Delta], T | None] = lambda *_: None) -> T:
        """The value of a key at this generation. carry: an older value brought up to date, or None to make it anew."""
        scoped = (self._uuid, *key)
        held: tuple[int, T] | None = self._cache.peek(scoped)
        if held and held[0] == self.generation:
            return held[1]
        delta = self._delta_since(held[0]) if held and held[0] < self.generation else None
        carried = carry(held[1], delta) if held and delta else None
        value = make() if carried is None else carried
        if not held or held[0] < self.generation:  # a reader that began earlier must not take the place of a later one
            self._cache.put(scoped, (self.generation, value))
        return value

    def _held(self, key: Key) -> Any:
        """The value of a key, if it is kept and of this generation."""
        held = self._cache.peek((self._uuid, *key))
        return held[1] if held and held[0] == self.generation else None

    def _keep(self, key: Key, value: object) -> None:
        """Another value for a key whose value _kept() gave."""
        self._cache.put((self._uuid, *key), (self.generation, value))

    def remembered(self, key: Key, make: Callable[[], T]) -> T:
        """What somebody else made of this state of the index, and would make again: kept as long as it stands."""
        return self._kept(("made", *key), make)

    def _set(self, key: Key, make: Callable[[], Packed], written: Callable[[Delta], DocIds]) -> DocIds:
        """A set that is kept. written: what it is among the documents of a delta."""
        return unpacked(self._kept(key, lambda: packed(make()),
                                   lambda known, delta: packed(delta.carried(unpacked(known), written(delta)))))

    def _delta_since(self, generation: int) -> Delta | None:
        """The documents written since a generation, or earlier too; None when they are too many, or not known.

        It tells what written documents are now, so that the one that reaches farthest back does for all: one is held
        for this state of the index, and one for that before or after it, as each may take the room of thousands of sets.
        """
        key = (self._uuid, "delta", self.generation % _STATES)
        held: _Span | None = self._cache.peek(key)
        if held is None or held.until != self.generation:
            held = _Span(self.generation, self.generation)
        if generation < held.since and generation > held.lost:
            delta = self._read_delta(generation)
            held = held._replace(lost=generation) if delta is None else held._replace(since=generation, delta=delta)
            self._cache.put(key, held)
        return None if generation <= held.lost else held.delta

    def _read_delta(self, generation: int) -> Delta | None:
        changes = self._connection.execute("SELECT docids, gone FROM changes WHERE generation > ? AND generation <= ?",
                                           (generation, self.generation)).fetchall()
        if len(changes) != self.generation - generation or any(written is None for written, _ in changes):
            return None
        changed = from_docids([docid for written, _ in changes for docid in array("I", written)])
        if changed.bit_count() > MOST_WRITTEN:
            return None
        docids = to_docids(changed)
        rows = {docid: {slot: row.split(" ") for slot, row in words.forward_rows(forward).items()}
                for docid, forward in self.forward_rows(docids)}
        is_known = all(gone is not None for _, gone in changes)
        terms = frozenset(term for _, gone in changes for term in json.loads(gone)) if is_known else None
        return Delta(changed, rows, terms, dict(self._facet_rows(docids)))

    def forward_rows(self, docids: Sequence[int]) -> Iterator[tuple[int, str]]:
        """(docid, forward row) of those of some documents that hold words."""
        return self._by_docid("SELECT docid, words FROM forward", docids)

    def _facet_rows(self, docids: Sequence[int]) -> Iterator[tuple[int, str]]:
        """(docid, the text of its values) of those of some documents that have any."""
        return self._by_docid("SELECT docid, held FROM facet_rows", docids)

    def _by_docid(self, select: str, docids: Sequence[int]) -> Iterator[tuple[int, Any]]:
        for part in parts(docids):
            yield from self._connection.execute(f"{select} WHERE docid IN ({marks(part)})", part)


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """A list in portions that one statement takes as parameters."""
    for start in range(0, len(values), _PARAMETERS):
        yield values[start:start + _PARAMETERS]


def marks(part: Iterable[object]) -> str:
    """The places of a portion's parameters."""
    return ",".join("?" for _ in part)
