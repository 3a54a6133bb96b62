"""Why a start cannot use a folder, with what to do about it; nothing is created."""
from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from svcd.base.machine import file_exists

# Files of a data folder that every start writes.
_WRITTEN = ("instance.sqlite", "indexes", "payloads", "LOCK", "VERSION")
# Files of a data folder of the reference engine.
_FOREIGN = ("tasks/data.mdb", "auth/data.mdb")


def why_unwritable(folder: Path) -> str | None:
    """Return why a folder can neither be written nor created, or None."""
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if file_exists(path))
    except OSError as refused:
        return f"cannot read {folder}: {refused.strerror}; set a folder that svcd can write to"
    if not existing.is_dir():
        return f"{existing} is not a folder; set a folder that svcd can write to"
    return None if os.access(existing, os.W_OK | os.X_OK) else _reason(existing)


def why_unusable(folder: Path) -> str | None:
    """Return why a data folder cannot be opened for writing, or None."""
    wrong = why_unwritable(folder)
    if wrong or not folder.is_dir():
        return wrong
    if any(file_exists(folder / name) for name in _FOREIGN):
        return (f"{folder} is a data folder of the reference engine, which svcd cannot read; set another folder, and get the "
                "data by `svcd import-from` or by a dump and --import-dump")
    return next((_reason(path) for path in _existing(folder) if not os.access(path, os.W_OK)), None)


def foreign_owner(folder: Path) -> str | None:
    """Return a warning if root starts on a data folder of somebody else, who could not write the files made from now on."""
    with suppress(OSError):
        owner = folder.stat().st_uid
        if os.geteuid() == 0 and owner != 0:
            return (f"{folder} belongs to {_name(owner)}, and svcd runs as root: {_name(owner)} cannot open files that are made "
                    f"now; start svcd as {_name(owner)}, or change the owner of the folder")
    return None


def _existing(folder: Path) -> Iterator[Path]:
    return (folder / name for name in _WRITTEN if file_exists(folder / name))


def _reason(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path} is on a file system that is mounted read-only; mount it for writing, or set another folder"
    owner = path.stat().st_uid
    if owner != os.geteuid():
        return (f"{path} is not writable: it belongs to {_name(owner)}, and svcd runs as {_name(os.geteuid())}; start svcd as "
                f"{_name(owner)}, or change the owner")
    return f"{path} is not writable; change its permissions, or set a folder that svcd can write to"


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:  # containers run as users without a name
        return f"user {uid}"
