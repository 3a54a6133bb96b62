"""Room on the disk of the data folder: whether a write failed for lack of it, and a reserve of it.

On a full disk nothing can be written, not even that something is to be deleted. So a file of the folder, `reserve`,
holds room that nobody uses. Some of it is given up when a write that frees room finds none, or next to none, and what
is left is taken back behind it. Meanwhile nothing that takes room is accepted, until the disk has room for all of it.

A reserve is kept once keep() was called; an instance that is only looked at makes none. Any thread may call.
"""
from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from svcd.base import logs
from svcd.base.errors import ApiError

# Bytes of a reserve. To take some documents out writes a fifth of an index at once (200 of 20,000 places: 6 MB of
# 34), and its file may grow by as much behind it.
LEAST_BYTES, MOST_BYTES = 4 << 20, 256 << 20
INDEX_PART = 2
# With less than this left, what frees room does not try without the reserve.
LOW_BYTES = 1 << 20
# What is given up for a write to the queue alone: all at once would be there for others to take.
PART_BYTES = 256 << 10
_CRUMBS = 64 << 10  # what is not worth taking back
_DISK_PART = 16  # of the whole disk, the reserve takes no more; and of what is free no more than half
_SMALLEST = 256 << 10
_PORTION = bytes(1 << 20)

_FULL = "There is no more space left on the device. Consider increasing the size of the disk/partition."
_ONLY_FREEING = (f"{_FULL} Until there is some, only deletions of indexes, documents and tasks, and cancelations are "
                 "accepted.")
# SQLite names the want of room for the index of its log by an error of its own.
_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)


def lacks_room(error: BaseException) -> bool:
    """Did SQLite fail because the disk is full?"""
    return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) in _CODES


def disk_full_error() -> ApiError:
    """What is said of a write for which there is no room."""
    return ApiError("no_space_left_on_device", _FULL)


def disk_bytes(folder: Path) -> tuple[int, int]:
    """What this process may still write to the disk of a folder, and how large that disk is."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


class Reserve:
    """The reserve of a data folder. disk: tells how many bytes are left of the disk, and how many it has."""

    def __init__(self, folder: Path, disk: Callable[[Path], tuple[int, int]] = disk_bytes) -> None:
        self.path = folder / "reserve"
        self._folder = folder
        self._disk = disk
        self._lock = threading.Lock()  # guards what follows, and the file
        self._bytes = self.path.stat().st_size if self.path.exists() else 0
        self._wanted = 0  # 0: none is kept
        self._users = 0  # who works with what was given up
        self._is_short = self.path.exists() and not self._bytes

    @property
    def bytes(self) -> int:
        """How much room it holds."""
        return self._bytes

    @property
    def is_short(self) -> bool:
        """Was some of it given up, and is there no room for that yet?"""
        return self._is_short

    def keep(self, index_bytes: int) -> None:
        """Have a reserve from now on, enough for an index whose file has so many bytes; made as far as there is room."""
        with self._lock:
            free, whole = self._disk(self._folder)
            wanted = min(max(LEAST_BYTES, index_bytes // INDEX_PART), MOST_BYTES, whole // _DISK_PART)
            self._wanted = max(self._wanted, wanted)
            if not self._is_short:
                self._fill(min(self._wanted, (free + self._bytes) // 2))
        self.restore()

    def fit(self, index_bytes: int) -> None:
        """The file of an index has so many bytes now: enlarge a reserve that is kept and has become too small."""
        if 0 < self._wanted < min(index_bytes // INDEX_PART, MOST_BYTES):
            self.keep(index_bytes)

    def make_way(self, most: int = PART_BYTES) -> None:
        """Before a write that frees room: give so much of the reserve up when next to no room is left."""
        if self._bytes and self._disk(self._folder)[0] < LOW_BYTES:
            self.give_up(most)

    def give_up(self, most: int = MOST_BYTES) -> bool:
        """A write that frees room found none: True when there is some now, that of the reserve or of a part of it."""
        with self._lock:
            if not self._bytes:
                return False
            left = max(0, self._bytes - most)
            try:
                with self.path.open("r+b") as file:
                    file.truncate(left)
                    os.fsync(file.fileno())  # some file systems hand room out again only behind a commit of their own
            except OSError as error:
                logs.warn("the reserve of room could not be given up", reason=error.strerror)
                return False
            is_first, self._bytes, self._is_short = not self._is_short, left, True
        if is_first:
            logs.warn("the disk is full; the reserve is for what frees room, all else is refused", left=left)
        return True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Nothing that was given up is taken back during the block."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def restore(self) -> None:
        """Take back what was given up: all of it where the disk has room, else what is left of it, that nobody else does."""
        if not self._is_short or not self._wanted:
            return
        with self._lock:
            if not self._is_short or self._users:
                return
            lacking = self._wanted - self._bytes
            while lacking >= _CRUMBS and not self._fill(self._bytes + lacking):
                lacking //= 2
            is_over = self._bytes >= self._wanted and self._disk(self._folder)[0] >= LOW_BYTES
            self._is_short = not is_over
        if is_over:
            logs.info("there is room again, and a reserve of it", bytes=self._bytes)

    def refuse_growth(self) -> None:
        """Before a write that takes room: raise no_space_left_on_device while some of the reserve is given up."""
        if self._is_short:
            self.restore()
            if self._is_short:
                raise ApiError("no_space_left_on_device", _ONLY_FREEING)

    def _fill(self, size: int) -> bool:
        """Make the file as large as this, unless there is no use in it; False when there is no room."""
        if size <= self._bytes or size < _SMALLEST and not self._is_short:
            return True
        try:
            with self.path.open("ab") as file:
                _allocate(file.fileno(), self._bytes, size)
        except OSError:
            self._shorten()
            return False
        self._bytes = size
        return True

    def _shorten(self) -> None:
        try:
            os.truncate(self.path, self._bytes)
        except OSError:
            pass


def _allocate(descriptor: int, begin: int, end: int) -> None:
    """Have the file system set room aside for these bytes of a file. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, begin, end - begin)
        return
    while begin < end:
        begin += os.write(descriptor, _PORTION[:end - begin])
