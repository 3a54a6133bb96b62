"""Unlisted files: index files that no row names. A start adopts them, sets them aside, or deletes them.

A batch that creates an index commits the file before the row. So a crash in between leaves a file whose tasks are still
enqueued: the start adopts the file, and the tasks end with the outcomes in it. A file written by a task that the queue does not
know is newer than `instance.sqlite` (a restored backup, a lost log). The name of its index is lost, so it is moved to
`unclaimed/` for the operator. All other files were never committed, or belong to deleted indexes, and are deleted.
See docs/tasks-and-batches.md#unlisted-files.
"""
from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from svcd.base import logs, machine
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import keep_log, open_reader, sync_folder
from svcd.instance.data_folder import DAMAGED

UNCLAIMED = "unclaimed"
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)  # raised when a damaged row is decoded


def reconcile(folder: Path, connection: sqlite3.Connection) -> dict[str, str]:
    """Adopt, set aside or delete the unlisted files of `folder/indexes`. Return index uid -> uuid of the adopted files.

    connection: open on instance.sqlite.
    """
    rows = dict(connection.execute("SELECT uuid, uid FROM indexes"))
    present = set(os.listdir(folder / "indexes"))
    for name in [name for name in present if name.endswith(DAMAGED)]:  # noted again when the damage is found again
        (folder / "indexes" / name).unlink(missing_ok=True)
        present.remove(name)
    found = {name.partition(".")[0] for name in present}
    for uuid in rows:
        name = f"{uuid}.sqlite"
        if name in present and not {f"{name}-wal", f"{name}-shm"} <= present:
            keep_log(_path(folder, uuid))
    for uuid in [uuid for uuid in rows if f"{uuid}.sqlite" not in present]:
        logs.warn("the file of an index is missing; tasks of the index fail until it is deleted or the file is put back",
                  index=rows[uuid], file=f"indexes/{uuid}.sqlite")
    made: dict[str, tuple[int, str]] = {}
    for uuid in sorted(found - rows.keys()):
        outcomes = read_outcomes(_path(folder, uuid))
        if outcomes is not None and _is_newer(outcomes, connection):
            _set_aside(folder, uuid, outcomes)
            continue
        index_uid = _creating_index(outcomes, connection) if outcomes is not None else None
        if outcomes is None or index_uid is None or index_uid in rows.values():
            remove_index_file(_path(folder, uuid))
        else:  # the newest, if there are several for one index, which only further faults leave
            made[index_uid] = max(made.get(index_uid, (outcomes.last, uuid)), (outcomes.last, uuid))
    return {index_uid: uuid for index_uid, (_, uuid) in made.items()}


def stored_outcomes(connection: sqlite3.Connection) -> BatchOutcomes | None:
    """Return the outcomes of the newest batch from an open index file; None when no batch has written it."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'batch_outcomes'").fetchone()
    return BatchOutcomes.parse(row[0]) if row else None


def read_outcomes(path: Path) -> BatchOutcomes | None:
    """Return the same from a file with any content; None when it is unreadable or empty."""
    try:
        with closing(open_reader(path)) as reader:
            return stored_outcomes(reader)
    except (sqlite3.Error, *UNREADABLE):
        return None


def remove_index_file(path: Path) -> None:
    """Delete an index file with its log."""
    for suffix in _suffixes():
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _suffixes() -> tuple[str, ...]:
    """Return the ends of the names of the files of an index, the main file first."""
    from svcd.index import kept_embeddings  # few starts find a file to remove, and all would load half of svcd.index

    return "", "-wal", "-shm", DAMAGED.removeprefix(".sqlite"), *kept_embeddings.SUFFIXES


def _path(folder: Path, uuid: str) -> Path:
    return folder / "indexes" / f"{uuid}.sqlite"


def _is_newer(outcomes: BatchOutcomes, connection: sqlite3.Connection) -> bool:
    """Return whether a task wrote the file that the queue does not have, or whose uid belongs to a different task there."""
    (newest,) = connection.execute("SELECT coalesce(max(uid), -1) FROM tasks").fetchone()
    return outcomes.last > newest or any(
        row[0] != outcome.get("enqueuedAt", row[0]) for outcome in outcomes.outcomes
        for row in connection.execute("SELECT enqueued_at FROM tasks WHERE uid = ?", (outcome["uid"],)))


def _creating_index(outcomes: BatchOutcomes, connection: sqlite3.Connection) -> str | None:
    """Return the index whose enqueued tasks wrote the file; None if the tasks ended, or an enqueued task may rename it."""
    for outcome in outcomes.outcomes:
        row = connection.execute("SELECT index_uid FROM tasks WHERE uid = ? AND status = 'enqueued' "
                                 "AND NOT EXISTS (SELECT 1 FROM tasks WHERE status = 'enqueued' AND (kind = 'indexSwap' "
                                 "OR kind = 'indexUpdate' AND json_extract(content, '$.newIndexUid') IS NOT NULL))",
                                 (outcome["uid"],)).fetchone()
        if row:
            return str(row[0])
    return None


def _set_aside(folder: Path, uuid: str, outcomes: BatchOutcomes) -> None:
    path, aside = _path(folder, uuid), folder / UNCLAIMED
    aside.mkdir(exist_ok=True)
    for suffix in reversed(_suffixes()):  # the main file last: after a crash the next start moves the rest
        file = path.with_name(path.name + suffix)
        if machine.file_exists(file):
            file.replace(aside / file.name)
    sync_folder(aside)
    logs.warn("the file of an index is newer than instance.sqlite, which does not name it; the file is set aside",
              file=f"{UNCLAIMED}/{path.name}", newest_task=outcomes.last)
