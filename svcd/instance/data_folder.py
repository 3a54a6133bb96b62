"""The data folder as those see it who only read: which indexes there are, their contents, keys, features.

    instance.sqlite   the list of indexes and the keys (and the queue, which is svcd.instance.queue's)
    indexes/          <uuid>.sqlite, one file an index; its name is a row elsewhere

Knows where the files lie and opens them read-only, so that any number of processes may do so at once; refuses to
know who writes them (svcd.instance.instance).
"""
from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svcd.base.errors import ApiError
from svcd.index.connections import ReadPool
from svcd.index.read_transaction import Cache
from svcd.instance.keys import KeyReader

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader


# Several indexes of one request, as one state of the list of indexes has them.
#
# A swap or a deletion in between changes nothing for the request: its uids are looked up once, and the files that they
# then stood for are held open until it ends. Refuses to know how files are opened.


# Indexes of one request that are held open: each takes three descriptors. Those beyond are opened when they are read.
MAX_OPEN_INDEXES = 64

# (index uid, uuid) -> the index of this file; index_not_found when it is gone.
ReadFile = Callable[[str, str], "AbstractContextManager[IndexReader]"]


class IndexSnapshot:
    """uuids: by index uid, of those of the request that there are. held: readers of the first of them."""

    def __init__(self, uuids: Mapping[str, str], held: Mapping[str, IndexReader], read_file: ReadFile) -> None:
        self._uuids = uuids
        self._held = held
        self._read_file = read_file

    @contextmanager
    def read(self, index_uid: str) -> Iterator[IndexReader]:
        """One state of an index, the same each time where it is held; index_not_found when there is none."""
        if index_uid in self._held:
            yield self._held[index_uid]
        elif index_uid in self._uuids:
            with self._read_file(index_uid, self._uuids[index_uid]) as reader:
                yield reader
        else:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")


# What is kept between searches: more where there are many documents, as each set of words has a bit for each of them.
MIN_CACHE_BYTES, MAX_CACHE_BYTES = 32 << 20, 128 << 20
_CACHE_PART = 10  # of the bytes of all indexes that were read
INDEX_COLUMNS = "uid, uuid, created_at, updated_at, primary_key, stats"  # of an index, as IndexRow has them


@dataclass(frozen=True)
class IndexRow:
    """One index as the instance lists it. stats: documents, bytes, fields (name -> documents)."""

    uid: str
    uuid: str
    created_at: int
    updated_at: int
    primary_key: str | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)


class DataFolderReader:
    """A data folder that is there, and that may be in use.

    keys: those that are stored at the moment of each question.
    features: those that were ever switched; who writes them (Instance), or hears of it (use_features), keeps them.
    """

    def __init__(self, path: Path, features: Mapping[str, bool | None] | None = None) -> None:
        self.path = path
        self._instance_path, self._index_folder = str(path / "instance.sqlite"), str(path / "indexes")
        self._cache = Cache(MIN_CACHE_BYTES)
        self._sizes: dict[str, int] = {}  # uuid -> bytes of its file when it was read last
        self._readers = ReadPool()
        self.keys = KeyReader(self._instance_path, self._readers)
        self._features = dict(features or {})

    def close(self) -> None:
        """Close every file."""
        self._readers.close()

    # Indexes

    def index_path(self, uuid: str) -> Path:
        """Where the file of an index lies."""
        return self.path / "indexes" / f"{uuid}.sqlite"

    def index(self, index_uid: str) -> IndexRow | None:
        """The row of an index, or None."""
        with self._reading() as connection:
            row = connection.execute(f"SELECT {INDEX_COLUMNS} FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        return _index_row(row) if row else None

    def require_index(self, index_uid: str) -> IndexRow:
        """The row of an index; index_not_found when there is none."""
        row = self.index(index_uid)
        if row is None:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        return row

    def list_indexes(self, offset: int = 0, limit: int | None = None,
                     is_allowed: Callable[[str], bool] | None = None) -> tuple[list[IndexRow], int]:
        """A page of the indexes by uid, and how many there are; those a caller may not see count in neither."""
        with self._reading() as connection:
            rows = [_index_row(row) for row in connection.execute(f"SELECT {INDEX_COLUMNS} FROM indexes ORDER BY uid")
                    if is_allowed is None or is_allowed(row[0])]
        return rows[offset:None if limit is None else offset + limit], len(rows)

    @contextmanager
    def read(self, index_uid: str) -> Iterator[IndexReader]:
        """One state of an index, from the first read to the last; index_not_found when there is none."""
        from svcd.index.reader import IndexReader  # a start, which reads no index, need not wait for it

        uuid, path, connection = self._begun(index_uid)
        try:
            self._make_room(uuid, path)
            yield IndexReader(connection, uuid, self._cache)
        finally:
            self._readers.end(path, connection)

    @contextmanager
    def read_file(self, index_uid: str, uuid: str) -> Iterator[IndexReader]:
        """One state of the index that had this uid when its row was read; index_not_found when it was deleted since."""
        with ExitStack() as stack:
            try:
                reader = stack.enter_context(self._opened(uuid))
            except sqlite3.OperationalError:
                if self.index_path(uuid).exists():
                    raise
                raise ApiError("index_not_found", f"Index `{index_uid}` not found.") from None
            yield reader

    @contextmanager
    def read_together(self, index_uids: Iterable[str],
                      linked: Callable[[IndexReader], Iterable[str]] = lambda reader: ()) -> Iterator[IndexSnapshot]:
        """Indexes as one state of the list of indexes has them; those that do not exist are refused when they are read.

        linked: gives the uids of others that a request for this index may read, too.
        """
        with ExitStack() as stack:
            yield self._shelf(stack, list(dict.fromkeys(index_uids)), linked)

    def _shelf(self, stack: ExitStack, index_uids: Sequence[str],
               linked: Callable[[IndexReader], Iterable[str]]) -> IndexSnapshot:
        while True:
            uuids: dict[str, str] = {}
            held: dict[str, IndexReader] = {}
            with ExitStack() as attempt:
                try:
                    with self._reading() as connection:  # one state of the list, until the files are open
                        self._hold(attempt, uuids, held, _uuids_of(connection, index_uids))
                        others = {uid for reader in list(held.values()) for uid in linked(reader)} - {*index_uids}
                        self._hold(attempt, uuids, held, _uuids_of(connection, sorted(others)))
                except sqlite3.OperationalError:
                    if all(self.index_path(uuid).exists() for uuid in uuids.values()):
                        raise  # they are there: something else is wrong
                    continue  # one was deleted after the list was read
                stack.push(attempt.pop_all())
                return IndexSnapshot(uuids, held, self.read_file)

    def _hold(self, stack: ExitStack, uuids: dict[str, str], held: dict[str, IndexReader], found: Mapping[str, str]) -> None:
        uuids.update(found)
        for index_uid, uuid in found.items():
            if len(held) < MAX_OPEN_INDEXES:
                held[index_uid] = stack.enter_context(self._opened(uuid))

    @contextmanager
    def _opened(self, uuid: str) -> Iterator[IndexReader]:
        """One state of the index of a file. OperationalError when there is none."""
        from svcd.index.reader import IndexReader

        path = f"{self._index_folder}/{uuid}.sqlite"
        connection = self._readers.begin(path)
        try:
            self._make_room(uuid, path)
            yield IndexReader(connection, uuid, self._cache)
        finally:
            self._readers.end(path, connection)

    def _begun(self, index_uid: str) -> tuple[str, str, sqlite3.Connection]:
        """uuid, path and read transaction of an index, whose file may go and come anew meanwhile."""
        uuid = self._uuid_of(index_uid)
        while True:
            path = f"{self._index_folder}/{uuid}.sqlite"
            try:
                return uuid, path, self._readers.begin(path)
            except sqlite3.OperationalError:
                again = self._uuid_of(index_uid)
                if again == uuid:
                    if not os.path.exists(path):
                        raise missing_file_error(index_uid) from None
                    raise  # it is there: something else is wrong
                uuid = again

    def _make_room(self, uuid: str, path: str) -> None:
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:  # deleted since it was opened
            return
        if self._sizes.get(uuid) != size:
            self._sizes[uuid] = size
            wanted = sum([*self._sizes.values()]) // _CACHE_PART
            self._cache.limit = min(max(MIN_CACHE_BYTES, wanted), MAX_CACHE_BYTES)

    def _uuid_of(self, index_uid: str) -> str:
        with self._reading() as connection:
            row = connection.execute("SELECT uuid FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        if row is None:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        uuid: str = row[0]
        return uuid

    def forget(self, uuid: str) -> None:
        """An index has no row any more: hold nothing of it, so that its space is given back."""
        self._readers.forget(self.index_path(uuid))
        self._sizes.pop(uuid, None)
        self._cache.forget(lambda key: isinstance(key, tuple) and key[0] == uuid)

    def _reading(self) -> Any:
        return self._readers.transaction(self._instance_path)

    def last_update(self) -> int | None:
        """When an index changed last, or None."""
        with self._reading() as connection:
            newest: int | None = connection.execute("SELECT max(updated_at) FROM indexes").fetchone()[0]
            return newest

    # Features

    def features(self) -> dict[str, bool | None]:
        """The features that were ever switched, by name; None for one that a dump left open: it is off."""
        return dict(self._features)

    def is_enabled(self, feature: str) -> bool:
        """True when a feature is on."""
        return bool(self._features.get(feature))

    def use_features(self, features: Mapping[str, bool | None]) -> None:
        """All features as they are from now on."""
        # One object replaces another: who reads without a lock sees all of a change, or nothing of it.
        self._features = dict(features)


def _uuids_of(connection: sqlite3.Connection, index_uids: Sequence[str]) -> dict[str, str]:
    """The uuids of the indexes that there are, by uid, in the order asked."""
    found = dict(connection.execute("SELECT uid, uuid FROM indexes WHERE uid IN (SELECT value FROM json_each(?))",
                                    (json.dumps(list(index_uids)),))) if index_uids else {}
    return {index_uid: found[index_uid] for index_uid in index_uids if index_uid in found}


def missing_file_error(index_uid: str) -> ApiError:
    """What is said of an index whose file is not there."""
    return ApiError("io_error", f"The file of index `{index_uid}` is missing from the data folder. Put it back, or delete "
                                "the index.")


def _index_row(row: tuple[Any, ...]) -> IndexRow:
    uid, uuid, created_at, updated_at, primary_key, stats = row
    return IndexRow(uid, uuid, created_at, updated_at, primary_key, json.loads(stats))
