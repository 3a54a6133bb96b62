"""Runs dumps, snapshots and exports, which read all indexes and write none. See docs/dumps.md and docs/export.md."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svcd.base.errors import error_object
from svcd.instance.task_records import Task
from svcd.tasks import global_tasks
from svcd.tasks.batch_ends import BatchEnds
from svcd.tasks.indexing_client import IndexingProcess, IndexingProcessCrashed, IndexingProcessDied, ReportProgress, Step
from svcd.tasks.jobs import Job, RunnerContext
from svcd.tasks.outcomes import crash_message, with_outcome


class ReadingBatches:
    """Runs batches of one dump or export, or of snapshots.

    folders: of dumps and snapshots. networks: private networks that may be called. payload_limit: largest body in bytes that this
    instance accepts.
    """

    def __init__(self, context: RunnerContext, ends: BatchEnds, folders: global_tasks.Folders, networks: Sequence[str],
                 payload_limit: int) -> None:
        self._context = context
        self._ends = ends
        self._folders = folders
        self._networks = list(networks)
        self._payload_limit = payload_limit

    def run_archive(self, job: Job, writer: IndexingProcess) -> None:
        """Write a dump or snapshot. A canceled or stopped batch leaves no file."""
        end = self._ends.sealed(job.running, lambda: {"outcome": self._archive_outcome(job, writer)})
        outcome = end["outcome"] if end else self._archive_outcome(job, writer)
        if outcome is None:
            self._ends.give_back(job)
        else:
            self._ends.finish(job, None, [with_outcome(task, outcome) for task in job.running.tasks.values()], None, end)

    def _archive_outcome(self, job: Job, writer: IndexingProcess) -> dict[str, Any] | None:
        """Write the archive; return details and error of its tasks, None when it was canceled or stopped."""
        archive = global_tasks.planned_archive(job.running, self._context.instance, self._folders)
        request = {**archive.request, "networks": self._networks}
        error: Any = None
        try:
            if not job.is_canceled:
                try:
                    error = writer.run(request, self._context.progress_of(job))["error"]
                except (IndexingProcessDied, IndexingProcessCrashed) as death:
                    error = self._death(job, death)
            if job.is_canceled or self._context.is_stopping and error:  # a later cancelation waits for the end of the batch
                if archive.is_uploaded and not self._context.is_stopping:
                    try:  # the object store deletes the parts that the killed process sent
                        writer.run({**request, "do": "abortUpload"}, lambda *_: None)
                    except (IndexingProcessDied, IndexingProcessCrashed) as death:
                        self._context.on_bug(str(death))
                self._ends.check_stop()
                return None
            if not error:
                try:
                    archive.publish()
                except OSError as failure:
                    error = error_object("io_error", f"The file could not be renamed: {failure}")
        finally:
            archive.discard()
        return {"details": dict(archive.details), "error": dict(error) if error else None}

    def _death(self, job: Job, death: Exception) -> Any:
        """Return the error for the death of the process, and report it unless the runner killed the process."""
        if not job.is_canceled and not self._context.is_stopping:
            self._context.on_bug(str(death))
        return error_object("internal", crash_message(death))

    def run_export(self, job: Job, exporter: IndexingProcess) -> None:
        """Export indexes. When the batch is canceled or stopped, acknowledged documents stay at the target."""
        from svcd.tasks import exports  # imported late: few instances export anything

        (task,) = job.running.tasks.values()
        exports.discard_records(self._context.instance, [task])
        end = self._ends.sealed(job.running, lambda: {"outcome": self._export_outcome(job, task, exporter)})
        outcome = end["outcome"] if end else self._export_outcome(job, task, exporter)
        if outcome is None:
            self._ends.give_back(job)
        else:
            self._ends.finish(job, None, [with_outcome(task, outcome)], None, end)
        if not self._context.is_stopping:
            exports.discard_records(self._context.instance)

    def _export_outcome(self, job: Job, task: Task, exporter: IndexingProcess) -> dict[str, Any] | None:
        """Export indexes; return details and error of the task, None when the export was canceled or stopped."""
        from svcd.tasks import exports

        report: ReportProgress = self._context.progress_of(job)

        def progress(step: str, finished: int, total: int, above: Step | None = None, /) -> None:
            if job.is_canceled or self._context.is_stopping:
                exporter.kill()  # it was not started yet when the runner killed it
            report(step, finished, total, above)

        outcome: dict[str, Any] = {"error": None}
        try:
            if not job.is_canceled and not self._context.is_stopping:
                request = exports.export_request(task, self._context.instance, self._payload_limit, self._networks)
                outcome = exporter.run(request, progress)
        except (IndexingProcessDied, IndexingProcessCrashed) as death:
            outcome = {"error": self._death(job, death)}
        if job.is_canceled or self._context.is_stopping and "exported" not in outcome:
            self._ends.check_stop()
            return None
        return {"details": {"indexes": outcome.get("exported")}, "error": outcome["error"]}
