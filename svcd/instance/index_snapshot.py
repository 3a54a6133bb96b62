"""Several indexes of one request, as one state of the list of indexes has them.

A swap or a deletion in between changes nothing for the request: its uids are looked up once, and the files that they
then stood for are held open until it ends. Refuses to know how files are opened.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from svcd.base.errors import ApiError

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader

# Indexes of one request that are held open: each takes three descriptors. Those beyond are opened when they are read.
MOST_HELD = 64

# (index uid, uuid) -> the index of this file; index_not_found when it is gone.
ReadFile = Callable[[str, str], "AbstractContextManager[IndexReader]"]


class IndexSnapshot:
    """uuids: by index uid, of those of the request that there are. held: readers of the first of them."""

    def __init__(self, uuids: Mapping[str, str], held: Mapping[str, IndexReader], read_file: ReadFile) -> None:
        self._uuids = uuids
        self._held = held
        self._read_file = read_file

    @contextmanager
    def read(self, index_uid: str) -> Iterator[IndexReader]:
        """One state of an index, the same each time where it is held; index_not_found when there is none."""
        if index_uid in self._held:
            yield self._held[index_uid]
        elif index_uid in self._uuids:
            with self._read_file(index_uid, self._uuids[index_uid]) as reader:
                yield reader
        else:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
