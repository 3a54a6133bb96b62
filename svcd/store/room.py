"""Room on the disk of the data folder: whether a write failed for lack of it, and a reserve of it.

On a full disk nothing can be written, not even that something is to be deleted. So a file of the folder, `reserve`,
holds room that nobody uses. It is given up when a write that frees room finds none, or next to none; from then on
nothing that takes room is accepted, until the disk has room for the reserve again, and it is made anew.

A reserve is kept once keep() was called; an instance that is only looked at makes none. Any thread may call.
"""
from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from svcd import logs
from svcd.errors import ApiError

# Bytes of a reserve. Taking documents out of an index writes up to an eighth of its file, as measured with films.
LEAST_BYTES, MOST_BYTES = 2 << 20, 64 << 20
INDEX_PART = 8
# With less than this left, what frees room does not try without the reserve.
LOW_BYTES = 1 << 20
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


def full() -> ApiError:
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
        self._is_spent = self.path.exists() and not self._bytes

    @property
    def is_spent(self) -> bool:
        """Was it given up, and is there no room for it yet?"""
        return self._is_spent

    def keep(self, index_bytes: int) -> None:
        """Have a reserve from now on, enough for an index whose file has so many bytes; made as far as there is room."""
        with self._lock:
            free, whole = self._disk(self._folder)
            wanted = min(max(LEAST_BYTES, index_bytes // INDEX_PART), MOST_BYTES, whole // _DISK_PART)
            self._wanted = max(self._wanted, wanted)
            if not self._is_spent:
                self._fill(min(self._wanted, (free + self._bytes) // 2))
        self.restore()

    def fit(self, index_bytes: int) -> None:
        """The file of an index has so many bytes now: enlarge a reserve that is kept and has become too small."""
        if 0 < self._wanted < min(index_bytes // INDEX_PART, MOST_BYTES):
            self.keep(index_bytes)

    def make_way(self) -> None:
        """Before a write that frees room: give the reserve up when next to no room is left."""
        if self._bytes and self._disk(self._folder)[0] < LOW_BYTES:
            self.give_up()

    def give_up(self) -> bool:
        """A write that frees room found none: True when there is some now, that of the reserve."""
        with self._lock:
            if not self._bytes:
                return False
            try:
                with self.path.open("r+b") as file:
                    file.truncate()
                    os.fsync(file.fileno())  # some file systems hand room out again only behind a commit of their own
            except OSError as error:
                logs.warn("the reserve of room could not be given up", reason=error.strerror)
                return False
            given, self._bytes, self._is_spent = self._bytes, 0, True
        logs.warn("the disk is full; the reserve is given up for what frees room, all else is refused", bytes=given)
        return True

    def restore(self) -> None:
        """Make a reserve that was given up again, if the disk has room for it."""
        if not self._is_spent or not self._wanted:
            return
        with self._lock:
            enough = self._disk(self._folder)[0] >= self._wanted + LOW_BYTES
            if self._is_spent and enough and self._fill(self._wanted):
                self._is_spent = False
                logs.info("there is room again, and a reserve of it", bytes=self._bytes)

    def refuse_growth(self) -> None:
        """Before a write that takes room: raise no_space_left_on_device while the reserve is given up."""
        if self._is_spent:
            self.restore()
            if self._is_spent:
                raise ApiError("no_space_left_on_device", _ONLY_FREEING)

    def _fill(self, size: int) -> bool:
        """Make the file as large as this, unless that is too little to be of use; False when there is none then."""
        if size < _SMALLEST or size <= self._bytes:
            return self._bytes > 0
        try:
            with self.path.open("ab") as file:
                _allocate(file.fileno(), self._bytes, size)
        except OSError:  # somebody else was faster
            self._shorten()
            return self._bytes > 0
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
