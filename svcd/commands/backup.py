"""`svcd backup` and `svcd restore`: copy a whole instance while it serves, and make an instance from a copy."""
from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from svcd.cli.config import load
from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed, Instance
from svcd.index.connections import sync_folder

SUFFIX = ".snapshot"

BACKUP = (
    "Copy the whole instance to a file in FOLDER, while it serves: indexes, settings, keys, tasks. The daemon makes a "
    "snapshot in its --snapshot-dir, so the command runs on the same machine, with the same configuration."
)

RESTORE = (
    "Make the data folder DATA-FOLDER of a backup, a snapshot, or a dump. It must not exist yet. Start the daemon on it "
    "with --db-path."
)


@click.command("backup", help=BACKUP)
@click.argument("target", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False))
@click.option("--keep", type=click.IntRange(min=1), help="Keep this number of backups in FOLDER, and remove older ones.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def backup_command(context: click.Context, target: Path, keep: int | None, url: str | None, key: str | None, folder: Path | None,
                   is_json: bool) -> int:
    """Have the daemon write a snapshot, and copy it to its place."""
    target.mkdir(parents=True, exist_ok=True)
    bar = output.Bar("steps", is_json)
    with _source(context, url, key, folder) as (source, snapshots):
        begun = time.time()
        task = source.call("POST", "/snapshots")
        source.finished(task["taskUid"], lambda task: bar.show(0, source.progress(task)))
        bar.end()
        made = [each for each in snapshots.glob(f"*{SUFFIX}") if each.stat().st_mtime >= begun - 1]
        if not made:
            raise CommandFailed(f"the daemon made a snapshot, but not in {snapshots}: give this command the --snapshot-dir of "
                                "the daemon (svcd --snapshot-dir PATH backup FOLDER)")
        path = _copied(max(made, key=lambda each: each.stat().st_mtime_ns), target)
    backups = sorted(target.glob(f"svcd-*{SUFFIX}"), key=lambda each: each.stat().st_mtime_ns)
    removed = backups[:-keep] if keep else []
    for each in removed:
        each.unlink()
    size = path.stat().st_size
    if is_json:
        output.print_json({"file": str(path), "bytes": size, "removed": [str(each) for each in removed]})
    else:
        print(f"{path} ({output.size(size)})")
    return 0


@contextmanager
def _source(context: click.Context, url: str | None, key: str | None, folder: Path | None) -> Iterator[tuple[Instance, Path]]:
    """Yield the instance and its folder of snapshots."""
    if folder is None:
        config = load(context.find_root().obj or {}, os.environ)
        if config.s3_bucket_url is not None:
            raise CommandFailed("with this configuration the daemon writes its snapshots to an object store: request one with "
                                "POST /snapshots, or use --schedule-snapshot")
        with instance.opened(context, url, key, None) as running:
            yield running, config.snapshot_dir
        return
    with tempfile.TemporaryDirectory(prefix=".svcd-backup-", dir=folder.absolute().parent) as snapshots:
        with instance.started(folder, "--snapshot-dir", snapshots) as own:
            yield own, Path(snapshots)


def _copied(snapshot: Path, folder: Path) -> Path:
    """Copy a snapshot to a name with the time; a file with such a name is complete and on disk."""
    path = folder / f"svcd-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}{SUFFIX}"
    partial = path.with_suffix(".partial")
    try:
        with snapshot.open("rb") as content, partial.open("wb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(folder)
    return path


@click.command("restore", help=RESTORE)
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("data_folder", metavar="DATA-FOLDER", type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def restore_command(archive: Path, data_folder: Path, is_json: bool) -> int:
    """Import the archive into a new folder, and check that it opens."""
    if data_folder.exists() and any(data_folder.iterdir()):
        raise CommandFailed(f"{data_folder} is not empty: name a folder that does not exist")
    kind = "dump" if archive.suffix == ".dump" else "snapshot"
    with instance.started(data_folder, f"--import-{kind}", str(archive.absolute()), must_exist=False) as restored:
        stats: Any = restored.call("GET", "/stats")
    counts = {uid: each["numberOfDocuments"] for uid, each in stats["indexes"].items()}
    if is_json:
        output.print_json({"folder": str(data_folder), "indexes": counts})
    else:
        noun = "index" if len(counts) == 1 else "indexes"
        print(f"{data_folder}: {len(counts)} {noun}, {sum(counts.values()):,} documents; "
              f"start it with `svcd --db-path {data_folder}`")
    return 0
