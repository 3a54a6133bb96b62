"""The analysis process: analyzes documents while the indexing process writes earlier ones. See svcd.tasks.analysis."""
from __future__ import annotations

import gc
import json
import os
import signal
import sys
from functools import partial

from svcd.base.machine import end_with_parent
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.analysis import Analysis, packed_message, read_message


def main(parent: int) -> None:
    """Serve until the input ends. parent: pid of the indexing process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    gc.disable()  # parsed documents hold no reference cycles
    read = partial(os.read, sys.stdin.fileno())
    try:
        analysis = Analysis(IndexSettings.of(json.loads(read_message(read))))
        while True:
            sys.stdout.buffer.write(packed_message(analysis.encoded_texts(read_message(read))))
            sys.stdout.buffer.flush()
    except EOFError:
        pass


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BrokenPipeError:  # the indexing process no longer reads the answers
        os._exit(0)
