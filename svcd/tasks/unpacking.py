"""Unpacks dumps and snapshots safely, and creates data folders atomically.

Unsafe entries are refused, headers and disk space are limited, and any malformed input becomes ArchiveRefused with a message.
A data folder is created under a hidden name beside its final name, and renamed when it is complete. The next import deletes
everything that a failed or killed import left. See docs/dumps.md#rejected-dumps.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from svcd.base import machine
from svcd.base.errors import ApiError, quoted_name
from svcd.base.json_text import TooDeep
from svcd.index.connections import sync_folder
from svcd.validation import FieldError

# Messages about malformed input. The code that reads archives trusts their form, and raises one of MALFORMED where the form
# differs; describe() turns it into a message for the operator, without the text of the Python exception.

MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
# Errors of opening an extracted file that the archive has caused: a missing file, a folder, an impossible name.
_ODD_FILES = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG,
                        errno.EINVAL))
_SHOWN = 60  # characters of a value


class Malformed(ValueError):
    """The input is malformed; the message says how, and may be shown to the user."""


def describe(error: Exception) -> str:
    """Return the fault of the input, for an exception of MALFORMED."""
    if isinstance(error, (Malformed, ApiError, FieldError)):
        return str(error)
    if isinstance(error, KeyError):
        return f"{quoted_value(error.args[0] if error.args else None)} is missing or unknown"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, (RecursionError, TooDeep)):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    return "it does not have the expected form"


def is_fault_of_archive(error: OSError) -> bool:
    """Return whether the archive, not the machine, is the reason why a file cannot be opened or created."""
    return error.errno in _ODD_FILES


def quoted_value(value: Any) -> str:
    """Return a foreign value for a message: on one line, shortened."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=lambda _: "...")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_PIECE = 1 << 16
# Disk space kept free, so that a large archive does not stop other programs, such as the system log.
_LEFT_BYTES = 16 << 20
_LEFT_FILES = 1000
# Limit for the headers of one entry in bytes, because tarfile reads them as a whole; a long name takes several hundred.
_MOST_HEADER = 1 << 20


class ArchiveRefused(RuntimeError):
    """The file cannot be imported; the message names the fault and its place."""


@contextmanager
def new_data_folder(folder: Path) -> Iterator[Path]:
    """Give a path for a new data folder, and rename it to `folder` (absent or empty) when the block ends without error.

    The parent of the path is for temporary files of the import. Raises OSError; ArchiveRefused when another process imports into
    the same folder.
    """
    target = folder.absolute()
    work = target.with_name(f".{target.name}.import")
    made = [parent for parent in target.parents if not machine.file_exists(parent)]
    work.mkdir(parents=True, exist_ok=True)  # locked, so that a second import does not delete the files of the first
    descriptor = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ArchiveRefused(f"another svcd is importing into {work.parent}") from None
    try:
        _empty(work)  # delete the files of a killed import
    except OSError:
        os.close(descriptor)
        raise
    try:
        yield work / "data"
        _empty(work, kept="data")  # before the rename: no later start looks here for files of a killed import
        (work / "data").replace(folder)
        sync_folder(target.parent)
        made.clear()
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(descriptor)
        for parent in made:
            with suppress(OSError):  # in use, or already removed
                parent.rmdir()


def _empty(folder: Path, kept: str = "") -> None:
    """Delete everything in a folder except one name."""
    for left in folder.iterdir():
        if left.name != kept:
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


@contextmanager
def as_refusal(path: Path, noun: str) -> Iterator[None]:
    """Turn any other error of an import into ArchiveRefused with a message."""
    try:
        yield
    except (*MALFORMED, ApiError, MemoryError, sqlite3.Error) as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise ArchiveRefused(f"{path} cannot be imported: the disk is full") from error
        raise ArchiveRefused(f"{path} is not a {noun} that svcd can read: {describe(error)}; `--log-level DEBUG` shows "
                             "more") from error


def unpack(path: Path, folder: Path, noun: str, is_wanted: Callable[[PurePosixPath], bool] = lambda name: True) -> None:
    """Unpack an archive into a new folder. noun: its kind in messages. is_wanted: whether to extract a file.

    Raises OSError; ArchiveRefused, also when the disk is too small.
    """
    folder.mkdir()
    with path.open("rb") as packed:
        try:
            with gzip.GzipFile(fileobj=packed) as unzipped:
                content = _HeaderLimit(cast(BinaryIO, unzipped))
                with tarfile.open(fileobj=cast(BinaryIO, content), mode="r|") as tar:
                    for entry in tar:
                        content.allow(entry.size)
                        _unpack_entry(path, tar, entry, folder, noun, is_wanted)
                while unzipped.read(_PIECE):  # to the end, where gzip verifies its checksum
                    pass
        except ArchiveRefused:
            raise
        except (*_READING, *MALFORMED) as error:
            fault = next(text for kind, text in _FAULTS.items() if isinstance(error, kind))
            raise ArchiveRefused(f"{path} is not a whole {noun}: {fault}") from error
        except OSError as error:
            if not is_fault_of_archive(error):
                raise
            raise ArchiveRefused(f"the {noun} has a file and a folder of one name, or a name that no file can have") from error


_READING = (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error)
_FAULTS: Mapping[type[Exception], str] = {  # the first match counts
    gzip.BadGzipFile: "it is not gzip, or its checksum does not match",
    zlib.error: "its compressed content is damaged",
    EOFError: "it ends too early",
    Exception: "its content is not tar, or ends too early",
}


class _HeaderLimit:
    """A stream for tarfile that limits the bytes of headers."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._left = _MOST_HEADER

    def allow(self, size: int) -> None:
        """Allow an entry of `size` bytes and one more header until the next call."""
        self._left = size + _MOST_HEADER

    def read(self, size: int) -> bytes:
        if self._left < 0:
            raise tarfile.ReadError("a header has too many bytes")
        piece = self._content.read(size)
        self._left -= len(piece)
        return piece


def _unpack_entry(path: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, noun: str,
                  is_wanted: Callable[[PurePosixPath], bool]) -> None:
    name = PurePosixPath(entry.name)
    if name.name.startswith("._"):  # macOS metadata
        return
    if (name.is_absolute() or ".." in name.parts or "\0" in entry.name or entry.size < 0 or entry.issparse()
            or not (entry.isdir() or entry.isfile())):
        raise ArchiveRefused(f"the {noun} has the entry {quoted_name(entry.name)}, expected only plain files and folders inside "
                             "of it")
    if entry.isdir() or not is_wanted(name):  # folders are created with their first file
        return
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if entry.size > free - _LEFT_BYTES:
        raise ArchiveRefused(f"{path} cannot be unpacked: the entry {quoted_name(entry.name)} of the {noun} has {entry.size} "
                             f"bytes, and the disk of {folder.parent.parent} has {free} left, {_LEFT_BYTES} of them kept free")
    if disk.f_files and disk.f_favail < _LEFT_FILES:
        raise ArchiveRefused(f"{path} cannot be unpacked: the disk of {folder.parent.parent} cannot hold more files")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(entry)
    assert content is not None
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)
