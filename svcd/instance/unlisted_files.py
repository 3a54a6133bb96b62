"""Files of indexes that no row names, as a start finds them: which are dropped, which are kept, and which come to be.

A batch that makes an index commits its file first and the row behind it, so a crash in between leaves a file whose
tasks are still enqueued: it is taken over, and they end as it says. A file whose newest task the queue has never seen
is newer than `instance.sqlite` (a backup, a torn log): nobody knows its name any more, so it goes into the folder
`unclaimed/`, where a person may look at it. Everything else was never committed, or was deleted.
"""
from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from svcd.base import logs
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import keep_log, open_reader, sync_folder

UNCLAIMED = "unclaimed"
_SUFFIXES = ("", "-wal", "-shm")  # of the files of one index


def reconcile(folder: Path, connection: sqlite3.Connection) -> dict[str, str]:
    """Deal with the files of `folder/indexes`; index uid -> uuid of the file that its enqueued tasks have made.

    connection: of instance.sqlite.
    """
    rows = dict(connection.execute("SELECT uuid, uid FROM indexes"))
    files = {file.name for file in (folder / "indexes").iterdir()}
    found = {name.split(".")[0] for name in files}
    for uuid in rows:
        name = f"{uuid}.sqlite"
        if name in files and not {f"{name}-wal", f"{name}-shm"} <= files:
            keep_log(_path(folder, uuid))
    for uuid in [uuid for uuid in rows if f"{uuid}.sqlite" not in files]:
        logs.warn("an index has no file; its tasks fail until it is deleted, or the file is put back",
                  index=rows[uuid], file=f"indexes/{uuid}.sqlite")
    made: dict[str, tuple[int, str]] = {}
    for uuid in sorted(found - rows.keys()):
        applied = read_outcomes(_path(folder, uuid))
        if applied is not None and _is_newer(applied, connection):
            _set_aside(folder, uuid, applied)
            continue
        index_uid = _maker(applied, connection) if applied is not None else None
        if applied is None or index_uid is None or index_uid in rows.values():
            remove_index_file(_path(folder, uuid))
        else:  # of several, which only other faults can leave, the newest
            made[index_uid] = max(made.get(index_uid, (applied.last, uuid)), (applied.last, uuid))
    return {index_uid: uuid for index_uid, (_, uuid) in made.items()}


def stored_outcomes(connection: sqlite3.Connection) -> BatchOutcomes | None:
    """What the file of an index says of its newest batch."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'batch_outcomes'").fetchone()
    return BatchOutcomes.parse(row[0]) if row else None


def read_outcomes(path: Path) -> BatchOutcomes | None:
    """The same of a file that may be anything; None when nothing was committed to it."""
    try:
        with closing(open_reader(path)) as reader:
            return stored_outcomes(reader)
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return None


def remove_index_file(path: Path) -> None:
    """Delete the files of an index."""
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _path(folder: Path, uuid: str) -> Path:
    return folder / "indexes" / f"{uuid}.sqlite"


def _is_newer(applied: BatchOutcomes, connection: sqlite3.Connection) -> bool:
    """Has the file been written by a task that the queue does not know, or knows as another one?"""
    (newest,) = connection.execute("SELECT coalesce(max(uid), -1) FROM tasks").fetchone()
    return applied.last > newest or any(
        row[0] != outcome.get("enqueuedAt", row[0]) for outcome in applied.outcomes
        for row in connection.execute("SELECT enqueued_at FROM tasks WHERE uid = ?", (outcome["uid"],)))


def _maker(applied: BatchOutcomes, connection: sqlite3.Connection) -> str | None:
    """The index whose enqueued tasks have written the file; None when they ended, or a swap may give it another name."""
    for outcome in applied.outcomes:
        row = connection.execute("SELECT index_uid FROM tasks WHERE uid = ? AND status = 'enqueued' "
                                 "AND NOT EXISTS (SELECT 1 FROM tasks WHERE kind = 'indexSwap' AND status = 'enqueued')",
                                 (outcome["uid"],)).fetchone()
        if row:
            return str(row[0])
    return None


def _set_aside(folder: Path, uuid: str, applied: BatchOutcomes) -> None:
    path, aside = _path(folder, uuid), folder / UNCLAIMED
    aside.mkdir(exist_ok=True)
    for suffix in reversed(_SUFFIXES):  # what is cut short is done again for the rest
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(aside / file.name)
    sync_folder(aside)
    logs.warn("the file of an index is newer than instance.sqlite, which does not name it; it is kept aside",
              file=f"{UNCLAIMED}/{path.name}", newest_task=applied.last)
