"""A replicated log in the tables of an rqlite cluster: a call is one HTTP request, repeated at the next server after a failure.

Statements are idempotent: if a request took effect but its reply was lost, repeating it gives the same result. Numbers come
from AUTOINCREMENT, so that they continue to grow after all entries have been trimmed.

Threads: any thread may call; each request takes an idle connection, or opens one.
"""
from __future__ import annotations

import base64
import http.client
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from svcd.base.json_text import loads_wrapped
from svcd.cluster.log import (
    MOST_ENTRY_BYTES, MOST_PIECE_BYTES, Address, MissingPiece, Record, Trimmed, Unavailable, check_identity, check_key,
    check_size)
from svcd.http.tls import client_context
from svcd.validation.answers import MISFITS, shortened

T = TypeVar("T")

# After this time without a reply, the next server gets the request: the first server may have stopped, or have forwarded the
# request to a leader that has stopped. When all servers were too slow, they get twice the time.
_ATTEMPT_S = 0.7
_SLOWEST = 1_000_000  # bytes/s at which the time of the first attempt suffices for its request
_PAUSE_S = 0.05  # after all servers have failed
_NO_ANSWER = "not an answer of rqlite"
_IDLE_CONNECTIONS = 8  # kept for each server
# How often a waiting read() asks: at once after this node has appended an entry, often when entries came a moment ago.
_BUSY_POLL_S, _QUIET_POLL_S, _BUSY_FOR_S = 0.010, 0.100, 1.0
_MOST_READ_BYTES = 8_000_000
_MOST_REPLY_BYTES = 64 << 20  # many times the largest expected reply
_TRIMMED_AT_ONCE = 10_000  # entries: all servers stop while a statement runs
# A trimmed entry keeps its identity for a while, because a node may repeat an append after others have applied and trimmed it.
_KEPT_IDENTITIES = 10_000
# Below 2**53, so that no JSON reader rounds it.
_REVISION_BITS = 52

_TABLES = (
    "CREATE TABLE IF NOT EXISTS {name}_entries (number INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL UNIQUE,"
    " size INTEGER NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS {name}_trimmed (one INTEGER PRIMARY KEY CHECK (one = 1), upto INTEGER NOT NULL)",
    "INSERT INTO {name}_trimmed VALUES (1, 0) ON CONFLICT DO NOTHING",
    "CREATE TABLE IF NOT EXISTS {name}_pieces (payload TEXT NOT NULL, place INTEGER NOT NULL, piece TEXT NOT NULL,"
    " PRIMARY KEY (payload, place))",
    "CREATE TABLE IF NOT EXISTS {name}_records (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, revision INTEGER NOT NULL)",
)
_APPEND = ("INSERT INTO {name}_entries (identity, size, body) SELECT ?, ?, ?"
           " WHERE NOT EXISTS (SELECT 1 FROM {name}_entries WHERE identity = ?)")
_NUMBER = "SELECT number FROM {name}_entries WHERE identity = ?"
_TRIMMED = "SELECT upto FROM {name}_trimmed"
# The first entry is read whatever its size.
_READ = ("SELECT number, body FROM (SELECT number, body, SUM(size) OVER (ORDER BY number) - size AS before FROM"
         " (SELECT number, size, body FROM {name}_entries WHERE number > ? ORDER BY number LIMIT ?))"
         " WHERE before < ? ORDER BY number")
_LAST = "SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = '{name}_entries'), 0) FROM {name}_trimmed"
_TRIM = ("UPDATE {name}_trimmed SET upto = ? WHERE upto < ?",
         "UPDATE {name}_entries SET size = 0, body = '' WHERE number <= ? AND size > 0",
         "DELETE FROM {name}_entries WHERE number <= ?")
_PUT_PIECE = "INSERT OR REPLACE INTO {name}_pieces VALUES (?, ?, ?)"
_GET_PIECE = "SELECT piece FROM {name}_pieces WHERE payload = ? AND place = ?"
_DROP_PIECES = "DELETE FROM {name}_pieces WHERE payload = ?"
_RECORDS = "SELECT key, value, revision FROM {name}_records WHERE SUBSTR(key, 1, ?) = ? ORDER BY key"
_CREATE = "INSERT INTO {name}_records VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_CHANGE = "UPDATE {name}_records SET value = ?, revision = ? WHERE key = ? AND revision = ?"
_DELETE = "DELETE FROM {name}_records WHERE key = ? AND revision = ?"
_REVISION = "SELECT revision FROM {name}_records WHERE key = ?"

Statement = Sequence[Any]  # SQL, then its parameters
Row = list[Any]
# How fresh a query is. weak: the state of a server that believes it leads. linearizable: that server asks a majority whether it
# leads (versions that do not know the word use weak). strong: the query goes through the Raft log.
Level = Literal["weak", "linearizable", "strong"]
Read = Callable[[list[list[Row]]], T]  # turns the rows of each statement into the result of a call


class _Reply(NamedTuple):
    status: int
    body: bytes


class _Failed(Exception):
    """An attempt failed; the next may succeed. str(): the reason."""


class RqliteLog:
    """The Log in rqlite; svcd.cluster.log.Log documents the methods."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._servers = [_Server(host, port, address) for host, port in address.servers]
        self._current = 0  # the server that replied last
        self._closed = threading.Event()
        self._appended = threading.Condition()
        self._appends = 0  # guarded by _appended
        self._busy_until = 0.0

    # Entries

    def append(self, identity: str, body: bytes) -> int:
        check_identity(identity)
        check_size(body, MOST_ENTRY_BYTES)
        text = _text(body)
        # Never 0 for an entry that has not been trimmed.
        number = self._request(lambda rows: _number(rows[1]), [_APPEND, identity, max(1, len(text)), text, identity],
                               [_NUMBER, identity])
        with self._appended:
            self._appends += 1
            self._appended.notify_all()
        return number

    def read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        deadline = time.monotonic() + wait_s
        while True:
            appends = self._appends
            trimmed, found = self._query("weak", lambda rows: (_number(rows[0]), [
                (int(number), _content(body)) for number, body in rows[1]]), [_TRIMMED], [_READ, after, most, _MOST_READ_BYTES])
            if trimmed > after:
                raise Trimmed(trimmed + 1)
            now = time.monotonic()
            if found:
                self._busy_until = now + _BUSY_FOR_S
                return found
            if now >= deadline:
                return []
            pause_s = min(_BUSY_POLL_S if now < self._busy_until else _QUIET_POLL_S, deadline - now)
            with self._appended:
                if not self._appended.wait_for(lambda: self._appends != appends, pause_s):  # noqa: B023  # called at once
                    continue
            # After an append of this node other entries may follow soon.
            self._busy_until = time.monotonic() + _BUSY_FOR_S
            self._closed.wait(min(_BUSY_POLL_S, deadline - time.monotonic()))

    def last(self) -> int:
        return self._query("strong", lambda rows: _number(rows[0]), [_LAST])

    def trim(self, upto: int) -> None:
        first, last = self._query("strong", lambda rows: (_number(rows[0]), _number(rows[1])), [_TRIMMED], [_LAST])
        upto = min(upto, last)
        while first < upto:
            first = min(upto, first + _TRIMMED_AT_ONCE)
            mark, empty, delete = _TRIM
            self._request(len, [mark, first, first], [empty, first], [delete, first - _KEPT_IDENTITIES])

    # Pieces

    def put_piece(self, payload: str, place: int, piece: bytes) -> None:
        check_identity(payload)
        check_size(piece, MOST_PIECE_BYTES)
        self._request(len, [_PUT_PIECE, payload, place, _text(piece)])

    def get_piece(self, payload: str, place: int) -> bytes:
        # A new leader may not have applied yet all that its predecessor acknowledged.
        levels: tuple[Level, ...] = ("weak", "strong")
        for level in levels:
            found = self._query(level, lambda rows: [_content(piece) for piece, in rows[0]], [_GET_PIECE, payload, place])
            if found:
                return found[0]
        raise MissingPiece(payload, place)

    def drop_pieces(self, payload: str) -> None:
        self._request(len, [_DROP_PIECES, payload])

    # Records

    def records(self, prefix: str) -> dict[str, Record]:
        def read(rows: list[list[Row]]) -> dict[str, Record]:
            return {str(key): Record(_content(value), int(revision)) for key, value, revision in rows[0]}

        return self._query("linearizable", read, [_RECORDS, len(prefix), prefix])

    def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
        check_key(key)
        check_size(value or b"", MOST_ENTRY_BYTES)
        # Chosen before the request, so that a repeated request recognizes its own change.
        new = 1 + secrets.randbits(_REVISION_BITS)
        if value is None:  # if the reply was lost, the repeated deletion finds that the record has changed
            held = self._request(lambda rows: [int(each) for each, in rows[0]], [_REVISION, key], [_DELETE, key, revision])
            return new if held == [revision] else None
        if revision:
            change: Statement = [_CHANGE, _text(value), new, key, revision]
        else:
            change = [_CREATE, key, _text(value), new]
        held = self._request(lambda rows: [int(each) for each, in rows[1]], change, [_REVISION, key])
        return new if held == [new] else None

    # Requests

    def close(self) -> None:
        self._closed.set()
        with self._appended:
            self._appends += 1
            self._appended.notify_all()
        for server in self._servers:
            server.close()

    def _request(self, read: Read[T], *statements: Statement) -> T:
        """Run statements in a transaction that a majority has written on return; return read() of their rows."""
        return self._repeated("/db/request?transaction", read, statements)

    def _query(self, level: Level, read: Read[T], *statements: Statement) -> T:
        return self._repeated(f"/db/query?level={level}", read, statements)

    def _repeated(self, path: str, read: Read[T], statements: Sequence[Statement]) -> T:
        """Return read() of the rows of each statement, from the first server that gives them. Raises Unavailable.

        read: raises any of MISFITS for rows of a wrong shape; the next server may do better.
        """
        name = self._address.name
        content = json.dumps([[sql.replace("{name}", name), *parameters] for sql, *parameters in statements]).encode()
        deadline = time.monotonic() + self._timeout_s
        attempt_s, failures, late, reason = _ATTEMPT_S + len(content) / _SLOWEST, 0, 0, "no server answered"
        while not self._closed.is_set():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Unavailable(f"{self._address}: {reason}")
            current = self._current
            server = self._servers[current]
            began = time.monotonic()
            try:
                return read(self._rows(server.post(path, content, min(attempt_s, left_s))))
            except MISFITS:
                reason = f"{server}: {_NO_ANSWER}"
            except _MissingTables:
                if failures and reason == _MissingTables.reason:
                    raise Unavailable(f"{self._address}: the tables cannot be made") from None
                reason = _MissingTables.reason
                failures += 1
                self._make_tables(server, min(attempt_s, max(deadline - time.monotonic(), _PAUSE_S)))
                continue
            except _Failed as failure:
                reason = f"{server}: {failure}"
            failures += 1
            if time.monotonic() - began >= attempt_s:
                late += 1
                attempt_s *= 2 if late % len(self._servers) == 0 else 1
            if self._current == current:  # no other thread has found a better server
                self._current = (current + 1) % len(self._servers)
            if failures % len(self._servers) == 0:
                self._closed.wait(_PAUSE_S)
        raise Unavailable("the log has been closed")

    def _make_tables(self, server: _Server, within_s: float) -> None:
        content = json.dumps([[sql.replace("{name}", self._address.name)] for sql in _TABLES]).encode()
        try:
            self._rows(server.post("/db/request?transaction", content, within_s))
        except _Failed:
            pass  # the caller repeats its request, which then fails

    def _rows(self, reply: _Reply) -> list[list[Row]]:
        """Return the rows of each statement. Raises _Failed, _MissingTables, and Unavailable for refused credentials."""
        if reply.status in (401, 403):
            raise Unavailable(f"{self._address}: the credentials were refused")
        if reply.status != 200:
            raise _Failed(f"status {reply.status}: {reply.body[:200].decode('utf-8', 'replace').strip()}")
        try:
            shown = loads_wrapped(reply.body)
            results = shown["results"]
            error = shown.get("error") or next((each["error"] for each in results if "error" in each), None)
            if error is None:
                return [each.get("values") or [] for each in results]
        except MISFITS:
            raise _Failed(_NO_ANSWER) from None
        if "no such table" in str(error):
            raise _MissingTables
        raise _Failed(shortened(str(error)))


class _MissingTables(_Failed):
    """The tables of the log do not exist yet."""

    reason = "no tables"


class _Server:
    """A server, with its idle connections."""

    def __init__(self, host: str, port: int, address: Address) -> None:
        self._host, self._port = host, port
        self._tls = client_context() if address.is_tls else None
        self._headers = {"Content-Type": "application/json"}
        if address.user is not None:
            pair = f"{address.user}:{address.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    def post(self, path: str, content: bytes, within_s: float) -> _Reply:
        """Return the reply to a request. Raises _Failed when none came in time, or the connection broke."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                return self._exchanged(connection, path, content, within_s)
            except TimeoutError:
                raise _Failed("no answer in time") from None
            except (OSError, http.client.HTTPException, ValueError):
                self.close()  # the server was restarted since then, and the other connections broke too
        try:
            connection = http.client.HTTPConnection(self._host, self._port) if self._tls is None \
                else http.client.HTTPSConnection(self._host, self._port, context=self._tls)
            return self._exchanged(connection, path, content, within_s)
        except TimeoutError:
            raise _Failed("no answer in time") from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a chunk of a negative size
            raise _Failed(str(error) or type(error).__name__) from None

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            closed, self._idle = self._idle, []
        for each in closed:
            each.close()

    def _exchanged(self, connection: http.client.HTTPConnection, path: str, content: bytes, within_s: float) -> _Reply:
        connection.timeout = within_s
        if connection.sock is not None:
            connection.sock.settimeout(within_s)
        try:
            # With this parameter a server that forwards the request gives up at the same time.
            connection.request("POST", f"{path}&timeout={max(1, round(within_s * 1000))}ms", content, self._headers)
            response = connection.getresponse()
            reply = _Reply(response.status, response.read(_MOST_REPLY_BYTES))
            if response.length or not response.isclosed() and response.read(1):
                raise http.client.HTTPException("its answer ends early, or is too long")
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if connection.sock is not None and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return reply
        connection.close()
        return reply


def _number(rows: list[Row]) -> int:
    """Return the number in a result of one value. Raises one of MISFITS, also for numbers out of range: loops would not end."""
    number = int(rows[0][0])
    if not 0 <= number < 1 << 63:
        raise ValueError
    return number


def _content(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
