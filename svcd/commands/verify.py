"""`svcd verify`: check the files of a data folder, and whether they agree with each other.

It reads committed states of the files, so a daemon may keep running. The short check reads every page of every file, compares
rows with their checksums, and the newest task of each index with the queue. The full check also rebuilds each index from its
documents, compares all derived tables, and checks the logs. See docs/storage.md#damage.
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
from itertools import chain
from pathlib import Path
from zlib import crc32

import click

from svcd.base.docids import EMPTY, DocIds, from_bytes
from svcd.cli.config import load
from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed
from svcd.index import comparison, damage, materialized, schema
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import copy_file, meta, open_reader
from svcd.index.schema import LEAST_DOCUMENTS
from svcd.tasks.archive import waiting_payloads
from svcd.tasks.batching import KINDS
from svcd.tasks.rebuild import rebuild

ABOUT = (
    "Check the files of the data folder in the configuration, or of --folder. A daemon may be running on it. Ends with "
    "status 1 if a file is damaged."
)


@click.command("verify", help=ABOUT)
@click.option("--folder", type=click.Path(path_type=Path), help="The data folder.")
@click.option("--full", is_flag=True, help="Also compare the files and tables with each other; large indexes take minutes, and "
                                           "the disk space of two copies.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(context: click.Context, folder: Path | None, full: bool, is_json: bool) -> int:
    """Check one file after the other, and print the faults."""
    folder = folder or load(context.find_root().obj or {}, os.environ).db_path
    if not (folder / "instance.sqlite").exists():
        raise CommandFailed(f"{folder} is not a data folder of svcd: instance.sqlite not found")
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


def found_faults(folder: Path, is_full: bool) -> dict[str, list[str]]:
    """Return the faults of each file of a data folder by the name of the file."""
    return {name: checked.faults for name, checked in checked_files(folder, is_full).items()}


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
                 "damaged" if expected is not None and crc32(payload_path.read_bytes()) != expected else None)
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
    newest = _newest_tasks(path.parent.parent, index_uid)  # asked first: the index is written before the queue
    is_sound = True
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # the connection sees one state from here on
        newest = newest[0], _newest_tasks(path.parent.parent, index_uid)[1]  # newer tasks may have written it meanwhile
        for fault in chain(damage.index_faults(connection, without), _lost_commits(connection, newest)):
            is_sound = False
            yield fault
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


def _lost_commits(connection: sqlite3.Connection, newest_tasks: tuple[int, int]) -> Iterator[str]:
    """Find commits that a damaged log has lost: the file is then in an older state. newest_tasks: from _newest_tasks()."""
    of_index, of_all = newest_tasks
    applied = BatchOutcomes.parse(meta(connection, "batch_outcomes"))
    if applied is not None and applied.last < of_index:
        yield f"it lacks the effect of task {of_index}: its newest task is {applied.last}"
    if applied is not None and applied.last > of_all:
        yield f"instance.sqlite has lost task {applied.last}, which has written it: its newest task is {of_all}"


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
