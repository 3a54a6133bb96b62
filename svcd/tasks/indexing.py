"""One batch on one index, start to end: documents, settings and keys, in one transaction of its file.

Runs in the indexing process. Brings the engine (which knows words) and the store (which keeps them)
together; knows nothing of the queue. A task that its own content makes impossible fails alone; an error
of the indexing itself fails the batch, and nothing of it is kept.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from svcd.base import json_text
from svcd.base.bitmaps import to_docids
from svcd.base.errors import ApiError, error_object
from svcd.base.sizes import human_size
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.disk_space import disk_full_error, lacks_room
from svcd.index.writer import IndexWriter
from svcd.schema import settings as settings_table
from svcd.schema.field_values import COORDINATES, field_values, kept_fields
from svcd.schema.index_settings import IndexSettings
from svcd.schema.primary_keys import document_identifier, infer_primary_key
from svcd.schema.settings import Redo
from svcd.tasks import batching
from svcd.tasks import documents as payloads
from svcd.tasks.documents import DocumentWriter, GeoExtraction, IndexingFailure
from svcd.tasks.indexing_client import MemoryBudget
from svcd.tasks.kinds import KINDS

_CHUNK = 500  # documents of one look-up in the store
_REINDEX_CHUNK = 200

_OUTCOME_UNKNOWN = ("The index was written by later tasks already, and how this one ended is not known any more: the list of "
                    "tasks is older than the index. Look at the index, and send the task again where its effect is missing.")

Progress = Callable[[str, int, int], None]  # step, finished, total


@dataclass
class IndexingTask:
    """One task of the batch, as the runner sends it. payload: path of its NDJSON. index_uid: filled in by run()."""

    uid: int
    kind: str
    content: Mapping[str, Any]
    enqueued_at: int = 0
    payload: str | None = None
    payload_bytes: int = 0
    index_uid: str = ""

    def is_large(self, limit: int) -> bool:
        """May it write more than so many bytes? Who knows how many documents meet a filter."""
        return self.payload_bytes > limit or "filter" in self.content


@dataclass
class Outcome:
    """How one task ended: the counters it shows, or its error."""

    uid: int
    details: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The form in which outcomes are kept with their effect, and sent to the runner."""
        return {"uid": self.uid, "details": self.details, "error": self.error}


def run(path: Path, index_uid: str, shape: str, works: Sequence[IndexingTask], budget: MemoryBudget,
        progress: Progress = lambda step, finished, total: None, room: int = 0) -> dict[str, Any]:
    """Do a batch; {"outcomes", "primaryKey", "stats", "needsDenseSets", "found"}. The outcomes may be those of fewer tasks.

    When the file was written behind some of these tasks already (the daemon was stopped before it could note their
    end, or the queue is older than the file), nothing is done: they end as the file says, or fail when it does not say
    it any more, and the rest is for the next batch. found: None, or what of the file the queue did not know: "newest",
    the highest uid that the file knows, "unknown", the tasks whose outcome it does not say. When the disk is full:
    {"isFull": True, "outcomes"}, each outcome with that error, and nothing is done.
    shape: a row of tasks.md 9.2, or a kind that runs alone; not looked at when nothing is done. room: when it
    is short, the bytes that are there for deletions, which then commit by and by (see portions).
    """
    works = [replace(work, index_uid=index_uid) for work in works]
    try:
        return _run(path, index_uid, shape, works, budget, progress, room)
    except sqlite3.OperationalError as failure:
        if not lacks_room(failure):
            raise
    return {"isFull": True, "outcomes": [Outcome(work.uid, error=dict(disk_full_error().as_json())).as_json() for work in works]}


def _run(path: Path, index_uid: str, shape: str, works: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress,
         room: int) -> dict[str, Any]:
    writer = IndexWriter(path, cache_kib=budget.page_cache >> 10, hash_bytes=budget.postings)
    try:
        applied = writer.applied
        if applied and (settled := [work for work in works if _is_settled(applied, work)]):
            known = [applied.outcome(work.uid, work.enqueued_at) for work in settled]
            return _answer(writer, list(map(_settled_outcome, settled, known)),
                           {"newest": applied.last, "unknown": known.count(None)})
        is_ahead = applied is not None and applied.last >= works[0].uid
        if works[0].kind == "indexCompaction":
            return _answer(writer, [_compact(writer, path, works[0], progress).as_json()])
        if room:
            writer.cut_log()
        if room and shape in (batching.DELETIONS, batching.FILTER_DELETIONS):
            outcomes = _delete_in_portions(writer, works, budget, progress, room)
        else:
            outcomes = _apply(writer, index_uid, shape, works, budget, progress)
        return _answer(writer, outcomes, {"newest": applied.last, "unknown": 0} if applied and is_ahead else None)
    finally:
        _put_away(writer)


def _put_away(writer: IndexWriter) -> None:
    """Close a file, its log cut: also one that a batch without success has filled the disk with."""
    try:
        writer.cut_log()
    finally:
        writer.close()


def _is_settled(applied: BatchOutcomes, work: IndexingTask) -> bool:
    return KINDS[work.kind].is_recorded and applied.covers(work.uid, work.enqueued_at)


def _settled_outcome(work: IndexingTask, known: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(known or Outcome(work.uid, error=dict(error_object("io_error", _OUTCOME_UNKNOWN))).as_json())


def commit_nothing(path: Path) -> None:
    """Commit nothing. What a killed process left in the log behind its last commit is written over by it.

    Such frames may hold a commit that nobody saw; a later recovery would bring it back behind the end of its tasks.
    """
    writer = IndexWriter(path)
    try:
        with writer.transaction():
            pass
    finally:
        writer.close()


def materialize_postings(path: Path, should_stop: Callable[[], bool]) -> None:
    """Behind a batch that asked for it: see store.dense."""
    try:
        writer = IndexWriter(path)
        try:
            writer.materialize_postings(should_stop)
        finally:
            writer.close()
    except sqlite3.OperationalError as error:
        if not lacks_room(error):  # of which searches have more need
            raise


def handle_request(request: Mapping[str, Any], progress: Progress,
           should_stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Do what the runner asks for: a batch, or with {"settle": true} settle(), {"denseSets": true} make_dense_sets(),
    {"archive": kind} a dump or a snapshot."""
    if "archive" in request:
        from svcd.tasks import archive  # few processes ever write one

        return archive.write_archive(request, progress)
    path = Path(request["path"])
    if request.get("settle"):
        commit_nothing(path)
        return {}
    if request.get("denseSets"):
        materialize_postings(path, should_stop)
        return {}
    works = [IndexingTask(**task) for task in request["tasks"]]
    return run(path, request["indexUid"], request["shape"], works, MemoryBudget(**request["budget"]), progress,
               request.get("room", 0))


def _apply(writer: IndexWriter, index_uid: str, shape: str, works: Sequence[IndexingTask], budget: MemoryBudget,
           progress: Progress) -> list[dict[str, Any]]:
    try:
        with writer.transaction():
            outcomes = [outcome.as_json() for outcome in _ACTIONS[shape](writer, works, budget, progress)]
            _remember(writer, works, outcomes)
            progress("committing", 0, 1)
    except IndexingFailure as failure:
        error = error_object(failure.error.code, f"Index `{index_uid}`: {failure.error.message}")
    else:
        return outcomes
    return [Outcome(work.uid, error=dict(error)).as_json() for work in works]


def _remember(writer: IndexWriter, works: Sequence[IndexingTask], outcomes: Sequence[Mapping[str, Any]]) -> None:
    moments = {work.uid: work.enqueued_at for work in works}
    writer.remember((moments[outcome["uid"]], outcome) for outcome in outcomes)


def _answer(writer: IndexWriter, outcomes: list[dict[str, Any]], found: dict[str, int] | None = None) -> dict[str, Any]:
    return {"outcomes": outcomes, "primaryKey": writer.primary_key, "stats": writer.stats(),
            "needsDenseSets": writer.needs_materialized_postings(), "found": found}


def _documents(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget,
               progress: Progress) -> Iterator[Outcome]:
    documents = DocumentWriter(writer, budget.documents)
    total = sum(work.payload_bytes for work in works)
    before = 0
    for work in works:
        step = "delete documents" if work.kind == "documentDeletion" else "indexing"
        progress(step, before, total)
        report = partial(_report, progress, before, total)
        try:
            with documents.task(is_large=work.is_large(budget.documents)):
                outcome = Outcome(work.uid, _DOCUMENT_ACTIONS[work.kind](writer, documents, work, report))
        except ApiError as error:
            outcome = Outcome(work.uid, error=dict(error.as_json()))
        before += work.payload_bytes
        yield outcome
    progress("indexing", before, total)
    documents.finish()


def _report(progress: Progress, before: int, total: int, read: int) -> None:
    progress("indexing", before + read, total)


def _add(writer: IndexWriter, documents: DocumentWriter, work: IndexingTask, report: Callable[[int], None]) -> dict[str, Any]:
    key = _primary_key(writer, work.content.get("primaryKey"))
    read = 0
    for lines, parsed in payloads.read_payload(work.payload, work.payload_bytes):
        if key is None:
            key = writer.primary_key = infer_primary_key(parsed[0])
        size = sum(map(len, lines))
        documents.put([(document_identifier(document, key), document) for document in parsed], size,
                      is_update=work.content.get("method") == "update",
                      may_create=work.content.get("mayCreate", True))
        read += size
        report(read)
    return {"indexedDocuments": documents.named}


def _delete(writer: IndexWriter, documents: DocumentWriter, work: IndexingTask,
            report: Callable[[int], None]) -> dict[str, Any]:
    if "filter" in work.content:
        return {"deletedDocuments": _delete_matching(writer, documents, work)}
    return {"deletedDocuments": documents.delete(_identifiers(work))}


def _delete_matching(writer: IndexWriter, documents: DocumentWriter, work: IndexingTask) -> int:
    """Remove the documents that meet a filter as the tasks before have left them; how many there were."""
    documents.flush()
    docids = _matching(writer, work)
    return sum(documents.delete(writer.document_ids(docids[start:start + _CHUNK]))
               for start in range(0, len(docids), _CHUNK))


def _matching(writer: IndexWriter, work: IndexingTask) -> Sequence[int]:
    """The docids of the documents that meet the filter of a task. Raises invalid_document_filter."""
    # Most batches have no filter, and the process that does them stays small.
    from svcd.filters.requests import filter_docids, read_filter

    reader = writer.reader()
    try:
        condition = read_filter(work.content["filter"], "invalid_document_filter")
        return to_docids(filter_docids(reader, condition, "invalid_document_filter"))
    except ApiError as error:
        raise error.inside(f"Index `{work.index_uid}`") from None


def _delete_in_portions(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress,
                        room: int) -> list[dict[str, Any]]:
    """Deletions by identifier or filter, for which the disk has no room in one transaction."""
    outcomes: list[dict[str, Any]] = []
    for work in works:
        progress("delete documents", len(outcomes), len(works))
        try:
            with writer.transaction():
                docids = _matching(writer, work) if "filter" in work.content else _named(writer, work)
        except ApiError as error:
            outcomes.append(Outcome(work.uid, error=dict(error.as_json())).as_json())
            continue
        delete_in_portions(writer, docids, budget.documents, room)
        outcomes.append(Outcome(work.uid, {"deletedDocuments": len(docids)}).as_json())
    with writer.transaction():
        _remember(writer, works, outcomes)
    return outcomes


def _named(writer: IndexWriter, work: IndexingTask) -> Sequence[int]:
    """The docids of the documents that a task names."""
    return sorted(found.docid for found in writer.stored(list(dict.fromkeys(_identifiers(work)))).values())


def _identifiers(work: IndexingTask) -> list[str]:
    ids = work.content["ids"]
    if isinstance(ids, str):  # the JSON text of a list, which may be of millions
        ids = json_text.loads(ids)
    return [str(each) for each in ids]


_DOCUMENT_ACTIONS = {"documentAdditionOrUpdate": _add, "documentDeletion": _delete}


def _primary_key(writer: IndexWriter, wanted: str | None) -> str | None:
    """The key of the index, after this task; None when the first document has to tell it.

    A key that was named comes before all other fields, one that was guessed where the document has it: recordings
    search/metadata, against relevance.md 0.1.
    """
    known = writer.primary_key
    if wanted not in (None, known):
        if known is not None:
            raise _has_key(known)
        writer.primary_key = wanted
    key = known or wanted
    if key is not None and "." not in key:
        writer.register([key])
    return key


def _has_key(known: str | None) -> ApiError:
    return ApiError("index_primary_key_already_exists", f"Index already has a primary key: `{known}`.")


def _clear(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget,
           progress: Progress) -> Iterator[Outcome]:
    """Remove all documents, which the first deletion of all counts; other tasks of documents succeed without effect.

    Settings are applied.
    """
    before = writer.number_of_documents
    writer.clear()
    progress("indexing", 1, 1)
    settings = [work for work in works if work.kind == "settingsUpdate"]
    if settings:
        yield from _settings(writer, settings, budget, progress)
    for work in works:
        if work.kind == "documentDeletion":
            is_of_all = bool(work.content.get("all"))
            yield Outcome(work.uid, {"deletedDocuments": before if is_of_all else 0})
            before = 0 if is_of_all else before
        elif work.kind == "documentAdditionOrUpdate":
            yield Outcome(work.uid, {"indexedDocuments": 0})


def _settings(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget,
              progress: Progress) -> Iterator[Outcome]:
    progress("retrieving and merging the settings", 0, 1)
    before = after = writer.settings
    try:
        for work in works:
            after = settings_table.merged(after, work.content["settings"])
    except ApiError as error:
        raise IndexingFailure(error) from error
    writer.settings = after
    progress("apply the settings", 0, 1)
    redo = settings_table.redo_of(before, after)
    if Redo.FACETS in redo:
        if GeoExtraction.of(IndexSettings.of(before)) != GeoExtraction.of(IndexSettings.of(after)):
            DocumentWriter(writer, 0).place_all()
        _exchange_values(writer, before, after, progress)
    if Redo.WORDS in redo:
        _reindex(writer, progress)
    for work in works:
        yield Outcome(work.uid)


def _reindex(writer: IndexWriter, progress: Progress) -> None:
    """Tokenise every document again, some at a time."""
    writer.clear_words()
    documents = DocumentWriter(writer, 0)
    for part in _all_documents(writer, progress):
        writer.write_words([(docid, documents.positions(document)) for docid, document in part])


def _exchange_values(writer: IndexWriter, before: Mapping[str, Any], after: Mapping[str, Any], progress: Progress) -> None:
    """Keep the values of other fields than before; those that stay are left as they are."""
    was_kept, is_kept = (kept_fields(IndexSettings.of(settings)) for settings in (before, after))
    names = [*writer.field_numbers, *COORDINATES]
    dropped = [name for name in names if was_kept(name) and not is_kept(name)]
    fresh = frozenset(name for name in names if is_kept(name) and not was_kept(name))
    if not dropped and not fresh:
        return
    writer.drop_values(name for name in dropped if name in writer.field_numbers)
    for part in _all_documents(writer, progress):
        written = []
        for docid, document in part:
            values = field_values(document, is_kept)
            written.append((docid, {name: values[name] for name in values.keys() & fresh}, values))
        writer.write_values(written)


def _all_documents(writer: IndexWriter, progress: Progress) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """(docid, document) of every document, some at a time."""
    total, finished, last = writer.number_of_documents, 0, -1
    while part := writer.all_stored(last, _REINDEX_CHUNK):
        yield [(each.docid, json_text.loads(each.json)) for each in part]
        last, finished = part[-1].docid, finished + len(part)
        progress("indexing", finished, total)


def _create(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget,
            progress: Progress) -> Iterator[Outcome]:
    progress("creating the index", 0, 1)
    yield from _set_key(writer, works[0])


def _update(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget,
            progress: Progress) -> Iterator[Outcome]:
    progress("updating the index", 0, 1)
    key = works[0].content.get("primaryKey")
    if key is not None and writer.primary_key not in (None, key) and writer.number_of_documents:
        raise IndexingFailure(_has_key(writer.primary_key))
    yield from _set_key(writer, works[0])


def _set_key(writer: IndexWriter, work: IndexingTask) -> Iterator[Outcome]:
    """Null names no key: a new index has none until it is guessed, another one keeps its own."""
    key = work.content.get("primaryKey")
    if key is not None:
        writer.primary_key = key
    yield Outcome(work.uid)


def _edit(writer: IndexWriter, works: Sequence[IndexingTask], budget: MemoryBudget,
          progress: Progress) -> Iterator[Outcome]:
    # Few batches run a function, and the process of the others stays smaller by 2 MB.
    from svcd.tasks import editing

    yield Outcome(works[0].uid, editing.edit(writer, budget.documents, works[0].content, progress))


def _compact(writer: IndexWriter, path: Path, work: IndexingTask, progress: Progress) -> Outcome:
    progress("copy and compact the index", 0, 1)
    before = path.stat().st_size
    writer.compact()
    return Outcome(work.uid, {"preCompactionSize": human_size(before),
                              "postCompactionSize": human_size(path.stat().st_size)})


_Action = Callable[[IndexWriter, Sequence[IndexingTask], MemoryBudget, Progress], Iterator[Outcome]]
_ACTIONS: dict[str, _Action] = {
    batching.DOCUMENTS: _documents, batching.DELETIONS: _documents, batching.FILTER_DELETIONS: _documents,
    batching.CLEAR: _clear,
    batching.CLEAR_AND_SETTINGS: _clear, batching.SETTINGS: _settings,
    "indexCreation": _create, "indexUpdate": _update, "documentEdition": _edit,
}


# Documents deleted some at a time, each portion with a commit of its own: where the disk has no room for all at once.
#
# A deletion writes most of the pages of an index into its log when it takes a tenth of the documents, wherever they
# stand. In portions the log stays as small as the reserve of the data folder (svcd.index.disk_space); what others see meanwhile
# is that documents go by and by, and after a crash in between the task begins again with what is left.


_FIRST, _MOST = 16, 512  # documents of a portion
# Of the room that there is, the log of a portion takes so much; as much again the file may grow by behind it.
_LOG_PART = 4


def delete_in_portions(writer: IndexWriter, docids: Sequence[int], limit: int, room: int) -> None:
    """Remove documents, outside a transaction. room: bytes that are there for it, about.

    Raises sqlite3.OperationalError when not even one could be.
    """
    size, start = _FIRST, 0
    while start < len(docids):
        try:
            with writer.transaction():
                documents = DocumentWriter(writer, limit)
                documents.delete(writer.document_ids(docids[start:start + size]))
                documents.finish()
        except sqlite3.OperationalError as error:
            if not lacks_room(error) or size == 1:
                raise
            size = max(1, size // 4)
        else:
            start += size
            fitting = size * room // (_LOG_PART * max(writer.log_bytes(), 1))
            size = max(1, min(fitting, 2 * size, _MOST))
        writer.cut_log()
