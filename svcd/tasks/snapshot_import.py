"""A snapshot made into the data folder of a new instance: it is one already, and is only looked at.

Knows what such a folder must have; refuses to know archives (svcd.tasks.unpacking) and when a snapshot is imported
(svcd.cli.first_start). Source: dumps.md 6.
"""
from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from svcd.store.durable import sync_tree
from svcd.store.instance import Instance
from svcd.tasks.unpacking import ArchiveRefused, growing, unpack


def import_snapshot(path: Path, folder: Path) -> None:
    """Make the data folder, which is absent or empty, from a snapshot of this svcd or of an older one.

    Raises ArchiveRefused, schema.NewerFormat, OSError.
    """
    with growing(folder) as data:
        unpack(path, data, "snapshot")
        _check(path, data)
        sync_tree(data)


def _check(path: Path, data: Path) -> None:
    """Open what was unpacked, which brings it up to date. The storage of other engines is never read halfway."""
    if not (data / "instance.sqlite").is_file():
        raise ArchiveRefused(f"{path} is no snapshot of svcd{_writer_of(data)}: it has no entry `instance.sqlite`. What "
                             "another engine holds comes in through one of its dumps, by --import-dump")
    try:
        with closing(Instance(data)) as instance:
            lacking = [row.uid for row in instance.list_indexes()[0] if not instance.index_path(row.uuid).exists()]
    except sqlite3.DatabaseError as error:
        raise ArchiveRefused(f"instance.sqlite of the snapshot cannot be read: {error}") from None
    if lacking:
        raise ArchiveRefused(f"the snapshot lacks the file of the index `{lacking[0]}`")


def _writer_of(data: Path) -> str:
    version = data / "VERSION"
    if not version.is_file():
        return ""
    return f", but of version {' '.join(version.read_bytes()[:40].decode(errors='replace').split())}"
