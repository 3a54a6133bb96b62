"""The daemon's side of the indexing process: starts it on first use, sends requests, ends it; progress and memory budget.

An IndexingProcess belongs to one thread of the runner; other threads may call only interrupt() and kill().
svcd.tasks.indexing_process describes the lines on the pipe.
"""
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import subprocess

_MODULE = "svcd.tasks.indexing_process"
_END_S = 5.0


class IndexingProcessDied(RuntimeError):
    """The process ended during a request: killed, out of memory, or by a crash of the interpreter."""


class IndexingProcessCrashed(RuntimeError):
    """The process answered with a traceback: a bug in indexing, or a failing disk. code: error code for the tasks."""

    def __init__(self, traceback: str, code: str = "internal") -> None:
        super().__init__(traceback)
        self.code = code


class IndexingProcess:
    """A process that indexes. keep_open: the descriptor of the lock of the data folder, which the process inherits."""

    def __init__(self, keep_open: int | None = None) -> None:
        self._keep_open = () if keep_open is None else (keep_open,)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, request: dict[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
        """Run a request and return its answer. progress: a ReportProgress; `above` is only passed for requests that use it.

        Raises IndexingProcessDied, IndexingProcessCrashed.
        """
        if self._process is not None and self._process.poll() is not None:
            self._ended()
        if self._process is None:
            import subprocess  # loaded with the first batch

            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=self._keep_open)
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if "step" not in answer:
                    break
                progress(answer["step"], answer["finished"], answer["total"],
                         *([tuple(answer["above"])] if "above" in answer else []))
            else:
                raise IndexingProcessDied(self._ended())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise IndexingProcessDied(self._ended()) from error
        if "crash" in answer:
            raise IndexingProcessCrashed(answer["crash"], answer["code"])
        return answer

    @property
    def is_started(self) -> bool:
        """Whether the process was used, and not closed since."""
        return self._process is not None

    def _ended(self) -> str:
        process, self._process = self._process, None
        assert process
        self._close_pipes(process)
        return f"the indexing process ended with status {process.wait()}"

    def interrupt(self) -> None:
        """End maintenance ("materialize") early. Any thread may call this."""
        process = self._process
        if process is not None and process.stdin and not process.stdin.closed:
            try:
                os.write(process.stdin.fileno(), b"\n")
            except OSError:  # it ended meanwhile
                pass

    def kill(self) -> None:
        """Kill the process and wait for its end; uncommitted work is lost. A run() in another thread raises IndexingProcessDied.

        Without the wait, run() might send the next batch to the dying process.
        """
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the process while it is idle."""
        process, self._process = self._process, None
        if process is None:
            return
        self._close_pipes(process)
        import subprocess

        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @staticmethod
    def _close_pipes(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


# Progress of a running batch, and the duration of its steps.

_WHOLE = "processing tasks"

Step = tuple[str, int, int]  # name, finished and total units


class ReportProgress(Protocol):
    """Reports that `finished` of `total` units of a step are done. above: the enclosing step."""

    def __call__(self, step: str, finished: int, total: int, above: Step | None = None, /) -> None: ...


class Progress:
    """The progress of one batch, as `/batches` shows it. One thread updates it; any thread may read `view`."""

    def __init__(self) -> None:
        self._path = ""
        self._since = time.monotonic_ns()
        self._begun = self._since
        self.trace: dict[str, int] = {}
        self.embedder_requests: Mapping[str, Any] | None = None
        self.figures: Mapping[str, Any] = {}  # further members of the stats
        self.view: dict[str, Any] = _view([])

    def __call__(self, step: str, finished: int, total: int, above: Step | None = None) -> None:
        """Note progress, as in ReportProgress."""
        steps = [*([above] if above else []), (step, finished, total)]
        path = " > ".join(name for name, *_ in steps)
        if path != self._path:
            self._end_step()
            self._path = path
        self.view = _view(steps)

    def end(self) -> dict[str, int]:
        """End the last step; return step path -> nanoseconds."""
        self._end_step()
        return {_WHOLE: time.monotonic_ns() - self._begun, **self.trace}

    def _end_step(self) -> None:
        moment = time.monotonic_ns()
        if self._path:
            path = f"{_WHOLE} > {self._path}"
            self.trace[path] = self.trace.get(path, 0) + moment - self._since
        self._since = moment


def _view(steps: Sequence[Step]) -> dict[str, Any]:
    shown = [{"currentStep": name, "finished": finished, "total": total} for name, finished, total in [(_WHOLE, 0, 1), *steps]]
    share = 0.0  # of the outermost step; an inner step contributes a part of one unit of its outer step
    for _, finished, total in reversed(steps):
        share = (finished + share) / total if total else 0.0
    return {"steps": shown, "percentage": round(100 * share, 2)}


# The memory budget is in this module, so that the daemon need not load svcd.tasks.indexing.

class MemoryBudget(NamedTuple):
    """Bytes that one batch may hold in memory: page cache of SQLite, pending postings, gathered documents."""

    page_cache: int = 8 << 20
    postings: int = 4 << 20
    documents: int = 2 << 20

    @classmethod
    def of(cls, memory: int | None) -> MemoryBudget:
        """Return fractions of `memory` bytes, at most the defaults: beyond them indexing gets no faster."""
        if memory is None:
            return cls()
        return cls(*(max(1 << 18, min(most, memory // share)) for most, share in
                     ((cls.page_cache, 8), (cls.postings, 16), (cls.documents, 32))))
