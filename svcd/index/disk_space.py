"""Disk space of the data folder: did a write fail for lack of it, and a reserve to free some on a full disk.

On a full disk nothing can be written, not even a deletion. So a file of the folder, `reserve`, takes up room that nobody uses.
Some of it is released when a write that frees room finds next to none, and taken back afterwards. Until the disk has room for
all of the reserve, nothing that takes room is accepted. See docs/storage.md#a-full-disk.

A reserve is kept once keep() was called; an instance that is only read makes none. Any thread may call.
"""
from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from svcd.base import logs
from svcd.base.errors import ApiError

# Bytes of a reserve, at least and at most, and as a part of the largest index. Deleting some documents writes up to a fifth
# of an index at once (200 of 20,000 documents with points: 6 MB of 34).
LEAST_BYTES, MOST_BYTES = 4 << 20, 256 << 20
INDEX_PART = 4
# With less than this left, a write that frees room does not try without the reserve.
LOW_BYTES = 1 << 20
# Released for a write to the queue alone: if all were released, other programs would take it.
PART_BYTES = 256 << 10
_CRUMBS = 64 << 10  # too little to be worth taking back
_DISK_PART = 16  # the reserve takes at most this part of the disk, and half of what is free
_SMALLEST = 256 << 10
_PORTION = bytes(1 << 20)

_FULL = "There is no more space left on the device. Consider increasing the size of the disk/partition."
_ONLY_FREEING = (f"{_FULL} Until there is some, only deletions of indexes, documents and tasks, and cancelations are "
                 "accepted.")
# When the shared index of the log cannot grow, SQLite does not tell a full disk from one that failed.
_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def lacks_room(error: BaseException, folder: Path | None = None) -> bool:
    """Did SQLite or the system fail because the disk is full?

    folder: of the file; where the error leaves it open, the disk is then asked how much is free. Without it the answer is yes.
    """
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    code = getattr(error, "sqlite_errorcode", 0) if isinstance(error, sqlite3.OperationalError) else 0
    if code == sqlite3.SQLITE_IOERR_SHMSIZE and folder is not None:
        return disk_bytes(folder)[0] < LOW_BYTES
    return code in _CODES


def is_disk_failure(error: BaseException) -> bool:
    """Did a read or write fail, or is the disk read-only since one has failed? To be asked after lacks_room()."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
    return isinstance(error, OSError) and error.errno in (errno.EIO, errno.EROFS)


def disk_full_error() -> ApiError:
    """The error of a write for which there is no room: no_space_left_on_device."""
    return ApiError("no_space_left_on_device", _FULL)


def disk_bytes(folder: Path) -> tuple[int, int]:
    """Bytes that this process may still write to the disk of a folder, and the size of that disk."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


class Reserve:
    """The reserve of a data folder. disk: returns the free bytes of the disk and its size, as disk_bytes()."""

    def __init__(self, folder: Path, disk: Callable[[Path], tuple[int, int]] = disk_bytes) -> None:
        self.path = folder / "reserve"
        self._folder = folder
        self.disk = disk
        self._lock = threading.Lock()  # guards what follows, and the file
        self._bytes = self.path.stat().st_size if self.path.exists() else 0
        self._wanted = 0  # 0: none is kept
        self._users = 0  # how many writes are using what was released
        self._is_short = self.path.exists() and not self._bytes

    @property
    def bytes(self) -> int:
        """The size of the reserve."""
        return self._bytes

    @property
    def is_short(self) -> bool:
        """Was some of it released and not taken back yet?"""
        return self._is_short

    def keep(self, index_bytes: int) -> None:
        """Keep a reserve from now on, large enough for an index file of so many bytes; as far as there is room."""
        with self._lock:
            free, whole = self.disk(self._folder)
            wanted = min(max(LEAST_BYTES, index_bytes // INDEX_PART), MOST_BYTES, whole // _DISK_PART)
            self._wanted = max(self._wanted, wanted)
            if not self._is_short:
                self._fill(min(self._wanted, (free + self._bytes) // 2))
        self.restore()

    def fit(self, index_bytes: int) -> None:
        """Enlarge the reserve, if one is kept, for an index file that has grown to so many bytes."""
        if 0 < self._wanted < min(index_bytes // INDEX_PART, MOST_BYTES):
            self.keep(index_bytes)

    def make_way(self, most: int = PART_BYTES) -> None:
        """Before a write that frees room: release so much of the reserve when next to no room is left."""
        if self._bytes and self.disk(self._folder)[0] < LOW_BYTES:
            self.give_up(most)

    def give_up(self, most: int = MOST_BYTES) -> bool:
        """Release the reserve, or at most so much, for a write that frees room and found none; True when there is some now."""
        with self._lock:
            if not self._bytes:
                return False
            left = max(0, self._bytes - most)
            try:
                with self.path.open("r+b") as file:
                    file.truncate(left)
                    os.fsync(file.fileno())  # some file systems reuse freed room only after a commit of their own
            except OSError as error:
                logs.warn("the disk space reserve could not be released", reason=error.strerror)
                return False
            is_first, self._bytes, self._is_short = not self._is_short, left, True
        if is_first:
            logs.warn("the disk is full: only requests that free space are accepted", reserve_left=left)
        return True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """During the block nothing that was released is taken back."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def restore(self) -> None:
        """Take back what was released: all of it if the disk has room, else as much as is left, before other programs do."""
        if not self._is_short or not self._wanted:
            return
        with self._lock:
            if not self._is_short or self._users:
                return
            lacking = self._wanted - self._bytes
            while lacking >= _CRUMBS and not self._fill(self._bytes + lacking):
                lacking //= 2
            is_restored = self._bytes >= self._wanted and self.disk(self._folder)[0] >= LOW_BYTES
            self._is_short = not is_restored
        if is_restored:
            logs.info("the disk has space again, and the reserve is restored", bytes=self._bytes)

    def refuse_growth(self) -> None:
        """Before a write that takes room: raise no_space_left_on_device while the reserve is short."""
        if self._is_short:
            self.restore()
            if self._is_short:
                raise ApiError("no_space_left_on_device", _ONLY_FREEING)

    def _fill(self, size: int) -> bool:
        """Enlarge the file to `size`; False when there is no room. A tiny reserve is not worth creating."""
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
    """Allocate these bytes of a file on the disk. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, begin, end - begin)
        return
    while begin < end:
        begin += os.write(descriptor, _PORTION[:end - begin])
