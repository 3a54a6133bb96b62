"""A replicated log in NATS JetStream: one stream for entries, one for pieces, and a key-value bucket for records.

The number of an entry is its sequence number. Each entry has a subject of its own, made from its identity, which must be empty
before the append; for trimmed entries the server remembers the identity as message id. A write of a record names the revision
that the last record of the key must have. Every write has a message id, so that it can be repeated after its reply was lost.

Any server that has entries and pieces may return them; the leader of the stream returns the rest, though it may have lost its
majority some seconds ago.

Threads: any thread may call; all connections belong to an event loop in a thread of its own.
"""
from __future__ import annotations

import asyncio
import base64
import json
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from math import inf
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from svcd.base.json_text import loads_wrapped
from svcd.cluster.log import (
    MOST_ENTRY_BYTES, MOST_PIECE_BYTES, Address, MissingPiece, Record, Trimmed, Unavailable, check_identity, check_key,
    check_size)
from svcd.http.tls import client_context
from svcd.validation.answers import MISFITS

T = TypeVar("T")

_MOST_REPLICAS = 3  # unless the address says otherwise
_IDENTITIES_S = 600  # seconds for which the server knows the identities of trimmed entries
# After this time without a reply, the next server gets the request: the first server may have stopped, be cut off, or have sent
# the message to a leader that has stopped. If the first attempt succeeds later, the server confirms the second as a duplicate.
_ATTEMPT_S = 1.0
_SLOWEST = 500_000  # bytes/s at which the time of an attempt suffices for its message
_PAUSE_S = 0.05  # before an attempt is repeated
_CLOSE_S = 1.0
_ANSWERS_S = 5.0  # seconds for which a connection that was given up stays open for late replies
_LATE_S = 0.5  # seconds after its limit in which the loop may report that a call failed
# How often a waiting read() asks: a node that appends notifies the others, but the server they ask may lag behind the leader.
_BUSY_POLL_S, _QUIET_POLL_S, _BUSY_FOR_S = 0.010, 0.100, 0.5
_MOST_READ_BYTES = 8_000_000
_PENDING_BYTES = 64_000_000  # maximum of bytes waiting to be sent: several threads may put pieces

# Error codes of JetStream: the stream exists with different options; the last message of the subject differs; no message found.
_OTHER_OPTIONS, _WRONG_LAST, _NO_MESSAGE = 10058, (10071, 10164), 10037
_SECOND = 1_000_000_000  # durations are in ns
_MESSAGE_ID, _EXPECTED = "Nats-Msg-Id", "Nats-Expected-Last-Subject-Sequence"
_OPERATION, _DELETED = "KV-Operation", "DEL"
_SEQUENCE = "Nats-Sequence"
# The members of the state of a stream that svcd reads; JetStream omits the last one when it is 0.
_STATE = ("first_seq", "last_seq", "messages", "num_deleted")
_NO_ANSWER = "not an answer of JetStream"


class _Failed(Exception):
    """An attempt failed; the next may succeed. str(): the reason; code: the error code of JetStream, 0 for other failures."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class NatsLog:
    """The Log in NATS; svcd.cluster.log.Log documents the methods."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        name = address.name
        self._entries = f"{name}_entries"
        self._pieces = f"{name}_pieces"
        self._records = f"KV_{name}"
        self._entry_subject = f"{name}.entries."
        self._piece_subject = f"{name}.pieces."
        self._record_subject = f"$KV.{name}."
        self._hint_subject = f"{name}.appended"
        self._lock = threading.Lock()  # guards the next three
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # Used by the loop only
        self._connection: _Connection | None = None
        self._open: dict[_Connection, asyncio.Task[None]] = {}  # including given-up ones that may bring replies
        self._connecting = asyncio.Lock()
        self._next = 0  # the server for the next connection
        self._are_streams_made = False
        self._appended = asyncio.Event()  # replaced after it is set
        self._busy_until = 0.0

    # Entries

    def append(self, identity: str, body: bytes) -> int:
        check_identity(identity)
        check_size(body, MOST_ENTRY_BYTES)
        subject = self._entry_subject + identity

        async def append(connection: _Connection, within_s: float) -> int:
            try:
                ack = await connection.publish(subject, body, {_MESSAGE_ID: identity, _EXPECTED: "0"}, within_s)
            except _Failed as failure:
                if failure.code not in _WRONG_LAST:
                    raise
                return int((await self._last_of(connection, self._entries, subject, within_s))["seq"])
            await connection.tell(self._hint_subject)
            return int(ack["seq"])

        return self._call(self._repeated(append, len(body)))

    def read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        return self._call(self._read(after, most, wait_s), wait_s)

    async def _read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        deadline = time.monotonic() + wait_s
        until = deadline + self._timeout_s
        wanted = {"seq": after + 1, "batch": most, "max_bytes": _MOST_READ_BYTES, "next_by_subj": f"{self._entry_subject}*"}
        has_asked_leader = False
        while True:
            appended = self._appended
            entries = await self._repeated(lambda connection, within_s: connection.batch(self._entries, wanted, within_s),
                                           until=until)
            if (not entries or entries[0][0] != after + 1) and not has_asked_leader:
                # Finds out, too, whether a leader exists: without one, this server may never hear of the next entry.
                state = await self._state(until)
                if state["first_seq"] > after + 1:
                    raise Trimmed(state["first_seq"])
                has_asked_leader = True
                if state["last_seq"] > after:
                    self._busy_until = time.monotonic() + _BUSY_FOR_S
            now = time.monotonic()
            if entries:
                self._busy_until = now + _BUSY_FOR_S
                return entries
            if now >= deadline:
                return []
            pause = _BUSY_POLL_S if now < self._busy_until else _QUIET_POLL_S
            try:
                await asyncio.wait_for(appended.wait(), min(pause, deadline - now))
                self._busy_until = time.monotonic() + _BUSY_FOR_S
            except TimeoutError:
                pass

    def last(self) -> int:
        state = self._call(self._state())
        if not state["messages"] or not state["num_deleted"]:
            return state["last_seq"]

        # The server has skipped numbers, and the last one may be among them.
        async def last(connection: _Connection, within_s: float) -> int:
            return int((await self._last_of(connection, self._entries, f"{self._entry_subject}*", within_s))["seq"])

        return self._call(self._repeated(last))

    def trim(self, upto: int) -> None:
        state = self._call(self._state())
        first = min(upto, state["last_seq"]) + 1
        if first > state["first_seq"]:
            self._call(self._asked(f"STREAM.PURGE.{self._entries}", {"seq": first}))

    async def _state(self, until: float = inf) -> dict[str, int]:
        """Return the state of the stream of entries as the leader has it."""

        async def state(connection: _Connection, within_s: float) -> dict[str, int]:
            told = (await connection.ask(f"STREAM.INFO.{self._entries}", {}, within_s))["state"]
            return {name: int(told.get(name) or 0) for name in _STATE} | {name: int(told[name]) for name in _STATE[:3]}

        return await self._repeated(state, until=until)

    # Pieces

    def put_piece(self, payload: str, place: int, piece: bytes) -> None:
        check_identity(payload)
        check_size(piece, MOST_PIECE_BYTES)
        headers = {_MESSAGE_ID: secrets.token_hex(16)}
        subject = f"{self._piece_subject}{payload}.{place}"
        self._call(self._repeated(lambda connection, within_s: connection.publish(subject, piece, headers, within_s), len(piece)))

    def get_piece(self, payload: str, place: int) -> bytes:
        subject = f"{self._piece_subject}{payload}.{place}"

        async def get(connection: _Connection, within_s: float) -> bytes | None:
            piece = await connection.get(self._pieces, subject, within_s)
            if piece is None:  # this server may lag behind the leader
                try:
                    message = await self._last_of(connection, self._pieces, subject, within_s)
                except _Failed as failure:
                    if failure.code != _NO_MESSAGE:
                        raise
                    return None
                return base64.b64decode(message.get("data", ""))
            return piece

        piece = self._call(self._repeated(get))
        if piece is None:
            raise MissingPiece(payload, place)
        return piece

    def drop_pieces(self, payload: str) -> None:
        check_identity(payload)
        self._call(self._asked(f"STREAM.PURGE.{self._pieces}", {"filter": f"{self._piece_subject}{payload}.*"}))

    # Records

    def records(self, prefix: str) -> dict[str, Record]:
        async def found(connection: _Connection, within_s: float) -> dict[str, Record]:
            info = await connection.ask(f"STREAM.INFO.{self._records}", {"subjects_filter": f"{self._record_subject}>"}, within_s)
            begin = len(self._record_subject)
            keys = sorted(
                subject[begin:] for subject in info["state"].get("subjects") or () if subject[begin:].startswith(prefix))
            messages = await asyncio.gather(
                *(self._last_of(connection, self._records, self._record_subject + key, within_s) for key in keys))
            return {key: Record(base64.b64decode(message.get("data", "")), int(message["seq"]))
                    for key, message in zip(keys, messages) if not _is_deletion(message)}

        return self._call(self._repeated(found))

    def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
        check_key(key)
        check_size(value or b"", MOST_ENTRY_BYTES)
        if value is None and not revision:
            return None if key in self.records(key) else 0
        headers = {_OPERATION: _DELETED} if value is None else {}
        once = secrets.token_hex(16)

        async def write(connection: _Connection, expected: int, message_id: str, within_s: float) -> int | None:
            """Return the new revision; None when the last message of the key is not the expected one."""
            with_id = headers | {_EXPECTED: str(expected), _MESSAGE_ID: message_id}
            try:
                ack = await connection.publish(self._record_subject + key, value or b"", with_id, within_s)
            except _Failed as failure:
                if failure.code not in _WRONG_LAST:
                    raise
                return None
            return int(ack["seq"])

        async def compare_and_set(connection: _Connection, within_s: float) -> int | None:
            new = await write(connection, revision, once, within_s)
            if new is not None or revision:
                return new
            # Deleting a record leaves a message.
            message = await self._last_of(connection, self._records, self._record_subject + key, within_s)
            if f"{_MESSAGE_ID}: {once}" in _headers(message):
                return int(message["seq"])
            return await write(connection, int(message["seq"]), once + "-again", within_s) if _is_deletion(message) else None

        return self._call(self._repeated(compare_and_set))

    # Calls

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(2 * _CLOSE_S)

    def _call(self, work: Coroutine[Any, Any, T], longer_s: float = 0.0) -> T:
        """Run work in the loop and return its result. Raises Unavailable, and the exceptions of the work."""
        with self._lock:
            if self._is_closed:
                work.close()
                raise Unavailable("the log has been closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="svcd-nats", daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            # Twice the time: some calls have two steps.
            return future.result(2 * self._timeout_s + longer_s + _LATE_S)
        except CancelledError:
            raise Unavailable("the log has been closed") from None
        except TimeoutError:
            future.cancel()
            raise Unavailable(f"{self._address}: no answer in time") from None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until close() stops it, then cancel the calls in progress."""

        async def end() -> None:
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*(connection.close() for connection in self._open))
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(end())
        finally:
            loop.close()

    async def _asked(self, subject: str, content: dict[str, Any], until: float = inf) -> dict[str, Any]:
        return await self._repeated(lambda connection, within_s: connection.ask(subject, content, within_s), until=until)

    async def _repeated(self, attempt: Callable[[_Connection, float], Awaitable[T]], size: int = 0, until: float = inf) -> T:
        """Return the result of attempt(connection, within_s), repeating it while it raises _Failed. Raises Unavailable.

        size: bytes of its message; until: monotonic time at which to stop, if that is before the time limit.
        """
        moved = time.monotonic()
        deadline = min(until, moved + self._timeout_s)
        attempt_s, reason = _ATTEMPT_S + size / _SLOWEST, "no server answered"
        while (left_s := deadline - time.monotonic()) > 0:
            connection = None
            try:
                async with asyncio.timeout(left_s):
                    connection = await self._connected(min(attempt_s, left_s))
                    await self._make_streams(connection, min(attempt_s, left_s))
                    return await attempt(connection, min(attempt_s, left_s))
            except TimeoutError:
                break
            except _Failed as failure:
                reason = str(failure)
            except MISFITS:
                reason = f"{connection}: {_NO_ANSWER}"
            if time.monotonic() - moved >= attempt_s:  # have the next attempt use another server; late replies may still arrive
                if connection is not None and connection is self._connection:
                    self._connection = None
                    asyncio.get_running_loop().call_later(_ANSWERS_S, connection.is_lost.set)
                moved = time.monotonic()
            await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline - time.monotonic())))
        raise Unavailable(f"{self._address}: {reason}")

    async def _last_of(self, connection: _Connection, stream: str, subject: str, within_s: float) -> dict[str, Any]:
        """Return the last message of a subject as the leader has it."""
        answer = await connection.ask(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, within_s)
        message: dict[str, Any] = answer["message"]
        return message

    async def _connected(self, within_s: float) -> _Connection:
        """Return the current connection, or a new one. Raises _Failed, and Unavailable when a server refuses the credentials."""
        async with self._connecting:
            if self._connection is None or self._connection.is_lost.is_set():
                server = self._address.servers[self._next]
                self._next = (self._next + 1) % len(self._address.servers)
                connection = _Connection(server)
                self._open[connection] = asyncio.ensure_future(self._close_when_lost(connection))
                try:
                    await connection.open(self._address, self._hint_subject, self._wake, within_s)
                except (OSError, nats.errors.Error) as error:
                    connection.is_lost.set()
                    reason = str(connection.last_error or error or "no answer in time")
                    if "authorization" in reason.lower():
                        raise Unavailable(f"{self._address}: the credentials were refused") from None
                    raise _Failed(f"{connection}: {reason}") from None
                self._connection = connection
            return self._connection

    async def _close_when_lost(self, connection: _Connection) -> None:
        await connection.is_lost.wait()
        await connection.close()
        del self._open[connection]

    async def _wake(self, _message: Msg) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    async def _make_streams(self, connection: _Connection, within_s: float) -> None:
        if self._are_streams_made:
            return
        replicas = self._address.replicas or min(_MOST_REPLICAS, len(self._address.servers))
        common = {"num_replicas": replicas, "storage": "file", "retention": "limits", "allow_direct": True}
        for options in (
                {"name": self._entries, "subjects": [f"{self._entry_subject}*"], "discard": "new",
                 "duplicate_window": _IDENTITIES_S * _SECOND},
                {"name": self._pieces, "subjects": [f"{self._piece_subject}*.*"], "discard": "old", "max_msgs_per_subject": 1},
                # With the options that clients of NATS use for buckets, so that its tools can show the records.
                {"name": self._records, "subjects": [f"{self._record_subject}>"], "discard": "new", "max_msgs_per_subject": 1,
                 "allow_rollup_hdrs": True, "deny_delete": True}):
            try:
                await connection.ask(f"STREAM.CREATE.{options['name']}", common | options, within_s)
            except _Failed as failure:
                if failure.code != _OTHER_OPTIONS:  # an administrator may have changed them
                    raise
        self._are_streams_made = True


class _Connection:
    """A connection to one server. Only the loop calls its methods; they raise _Failed."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._client = Client()
        self._inbox = f"_INBOX.{secrets.token_hex(12)}"
        self._calls = 0
        self._answers: dict[str, asyncio.Queue[Msg]] = {}
        self.is_lost = asyncio.Event()

    def __str__(self) -> str:
        host, port = self._server
        return f"{host}:{port}"

    async def open(self, address: Address, hint_subject: str, on_hint: Callable[[Msg], Awaitable[None]], within_s: float) -> None:
        """Connect. Raises OSError, nats.errors.Error."""
        host, port = self._server
        url = f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"
        tls = client_context() if address.is_tls else None
        async with asyncio.timeout(within_s):
            await self._client.connect(
                [url], name="svcd", allow_reconnect=False, connect_timeout=within_s, error_cb=_ignored, closed_cb=self._lost,
                disconnected_cb=self._lost, user=address.user, password=address.password, token=address.token, tls=tls,
                pending_size=_PENDING_BYTES, max_reconnect_attempts=1, reconnect_time_wait=0)
            await self._client.subscribe(f"{self._inbox}.*", cb=self._arrived)
            await self._client.subscribe(hint_subject, cb=on_hint)

    async def close(self) -> None:
        """Close the connection. If the server has stopped, and cannot take all pending bytes, it stays open."""
        self.is_lost.set()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()
        except (OSError, nats.errors.Error):
            pass

    @property
    def last_error(self) -> Exception | None:
        """The reason why open() failed."""
        error: Exception | None = self._client.last_error
        return error

    async def tell(self, subject: str) -> None:
        """Send an empty message without waiting for a reply."""
        try:
            await self._client.publish(subject)
        except (OSError, nats.errors.Error):
            pass

    async def publish(self, subject: str, body: bytes, headers: dict[str, str], within_s: float) -> dict[str, Any]:
        """Write a message to the stream of its subject; return the acknowledgement that a majority has it."""
        answer, = await self._exchanged(subject, body, headers, lambda _: True, within_s)
        return _decoded(answer)

    async def ask(self, subject: str, content: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Return the reply of JetStream to a request."""
        answer, = await self._exchanged(f"$JS.API.{subject}", json.dumps(content).encode(), None, lambda _: True, within_s)
        return _decoded(answer)

    async def get(self, stream: str, subject: str, within_s: float) -> bytes | None:
        """Return the content of the last message of a subject, from any server; None without a message."""
        content = json.dumps({"last_by_subj": subject}).encode()
        answer, = await self._exchanged(f"$JS.API.DIRECT.GET.{stream}", content, None, lambda _: True, within_s)
        return bytes(answer.data) if _has_content(answer) else None

    async def batch(self, stream: str, wanted: dict[str, Any], within_s: float) -> list[tuple[int, bytes]]:
        """Return numbers and contents of messages in order, from any server."""
        content = json.dumps(wanted).encode()
        answers = await self._exchanged(
            f"$JS.API.DIRECT.GET.{stream}", content, None, lambda answer: _SEQUENCE not in (answer.headers or {}), within_s)
        return [(int(answer.headers[_SEQUENCE]), bytes(answer.data)) for answer in answers if _has_content(answer)]

    async def _exchanged(self, subject: str, body: bytes, headers: dict[str, str] | None, is_last: Callable[[Msg], bool],
                         within_s: float) -> list[Msg]:
        """Send a message and return the replies up to the last one. within_s: time limit for each reply."""
        self._calls += 1
        token = str(self._calls)
        arrived = self._answers[token] = asyncio.Queue()
        lost = asyncio.ensure_future(self.is_lost.wait())
        answers: list[Msg] = []
        try:
            await self._client.publish(subject, body, reply=f"{self._inbox}.{token}", headers=headers)
            while not answers or not is_last(answers[-1]):
                next_one = asyncio.ensure_future(arrived.get())
                try:
                    await asyncio.wait((next_one, lost), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
                    if not next_one.done():
                        raise _Failed(f"{self}: {'the connection was lost' if lost.done() else 'no answer in time'}")
                    answers.append(next_one.result())
                finally:
                    next_one.cancel()
            return answers
        except (OSError, nats.errors.Error) as error:
            raise _Failed(f"{self}: {error}") from None
        finally:
            lost.cancel()
            del self._answers[token]

    async def _arrived(self, message: Msg) -> None:
        queue = self._answers.get(message.subject.rpartition(".")[2])
        if queue is not None:
            queue.put_nowait(message)

    async def _lost(self) -> None:
        self.is_lost.set()


def _decoded(answer: Msg) -> dict[str, Any]:
    """Return the parsed JSON of a reply. Raises _Failed for an error."""
    _has_content(answer)
    try:
        content: dict[str, Any] = loads_wrapped(answer.data)
        error = content.get("error")
        failure = _Failed(str(error.get("description", "an error")), int(error.get("err_code", 0))) if error else None
    except MISFITS:
        raise _Failed(_NO_ANSWER) from None
    if failure is not None:
        raise failure
    return content


def _has_content(answer: Msg) -> bool:
    """Return whether a reply has content, not just the status that nothing was found. Raises _Failed for other statuses."""
    status = (answer.headers or {}).get("Status")
    if status == "503":
        raise _Failed("the stream currently lacks a leader")
    if status is not None and status not in ("204", "404"):
        raise _Failed(f"status {status}")
    return status is None


def _headers(message: dict[str, Any]) -> str:
    return base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")


def _is_deletion(message: dict[str, Any]) -> bool:
    return f"{_OPERATION}: {_DELETED}" in _headers(message)


async def _ignored(_error: Exception) -> None:
    """Ignore an error of a connection: the call that waits for a reply fails with it."""
