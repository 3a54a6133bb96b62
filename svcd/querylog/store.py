"""The file of the query log, `query-log.sqlite`: the stored parts of a search, and their retention.

A search is a row of 25 bytes: its query (by id, each text of an index is stored once), hits, milliseconds and key. Its number is
made from its request uid: milliseconds since 1970, 15 random bits, and SLOTS free numbers, since all searches of a multi-search
have the same uid. So rows are appended in the order of time, and a click finds its search without a further index.

One connection writes, in the main process (svcd.index.connections). A commit survives the end of the process at once, and the end
of the machine after some seconds.
"""
from __future__ import annotations

import hashlib
import sqlite3
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from svcd.base import logs
from svcd.index.connections import open_writer
from svcd.querylog.recorder import Click, Search
from svcd.querylog.reformulations import NOTHING, Sessions, Typed

FILE = "query-log.sqlite"
MOST_CHARACTERS = 200
HASH_MARK = "#"
TIME_SHIFT, SLOTS = 21, 64
# The part of the searches that is deleted when the file is full, and how often the age of searches is compared.
_DELETED_PART, _LOOK_MS = 10, 60_000
# How long a click waits for its search, which another process may not have passed on yet.
_CLICK_WAITS_MS = 10_000
_DAY_MS = 86_400_000
_MOST_KNOWN = 5_000  # ids of queries in memory
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS queries(id INTEGER PRIMARY KEY, index_uid TEXT NOT NULL, text TEXT NOT NULL,
        UNIQUE(index_uid, text));
    CREATE TABLE IF NOT EXISTS keys(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS searches(id INTEGER PRIMARY KEY, query INTEGER NOT NULL, hits INTEGER NOT NULL,
        ms INTEGER NOT NULL, key INTEGER NOT NULL, is_typed_on INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS clicks(search INTEGER, document TEXT, position INTEGER, query INTEGER NOT NULL,
        PRIMARY KEY(search, document)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS replaced(search INTEGER PRIMARY KEY, failed INTEGER NOT NULL, replacing INTEGER NOT NULL);
"""


def normalized(text: str) -> str:
    """The form of a query in counts: case, width and blanks make no difference; at most MOST_CHARACTERS."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())[:MOST_CHARACTERS].rstrip()


def number_of(request_uid: str) -> int:
    """The first number of the searches of a request. request_uid: a UUID of version 7. Raises ValueError."""
    uid = int(request_uid.replace("-", ""), 16)
    return (uid >> 80) << TIME_SHIFT | (uid >> 64 & 0xFFF) << 9 | (uid >> 59 & 7) << 6


class QueryLog:
    """Writes the log. most_bytes: of the file; days: age of the oldest search; secret: store hashes with it instead of texts."""

    def __init__(self, path: Path, most_bytes: int, days: int, secret: bytes | None = None,
                 now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """path: of the file, created if absent. Raises sqlite3.Error, OSError."""
        self._most_bytes, self._days, self._now_ms = most_bytes, days, now_ms
        self._secret = None if secret is None else hashlib.blake2b(secret).digest()
        self._connection = open_writer(path)
        try:
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_SCHEMA)
        except BaseException:
            self._connection.close()
            raise
        self._queries: dict[tuple[str, str], tuple[int, str]] = {}  # (index, text as typed) -> id, text as stored
        self._keys: dict[str, int] = {}
        self._sessions = Sessions()
        self._clicks: list[Click] = []  # that wait for their search
        self._looked_at = 0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def write(self, rows: Sequence[Search | Click]) -> None:
        """Store searches and clicks in one transaction. Raises sqlite3.Error."""
        with self._transaction():
            self._add_searches([row for row in rows if isinstance(row, Search)])
            clicks = [*self._clicks, *(row for row in rows if isinstance(row, Click))]
            oldest = self._now_ms() - _CLICK_WAITS_MS
            self._clicks = [click for click in clicks if not self._add_click(click) and click.at > oldest]
        self._shorten()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            self._queries.clear()
            self._keys.clear()
            raise
        self._connection.execute("COMMIT")

    def _add_searches(self, searches: Sequence[Search]) -> None:
        if not searches:
            return
        numbers = [number_of(search.request_uid) for search in searches]
        taken = {number for (number,) in self._connection.execute(
            "SELECT id FROM searches WHERE id BETWEEN ? AND ?", (min(numbers), max(numbers) + SLOTS))}
        rows: dict[int, list[int]] = {}
        typed_on, pairs, undone = list[tuple[int]](), list[tuple[int, ...]](), list[tuple[int]]()
        for first, search in zip(numbers, searches):
            number = first
            while number in rows or number in taken:
                number += 1
            known = self._queries.get((search.index_uid, search.text))
            query, text = self._query(search) if known is None else known
            key = 0 if search.key_uid is None else self._keys.get(search.key_uid) or self._key(search.key_uid)
            rows[number] = [number, query, search.hits, search.milliseconds, key, 0]
            if self._secret is not None:
                continue
            step = self._sessions.step((search.client, search.index_uid), Typed(
                number, first >> TIME_SHIFT, text, query, search.hits > 0))
            if step is NOTHING:
                continue
            if step.typed_on is not None and step.typed_on in rows:
                rows[step.typed_on][-1] = 1
            elif step.typed_on is not None:
                typed_on.append((step.typed_on,))
            pairs += [] if step.pair is None else [(number, *step.pair)]
            undone += [] if step.undone is None else [(step.undone,)]
        execute = self._connection.executemany
        execute("INSERT INTO searches VALUES (?, ?, ?, ?, ?, ?)", rows.values())
        execute("UPDATE searches SET is_typed_on = 1 WHERE id = ?", typed_on)
        execute("INSERT INTO replaced VALUES (?, ?, ?)", pairs)
        execute("DELETE FROM replaced WHERE search = ?", undone)

    def _query(self, search: Search) -> tuple[int, str]:
        """The id and the stored text of a query."""
        text = normalized(search.text)
        if self._secret is not None and text:
            text = HASH_MARK + hashlib.blake2b(text.encode(), key=self._secret, digest_size=8).hexdigest()
        if len(self._queries) >= _MOST_KNOWN:
            self._queries.clear()
        found = self._queries[search.index_uid, search.text] = self._id("queries", index_uid=search.index_uid, text=text), text
        return found

    def _key(self, uid: str) -> int:
        found = self._keys[uid] = self._id("keys", uid=uid)
        return found

    def _id(self, table: str, **row: str) -> int:
        """The id of a row, which is added if it is new."""
        where, values = " AND ".join(f"{column} = ?" for column in row), tuple(row.values())
        stored = self._connection.execute(f"SELECT id FROM {table} WHERE {where}", values).fetchone()
        if stored is None:
            stored = self._connection.execute(f"INSERT INTO {table}({', '.join(row)}) VALUES ({', '.join('?' * len(row))}) "
                                              "RETURNING id", values).fetchone()
        return int(stored[0])

    def _add_click(self, click: Click) -> bool:
        """Add a click to the search of its request on its index by its key; False if there is no such search."""
        first = number_of(click.request_uid)
        found = self._connection.execute(
            "SELECT searches.id, searches.query FROM searches JOIN queries ON queries.id = query LEFT JOIN keys ON keys.id = key "
            "WHERE searches.id BETWEEN ? AND ? AND index_uid = ? AND keys.uid IS ? LIMIT 1",
            (first, first + SLOTS - 1, click.index_uid, click.key_uid)).fetchone()
        if found is not None:
            self._connection.execute("INSERT OR REPLACE INTO clicks VALUES (?, ?, ?, ?)",
                                     (found[0], click.document_id[:MOST_CHARACTERS], click.position, found[1]))
        return found is not None

    # Retention

    def _shorten(self) -> None:
        """Delete searches that are too old, and the oldest ones while the file is too large."""
        now_ms = self._now_ms()
        if now_ms - self._looked_at >= _LOOK_MS:
            self._looked_at = now_ms
            self._delete_before((now_ms - self._days * _DAY_MS) << TIME_SHIFT)
        while self._bytes() > self._most_bytes:
            count, newest = self._connection.execute("SELECT count(*), max(id) FROM searches").fetchone()
            if not count:
                return
            bound = self._connection.execute("SELECT id FROM searches ORDER BY id LIMIT 1 OFFSET ?",
                                             (max(count // _DELETED_PART, 1),)).fetchone()
            self._delete_before(bound[0] if bound else newest + 1)

    def _bytes(self) -> int:
        """The used bytes of the file."""
        pages, free, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0]
                             for name in ("page_count", "freelist_count", "page_size"))
        return int((pages - free) * size)

    def _delete_before(self, number: int) -> None:
        if self._connection.execute("SELECT 1 FROM searches WHERE id < ? LIMIT 1", (number,)).fetchone() is None:
            return
        with self._transaction():
            self._connection.execute("DELETE FROM searches WHERE id < ?", (number,))
            self._connection.execute("DELETE FROM clicks WHERE search < ?", (number,))
            self._connection.execute("DELETE FROM replaced WHERE search < ?", (number,))
            self._connection.execute("DELETE FROM queries WHERE id NOT IN (SELECT query FROM searches "
                                     "UNION SELECT failed FROM replaced)")
        self._queries.clear()


def opened(path: Path, most_bytes: int, days: int, secret: bytes | None) -> QueryLog:
    """Open the log; a damaged file is set aside. Raises sqlite3.Error, OSError."""
    try:
        return QueryLog(path, most_bytes, days, secret)
    except sqlite3.DatabaseError as failure:
        if isinstance(failure, sqlite3.OperationalError):
            raise
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        logs.warn("the query log is damaged; a new one begins", file=str(aside), failure=failure)
        return QueryLog(path, most_bytes, days, secret)
