"""Documents deleted some at a time, each portion with a commit of its own: where the disk has no room for all at once.

A deletion writes most of the pages of an index into its log when it takes a tenth of the documents, wherever they
stand. In portions the log stays as small as the reserve of the data folder (svcd.index.disk_space); what others see meanwhile
is that documents go by and by, and after a crash in between the task begins again with what is left.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from svcd.index.disk_space import lacks_room
from svcd.index.writer import IndexWriter
from svcd.tasks.documents import DocumentWriter

_FIRST, _MOST = 16, 512  # documents of a portion
# Of the room that there is, the log of a portion takes so much; as much again the file may grow by behind it.
_LOG_PART = 4


def delete(writer: IndexWriter, docids: Sequence[int], limit: int, room: int) -> None:
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
