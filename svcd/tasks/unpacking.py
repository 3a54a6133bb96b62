"""Dumps and snapshots, unpacked, and the place in which a data folder grows out of them.

Knows tar inside gzip, which entries are refused, how much may be unpacked, and how a folder gets its name; refuses to
know what is in an archive (svcd.tasks.dump_import, svcd.tasks.snapshot_import). Source: dumps.md 1 and 3.

The folder grows beside the one it becomes, and gets its name when it is whole: an import that fails or is cut short
leaves nothing behind but what the next one takes away.
"""
from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from svcd.base.errors import ApiError
from svcd.index.connections import sync_folder
from svcd.validation import FieldError

# What is wrong with something that came from outside, in words for the operator: never those of a Python exception.
#
# Archives are read by code that trusts their form, and fails in many ways where that is another one: MALFORMED names these
# ways, `words` says them. Refuses to know what is read.


# What reading raises that meets another form than it expects.
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError,
             ValueError)
# Of a file that an archive brought or should have: it is not there, or is a folder, or its name is no name.
_ODD_FILES = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG,
                        errno.EINVAL))
_SHOWN = 60  # characters of a value


class Malformed(ValueError):
    """Words of our own that say what is wrong."""


def describe(error: Exception) -> str:
    """What is wrong, where an exception of MALFORMED tells it."""
    if isinstance(error, (Malformed, ApiError, FieldError)):
        return str(error)
    if isinstance(error, KeyError):
        return f"{quoted_value(error.args[0] if error.args else None)} is missing or unknown"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    return "it has not the form that it should have"


def is_fault_of_archive(error: OSError) -> bool:
    """Whether the archive is to blame for a file that cannot be opened or made, and not the machine."""
    return error.errno in _ODD_FILES


def quoted_name(text: str) -> str:
    """A name that came from outside: in backticks, on one line, and not endless."""
    part = text[:_SHOWN]
    return f"`{part if part.isprintable() else repr(part)[1:-1]}{'...' if part != text else ''}`"


def quoted_value(value: Any) -> str:
    """A value in a message: on one line, and not endless."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=lambda _: "...")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_PIECE = 1 << 16
# Room that is left to others: the log of the machine, say, shall not stop because an archive was large.
_LEFT_BYTES = 16 << 20
_LEFT_FILES = 1000
# Bytes of the headers of one entry. tarfile reads them as a whole, and long names have some hundred.
_MOST_HEADER = 1 << 20


class ArchiveRefused(RuntimeError):
    """The file is nothing that svcd can begin with; says what is wrong and where."""


@contextmanager
def new_data_folder(folder: Path) -> Iterator[Path]:
    """Where the data folder, absent or empty, is to be made; beside that there is room for more.

    Raises ArchiveRefused when another process makes the same folder, OSError.
    """
    target = folder.absolute()
    work = target.with_name(f".{target.name}.import")
    made = [parent for parent in target.parents if not parent.exists()]
    descriptor = _locked_work_folder(work)
    try:
        yield work / "data"
        (work / "data").replace(folder)
        sync_folder(target.parent)
        made.clear()
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(descriptor)
        for parent in made:
            _remove_empty(parent)


def _locked_work_folder(work: Path) -> int:
    """The folder, empty and locked: of two imports into one place the second would take away what the first has made."""
    work.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ArchiveRefused(f"another svcd is importing into {work.parent}") from None
    try:
        for left in work.iterdir():  # of an import that was killed
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # somebody else has use for it, or has removed it
        pass


@contextmanager
def as_refusal(path: Path, noun: str) -> Iterator[None]:
    """What nobody foresaw is a refusal in words, too. Raises ArchiveRefused for it."""
    try:
        yield
    except (*MALFORMED, ApiError, MemoryError, sqlite3.Error) as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise ArchiveRefused(f"{path} cannot be imported: the disk is full") from error
        raise ArchiveRefused(f"{path} is no {noun} that svcd can read: {describe(error)}; `--log-level DEBUG` shows "
                             "more") from error


def _any(_name: PurePosixPath) -> bool:
    return True


def unpack(path: Path, folder: Path, noun: str, is_wanted: Callable[[PurePosixPath], bool] = _any) -> None:
    """Make a folder of what is in an archive. noun: what it is in messages. is_wanted: which files are taken out.

    Raises ArchiveRefused, also for what the disk has no room for, and OSError.
    """
    folder.mkdir()
    room = _DiskSpace(folder, path, noun)
    with path.open("rb") as packed:
        try:
            _unpack_all(packed, lambda tar, entry: _unpack_entry(tar, entry, folder, noun, is_wanted, room))
        except ArchiveRefused:
            raise
        except (*_READING, *MALFORMED) as error:
            raise ArchiveRefused(f"{path} is not a whole {noun}: {_words(error)}") from error
        except OSError as error:
            if not is_fault_of_archive(error):
                raise
            raise ArchiveRefused(f"the {noun} has a file and a folder of one name, or a name that no file can have") from error


def _unpack_all(packed: BinaryIO, take: Callable[[tarfile.TarFile, tarfile.TarInfo], None]) -> None:
    with gzip.GzipFile(fileobj=packed) as unzipped:
        content = _HeaderLimit(cast(BinaryIO, unzipped))
        with tarfile.open(fileobj=cast(BinaryIO, content), mode="r|") as tar:
            for entry in tar:
                content.allow(entry.size)
                take(tar, entry)
        while unzipped.read(_PIECE):  # up to the check sum of all of it
            pass


_READING = (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error)


def _words(error: Exception) -> str:
    if isinstance(error, gzip.BadGzipFile):
        return "it is not gzip, or its check sum is another one"
    if isinstance(error, zlib.error):
        return "its compressed content is damaged"
    return "it ends too early" if isinstance(error, EOFError) else "what is inside is no tar, or ends too early"


class _HeaderLimit:
    """What tarfile reads from: the bytes of an entry, and as many as a header may have."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._left = _MOST_HEADER

    def allow(self, size: int) -> None:
        """So many bytes and a header may be read before the next call."""
        self._left = size + _MOST_HEADER

    def read(self, size: int) -> bytes:
        if self._left < 0:
            raise tarfile.ReadError("a header has too many bytes")
        piece = self._content.read(size)
        self._left -= len(piece)
        return piece


class _DiskSpace:
    """What the disk has for the files of an archive."""

    def __init__(self, folder: Path, path: Path, noun: str) -> None:
        self._folder, self._path, self._noun = folder, path, noun

    def require(self, name: str, size: int) -> None:
        """Raise ArchiveRefused where the disk cannot take one more file of so many bytes."""
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if size > free - _LEFT_BYTES:
            raise ArchiveRefused(f"{self._path} cannot be unpacked: the entry {quoted_name(name)} of the {self._noun} has {size} "
                                 f"bytes, and the disk of {self._folder.parent.parent} has {free} left, of which "
                                 f"{_LEFT_BYTES} are kept free")
        if disk.f_files and disk.f_favail < _LEFT_FILES:
            raise ArchiveRefused(f"{self._path} cannot be unpacked: the disk of {self._folder.parent.parent} has no room for "
                                 f"more files")


def _unpack_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, noun: str,
                  is_wanted: Callable[[PurePosixPath], bool], room: _DiskSpace) -> None:
    name = PurePosixPath(entry.name)
    if name.name.startswith("._"):  # what another system keeps beside its files
        return
    if (name.is_absolute() or ".." in name.parts or "\0" in entry.name or entry.size < 0 or entry.issparse()
            or not (entry.isdir() or entry.isfile())):
        raise ArchiveRefused(f"the {noun} has the entry {quoted_name(entry.name)}, expected plain files and folders inside of it "
                             "alone")
    if entry.isdir() or not is_wanted(name):  # a folder is made with the first file in it
        return
    target = folder / name
    room.require(entry.name, entry.size)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(entry)
    assert content is not None
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)
