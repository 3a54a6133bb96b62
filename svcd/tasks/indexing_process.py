"""The indexing process: reads requests as JSON lines from standard input, answers on standard output.

    -> {"do": "batch", "path", "indexUid", "shape", "tasks": [...], "budget": {...}}
    <- {"step", "finished", "total"}                          any number of times
    <- {"outcomes", "primaryKey", "stats", ...}               once, after the commit
    -> {"do": "materialize", "path"}                          after a batch; ends early when another line comes
    <- {}
    -> {"do": "archive", "archive": "dump" or "snapshot", ...}    see svcd.tasks.global_tasks
    <- {"step", "finished", "total"}                          any number of times
    <- {"error"}
    -> {"do": "abortUpload", ...}                             the members of an archive for the object store, after a kill
    <- {}
    -> {"do": "export", ...}                                  see svcd.tasks.exports
    <- {"step", "finished", "total", "above"}                 any number of times; above: the enclosing step
    <- {"error", "exported"}
    -> {"do": "commitNothing", "path"}                        after a kill, see svcd.tasks.indexing.commit_nothing
    <- {}
    <- {"crash": traceback, "code"}                           instead of an answer, after a bug, or when the disk failed

Only this process writes the file of an index while it works on it. It ends with the daemon: at the end of its input, or by a
parent-death signal when the daemon is killed. See docs/tasks-and-batches.md#indexing-process.
"""
from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from svcd.base import machine
from svcd.base.machine import end_with_parent
from svcd.index.disk_space import is_disk_failure
from svcd.tasks import indexing
from svcd.tasks.indexing_client import Step

# Largest number of progress reports per step: each report costs a write and wakes the daemon.
_REPORTS = 200
# Seconds without a request before memory is given back, which takes several milliseconds.
_IDLE_S = 0.2


def main(parent: int) -> None:
    """Serve until the input ends. parent: pid of the daemon, to notice when it died before the death signal was set."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the daemon, which lets the batch end
    end_with_parent(parent)
    gc.disable()  # parsed documents hold no reference cycles; others are collected between requests
    gc.freeze()  # loaded modules stay: to scan them would take 2.5 ms after each batch
    try:
        while line := _read_line():
            if line.strip():
                # An interrupt (an empty line) may arrive before its request.
                _send(_answer(json.loads(line), line.startswith(b"\n")))
                gc.collect()
                if not _is_interrupted(_IDLE_S):
                    machine.give_back_memory()
    except BrokenPipeError:  # the daemon is gone
        os._exit(0)


def _read_line() -> bytes:
    """Return the next request, with the interrupts (empty lines) before it; empty at the end of the input.

    It reads without user-space buffer, so that select() sees everything that is not read yet.
    """
    line = bytearray()
    while piece := os.read(sys.stdin.fileno(), 1 << 16):
        line += piece
        if piece.endswith(b"\n") and line.strip():
            break
    return b"\n" + line if line.endswith(b"\n\n") else bytes(line)


def _is_interrupted(within_s: float = 0) -> bool:
    """Return whether a line or the end of the input can be read now, or within some seconds."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


def _answer(request: dict[str, Any], is_interrupted: bool) -> dict[str, Any]:
    try:
        return indexing.handle_request(request, _ProgressReports(), lambda: is_interrupted or _is_interrupted())
    except BrokenPipeError:
        raise
    except Exception as error:  # a bug fails the batch, not the process
        return {"crash": traceback.format_exc(), "code": "io_error" if is_disk_failure(error) else "internal"}


class _ProgressReports:
    """Sends progress to the daemon, at most _REPORTS times per step."""

    def __init__(self) -> None:
        self._last: tuple[Step | None, str, int] = (None, "", 0)

    def __call__(self, step: str, finished: int, total: int, above: Step | None = None) -> None:
        share = finished * _REPORTS // max(total, 1)
        if (above, step, share) != self._last:
            self._last = above, step, share
            _send({"step": step, "finished": finished, "total": total} | ({"above": above} if above else {}))


def _send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
