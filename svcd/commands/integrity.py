"""`svcd verify` and `svcd repair`: check the files of a data folder, and rebuild the file of a damaged index.

verify reads committed states of the files, so a daemon may keep running. The short check reads every page of every file, compares
rows with their checksums, and the newest task of each index with the queue. The full check also rebuilds each index from its
documents, compares all derived tables, and checks the logs.

repair works on a folder that no daemon has open: it rebuilds an index from its documents, vectors and settings, and moves the
damaged file to the folder `damaged`. See docs/storage.md#damage.
"""
from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from svcd.base.docids import EMPTY, DocIds, from_bytes
from svcd.cli.config import load
from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed
from svcd.index import comparison, damage, materialized, schema
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import copy_file, keep_log, meta, open_reader, sync_folder
from svcd.index.schema import LEAST_DOCUMENTS
from svcd.instance.data_folder import DAMAGED
from svcd.instance.instance import FolderInUse, lock_folder
from svcd.tasks.archive import waiting_payloads
from svcd.tasks.batching import KINDS
from svcd.tasks.payloads import checksum_of
from svcd.tasks.rebuild import rebuild

VERIFY = ("Check the files of the data folder in the configuration, or of --folder. A daemon may be running on it. Ends with "
          "status 1 if a file is damaged.")
REPAIR = ("Rebuild the damaged file of INDEX from its documents, vectors and settings. Stop the daemon first. The command names "
          "unreadable parts, keeps the damaged file, and ends with status 1 if parts were lost.")
ASIDE = "damaged"
_MOST_SHOWN = 20


def _data_folder(context: click.Context, folder: Path | None) -> Path:
    """Return the folder of --folder or of the configuration. Raises CommandFailed if it has no data."""
    folder = folder or load(context.find_root().obj or {}, os.environ).db_path
    if not (folder / "instance.sqlite").exists():
        raise CommandFailed(f"{folder} is not a data folder of svcd: instance.sqlite not found")
    return folder


@click.command("verify", help=VERIFY)
@click.option("--folder", type=click.Path(path_type=Path), help="The data folder.")
@click.option("--full", is_flag=True, help="Also compare the files and tables with each other; large indexes take minutes, and "
                                           "the disk space of two copies.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def verify_command(context: click.Context, folder: Path | None, full: bool, is_json: bool) -> int:
    """Check one file after the other, and print the faults."""
    folder = _data_folder(context, folder)
    found = checked_files(folder, full, on_file=lambda name: None if is_json else output.remark(f"{name} ..."))
    wrong = sum(len(checked.faults) for checked in found.values())
    if is_json:
        output.print_json({"folder": str(folder), "isFull": full, "isWhole": not wrong,
                           "faults": {name: checked.faults for name, checked in found.items()},
                           "withoutChecksum": {name: checked.without for name, checked in found.items() if checked.without}})
    else:
        for name, checked in found.items():
            for fault in checked.faults:
                print(f"{output.styled(name, 'bad')}: {fault}")
            for table, rows in checked.without.items():
                print(f"{name}: {rows:,} rows of {table} without checksum: an older svcd wrote them" if rows >= 0 else
                      f"{name}: the rows of {table} are without checksums: the next start upgrades the file from an older format")
        print(f"{folder}: {len(found)} files, {wrong or 'no'} {'fault' if wrong < 2 else 'faults'}"
              f"{'' if full else ' (--full compares more)'}")
    return instance.FAILED if wrong else 0


@dataclass
class Checked:
    """The result for one file. faults: a sentence for each; without: table -> number of rows without checksum."""

    faults: list[str] = field(default_factory=list)
    without: dict[str, int] = field(default_factory=dict)


def checked_files(folder: Path, is_full: bool, on_file: Callable[[str], None] = lambda name: None) -> dict[str, Checked]:
    """Check each file of a data folder; return the results by file name. on_file: called with each name. Never raises."""
    found: dict[str, Checked] = {}
    for name, check in _checks(folder, is_full):
        on_file(name)
        found[name] = checked = Checked()
        try:
            for fault in check(checked.without):
                checked.faults.append(fault)
                if len(checked.faults) == damage.MOST_FAULTS:
                    checked.faults.append("and more")
                    break
        except Exception as error:  # damage may appear as any error of the reading code
            checked.faults.append(f"{error or 'it cannot be read'} ({type(error).__name__})")
    return found


Check = Callable[[dict[str, int]], Iterator[str]]


def _checks(folder: Path, is_full: bool) -> Iterator[tuple[str, Check]]:
    """Yield (name of a file, its check)."""
    yield "instance.sqlite", partial(_instance_faults, folder, is_full)
    try:
        with closing(open_reader(folder / "instance.sqlite")) as connection:
            rows = connection.execute("SELECT uid, uuid FROM indexes ORDER BY uid").fetchall()
        named = {str(uuid): str(uid) for uid, uuid in rows}
    except (sqlite3.Error, ValueError):  # the check above reports it; the index files can still be checked
        named = {}
    files = {path.stem for path in (folder / "indexes").glob("*.sqlite")}
    for uuid in [*named, *sorted(files - named.keys())]:
        path = folder / "indexes" / f"{uuid}.sqlite"
        name = f"index {named[uuid]}" if uuid in named else f"indexes/{uuid}.sqlite"
        if uuid in named or not named:  # the next start removes unlisted files
            yield name, partial(_index_faults, path, named.get(uuid), is_full)


def _instance_faults(folder: Path, is_full: bool, without: dict[str, int]) -> Iterator[str]:
    path = folder / "instance.sqlite"
    with closing(open_reader(path)) as connection:
        yield from damage.instance_faults(connection, without)
        connection.text_factory = str
        waiting = waiting_payloads(connection)
        contents = dict(connection.execute("SELECT uid, content FROM tasks WHERE status = 'enqueued'")) if is_full else {}
    if is_full:
        yield from damage.log_faults(path)
    for uid, payload in waiting:
        payload_path = folder / "payloads" / payload
        expected = json.loads(contents[uid]).get("checksum") if contents.get(uid) else None
        fault = ("missing" if not payload_path.exists() else
                 "damaged" if expected is not None and checksum_of(payload_path) != expected else None)
        if fault is None:
            continue
        with closing(open_reader(path)) as connection:
            still_waits = uid in [each for each, _ in waiting_payloads(connection)]
        if still_waits:  # a task that has ended since it was listed no longer needs its payload
            yield f"the documents of task {uid}, which waits, are {fault}: payloads/{payload}"


def _index_faults(path: Path, index_uid: str | None, is_full: bool, without: dict[str, int]) -> Iterator[str]:
    if not path.exists():
        yield f"its file {path} is missing"
        return
    of_index, _ = _newest_tasks(path.parent.parent, index_uid)  # asked first: the index is written before the queue
    is_sound = True
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # the connection sees one state from here on
        of_all = _newest_tasks(path.parent.parent, index_uid)[1]  # newer tasks may have written it meanwhile
        for fault in damage.index_faults(connection, without):
            is_sound = False
            yield fault
        # A damaged log may have lost commits: the file is then in an older state.
        applied = BatchOutcomes.parse(meta(connection, "batch_outcomes"))
        if applied is not None and applied.last < of_index:
            is_sound = False
            yield f"it lacks the effect of task {of_index}: its newest task is {applied.last}"
        if applied is not None and applied.last > of_all:
            is_sound = False
            yield f"instance.sqlite has lost task {applied.last}, which has written it: its newest task is {of_all}"
    if is_full:
        yield from damage.log_faults(path)
    if is_full and is_sound:
        with tempfile.TemporaryDirectory(prefix=".svcd-verify-", dir=path.parent.parent) as work:
            yield from _derived_faults(path, Path(work))


def _newest_tasks(folder: Path, index_uid: str | None) -> tuple[int, int]:
    """Return the newest task that has written an index, according to the queue, and the newest task of all; -1 for none."""
    recorded = [name for name, kind in KINDS.items() if kind.is_recorded]
    with closing(open_reader(folder / "instance.sqlite")) as connection:
        try:
            newest: tuple[int, int] = connection.execute(
                "SELECT (SELECT coalesce(max(uid), -1) FROM tasks WHERE status = 'succeeded' AND index_uid = ? AND kind IN "
                "(SELECT value FROM json_each(?))), (SELECT coalesce(max(uid), -1) FROM tasks)",
                (index_uid, json.dumps(recorded))).fetchone()
        except sqlite3.Error:  # the check of instance.sqlite reports it
            return -1, sys.maxsize
    return newest


def _derived_faults(path: Path, work: Path) -> Iterator[str]:
    """Compare the tables that derive from documents with tables rebuilt from the documents, in a copy."""
    copy_file(path, work / "copy.sqlite")
    with closing(sqlite3.connect(work / "copy.sqlite", isolation_level=None)) as connection:
        schema.prepare(connection, schema.INDEX)
        for table in ("terms", "term_positions"):
            try:
                connection.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
            except sqlite3.DatabaseError as error:
                yield f"FTS5 table {table}: {error}"
        yield from rebuild(connection, work / "fresh.sqlite")
        with closing(sqlite3.connect(work / "fresh.sqlite", isolation_level=None)) as fresh:
            fresh.text_factory = bytes
            yield from comparison.faults(connection, fresh)
        connection.text_factory = str
        yield from _set_faults(connection)


def _set_faults(connection: sqlite3.Connection) -> Iterator[str]:
    """Compare the updated precomputed postings with postings rebuilt from FTS5; the postings of pairs must be complete."""
    docids = DocIds([docid for (docid,) in connection.execute("SELECT docid FROM documents")])
    if len(docids) < LEAST_DOCUMENTS:
        return
    materialized.materialize(connection, docids, lambda: False)
    kept = _sets(connection)
    pairs = json.loads(meta(connection, "materialized_pairs") or "[[]]")[0]
    connection.execute("DELETE FROM meta WHERE key LIKE 'materialized_%'")
    materialized.materialize(connection, docids, lambda: False)
    fresh = _sets(connection)
    for key in {*kept, *pairs} & fresh.keys():
        expected, found = fresh[key], kept.get(key, {})
        for part in expected.keys() | found.keys():
            if expected.get(part, EMPTY) != found.get(part, EMPTY):
                yield (f"the set {key} (part {part}) has {len(found.get(part, EMPTY))} documents; it should have "
                       f"{len(expected.get(part, EMPTY))}, or others")


def _sets(connection: sqlite3.Connection) -> dict[str, dict[int, DocIds]]:
    found: dict[str, dict[int, DocIds]] = {}
    for key, part, content in connection.execute("SELECT key, part, docids FROM materialized_postings"):
        parts = found.setdefault(key, {})
        parts[part] = parts.get(part, EMPTY) | from_bytes(content)
    return found


# Repair


@click.command("repair", help=REPAIR)
@click.argument("index_uid", metavar="INDEX")
@click.option("--folder", type=click.Path(path_type=Path), help="The data folder; by default the folder in the configuration.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def repair_command(context: click.Context, index_uid: str, folder: Path | None, is_json: bool) -> int:
    """Rebuild an index, and print the losses."""
    folder = _data_folder(context, folder)
    try:
        lock = lock_folder(folder / "LOCK")
    except FolderInUse:
        raise CommandFailed(f"a daemon runs on {folder}: stop it, repair the index, and start it again") from None
    with lock:
        try:
            with closing(open_reader(folder / "instance.sqlite")) as connection:
                row = connection.execute("SELECT uuid, primary_key FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        except sqlite3.Error as error:
            raise CommandFailed(f"{folder / 'instance.sqlite'} is damaged: {error}; restore the data folder from a "
                                "backup") from None
        if row is None:
            raise CommandFailed(f"Index `{index_uid}` not found.")
        uuid, primary_key = row
        if not (folder / "indexes" / f"{uuid}.sqlite").exists():
            raise CommandFailed(f"the file of index `{index_uid}` is missing: put indexes/{uuid}.sqlite back, or delete the "
                                "index")
        lost, kept = repair(folder, uuid, primary_key,
                            lambda count: None if is_json else output.remark(f"{count:,} documents ..."))
    if is_json:
        output.print_json({"index": index_uid, "lost": lost, "damagedFile": str(kept)})
    else:
        for each in lost[:_MOST_SHOWN]:
            print(f"{output.styled('lost', 'bad')}: {each}")
        if len(lost) > _MOST_SHOWN:
            print(f"and {len(lost) - _MOST_SHOWN} more")
        print(f"{index_uid}: rebuilt{', with losses' if lost else ''}; the damaged file is {kept}, delete it when all is well")
    return instance.FAILED if lost else 0


def repair(folder: Path, uuid: str, primary_key: str | None,
           progress: Callable[[int], None] = lambda count: None) -> tuple[list[str], Path]:
    """Replace the file of an index by a rebuilt file; return the losses, and the new path of the damaged file."""
    path = folder / "indexes" / f"{uuid}.sqlite"
    with tempfile.TemporaryDirectory(prefix=".svcd-repair-", dir=folder) as work:
        copy, fresh = Path(work) / "copy.sqlite", Path(work) / "fresh.sqlite"
        try:
            copy_file(path, copy)
        except sqlite3.Error:  # SQLite cannot read the file: copied without the commits in its log
            copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            lost = rebuild(connection, fresh, primary_key, progress)
        aside = folder / ASIDE
        aside.mkdir(exist_ok=True)
        kept = aside / f"{uuid}-{len(list(aside.glob(f'{uuid}-*.sqlite')))}.sqlite"
        for suffix in ("-wal", ""):
            if Path(f"{path}{suffix}").exists():
                Path(f"{path}{suffix}").rename(f"{kept}{suffix}")
        Path(f"{path}-shm").unlink(missing_ok=True)
        fresh.rename(path)
    path.with_name(uuid + DAMAGED).unlink(missing_ok=True)
    keep_log(path)
    for place in (aside, path.parent):
        sync_folder(place)
    return lost, kept
