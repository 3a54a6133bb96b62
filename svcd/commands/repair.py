"""`svcd repair`: rebuild the file of an index from its documents, vectors and settings.

No daemon may have the data folder open. The folder `damaged` keeps the damaged file. See docs/storage.md#damage.
"""
from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click

from svcd.cli.config import load
from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed
from svcd.index.connections import copy_file, keep_log, open_reader, sync_folder
from svcd.instance.data_folder import DAMAGED
from svcd.instance.instance import FolderInUse, lock_folder
from svcd.tasks.rebuild import rebuild

ASIDE = "damaged"
_MOST_SHOWN = 20

ABOUT = (
    "Rebuild the damaged file of INDEX from its documents, vectors and settings. Stop the daemon first. The command names "
    "unreadable parts, keeps the damaged file, and ends with status 1 if parts were lost."
)


@click.command("repair", help=ABOUT)
@click.argument("index_uid", metavar="INDEX")
@click.option("--folder", type=click.Path(path_type=Path), help="The data folder; by default the folder in the configuration.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(context: click.Context, index_uid: str, folder: Path | None, is_json: bool) -> int:
    """Rebuild an index, and print the losses."""
    folder = folder or load(context.find_root().obj or {}, os.environ).db_path
    if not (folder / "instance.sqlite").exists():
        raise CommandFailed(f"{folder} is not a data folder of svcd: instance.sqlite not found")
    try:
        lock = lock_folder(folder / "LOCK")
    except FolderInUse:
        raise CommandFailed(f"a daemon runs on {folder}: stop it, repair the index, and start it again") from None
    with lock:
        uuid, primary_key = _listed(folder, index_uid)
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


def _listed(folder: Path, index_uid: str) -> tuple[str, str | None]:
    """Return the uuid and the primary key of an index."""
    try:
        with closing(open_reader(folder / "instance.sqlite")) as connection:
            row = connection.execute("SELECT uuid, primary_key FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
    except sqlite3.Error as error:
        raise CommandFailed(f"{folder / 'instance.sqlite'} is damaged: {error}; restore the data folder from a backup") from None
    if row is None:
        raise CommandFailed(f"Index `{index_uid}` not found.")
    if not (folder / "indexes" / f"{row[0]}.sqlite").exists():
        raise CommandFailed(f"the file of index `{index_uid}` is missing: put indexes/{row[0]}.sqlite back, or delete the index")
    return row


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
