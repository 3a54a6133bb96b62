"""The first start of an instance: import a dump or a snapshot (--import-dump, --import-snapshot), and remove the data folder
again if the start fails.

docs/dumps.md#import-of-a-dump explains when svcd imports and when it refuses to start.
"""
from __future__ import annotations

import fcntl
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from svcd.base import logs, machine
from svcd.cli.config import Config, ConfigError
from svcd.cli.options import BY_NAME
from svcd.http.sockets import listen
from svcd.index.connections import open_reader
from svcd.instance import applied_log

_CONTENT_TABLES = ("tasks", "indexes", "keys", "webhooks", "features")


def import_archive(config: Config) -> None:
    """Import the dump or snapshot that the options name, if any.

    Raises ConfigError, ArchiveRefused, NewerFormat, OSError; a failed import leaves no files.
    """
    for kind, import_one in _IMPORTS.items():
        path = getattr(config, f"import_{kind}")
        if path is not None and _should_import(config, kind, path):
            for sock in listen(*config.http_addr):  # an address in use is an error now, not after an import of hours
                sock.close()
            logs.info(f"importing a {kind}", path=str(path), folder=str(config.db_path))
            with _exit_on_sigterm():
                import_one(path, config)


def check_alone(config: Config) -> None:
    """Raise ConfigError for the data folder of a node of a cluster: the other nodes would never get its writes."""
    if applied_log.position_of(config.db_path / "instance.sqlite") is not None:
        raise ConfigError(f"{config.where('db_path')}: {config.db_path} is the data folder of a node of a cluster; give "
                          f"{BY_NAME['cluster'].flag}, or make a single instance of it: svcd backup, then svcd restore")


@contextmanager
def remove_on_failure(folder: Path) -> Iterator[Callable[[], None]]:
    """Remove the data folder if it was created in this block and the block fails before it calls the yielded function.

    The next start would take a rest for a database, and refuse to import. A folder with content is kept: it was imported, or
    another svcd has started on it meanwhile.
    """
    is_kept = False
    parents = [parent for parent in folder.absolute().parents if not machine.file_exists(parent)]
    was_new, was_there = _is_new(folder), machine.file_exists(folder)

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    try:
        yield keep
    except BaseException:
        if was_new and not is_kept and folder.is_dir():
            _remove(folder, [] if was_there else [folder, *parents])
        raise


def _remove(folder: Path, made: Sequence[Path]) -> None:
    """Delete the contents of the folder and the empty folders of `made`, unless another svcd uses it or it has content."""
    try:
        with (folder / "LOCK").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_empty_instance(folder / "instance.sqlite"):
                return
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            for empty in made:
                empty.rmdir()
    except OSError:  # in use by another process, or a folder is not empty
        pass


def _is_empty_instance(path: Path) -> bool:
    """Return whether the file of an instance has neither tasks, indexes, keys, webhooks nor features."""
    if not machine.file_exists(path):
        return True
    try:
        with closing(open_reader(path)) as reader:
            tables = {name for (name,) in reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return not any(reader.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()[0]
                           for table in tables.intersection(_CONTENT_TABLES))
    except sqlite3.Error:
        return False


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end an import like Ctrl-C, so that the import removes its unfinished files."""
    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _import_dump(path: Path, config: Config) -> None:
    from svcd.cli.wiring import import_budget, indexing_threads  # loaded only for an import
    from svcd.tasks import archive_import

    archive_import.import_dump(path, config.db_path, import_budget(config), indexing_threads(config),
                               networks=list(map(str, config.experimental_allowed_ip_networks)))


def _import_snapshot(path: Path, config: Config) -> None:
    from svcd.tasks import archive_import

    archive_import.import_snapshot(path, config.db_path)


_IMPORTS: Mapping[str, Callable[[Path, Config], None]] = {"dump": _import_dump, "snapshot": _import_snapshot}


def _should_import(config: Config, kind: str, path: Path) -> bool:
    if not _is_new(config.db_path):
        if getattr(config, f"ignore_{kind}_if_db_exists"):
            return False
        raise ConfigError(f"{config.where(f'import_{kind}')}: the database {config.db_path} already exists; move it away, "
                          f"or start with it unchanged by {BY_NAME[f'ignore_{kind}_if_db_exists'].flag}")
    if not machine.file_exists(path):
        if getattr(config, f"ignore_missing_{kind}"):
            return False
        raise ConfigError(f"{config.where(f'import_{kind}')}: {kind} {path} does not exist; name an existing one, or start "
                          f"with an empty database by {BY_NAME[f'ignore_missing_{kind}'].flag}")
    return True


def _is_new(folder: Path) -> bool:
    return not machine.file_exists(folder) or folder.is_dir() and not any(folder.iterdir())
