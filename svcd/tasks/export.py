"""Exports indexes to another instance, in the process of an export (docs/export.md).

Indexes are exported one by one: the documents are read in one transaction and sent as compressed NDJSON. Texts are compressed
while they are read, so memory holds only compressed bodies: BUFFERED_BYTES, plus one body for each of SENDERS.

A record tells what the target has acknowledged, so that an interrupted export does not send these documents again. A row per
document holds a digest of the text that was sent. So a later run knows which documents arrived, even if the index has changed
meanwhile: it sends a document again if its text has another digest, and skips it otherwise (docs/export.md#interruptions).

Threads: this thread reads, compresses and keeps the record; SENDERS others send one body each at a time.
"""
from __future__ import annotations

import gc
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.filters.evaluation import filter_docids, local_filter, naming_index
from svcd.index.disk_space import disk_full_error, lacks_room
from svcd.index.reader import IndexReader
from svcd.instance.data_folder import DataFolderReader
from svcd.remote.client import Client
from svcd.remote.guard import Guard, parse_networks
from svcd.schema.settings import SETTINGS
from svcd.tasks.export_target import NotTaken, Stopped, Target
from svcd.tasks.indexing_client import ReportProgress
from svcd.tasks.stored_documents import settings_in_effect, texts_with_vectors

# Documents with the same position mod STREAMS go into one stream of bodies, as in the reference engine.
STREAMS = 40
# Reading and compressing keep one core busy, so more senders only help when the target answers slowly. Memory of the process
# with 200,000 documents of 1 kB: 37 MB with a buffer of 4 MiB, 63 MB with one of 16 MiB.
SENDERS = 4
BUFFERED_BYTES = 8 << 20
# The fastest level; the largest window, with a gzip header; 64 kB instead of 256 for each body that is being compressed.
_LEVEL, _GZIP, _MEMORY = 1, 31, 6
_FILTER_CODE = "invalid_document_filter"
_HIDDEN = "."

_SCHEMA = """
CREATE TABLE IF NOT EXISTS indexes(
    number INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, state TEXT, is_new INTEGER NOT NULL, calls INTEGER NOT NULL,
    matched INTEGER);
CREATE TABLE IF NOT EXISTS documents(
    number INTEGER NOT NULL, docid INTEGER NOT NULL, digest INTEGER NOT NULL, PRIMARY KEY (number, docid)) WITHOUT ROWID;
"""
_COLUMNS = "number, uid, state, is_new, calls, matched"
_PORTION = 1000  # digests read together
_DIGEST_BYTES = 8


def run_export(request: Mapping[str, Any], report: ReportProgress) -> dict[str, Any]:
    """Run a request of svcd.tasks.exports. Return {"error": None or error object, "exported": details by index}."""
    is_collected = gc.isenabled()
    gc.enable()  # an export may take hours, and failed calls of urllib leave reference cycles
    try:
        client = Client(Guard(parse_networks(",".join(request["networks"]))))
        export = _Export(request, Target(client, request["url"], request["apiKey"]), report)
        with closing(DataFolderReader(Path(request["folder"]))) as data_folder, closing(export.record):
            return {"error": None, "exported": export.run(data_folder)}
    except ApiError as error:
        return {"error": dict(error.as_json()), "exported": {}}
    except sqlite3.OperationalError as error:  # of the record
        if lacks_room(error, Path(request["folder"])):
            return {"error": dict(disk_full_error().as_json()), "exported": {}}
        raise
    finally:
        if not is_collected:
            gc.disable()


def chosen_pattern(index_uid: str, patterns: Mapping[str, Any]) -> str | None:
    """Return the first pattern, in byte order, that an index matches, or None."""
    return next((pattern for pattern in sorted(patterns, key=str.encode)
                 if index_uid == pattern or pattern.endswith("*") and index_uid.startswith(pattern[:-1])), None)


def digest(text: bytes) -> int:
    """Return a 64-bit digest of a text, as an integer that SQLite can store."""
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), "little", signed=True)


@dataclass(frozen=True)
class IndexProgress:
    """Progress of one index.

    state: of the index when it was first read; "" when it has changed since, so that digests must be compared. is_new: whether
    the target did not have the index. calls: number of acknowledged calls before the documents. matched: number of exported
    documents; None until all are acknowledged.
    """

    number: int
    uid: str
    state: str
    is_new: bool
    calls: int = 0
    matched: int | None = None


class ExportRecord:
    """The record of one export. One thread uses it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        # Without the shared memory of the log. A power cut may lose the newest rows; their documents are then sent again.
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def index(self, index_uid: str) -> IndexProgress | None:
        """Return the progress of an index; None before the first call for it."""
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        return IndexProgress(row[0], row[1], row[2], bool(row[3]), row[4], row[5]) if row else None

    def begin(self, index_uid: str, state: str, is_new: bool) -> IndexProgress:
        """Record that the export of an index begins."""
        number = self._connection.execute("INSERT INTO indexes(uid, state, is_new, calls) VALUES (?, ?, ?, 0)",
                                          (index_uid, state, is_new)).lastrowid
        return IndexProgress(number or 0, index_uid, state, is_new)

    def update(self, progress: IndexProgress, **changes: object) -> IndexProgress:
        """Record the progress of an index. changes: fields of IndexProgress; returns the progress with them."""
        assignments = ", ".join(f"{name} = ?" for name in changes)
        self._connection.execute(f"UPDATE indexes SET {assignments} WHERE number = ?", (*changes.values(), progress.number))
        return replace(progress, **changes)  # type: ignore[arg-type]  # the callers name fields with their types

    def add(self, progress: IndexProgress, documents: Iterable[tuple[int, int]]) -> None:
        """Record acknowledged documents, given as (docid, digest), in one transaction."""
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR REPLACE INTO documents(number, docid, digest) VALUES (?, ?, ?)",
                                     [(progress.number, docid, each) for docid, each in documents])
        self._connection.execute("COMMIT")

    def docids(self, progress: IndexProgress) -> DocIds:
        """Return the acknowledged documents."""
        return DocIds([docid for (docid,) in self._connection.execute(
            "SELECT docid FROM documents WHERE number = ? ORDER BY docid", (progress.number,))])

    def digests(self, progress: IndexProgress, docids: Iterable[int]) -> Iterator[int | None]:
        """Yield the digest of each of these documents, None for a document that was not acknowledged. docids: ascending."""
        last, rows = -1, dict[int, int]()
        for docid in docids:
            if docid > last:
                rows = dict(self._connection.execute(
                    "SELECT docid, digest FROM documents WHERE number = ? AND docid >= ? ORDER BY docid LIMIT ?",
                    (progress.number, docid, _PORTION)))
                last = max(rows) if len(rows) == _PORTION else 1 << 32  # above every docid
            yield rows.get(docid)


class _Export:
    """One run of an export."""

    def __init__(self, request: Mapping[str, Any], target: Target, report: ReportProgress) -> None:
        self._patterns: Mapping[str, Mapping[str, Any]] = request["indexes"]
        self._features: Mapping[str, bool | None] = request["features"]
        self._payload_bytes: int = request["payloadBytes"]
        self._target, self._report = target, report
        self.record = ExportRecord(Path(request["record"]))

    def run(self, data_folder: DataFolderReader) -> dict[str, Any]:
        """Export the indexes that match; return their details."""
        rows, _ = data_folder.list_indexes()
        chosen = [(row, pattern) for row in sorted(rows, key=lambda row: row.uid.encode())
                  if not row.uid.startswith(_HIDDEN) and (pattern := chosen_pattern(row.uid, self._patterns)) is not None]
        exported: dict[str, Any] = {}
        for place, (row, pattern) in enumerate(chosen):
            above = (f"Exporting index `{row.uid}`", place, len(chosen))
            self._report(*above)
            options, known = self._patterns[pattern], self.record.index(row.uid)
            matched = known.matched if known is not None else None
            if matched is None:  # an earlier run has not exported it
                try:
                    with data_folder.read(row.uid) as reader:
                        matched = self._export_index(reader, row.uid, options, above)
                except ApiError as error:
                    if error.code != "index_not_found":  # deleted since the list was read
                        raise
                    continue
            exported[row.uid] = {**options, "matched_documents": matched}
        return exported

    def _export_index(self, reader: IndexReader, index_uid: str, options: Mapping[str, Any], above: tuple[str, int, int]) -> int:
        """Export an index; return the number of matching documents."""
        condition = local_filter(options["filter"], _FILTER_CODE, lambda: self._features, index_uid)
        with naming_index(index_uid):
            docids = filter_docids(reader, condition, _FILTER_CODE)
        progress = self._prepared(reader, index_uid, options["overrideSettings"])
        sending = _Sending(self._target, self.record, progress, self._payload_bytes,
                           lambda finished: self._report("document", finished, len(docids), above))
        with sending:
            for place, (docid, text) in enumerate(self._texts(reader, docids, progress)):
                if text is not None:
                    sending.add(place % STREAMS, docid, text)
                else:
                    sending.skip()
        self.record.update(progress, matched=len(docids))
        return len(docids)

    def _prepared(self, reader: IndexReader, index_uid: str, overrides: bool) -> IndexProgress:
        """Have the target create the index or change its settings; skip the calls that it acknowledged before."""
        state = "{} {}".format(*reader.state)
        progress = self.record.index(index_uid)
        if progress is None:
            progress = self.record.begin(index_uid, state, not self._target.has_index(index_uid))
        elif progress.state != state:
            progress = self.record.update(progress, state="")
        calls: list[Callable[[], None]] = []
        if progress.is_new:
            calls.append(lambda: self._target.create_index(index_uid, reader.primary_key))
        elif overrides:
            calls.append(lambda: self._target.update_index(index_uid, reader.primary_key))
        if calls:
            settings = settings_in_effect(
                reader.stored_settings, lambda setting: bool(setting.feature and self._features.get(setting.feature[0])))
            # Instances accept some settings only while a feature is on.
            unset = [setting.name for setting in SETTINGS if setting.feature is not None
                     and setting.name in settings and not reader.stored_settings.get(setting.name)]
            calls.append(lambda: self._target.update_settings(index_uid, settings, unset))
        is_created_now = progress.is_new and progress.calls == 0
        for number, call in enumerate(calls[progress.calls:], progress.calls + 1):
            try:
                call()
            except ApiError:
                if is_created_now and progress.calls:  # else the next export would find the index, and keep its settings
                    self._target.delete_index(index_uid)
                raise
            progress = self.record.update(progress, calls=number)
        return progress

    def _texts(self, reader: IndexReader, docids: DocIds, progress: IndexProgress) -> Iterator[tuple[int, bytes | None]]:
        """Yield (docid, text) of each document in order; None instead of a text that the target has."""
        if progress.state:  # the index has not changed since: acknowledged documents need not be read
            missing = docids - self.record.docids(progress)
            texts = zip(missing, _encoded(reader, missing))
            following = next(texts, None)
            for docid in docids:
                if following is not None and docid == following[0]:
                    yield following
                    following = next(texts, None)
                else:
                    yield docid, None
            return
        for docid, text, known in zip(docids, _encoded(reader, docids), self.record.digests(progress, docids)):
            yield docid, None if known == digest(text) else text


def _encoded(reader: IndexReader, docids: DocIds) -> Iterator[bytes]:
    texts = texts_with_vectors(reader, docids, has_outdated=False) if reader.settings.embedders else reader.each_document(docids)
    return (text.encode() for text in texts)


class _Body:
    """The body of a request, to which documents are added and compressed one by one."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP, _MEMORY)
        self._packed = bytearray()
        self.text_bytes = 0
        self.documents: list[tuple[int, int]] = []

    @property
    def packed_bytes(self) -> int:
        return len(self._packed)

    def add(self, docid: int, text: bytes) -> None:
        # No separator between documents, as in the reference engine: a body is exactly as long as its texts.
        self._packed += self._packer.compress(text)
        self.text_bytes += len(text)
        self.documents.append((docid, digest(text)))

    def end(self) -> bytes:
        self._packed += self._packer.flush()
        return bytes(self._packed)


class _Sending:
    """Gathers the documents of one index into bodies and sends them; sends the rest at the end of its `with` block.

    report: called with the number of documents that the target has.
    """

    def __init__(self, target: Target, record: ExportRecord, progress: IndexProgress, payload_bytes: int,
                 report: Callable[[int], None]) -> None:
        self._target, self._record, self._progress = target, record, progress
        self._payload_bytes, self._report = payload_bytes, report
        self._streams: dict[int, _Body] = {}
        self._ended: set[int] = set()  # streams whose documents the target does not take
        self._on_their_way: dict[Future[None], tuple[int, _Body]] = {}
        self._pool = ThreadPoolExecutor(SENDERS, "svcd-export")
        self._packed_bytes = 0
        self._finished = 0
        report(0)

    def __enter__(self) -> _Sending:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                for stream in sorted(self._streams):
                    self._send(stream)
                while self._on_their_way:
                    self._settle()
        finally:
            if self._on_their_way:  # a call failed: the other calls in progress no longer matter
                self._target.stop()
            self._pool.shutdown()

    def skip(self) -> None:
        """Count a document that the target already has."""
        self._finished += 1

    def add(self, stream: int, docid: int, text: bytes) -> None:
        """Add a document to a stream; it is sent when its body is full, or the buffer is."""
        if stream in self._ended:
            return
        body = self._streams.get(stream)
        if body is not None and body.text_bytes + len(text) > self._payload_bytes:
            self._send(stream)
            body = None
        if body is None:
            body = self._streams[stream] = _Body()
        before = body.packed_bytes
        body.add(docid, text)
        self._packed_bytes += body.packed_bytes - before
        if self._packed_bytes > BUFFERED_BYTES:
            self._send(max(self._streams, key=lambda each: self._streams[each].packed_bytes))

    def _send(self, stream: int) -> None:
        body = self._streams.pop(stream)
        self._packed_bytes -= body.packed_bytes
        while len(self._on_their_way) >= SENDERS:
            self._settle()
        if stream not in self._ended:
            sent = self._pool.submit(self._target.add_documents, self._progress.uid, body.end())
            self._on_their_way[sent] = stream, body

    def _settle(self) -> None:
        """Wait for answers, and record the acknowledged documents. Raises ApiError when the target refused a body."""
        done, _ = wait(self._on_their_way, return_when=FIRST_COMPLETED)
        failures = []
        for future in done:
            stream, body = self._on_their_way.pop(future)
            try:
                future.result()
            except NotTaken:
                self._ended.add(stream)
            except (ApiError, Stopped) as failure:
                failures.append(failure)
            else:
                self._record.add(self._progress, body.documents)
                self._finished += len(body.documents)
                self._report(self._finished)
        if failures:
            if self._on_their_way:
                self._target.stop()
            raise failures[0]
