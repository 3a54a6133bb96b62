"""Dumps and snapshots, unpacked, and the place in which a data folder grows out of them.

Knows tar inside gzip, which entries are refused, and how a folder gets its name; refuses to know what is in an
archive (svcd.tasks.importing, svcd.tasks.snapshot_import). Source: dumps.md 1 and 3.

The folder grows beside the one it becomes, and gets its name when it is whole: an import that fails or is cut short
leaves nothing behind but what the next one takes away.
"""
from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from svcd.store.durable import sync_folder

_PIECE = 1 << 16


class ArchiveRefused(RuntimeError):
    """The file is nothing that svcd can begin with; says what is wrong and where."""


@contextmanager
def growing(folder: Path) -> Iterator[Path]:
    """Where the data folder, absent or empty, is to be made; beside that there is room for more. Raises OSError."""
    work = folder.absolute().with_name(f".{folder.absolute().name}.import")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work / "data"
        (work / "data").replace(folder)
        sync_folder(folder.absolute().parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def unpack(path: Path, folder: Path, noun: str) -> None:
    """Make a folder of what is in an archive. noun: what it is in messages. Raises ArchiveRefused, OSError."""
    folder.mkdir()
    try:
        with gzip.open(path) as content:
            with tarfile.open(fileobj=content, mode="r|") as tar:
                for entry in tar:
                    _unpack_entry(tar, entry, folder, noun)
            while content.read(_PIECE):  # up to the check sum of all of it
                pass
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error) as error:
        raise ArchiveRefused(f"{path} is not a whole {noun}: {error}") from None


def _unpack_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, noun: str) -> None:
    name = PurePosixPath(entry.name)
    if name.name.startswith("._"):  # what another system keeps beside its files
        return
    if name.is_absolute() or ".." in name.parts or not (entry.isdir() or entry.isfile()):
        raise ArchiveRefused(f"the {noun} has the entry `{entry.name}`, expected files and folders inside of it alone")
    target = folder / name
    if entry.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(entry)
    assert content is not None
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)
