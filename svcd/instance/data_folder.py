"""Read-only access to a data folder: the list of indexes, their contents, keys and features.

Files are opened read-only, so any number of processes (the search workers) may use a folder at the same time. The writing
process uses the subclass svcd.instance.instance.Instance. See docs/tasks-and-batches.md#data-folder.
"""
from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from svcd.base import logs, machine
from svcd.base.errors import ApiError
from svcd.index.connections import ReadPool
from svcd.instance.rows import KeyReader

if TYPE_CHECKING:
    from svcd.index.read_transaction import Cache
    from svcd.index.reader import IndexReader
    from svcd.instance.network import Network


# A request holds at most MAX_OPEN_INDEXES indexes open, and at most half of the reader pool; it opens further indexes when it
# reads them.
MAX_OPEN_INDEXES = 64

_HIDDEN = "."  # first character of the uids of internal indexes
_MAX_STATES = 1000  # cached states of indexes
_LAST_UPDATE = f"SELECT max(updated_at) FROM indexes WHERE uid NOT LIKE '{_HIDDEN}%'"
_UUID = "SELECT uuid FROM indexes WHERE uid = ?"
_STATE = "SELECT key, value FROM meta WHERE key IN ('generation', 'primary_key')"

# (index uid, uuid) -> reader of that file; index_not_found when the file has been deleted.
ReadFile = Callable[[str, str], "AbstractContextManager[IndexReader]"]


class IndexState(NamedTuple):
    """The state of an index on which its answers depend. state: as IndexReader.state."""

    state: tuple[str, int]
    primary_key: str | None


class IndexSnapshot:
    """The indexes of one request, in one state of the list of indexes.

    A swap or deletion during the request does not affect it: uids are resolved once, and the files stay open until it ends.

    uuids: index uid -> uuid of its file, for existing indexes. held: open readers of the first MAX_OPEN_INDEXES.
    """

    def __init__(self, uuids: Mapping[str, str], held: Mapping[str, IndexReader], read_file: ReadFile) -> None:
        self._uuids = uuids
        self._held = held
        self._read_file = read_file

    @contextmanager
    def read(self, index_uid: str) -> Iterator[IndexReader]:
        """Give a reader of an index; an index that is held open is always read in the same state. Raises index_not_found."""
        if index_uid in self._held:
            yield self._held[index_uid]
        elif index_uid in self._uuids:
            with self._read_file(index_uid, self._uuids[index_uid]) as reader:
                yield reader
        else:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")


# Limits of the cache between searches, for all processes together; it grows with the indexes because cached sets do: with 56 MiB
# a search of five million documents reads its sets again and again (3 to 5 words: 102 ms, with 128 MiB 52).
MIN_CACHE_BYTES, MAX_CACHE_BYTES = 24 << 20, 56 << 20
_ANSWER_PART = 4  # answers may take 1/4 of the cache, readers the rest
_CACHE_PART = 20  # the cache may take 1/20 of the bytes of all indexes that were read,
_LARGE_PART = 50  # of large indexes 1/50, which may be more than MAX_CACHE_BYTES,
# twice as much while an index lacks its precomputed postings, as a set then takes up to 100 times as long to read,
_UNTIL_POSTINGS = 2
_MEMORY_PART = 8  # and at most 1/8 of the memory of the machine
INDEX_COLUMNS = "uid, uuid, created_at, updated_at, primary_key, stats"  # in the order of the fields of IndexRow
_ROWS = f"SELECT {INDEX_COLUMNS} FROM indexes WHERE uid IN (SELECT value FROM json_each(?)) ORDER BY uid"


@lru_cache
def _machine_memory() -> int:
    return machine.memory() or sys.maxsize


class IndexRow(NamedTuple):
    """One row of the list of indexes. stats: documents, bytes, fields (name -> number of documents). Times in nanoseconds."""

    uid: str
    uuid: str
    created_at: int
    updated_at: int
    primary_key: str | None = None
    stats: Mapping[str, Any] = {}


class DataFolderReader:
    """Reads an existing data folder, which another process may be writing.

    start: of this start of the daemon; a backup may have replaced the data folder before. Search workers get it from the writing
    process. keys: read from disk at each call. features: name -> state of every feature that was ever switched; Instance updates
    it in the writing process, use_features() in the other processes.
    """

    def __init__(self, path: Path, features: Mapping[str, bool | None] | None = None, start: str = "",
                 cache: Cache | None = None) -> None:
        """cache: of another process that reads the same folder."""
        self.path, self.start = path, start
        if cache is not None:
            self._cache = cache
        self._cache_bytes: int | None = None  # limit for the caches of all processes; None follows the size of the indexes
        self._instance_path, self._index_folder = str(path / "instance.sqlite"), str(path / "indexes")
        # uuid -> bytes of its file at the last read, whether it lacked precomputed postings
        self._sizes: dict[str, tuple[int, bool]] = {}
        self._processes = 1  # number of processes that share the cache limit
        # One number: it grows when the writing process begins and ends to change indexes or their list, and is odd in between. It
        # is odd, too, in a process that does not know it.
        self._changes: list[int] | memoryview[int] = [1]
        # That number, and index uid -> its state since then. The dict is replaced, never cleared: a thread that was reading a
        # state when a change began stores it in the old dict.
        self._states: tuple[int, dict[str, IndexState]] = 0, {}
        self._uuids: dict[str, str] = {}  # by index uid: what file_uuid() last returned
        self._readers = ReadPool()
        self._faults: dict[Path, tuple[Any, str | None]] = {}  # checked files: state and first fault
        self._looking = threading.Lock()  # guards _faults; held while a file is checked
        self.keys = KeyReader(self._instance_path, self._readers)
        self._features = dict(features or {})
        self.stored_network: Mapping[str, Any] | None = None  # as Network.as_json(); None when it was never set
        self._parsed_network: tuple[Mapping[str, Any] | None, Network] | None = None  # parsed at its first use

    def close(self) -> None:
        """Close every file."""
        self._readers.close()

    @cached_property
    def _cache(self) -> Cache:
        # Imported late: 2 MB of code, which a daemon that has just started and reads no index does not need.
        from svcd.index.read_transaction import Cache

        return Cache(self._own_cache_bytes() - self.answer_limit)

    def write_cache(self, file: IO[bytes]) -> None:
        """Write the cached values that fit into the share of one more process, for the cache of that process."""
        self._cache.dump(file, self._cache.limit * self._processes // (self._processes + 1))

    @property
    def answer_limit(self) -> int:
        """Bytes that the answers kept in this process may take."""
        return self._own_cache_bytes() // _ANSWER_PART

    def share_cache(self, processes: int) -> None:
        """Limit this process to an equal share of the cache memory. processes: number of processes that share it."""
        self._processes = processes
        self._limit_cache()

    def limit_cache(self, most: int | None) -> None:
        """Set the limit of the caches of all processes together, in bytes; None follows the size of the indexes."""
        self._cache_bytes = most
        if "_cache" in self.__dict__:  # created when the first index is read
            self._limit_cache()

    def open_files(self) -> list[str]:
        """Return the files that are open for the next read."""
        return self._readers.paths()

    def open(self, files: Sequence[str]) -> None:
        """Open files of open_files() of another process."""
        self._readers.open(files)

    def give_back(self) -> None:
        """Close spare readers, and return freed memory to the system; call this after work."""
        self._readers.close_spare()
        machine.give_back_memory()

    def index_path(self, uuid: str) -> Path:
        """Return the path of an index file."""
        return self.path / "indexes" / f"{uuid}.sqlite"

    def index(self, index_uid: str) -> IndexRow | None:
        """Return the row of an index, or None."""
        with self.read_instance() as connection:
            row = connection.execute(f"SELECT {INDEX_COLUMNS} FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        return _index_row(row) if row else None

    def has_ended(self, task_uid: int) -> bool:
        """Return whether a task has ended; False for an unknown task."""
        with self.read_instance() as connection:
            row = connection.execute("SELECT status <> 'enqueued' FROM tasks WHERE uid = ?", (task_uid,)).fetchone()
        return bool(row and row[0])

    def require_index(self, index_uid: str) -> IndexRow:
        """Return the row of an index. Raises index_not_found."""
        row = self.index(index_uid)
        if row is None:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        return row

    def list_indexes(self, offset: int = 0, limit: int | None = None, is_allowed: Callable[[str], bool] | None = None,
                     with_hidden: bool = False) -> tuple[list[IndexRow], int]:
        """Return a page of the indexes that `is_allowed` accepts, by uid, and their total. with_hidden: internal ones too."""
        with self.read_instance() as connection:
            uids = [uid for (uid,) in connection.execute("SELECT uid FROM indexes ORDER BY uid")
                    if (with_hidden or not is_hidden(uid)) and (is_allowed is None or is_allowed(uid))]
            page = uids[offset:None if limit is None else offset + limit]
            return list(map(_index_row, connection.execute(_ROWS, (json.dumps(page),)))), len(uids)

    def each_index(self, is_allowed: Callable[[str], bool] = lambda index_uid: True) -> Iterator[IndexRow]:
        """Yield the allowed indexes one by one: the rows of ten thousand indexes take megabytes."""
        with self.read_instance() as connection:
            for row in connection.execute(f"SELECT {INDEX_COLUMNS} FROM indexes ORDER BY uid"):
                if not is_hidden(row[0]) and is_allowed(row[0]):
                    yield _index_row(row)

    @contextmanager
    def read(self, index_uid: str) -> Iterator[IndexReader]:
        """Give a reader of an index in one state, from first to last read. Raises index_not_found."""
        from svcd.index.reader import IndexReader  # imported late: a start reads no index, and need not wait for the import

        while True:
            with self._told_from_damage(index_uid):
                uuid = self._uuids.get(index_uid) or self.file_uuid(index_uid)  # checked once the reader is open
                path = f"{self._index_folder}/{uuid}.sqlite"
                try:
                    connection = self._readers.begin(path)
                except sqlite3.OperationalError:
                    if self.file_uuid(index_uid) != uuid:
                        continue  # the file was replaced in between
                    if not os.path.exists(path):
                        raise missing_file_error(index_uid) from None
                    raise  # the file exists: another error
                try:
                    try:
                        reader = IndexReader(connection, uuid, self._cache)
                    except sqlite3.OperationalError:
                        if self.is_lost(uuid):
                            raise missing_file_error(index_uid) from None
                        raise
                    self._size_cache(reader, path)
                    if self.file_uuid(index_uid) == uuid:  # else a swap came before the reader, and perhaps a write after it
                        yield reader
                        return
                finally:
                    self._readers.end(path, connection)

    def is_lost(self, uuid: str) -> bool:
        """Return whether the file of an index is missing or has no tables, as after a disk that lost acknowledged writes."""
        try:
            return not self._readers.rows(f"{self._index_folder}/{uuid}.sqlite", "PRAGMA user_version")[0][0]
        except sqlite3.OperationalError:
            if machine.file_exists(self.index_path(uuid)):
                raise  # another error
            return True
        except sqlite3.DatabaseError:  # damaged, not lost
            return False

    @contextmanager
    def read_file(self, index_uid: str, uuid: str) -> Iterator[IndexReader]:
        """Give a reader of the file that an index had when its row was read.

        Raises index_not_found when the index was deleted since, io_error when the file is lost.
        """
        with ExitStack() as stack:
            try:
                reader = stack.enter_context(self._open_file(index_uid, uuid))
            except sqlite3.OperationalError:
                if not self.is_lost(uuid):
                    raise
                if self.file_uuid(index_uid) == uuid:
                    raise missing_file_error(index_uid) from None
                raise ApiError("index_not_found", f"Index `{index_uid}` not found.") from None
            yield reader

    @contextmanager
    def read_together(self, index_uids: Iterable[str],
                      linked: Callable[[IndexReader], Iterable[str]] = lambda reader: ()) -> Iterator[IndexSnapshot]:
        """Give several indexes in one state of the list of indexes; to read a missing index raises index_not_found.

        linked: reader -> uids of further indexes that the request may read through this index (joins).
        """
        with ExitStack() as stack:
            yield self._open_together(stack, list(dict.fromkeys(index_uids)), linked)

    def _open_together(self, stack: ExitStack, index_uids: Sequence[str],
                       linked: Callable[[IndexReader], Iterable[str]]) -> IndexSnapshot:
        if len(index_uids) == 1 and (alone := self._open_alone(stack, index_uids[0], linked)):
            return alone
        lost: set[str] = set()  # uuids that are not tried again: deleted, or listed without a file
        while True:
            uuids: dict[str, str] = {}
            held: dict[str, IndexReader] = {}
            with ExitStack() as attempt:
                try:
                    with self.read_instance() as connection:  # the list stays in one state until the files are open
                        self._open_some(attempt, uuids, held, uuids_of(connection, index_uids), lost)
                        others = {uid for reader in list(held.values()) for uid in linked(reader)} - {*index_uids}
                        self._open_some(attempt, uuids, held, uuids_of(connection, sorted(others)), lost)
                except sqlite3.OperationalError:
                    fresh = {uuid for uuid in uuids.values() if uuid not in lost and self.is_lost(uuid)}
                    if not fresh:
                        raise  # all files exist: another error
                    lost |= fresh
                    continue  # a file may have been deleted after the list was read
                with self.read_instance() as connection:
                    if uuids_of(connection, [*index_uids, *sorted(others)]) != uuids:
                        continue  # a swap before a file was opened; since then its new name may have been written
                stack.push(attempt.pop_all())
                return IndexSnapshot(uuids, held, self.read_file)

    def _open_alone(self, stack: ExitStack, index_uid: str,
                    linked: Callable[[IndexReader], Iterable[str]]) -> IndexSnapshot | None:
        """Open one index without links to others, faster than _open_together() would; None in all other cases."""
        if not self._readers.most_held:
            return None
        with ExitStack() as attempt:
            try:
                reader = attempt.enter_context(self.read(index_uid))
            except ApiError:  # the index does not exist, or its file is missing
                return None
            for _ in linked(reader):
                return None
            stack.push(attempt.pop_all())
        return IndexSnapshot({index_uid: reader.state[0]}, {index_uid: reader}, self.read_file)

    def _open_some(self, stack: ExitStack, uuids: dict[str, str], held: dict[str, IndexReader], found: Mapping[str, str],
                   lost: Collection[str]) -> None:
        uuids.update(found)
        for index_uid, uuid in found.items():
            if len(held) < min(MAX_OPEN_INDEXES, self._readers.most_held) and uuid not in lost:
                held[index_uid] = stack.enter_context(self._open_file(index_uid, uuid))

    @contextmanager
    def _open_file(self, index_uid: str, uuid: str) -> Iterator[IndexReader]:
        """Give a reader of a file in one state. Raises sqlite3.OperationalError when it does not exist."""
        from svcd.index.reader import IndexReader

        path = f"{self._index_folder}/{uuid}.sqlite"
        with self._told_from_damage(index_uid, uuid):
            connection = self._readers.begin(path)
            try:
                reader = IndexReader(connection, uuid, self._cache)
                self._size_cache(reader, path)
                yield reader
            finally:
                self._readers.end(path, connection)

    # Damage: docs/storage.md#damage

    @contextmanager
    def _told_from_damage(self, index_uid: str, uuid: str | None = None) -> Iterator[None]:
        """Turn an error of the block, which reads an index, into index_corrupted if the file of the index is damaged."""
        try:
            yield
        except (ApiError, OSError):
            raise
        except Exception as error:
            if (fault := self.index_fault(index_uid, error, uuid)) is None:
                raise
            from svcd.index.damage import index_error

            raise index_error(index_uid, fault) from error

    def index_fault(self, index_uid: str, error: BaseException, uuid: str | None = None) -> str | None:
        """Return the fault of an index file that caused an error; None if the file is missing or sound. Log it once."""
        from svcd.index import damage, schema

        if not damage.may_be_damage(error):
            return None
        path = self.index_path(uuid or self.file_uuid(index_uid))
        fault = self._fault(path, schema.INDEX) or damage.fault_told_by(error)
        if fault is not None:
            note_damage(path, index_uid, fault)
        return fault

    def instance_fault(self, error: BaseException) -> str | None:
        """Return the fault of instance.sqlite that caused an error; None if the file is sound."""
        from svcd.index import damage, schema

        if not damage.may_be_damage(error):
            return None
        return self._fault(Path(self._instance_path), schema.INSTANCE)

    def _fault(self, path: Path, kind: Any) -> str | None:
        """Return the first fault of a file, or None. A check may take seconds, so its result is cached until the file changes."""
        from svcd.index.damage import first_fault

        with self._looking:
            state: list[int] = []  # changes with each write of the database
            for each in (path, Path(f"{path}-wal")):
                with suppress(OSError):
                    status = each.stat()
                    state += (status.st_ino, status.st_size, status.st_mtime_ns)
            if not machine.file_exists(path):
                return None
            known = self._faults.get(path)
            if known is None or known[0] != state:
                known = self._faults[path] = state, first_fault(path, kind)
            return known[1]

    def damaged_indexes(self) -> list[str]:
        """Return the uuids of the indexes whose files were found damaged since the start."""
        with os.scandir(self._index_folder) as entries:
            return sorted(entry.name.partition(".")[0] for entry in entries if entry.name.endswith(DAMAGED))

    def _size_cache(self, reader: IndexReader, path: str) -> None:
        try:
            size = os.stat(path).st_size, reader.lacks_precomputed_postings
        except FileNotFoundError:  # deleted since it was opened
            return
        if self._sizes.get(uuid := reader.state[0]) != size:
            self._sizes[uuid] = size
            self._limit_cache()

    def _limit_cache(self) -> None:
        self._cache.limit = self._own_cache_bytes() - self.answer_limit

    def _own_cache_bytes(self) -> int:
        """Return the bytes that the caches of this process may take between searches."""
        most = self._cache_bytes
        if most is None:
            sizes = [*self._sizes.values()]
            size, lacks_postings = sum([size for size, _ in sizes]), any(lacks for _, lacks in sizes)
            wanted = max(min(size // _CACHE_PART, MAX_CACHE_BYTES), size // _LARGE_PART, MIN_CACHE_BYTES)
            most = min(wanted * (_UNTIL_POSTINGS if lacks_postings else 1), _machine_memory() // _MEMORY_PART)
        return most // self._processes

    def file_uuid(self, index_uid: str) -> str:
        """Return the uuid of the file of an index. Raises index_not_found."""
        found = self._readers.rows(self._instance_path, _UUID, (index_uid,))
        if not found:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        uuid: str = found[0][0]
        if len(self._uuids) >= _MAX_STATES:
            self._uuids.clear()
        self._uuids[index_uid] = uuid
        return uuid

    def share_changes(self, changes: memoryview[int]) -> None:
        """Use memory that the processes of a daemon share for the number of changes (LoadTable)."""
        self._changes = changes

    def _known_states(self) -> dict[str, IndexState] | None:
        """The known states of indexes; None while an index may change."""
        count, known = self._changes[0], self._states
        if count % 2:
            return None
        if known[0] != count:
            known = self._states = count, {}
        return known[1]

    def index_state(self, index_uid: str) -> IndexState | None:
        """Return the present state of an index without a reader; None if only a reader can tell, as for a missing index."""
        states = self._known_states()
        state = None if states is None else states.get(index_uid)
        if state is None and (found := self._readers.rows(self._instance_path, _UUID, (index_uid,))):
            uuid = found[0][0]
            try:
                meta = dict(self._readers.rows(f"{self._index_folder}/{uuid}.sqlite", _STATE))
            except sqlite3.DatabaseError:  # deleted since, or damaged
                return None
            state = IndexState((uuid, meta.get("generation", 0)), meta.get("primary_key"))
            if states is not None and len(states) < _MAX_STATES:
                states[index_uid] = state
        return state

    def forget(self, uuid: str) -> None:
        """Close connections to a deleted index and drop its cache entries, so that its disk space is freed."""
        self._readers.forget(self.index_path(uuid))
        self._sizes.pop(uuid, None)
        self._cache.forget(lambda key: isinstance(key, tuple) and key[0] == uuid)

    def read_instance(self) -> Any:
        """Return a context manager that gives a connection with a read transaction of instance.sqlite."""
        return self._readers.transaction(self._instance_path)

    def last_update(self) -> int | None:
        """Return when any index changed last (nanoseconds), or None."""
        with self.read_instance() as connection:
            newest: int | None = connection.execute(_LAST_UPDATE).fetchone()[0]
            return newest

    def features(self) -> dict[str, bool | None]:
        """Return name -> state of every feature that was ever switched; None (off) if a dump did not say."""
        return dict(self._features)

    def is_enabled(self, feature: str) -> bool:
        """Return whether a feature is on."""
        return bool(self._features.get(feature))

    def use_features(self, features: Mapping[str, bool | None]) -> None:
        """Replace the state of all features."""
        # One assignment: readers need no lock to see a change as a whole.
        self._features = dict(features)

    def network(self) -> Network:
        """Return the other instances that this instance may call, from memory: fast enough for each request."""
        from svcd.instance.network import Network, from_json  # imported late: most instances are in no network

        stored, parsed = self.stored_network, self._parsed_network
        if parsed is None or parsed[0] is not stored:
            parsed = self._parsed_network = stored, Network() if stored is None else from_json(stored)
        return parsed[1]

    def use_network(self, network: Mapping[str, Any] | None) -> None:
        """Replace the network. network: as Network.as_json(); None for the network of a new instance."""
        self.stored_network = network


def is_hidden(index_uid: str) -> bool:
    """Return whether an index is internal to svcd; no index of a user can have such a name."""
    return index_uid.startswith(_HIDDEN)


def uuids_of(connection: sqlite3.Connection, index_uids: Sequence[str]) -> dict[str, str]:
    """Return index uid -> uuid of the existing indexes, in the order given."""
    found = dict(connection.execute("SELECT uid, uuid FROM indexes WHERE uid IN (SELECT value FROM json_each(?))",
                                    (json.dumps(list(index_uids)),))) if index_uids else {}
    return {index_uid: found[index_uid] for index_uid in index_uids if index_uid in found}


# Suffix of a marker beside a damaged index file; the first process that finds the damage creates the marker.
DAMAGED = ".sqlite-damaged"


def note_damage(path: Path, index_uid: str, fault: str) -> None:
    """Log that the file of an index is damaged: once until the next start, for all processes together."""
    try:
        path.with_name(path.stem + DAMAGED).open("x").close()
    except FileExistsError:
        return
    except OSError:  # the disk is full or read-only
        pass
    logs.error("an index is damaged: restore it from a backup, rebuild it with `svcd repair`, or delete it", index=index_uid,
               file=f"indexes/{path.name}", fault=fault)


def missing_file_error(index_uid: str) -> ApiError:
    """Return the error for an index whose file is missing, or has lost its tables."""
    return ApiError("io_error", f"The file of index `{index_uid}` is missing from the data folder, or empty. Put it back, or "
                                "delete the index.")


def _index_row(row: tuple[Any, ...]) -> IndexRow:
    uid, uuid, created_at, updated_at, primary_key, stats = row
    return IndexRow(uid, uuid, created_at, updated_at, primary_key, json.loads(stats))
