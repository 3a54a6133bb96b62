"""The analysis process: analyzes documents beside the indexing process, which writes them. See svcd.tasks.analysis.

A thread reads, so that the indexing process never waits to be read while it does not read itself.
"""
from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any

from svcd.base.process import end_with_parent
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.analysis import Analysis, read_message, write_message


def main(parent: int) -> None:
    """Serve until the input ends. parent: pid of the indexing process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    gc.disable()  # parsed documents hold no reference cycles
    messages: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    settings = messages.get()
    if settings is None:
        return
    analysis = Analysis(IndexSettings.of(json.loads(settings)))
    while (texts := messages.get()) is not None:
        write_message(sys.stdout.buffer, analysis.encoded_texts(texts))


def _read(messages: SimpleQueue[Any]) -> None:
    try:
        while True:
            messages.put(read_message(sys.stdin.buffer))
    except EOFError:
        messages.put(None)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BrokenPipeError:  # the indexing process has no more use for the answers
        os._exit(0)
