"""Applies one batch to the file of one index, in one transaction: documents, settings, primary key.

Runs in the indexing process, without access to the queue. A task with impossible content fails alone; an error of the indexing
itself (IndexingFailure) fails the batch, and the file keeps nothing of it. The outcomes of the tasks are committed with their
effect. See docs/tasks-and-batches.md#result-of-a-batch and #commit-and-crash.
"""
from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from svcd.base import json_text, machine
from svcd.base.errors import ApiError, error_object
from svcd.base.quantities import SECOND, human_size
from svcd.index.disk_space import disk_full_error, lacks_room
from svcd.index.kept_embeddings import ALONE, COUNT, KeptEmbeddings
from svcd.index.writer import IndexWriter
from svcd.schema import settings as settings_table
from svcd.schema.documents import document_identifier, infer_primary_key
from svcd.schema.field_values import COORDINATES, field_values, kept_fields
from svcd.schema.index_settings import IndexSettings
from svcd.schema.settings import Redo
from svcd.tasks import batching, embedding
from svcd.tasks.analysis import Analysis, AnalysisProcess
from svcd.tasks.batching import KINDS
from svcd.tasks.document_vectors import EmbedderChanges
from svcd.tasks.documents import SENT_AT_ONCE, DocumentWriter, GeoExtraction, extract_all_locations
from svcd.tasks.embedding import EMBEDDING
from svcd.tasks.indexing_client import MemoryBudget, ReportProgress
from svcd.tasks.payloads import IndexingFailure, IndexingTask, read_payload

_CHUNK = 500  # documents per look-up in the index
_FIRST_PORTION, _LARGEST_PORTION = 16, 512  # documents deleted in one transaction when the disk is almost full
# The log of a portion may take 1/_LOG_PART of the free space; a checkpoint may let the file grow by the same amount.
_LOG_PART = 4
_REINDEX_CHUNK = 200
# A batch of at least this many bytes of documents uses an analysis process: the process takes 0.1 s to start, the batch 1 s.
ANALYZED_BESIDE = 3 << 20
# The sizes of tables are read before and after a batch, which takes about 2 ms per MB of the file. So they are read only of files
# up to _SIZES_READ bytes, plus _SIZES_READ_PER_BYTE for each byte of documents, whose indexing takes 100 times as long.
_SIZES_READ, _SIZES_READ_PER_BYTE = 1 << 20, 4

_OUTCOME_UNKNOWN = ("Result unknown: the index already contains later tasks, because the list of tasks is older than the index. "
                    "Check the index, and send the task again if its effect is missing.")

Progress = Callable[[str, int, int], None]  # step, finished, total
ShouldStop = Callable[[], bool]
Outcome = dict[str, Any]  # from outcome_of(), as the file stores it, and the runner gets it


def outcome_of(task: IndexingTask, details: Mapping[str, Any] | None = None, error: Mapping[str, Any] | None = None) -> Outcome:
    """Return how one task ended: with the counters that it shows, or an error."""
    return {"uid": task.uid, "details": dict(details or {}), "error": None if error is None else dict(error)}


def apply_batch(path: Path, index_uid: str, shape: str, tasks: Sequence[IndexingTask], budget: MemoryBudget,
        progress: Progress = lambda step, finished, total: None, free_bytes: int = 0, threads: int = 1,
        changes_keep_s: int | None = None) -> dict[str, Any]:
    """Apply a batch. Return {"outcomes", "primaryKey", "stats", "needsMaterializedPostings", "recovered", "figures"}.

    shape: a row of docs/tasks-and-batches.md#batching, or a kind that runs alone. free_bytes: given when disk space is short;
    the space that deletions may use, which then commit in portions. progress: called with (step, finished, total).
    changes_keep_s: how long the log keeps changes; None for no log.

    If some of these tasks, or later ones, have already written the file (the daemon stopped between the two commits, or the
    queue is older than the file), nothing is applied: these tasks get their stored outcome, or io_error if it is no longer
    stored; the other tasks get no outcome, and the next batch runs them. Then recovered is {"newest": the highest uid that the
    file knows, "unknown": number of tasks without stored outcome}, else None.

    When the disk is full, nothing is applied: {"isDiskFull": True, "outcomes"}, each outcome with that error.
    """
    tasks = [replace(task, index_uid=index_uid) for task in tasks]
    with ExitStack() as opened:
        try:
            writer = IndexWriter(path, cache_kib=budget.page_cache >> 10, hash_bytes=budget.postings)
            opened.callback(writer.close)
            if changes_keep_s is not None:
                writer.log_changes(max(task.enqueued_at for task in tasks), changes_keep_s * SECOND)
            opened.callback(writer.truncate_wal)  # a failed batch may have filled the disk with its log
            applied = writer.applied
            if applied and (already_applied := [task for task in tasks if KINDS[task.kind].is_recorded
                                                and applied.covers(task.uid, task.enqueued_at)]):
                known = [applied.outcome(task.uid, task.enqueued_at) for task in already_applied]
                unknown = error_object("io_error", _OUTCOME_UNKNOWN)
                outcomes = [dict(outcome or outcome_of(task, error=unknown)) for task, outcome in zip(already_applied, known)]
                return _answer(writer, outcomes, {"newest": applied.last, "unknown": known.count(None)})
            is_ahead = applied is not None and applied.last >= tasks[0].uid
            if tasks[0].kind == "indexCompaction":
                progress("copy and compact the index", 0, 1)
                size = writer.path.stat().st_size
                writer.compact()
                return _answer(writer, [outcome_of(tasks[0], {
                    "preCompactionSize": human_size(size), "postCompactionSize": human_size(writer.path.stat().st_size)})])
            if free_bytes:
                writer.truncate_wal()
            most_bytes = _SIZES_READ + _SIZES_READ_PER_BYTE * sum(task.payload_bytes for task in tasks)
            before = writer.table_sizes(most_bytes)
            if free_bytes and shape in (batching.DELETIONS, batching.FILTER_DELETIONS):
                outcomes = _delete_in_portions(writer, tasks, budget, progress, free_bytes)
            else:
                outcomes = _apply(writer, index_uid, shape, tasks, budget, progress, threads)
            answer = _answer(writer, outcomes, {"newest": applied.last, "unknown": 0} if applied and is_ahead else None)
            return answer | {"figures": _figures(writer, before, writer.table_sizes(most_bytes) if before else {})}
        except sqlite3.OperationalError as failure:
            if not lacks_room(failure, path.parent):  # asked before the log is truncated, which frees space
                raise
    return {"isDiskFull": True, "outcomes": [outcome_of(task, error=disk_full_error().as_json()) for task in tasks]}


def _figures(writer: IndexWriter, before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    """Return members of the `stats` of the batch: how often a part of documents had to wait, and the tables that changed size."""
    figures: dict[str, Any] = {}
    if writer.parts:
        figures["writeChannelCongestion"] = {"attempts": writer.parts, "blocking_attempts": writer.blocked_parts,
                                             "blocking_ratio": writer.blocked_parts / writer.parts}
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in sorted(after.keys() | before.keys())} if after else {}
    if sizes := {name: f"{human_size(after.get(name, 0))} ({'+' if change > 0 else '-'}{human_size(abs(change))})"
                 for name, change in changes.items() if change}:
        figures["internalDatabaseSizes"] = sizes
    return figures


def commit_nothing(path: Path, has_log: bool = False) -> None:
    """Commit an empty transaction, to overwrite the frames that a killed process left in the log after its last visible commit.

    These frames may hold a complete commit that no reader has seen. A later recovery of the log would bring it back after its
    tasks had ended differently. has_log: whether the index has a log of changes, which misses no transaction.
    """
    with closing(IndexWriter(path)) as writer:
        if has_log:
            writer.log_changes(0, 0)
        with writer.transaction():
            pass


def handle_request(request: Mapping[str, Any], progress: ReportProgress,
                   should_stop: ShouldStop = lambda: False) -> dict[str, Any]:
    """Answer one request of the runner; `do` names the action (see svcd.tasks.indexing_process)."""
    return _REQUESTS[request["do"]](request, progress, should_stop)


def _do_batch(request: Mapping[str, Any], progress: Progress, should_stop: ShouldStop) -> dict[str, Any]:
    tasks = [IndexingTask(**task) for task in request["tasks"]]
    path, index_uid = Path(request["path"]), request["indexUid"]
    embedding.begin_batch(request.get("networks", ()), request.get("answers", ALONE))
    begun, cores = time.perf_counter(), machine.core_times()
    try:
        answer = apply_batch(path, index_uid, request["shape"], tasks, MemoryBudget(**request["budget"]), progress,
                             request.get("freeBytes", 0), request.get("threads", 1), request.get("changesKeep"))
        answer["seconds"] = {"seconds": time.perf_counter() - begun, "slowdown": machine.slowdown(cores), **embedding.spent()}
    except embedding.AnswersNeeded:
        return {"needsAnswers": True}
    except Exception as failure:
        from svcd.index import damage  # few batches ever need it

        fault = damage.fault_behind(failure, path)
        if fault is None:
            raise
        error = damage.index_error(index_uid, fault).as_json()
        answer = {"fault": fault, "outcomes": [outcome_of(task, error=error) for task in tasks]}
    return answer | {"embedderRequests": embedding.request_counts()}


def _do_dry_run(request: Mapping[str, Any], progress: Progress, should_stop: ShouldStop) -> dict[str, Any]:
    """Run one task on a writer that only counts. Return its outcome, the counts of the writer, and the changed settings."""
    from svcd.index.dry_writer import DryIndexWriter  # imported late: most processes make no dry run

    task = replace(IndexingTask(**request["task"]), index_uid=request["indexUid"])
    embedding.begin_batch(request["networks"], COUNT)
    with closing(DryIndexWriter(Path(request["path"]))) as writer:
        before = writer.settings
        (outcome,) = _apply(writer, task.index_uid, request["shape"], [task], MemoryBudget(**request["budget"]), progress,
                            request["threads"])
        if outcome["error"]:
            return {"outcome": outcome}
        old, new = settings_table.resolved(before), settings_table.resolved(writer.settings)
        changes = {name: {"from": setting.hide(old[name]), "to": setting.hide(new[name])}
                   for name, setting in settings_table.BY_NAME.items() if old[name] != new[name]}
        vectors = embedding.counted()
        return {"outcome": outcome, "changes": changes, "documents": writer.document_counts(), "vectors": vectors,
                "removed": dict(writer.vectors.removed), "slowdown": machine.slowdown(),
                **writer.estimate({name: counts["made"] for name, counts in vectors.items()})}


def _do_commit_nothing(request: Mapping[str, Any], progress: Progress, should_stop: ShouldStop) -> dict[str, Any]:
    commit_nothing(Path(request["path"]), "changesKeep" in request)
    return {}


def _do_materialize(request: Mapping[str, Any], progress: Progress, should_stop: ShouldStop) -> dict[str, Any]:
    """Materialize postings until `should_stop()`, see svcd.index.materialized. isDone: whether nothing is left to do.

    A full disk also ends the work: searches work without materialized postings, and other data needs the space.
    """
    path = Path(request["path"])
    try:
        with closing(IndexWriter(path)) as writer:
            return {"isDone": writer.materialize_postings(should_stop)}
    except Exception as failure:
        if isinstance(failure, sqlite3.OperationalError) and lacks_room(failure):
            return {"isDone": True}
        from svcd.index import damage  # few indexes ever need it

        fault = damage.fault_behind(failure, path)
        if fault is None:
            raise
    return {"isDone": True, "fault": fault}


def _do_archive(request: Mapping[str, Any], progress: Progress, should_stop: ShouldStop) -> dict[str, Any]:
    from svcd.tasks import archive  # imported late: few processes ever write one

    return archive.write_archive(request, progress)


def _do_abort_upload(request: Mapping[str, Any], progress: Progress, should_stop: ShouldStop) -> dict[str, Any]:
    from svcd.remote.object_store import abort_upload  # imported late: it loads the HTTP client

    abort_upload(request)
    return {}


def _do_export(request: Mapping[str, Any], progress: ReportProgress, should_stop: ShouldStop) -> dict[str, Any]:
    from svcd.tasks import export  # imported late: it loads the HTTP client and the filters

    return export.run_export(request, progress)


_REQUESTS: Mapping[str, Callable[[Mapping[str, Any], ReportProgress, ShouldStop], dict[str, Any]]] = {
    "batch": _do_batch, "dryRun": _do_dry_run, "commitNothing": _do_commit_nothing, "materialize": _do_materialize,
    "archive": _do_archive, "abortUpload": _do_abort_upload, "export": _do_export}


def _apply(writer: IndexWriter, index_uid: str, shape: str, tasks: Sequence[IndexingTask], budget: MemoryBudget,
           progress: Progress, threads: int) -> list[Outcome]:
    action = partial(_documents, threads=threads) if shape == batching.DOCUMENTS else _ACTIONS[shape]
    try:
        with writer.transaction():
            outcomes = list(action(writer, tasks, budget, progress))
            _remember(writer, tasks, outcomes)
            progress("committing", 0, 1)
    except IndexingFailure as failure:
        error = error_object(failure.error.code, f"Index `{index_uid}`: {failure.error.message}")
    else:
        if not embedding.is_shared():  # in a cluster the runner discards them, once the other nodes have them
            KeptEmbeddings(writer.path).discard()
        return outcomes
    return [outcome_of(task, error=error) for task in tasks]


def _remember(writer: IndexWriter, tasks: Sequence[IndexingTask], outcomes: Sequence[Outcome]) -> None:
    moments = {task.uid: task.enqueued_at for task in tasks}
    writer.remember((moments[outcome["uid"]], outcome) for outcome in outcomes)


def _answer(writer: IndexWriter, outcomes: list[Outcome], recovered: dict[str, int] | None = None) -> dict[str, Any]:
    return {"outcomes": outcomes, "primaryKey": writer.primary_key, "stats": writer.stats(), "work": dict(writer.work),
            "needsMaterializedPostings": writer.needs_materialized_postings(), "recovered": recovered}


def _documents(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget,
               progress: Progress, threads: int = 1) -> Iterator[Outcome]:
    total = sum(task.payload_bytes for task in tasks)
    before = 0
    has_process = threads > 1 and total >= ANALYZED_BESIDE
    limit = min(budget.documents, SENT_AT_ONCE) if has_process else budget.documents
    with closing(AnalysisProcess(writer.settings)) if has_process and not writer.is_dry else nullcontext() as process:
        documents = DocumentWriter(writer, limit, process, partial(progress, EMBEDDING))
        for task in tasks:
            is_deletion = task.kind == "documentDeletion"
            progress("delete documents" if is_deletion else "indexing", before, total)
            try:
                with documents.task(is_large=task.is_large(budget.documents)):
                    outcome = outcome_of(task, _delete(writer, documents, task) if is_deletion else
                                         _add(writer, documents, task, partial(progress, "indexing"), before, total))
            except ApiError as error:
                outcome = outcome_of(task, error=error.as_json())
            before += task.payload_bytes
            yield outcome
        progress("indexing", before, total)
        documents.finish()


def _add(writer: IndexWriter, documents: DocumentWriter, task: IndexingTask, report: Callable[[int, int], None], before: int,
         total: int) -> dict[str, Any]:
    """Write the documents of a task. report: called with the bytes read so far, counted from `before`, and the total."""
    known, wanted = writer.primary_key, task.content.get("primaryKey")
    if wanted not in (None, known):
        if known is not None:
            raise _primary_key_exists_error(known)
        writer.primary_key = wanted
    key = known or wanted  # None when it is to be inferred from the first document
    # A given key gets the first field number; an inferred one gets the number of its place in the document (recorded in
    # search/metadata).
    if key is not None and "." not in key:
        writer.register([key])
    read = 0
    for lines, parsed in read_payload(task.payload, task.payload_bytes, task.content.get("checksum")):
        if key is None:
            key = writer.primary_key = infer_primary_key(parsed[0])
        size = sum(map(len, lines))
        documents.put([(document_identifier(document, key), document) for document in parsed], size,
                      is_update=task.content.get("method") == "update",
                      may_create=task.content.get("mayCreate", True), is_import=task.content.get("isImport", False))
        read += size
        report(before + read, total)
    return {"indexedDocuments": documents.named}


def _delete(writer: IndexWriter, documents: DocumentWriter, task: IndexingTask) -> dict[str, Any]:
    if "filter" not in task.content:
        return {"deletedDocuments": documents.delete(_identifiers(task))}
    documents.flush()  # the filter applies to the documents that the previous tasks of the batch leave
    docids = _matching_docids(writer, task)
    return {"deletedDocuments": sum(documents.delete(writer.document_ids(docids[start:start + _CHUNK]))
                                    for start in range(0, len(docids), _CHUNK))}


def _matching_docids(writer: IndexWriter, task: IndexingTask) -> Sequence[int]:
    """Return the docids that match the filter of a task. Raises invalid_document_filter."""
    # Imported late: few batches have a filter, and the process is smaller without the parser.
    from svcd.filters.evaluation import filter_docids, read_filter

    reader = writer.reader()
    try:
        condition = read_filter(task.content["filter"], "invalid_document_filter")
        return filter_docids(reader, condition, "invalid_document_filter").to_array()
    except ApiError as error:
        raise error.inside(f"Index `{task.index_uid}`") from None


def _delete_in_portions(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress,
                        free_bytes: int) -> list[Outcome]:
    """Run deletions by identifier or filter on a disk that is too full for one transaction.

    Each portion has its own commit: removing a tenth of the documents rewrites most pages of the file in the log; in portions the
    log stays as small as the reserve. Readers see the documents disappear gradually; after a crash in between, the task starts
    again with the remaining documents.
    """
    outcomes: list[Outcome] = []
    for task in tasks:
        progress("delete documents", len(outcomes), len(tasks))
        try:
            with writer.transaction():
                docids = _matching_docids(writer, task) if "filter" in task.content else sorted(
                    found.docid for found in writer.stored(list(dict.fromkeys(_identifiers(task)))).values())
        except ApiError as error:
            outcomes.append(outcome_of(task, error=error.as_json()))
            continue
        _delete_documents(writer, docids, budget.documents, free_bytes)
        outcomes.append(outcome_of(task, {"deletedDocuments": len(docids)}))
    with writer.transaction():
        _remember(writer, tasks, outcomes)
    return outcomes


def _delete_documents(writer: IndexWriter, docids: Sequence[int], limit: int, free_bytes: int) -> None:
    """Delete documents in portions. Raises sqlite3.OperationalError when not even one document could be deleted."""
    size, start = _FIRST_PORTION, 0
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
            fitting = size * free_bytes // (_LOG_PART * max(writer.log_bytes(), 1))
            size = max(1, min(fitting, 2 * size, _LARGEST_PORTION))
        writer.truncate_wal()


def _identifiers(task: IndexingTask) -> list[str]:
    ids = task.content["ids"]
    if isinstance(ids, str):  # the JSON text of a list, which may have millions of elements
        ids = json_text.loads(ids)
    return [str(each) for each in ids]


def _primary_key_exists_error(known: str | None) -> ApiError:
    return ApiError("index_primary_key_already_exists", f"Index already has a primary key: `{known}`.")


def _clear(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress) -> Iterator[Outcome]:
    """Delete all documents and apply settings. The first task that deletes all counts them; others change no document."""
    before = writer.number_of_documents
    writer.clear()
    progress("indexing", 1, 1)
    settings = [task for task in tasks if task.kind == "settingsUpdate"]
    if settings:
        yield from _settings(writer, settings, budget, progress)
    for task in tasks:
        if task.kind == "documentDeletion":
            is_of_all = bool(task.content.get("all"))
            yield outcome_of(task, {"deletedDocuments": before if is_of_all else 0})
            before = 0 if is_of_all else before
        elif task.kind == "documentAdditionOrUpdate":
            yield outcome_of(task, {"indexedDocuments": 0})


def _settings(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress) -> Iterator[Outcome]:
    progress("retrieving and merging the settings", 0, 1)
    before = after = writer.settings
    try:
        for task in tasks:
            after = settings_table.merged(after, task.content["settings"])
    except ApiError as error:
        raise IndexingFailure(error) from error
    writer.settings = after
    progress("apply the settings", 0, 1)
    redo = settings_table.redo_of(before, after)
    if Redo.FACETS in redo:
        if GeoExtraction.of(IndexSettings.of(before)) != GeoExtraction.of(IndexSettings.of(after)):
            extract_all_locations(writer)
        _update_values(writer, before, after, progress)
    if Redo.WORDS in redo:
        writer.clear_words()
        analysis = Analysis(IndexSettings.of(after))
        for part in _all_documents(writer, progress):
            writer.write_words([(docid, analysis.positions(document)) for docid, document in part])
    writer.match_word_counts()
    if Redo.VECTORS in redo and (IndexSettings.of(after).embedders or writer.vectors.embedders):
        try:
            EmbedderChanges(writer, tasks[0].index_uid, before, after).apply(progress)
        except ApiError as error:
            raise IndexingFailure(error) from error
    yield from map(outcome_of, tasks)


def _update_values(writer: IndexWriter, before: Mapping[str, Any], after: Mapping[str, Any], progress: Progress) -> None:
    """Store the values of newly kept fields, and drop the values of fields that are no longer kept."""
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
    """Yield every document as (docid, document), in portions."""
    total, finished = writer.number_of_documents, 0
    for part in writer.all_documents(_REINDEX_CHUNK):
        yield [(each.docid, json_text.loads(each.json)) for each in part]
        finished += len(part)
        progress("indexing", finished, total)


def _set_key(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress) -> Iterator[Outcome]:
    """Create or update an index: set the primary key that the task gives; null does not change it."""
    (task,) = tasks
    progress("creating the index" if task.kind == "indexCreation" else "updating the index", 0, 1)
    key = task.content.get("primaryKey")
    if key is not None:
        if writer.primary_key not in (None, key) and writer.number_of_documents:
            raise IndexingFailure(_primary_key_exists_error(writer.primary_key))
        writer.primary_key = key
    yield outcome_of(task)


def _edit(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget, progress: Progress) -> Iterator[Outcome]:
    # Imported late: few batches run a function, and the interpreter takes 2 MB of memory.
    from svcd.tasks import editing

    yield outcome_of(tasks[0], editing.edit(writer, budget.documents, tasks[0].content, progress))


def _change_rules(writer: IndexWriter, tasks: Sequence[IndexingTask], budget: MemoryBudget,
                  progress: Progress) -> Iterator[Outcome]:
    from svcd.tasks import rule_changes  # imported late: few instances have search rules

    progress("updating the search rules", 0, 1)
    yield from map(outcome_of, tasks, rule_changes.change_rules(writer, tasks))


_Action = Callable[[IndexWriter, Sequence[IndexingTask], MemoryBudget, Progress], Iterator[Outcome]]
_ACTIONS: dict[str, _Action] = {
    batching.DOCUMENTS: _documents, batching.DELETIONS: _documents, batching.FILTER_DELETIONS: _documents, batching.CLEAR: _clear,
    batching.CLEAR_AND_SETTINGS: _clear, batching.SETTINGS: _settings, batching.RULES: _change_rules,
    batching.RULES_CLEARED: _change_rules, "indexCreation": _set_key, "indexUpdate": _set_key, "documentEdition": _edit}
