"""The indexing process: reads batches as JSON lines on standard input, answers on standard output.

    -> {"path", "indexUid", "shape", "tasks": [...], "budget": {...}}
    <- {"step", "finished", "total"}             any number of times
    <- {"outcomes", "primaryKey", "stats"}       once, after the commit
    -> {"path", "denseSets": true}               behind a batch; ends early when a further line comes
    <- {}
    -> {"archive": "dump" or "snapshot", ...}    see svcd.tasks.archive_tasks
    <- {"step", "finished", "total"}             any number of times
    <- {"error"}
    -> {"path", "settle": true}                  after a kill: nothing unseen may come back
    <- {}
    <- {"crash": traceback}                      instead, after a bug

It is alone in writing the file of an index while it works on it, and ends with the daemon: at the end
of its input, or by the kernel's hand when the daemon was killed.
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

from svcd.base.process import end_with_parent
from svcd.tasks import indexing

# A report of progress costs a write and a wake-up of the daemon: not more often than per this share.
_REPORTS = 200


def main(parent: int) -> None:
    """Serve until the input ends. parent: pid of the daemon, to notice that it died before we could ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which lets the batch end
    end_with_parent(parent)
    gc.disable()  # parsed documents hold no cycles; what others make is collected between batches
    try:
        while line := _read_line():
            if line.strip():
                # A call that overtook the request it is meant for stands before it.
                _send(_answer(json.loads(line), line.startswith(b"\n")))
                gc.collect()
    except BrokenPipeError:  # the daemon is gone, and with it who would read our last words
        os._exit(0)


def _read_line() -> bytes:
    """The next request, after the calls (empty lines) that came with it; nothing at the end of the input.

    Read without a buffer of ours, so that select() sees what has not been read.
    """
    line = bytearray()
    while piece := os.read(sys.stdin.fileno(), 1 << 16):
        line += piece
        if piece.endswith(b"\n") and line.strip():
            break
    return b"\n" + line if line.endswith(b"\n\n") else bytes(line)


def _is_interrupted() -> bool:
    """A line waits, or the end of the input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _answer(request: dict[str, Any], is_interrupted: bool) -> dict[str, Any]:
    try:
        return indexing.handle_request(request, _Reports(), lambda: is_interrupted or _is_interrupted())
    except BrokenPipeError:
        raise
    except Exception:  # a bug fails the batch, not the process
        return {"crash": traceback.format_exc()}


class _Reports:
    """Progress on its way to the daemon, thinned out."""

    def __init__(self) -> None:
        self._last: tuple[str, int] = ("", 0)

    def __call__(self, step: str, finished: int, total: int) -> None:
        share = finished * _REPORTS // max(total, 1)
        if (step, share) != self._last:
            self._last = step, share
            _send({"step": step, "finished": finished, "total": total})


def _send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
