"""Disk space of the data folder: recognizes writes that failed for lack of it, and keeps a reserve for a full disk.

On a full disk nothing can be written, not even a deletion. So a file of the folder, `reserve`, occupies unused space. When a
write that frees space finds almost none, part of the reserve is released, and restored afterwards. Until the disk has room for
the whole reserve, only writes that free space are accepted. See docs/storage.md#a-full-disk.

Only keep() creates a reserve, so an instance that is only read does not have it. Any thread may call.
"""
from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from svcd.base import logs
from svcd.base.errors import ApiError

# Size of a reserve in bytes: least and most, and the divisor for the largest index. Deleting some documents writes up to a fifth
# of an index at once (200 of 20,000 documents with points: 6 MB of 34).
LEAST_BYTES, MOST_BYTES = 4 << 20, 256 << 20
INDEX_PART = 4
# With fewer free bytes, a write that frees space needs the reserve.
LOW_BYTES = 1 << 20
# Released for one write to the queue. If all were released at once, other programs would take it.
PART_BYTES = 256 << 10
_CRUMBS = 64 << 10  # too little to be worth taking back
_DISK_PART = 16  # the reserve takes at most this part of the disk, and half of its free space
_SMALLEST = 256 << 10
_PORTION_BYTES = 1 << 20

_FULL = "There is no more space left on the device. Consider increasing the size of the disk/partition."
_ONLY_FREEING = (f"{_FULL} Until there is some, only deletions of indexes, documents and tasks, and cancelations are "
                 "accepted.")
# When the shared index of the log cannot grow, SQLite does not tell a full disk from one that failed.
_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def lacks_room(error: BaseException, folder: Path | None = None) -> bool:
    """Return whether SQLite or the system failed because the disk is full.

    folder: of the file; checked for free space where the error is ambiguous. Without it, ambiguous errors count as a full disk.
    """
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    code = getattr(error, "sqlite_errorcode", 0) if isinstance(error, sqlite3.OperationalError) else 0
    if code == sqlite3.SQLITE_IOERR_SHMSIZE and folder is not None:
        return disk_bytes(folder)[0] < LOW_BYTES
    return code in _CODES


def is_disk_failure(error: BaseException) -> bool:
    """Return whether a read or write failed, or the disk is read-only after a failure. Call lacks_room() first."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
    return isinstance(error, OSError) and error.errno in (errno.EIO, errno.EROFS)


def disk_full_error() -> ApiError:
    """Return the error of a write for which there is no room: no_space_left_on_device."""
    return ApiError("no_space_left_on_device", _FULL)


def disk_bytes(folder: Path) -> tuple[int, int]:
    """Return the bytes that this process may still write to the disk of a folder, and the size of that disk."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


class Reserve:
    """The reserve of a data folder. disk: returns free bytes and size of the disk, like disk_bytes().

    bytes: the size of the reserve. is_short: whether some of it was released and not restored yet.
    """

    def __init__(self, folder: Path, disk: Callable[[Path], tuple[int, int]] = disk_bytes) -> None:
        self.path = folder / "reserve"
        self._folder = folder
        self.disk = disk
        self._lock = threading.Lock()  # guards the fields below, and the file
        self.bytes = self.path.stat().st_size if self.path.exists() else 0
        self._wanted = 0  # 0: no reserve is kept
        self._users = 0  # number of writes that use the released space
        self.is_short = self.path.exists() and not self.bytes

    def keep(self, index_bytes: int) -> None:
        """Keep a reserve from now on, large enough for an index file of `index_bytes`, as far as the disk has room."""
        with self._lock:
            free, whole = self.disk(self._folder)
            wanted = min(max(LEAST_BYTES, index_bytes // INDEX_PART), MOST_BYTES, whole // _DISK_PART)
            self._wanted = max(self._wanted, wanted)
            if not self.is_short:
                self._fill(min(self._wanted, (free + self.bytes) // 2))
        self.restore()

    def fit(self, index_bytes: int) -> None:
        """Enlarge the reserve, if one is kept, for an index file that has grown to `index_bytes`."""
        if 0 < self._wanted < min(index_bytes // INDEX_PART, MOST_BYTES):
            self.keep(index_bytes)

    def make_way(self, most: int = PART_BYTES) -> None:
        """Release up to `most` bytes of the reserve if the disk is almost full. Call before a write that frees space."""
        if self.bytes and self.disk(self._folder)[0] < LOW_BYTES:
            self.give_up(most)

    def give_up(self, most: int = MOST_BYTES) -> bool:
        """Release up to `most` bytes for a write that frees space but found no room. Return whether bytes were released."""
        with self._lock:
            if not self.bytes:
                return False
            left = max(0, self.bytes - most)
            try:
                with self.path.open("r+b") as file:
                    file.truncate(left)
                    os.fsync(file.fileno())  # some file systems reuse freed space only after a commit of their own
            except OSError as error:
                logs.warn("the disk space reserve could not be released", reason=error.strerror)
                return False
            is_first, self.bytes, self.is_short = not self.is_short, left, True
        if is_first:
            logs.warn("the disk is full: only requests that free space are accepted", reserve_left=left)
        return True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep released space available during the block: restore() does nothing meanwhile."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def restore(self) -> None:
        """Take the released space back: all of it if the disk has room, else as much as is free, before other programs do."""
        if not self.is_short or not self._wanted:
            return
        with self._lock:
            if not self.is_short or self._users:
                return
            lacking = self._wanted - self.bytes
            while lacking >= _CRUMBS and not self._fill(self.bytes + lacking):
                lacking //= 2
            is_restored = self.bytes >= self._wanted and self.disk(self._folder)[0] >= LOW_BYTES
            self.is_short = not is_restored
        if is_restored:
            logs.info("the disk has space again, and the reserve is restored", bytes=self.bytes)

    def refuse_growth(self) -> None:
        """Raise no_space_left_on_device while the reserve is short. Call before a write that takes space."""
        if self.is_short:
            self.restore()
            if self.is_short:
                raise ApiError("no_space_left_on_device", _ONLY_FREEING)

    def _fill(self, size: int) -> bool:
        """Enlarge the file to `size`; False when the disk lacks room. A tiny reserve is not worth creating."""
        if size <= self.bytes or size < _SMALLEST and not self.is_short:
            return True
        try:
            with self.path.open("ab") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), self.bytes, size - self.bytes)
                else:
                    for start in range(self.bytes, size, _PORTION_BYTES):
                        file.write(bytes(min(_PORTION_BYTES, size - start)))
        except OSError:
            with suppress(OSError):
                os.truncate(self.path, self.bytes)
            return False
        self.bytes = size
        return True
